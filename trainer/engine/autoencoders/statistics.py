r"""The functional mechanism's parts: a public code of each record, sums of it over the records, and the decoder from the released sums.

Only ``Code.sums`` sees records. What it returns is released once; ``fitted`` is post-processing. The proof is
mechanisms/proofs/functional_mechanism.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from zetadp.mechanisms.analysis.functional_mechanism import GRID_BITS, MOST_RECORDS, Expansion
from zetadp.mechanisms.sampling.source import RandomStream

GRID = 2.0**GRID_BITS

CONSTANT = 0.5
"""The value of the first hidden unit, whose weights are zero: sigmoid(0)."""

SMALLEST_MEAN = 0.02
"""Column means are clamped to [0.02, 0.98] where the loss is expanded at their log-odds."""


@final
@dataclass(frozen=True)
class Code:
    r"""A fixed, public function of one record into {1/2} x [-1/2, 1/2]^(l - 1).

    The hidden units sigmoid(W^T x) of an encoder, all but the first mapped from the interval that x in [0, 1]^n can reach to
    [-1/2, 1/2]: a wider interval would only require more noise.

    Attributes:
      encoder: W, (n, l) float64 of float32's numbers; its first column is zero.
      middle, width: of each unit's interval, (l,) float64.
    """

    encoder: Tensor
    middle: Tensor
    width: Tensor

    @staticmethod
    def of(features: int, hidden: int, spread: float, stream: RandomStream) -> Code:
        r"""Normal weights of standard deviation spread / sqrt(n) from a public stream."""
        numbers = torch.from_numpy(stream.normal(features * hidden)).view(features, hidden) * (spread / math.sqrt(features))
        numbers[:, 0] = 0.0
        encoder = numbers.to(torch.float32).double()
        lowest, highest = (torch.sigmoid(part.sum(dim=0)) for part in (encoder.clamp(max=0.0), encoder.clamp(min=0.0)))
        width = highest - lowest
        # The constant unit keeps its value: 1/2 = 0 + 1 * 1/2.
        width[0], lowest[0] = 1.0, -CONSTANT
        return Code(encoder, lowest + 0.5 * width, width)

    def values(self, records: Tensor) -> Tensor:
        """(records, l) float64 multiples of 1 / GRID, of records (records, n)."""
        entered = torch.zeros(len(records), self.encoder.shape[1], dtype=torch.float64, device=records.device)
        # Feature by feature: a matrix product's rounding of a row may depend on the number of rows, and a neighbour has one less.
        for column, weights in zip(_bounded(records).unbind(dim=1), self.encoder, strict=True):
            entered += column[:, None] * weights
        return _on_grid((logistic(entered) - self.middle) / self.width)

    def sums(self, records: Tensor) -> Tensor:
        r"""sum h t^T, then the upper triangle of sum h h^T, with t = x - 1/2: l n + l (l + 1) / 2 numbers, exact.

        Args:
          records: (records, n), at most ``MOST_RECORDS``; numbers that aren't finite count as 0, others as the nearest number in [0, 1].
        """
        assert len(records) <= MOST_RECORDS  # refused by the plan
        codes = self.values(records)
        targets = _on_grid(_bounded(records) - 0.5)
        rows, columns = torch.triu_indices(codes.shape[1], codes.shape[1], device=records.device)
        return torch.cat(((codes.T @ targets).reshape(-1), (codes.T @ codes)[rows, columns]))

    def decoder(self, weights: Tensor) -> Tensor:
        r"""The decoder (l, n) that gives, from the encoder's own hidden units, the outputs that ``weights`` (l, n) give from the code."""
        decoder = weights / self.width[:, None]
        decoder[0] = weights[0] - (decoder[1:] * self.middle[1:, None]).sum(dim=0) / CONSTANT
        return decoder


def logistic(values: Tensor) -> Tensor:
    """1 / (1 + e^-v), the same to the bit wherever a number stands: of ``torch.sigmoid`` the last few, which are computed one by one, have
    other last bits than all others, and one record more moves everybody by a place."""
    return torch.exp(-values).add_(1.0).reciprocal_()


def fitted(released: Tensor, features: int, hidden: int, noise_std: float, ridge: float, expansion: Expansion) -> Tensor:
    r"""The code's weights, (l, n), that minimise the released quadratic loss.

    G without its negative eigenvalues, with ``ridge`` noise_std added to its diagonal: where noise drowns the sums, weights shrink.

    Args:
      released: the output of ``Code.sums``, with noise.
      noise_std: standard deviation of the noise on each number, public.
      expansion: where the loss is expanded: at z = 0, or at the log-odds of the noisy column means, with the bound of Jaakkola and Jordan.
    """
    linear, gram = _matrices(released, features, hidden)
    constant = gram[0] / CONSTANT  # sum h
    count = max(float(constant[0]) / CONSTANT, 1.0)
    if expansion == "zero":
        means = torch.full((features,), 0.5, dtype=torch.float64)
    else:
        means = (0.5 + linear[0] / CONSTANT / count).clamp(SMALLEST_MEAN, 1.0 - SMALLEST_MEAN)
    points = torch.logit(means)
    residuals = linear + constant[:, None] * (0.5 - means)  # sum h (x - sigmoid(a))
    damped = gram + (ridge * noise_std + 1e-9) * torch.eye(hidden, dtype=torch.float64)
    weights = torch.linalg.solve(damped, residuals) / _curvatures(points)
    weights[0] += points / CONSTANT
    return weights


def _matrices(released: Tensor, features: int, hidden: int) -> tuple[Tensor, Tensor]:
    """sum h t^T (l, n), and sum h h^T (l, l) symmetric without negative eigenvalues, on the processor."""
    numbers = released.double().cpu()
    linear, triangle = numbers.split((hidden * features, hidden * (hidden + 1) // 2))
    gram = torch.zeros(hidden, hidden, dtype=torch.float64)
    rows, columns = torch.triu_indices(hidden, hidden)
    gram[rows, columns] = triangle
    gram[columns, rows] = triangle
    values, vectors = torch.linalg.eigh(gram)
    return linear.view(hidden, features), (vectors * values.clamp(min=0.0)) @ vectors.T


def _curvatures(points: Tensor) -> Tensor:
    """v = tanh(a / 2) / (2 a), 1/4 at a = 0: the smallest for which the quadratic that touches the loss at a is nowhere below it."""
    near = points.abs() < 1e-4  # the series' next term, a^2 / 48, is below 2.5e-9 of 1/4
    safe = torch.where(near, torch.ones_like(points), points)
    return torch.where(near, torch.full_like(points, 0.25), torch.tanh(0.5 * safe) / (2.0 * safe))


def _bounded(records: Tensor) -> Tensor:
    return torch.nan_to_num(records.double(), nan=0.0, posinf=0.0, neginf=0.0).clamp(0.0, 1.0)


def _on_grid(values: Tensor) -> Tensor:
    # Overflowing weights, or an interval of zero width, give NaN for some records; clamping would let NaN through, so it counts as 0.
    return torch.round(values * GRID).div_(GRID).nan_to_num_(nan=0.0).clamp_(-0.5, 0.5)
