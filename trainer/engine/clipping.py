r"""Per-record gradients, clipped and summed, in memory that doesn't grow with the sample."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.func import grad, vmap  # pyright: ignore[reportPrivateImportUsage]

from trainer.engine.parameters import ParameterLayout

PerRecordLoss = Callable[[dict[str, Tensor], Tensor, Tensor], Tensor]
"""Parameters, one record's features, its label -> its loss, a real scalar."""

NORM_CHUNK = 256
"""Squares are added in float32 over this many numbers and in float64 beyond, so that the error doesn't grow with the network."""

CLIP_MARGIN = 2.0**-15
r"""How far below the bound a clipped gradient aims, relatively, so that float32 rounding can't lift it above.

A float32 sum of 256 squares is off by at most 257 * 2^-24 = 2^-15.99 relatively, in any order of addition (Higham 2002, section 4.2), its
root by half of that; the factor and each product add 2^-24. Together below 2^-16.9: a margin of 2^-15 leaves room and costs 0.003 % of
signal. Squares that underflow hide a norm below sqrt(n) * 1.1e-19, nothing beside a bound of 1e-10 or more.
"""


@final
@dataclass(frozen=True)
class Problem:
    """What is minimised: a loss of one record, the parameters it takes, and the training records.

    Attributes:
      features: of all training records, (records, ...); ``labels``: (records,); on one device.
    """

    loss: PerRecordLoss
    layout: ParameterLayout
    features: Tensor
    labels: Tensor


def clipped_sum(problem: Problem, parameters: dict[str, Tensor], rows: Tensor, bound: float, microbatch_size: int) -> Tensor:
    r"""sum over records of g min(1, B / ||g||): g is torch's gradient 2 dL/d(conj theta), all parameters together as real pairs.

    Args:
      rows: the sample, (sampled,), may be empty.
      bound: B > 0.
      microbatch_size: per-record gradients held at once.
    Returns:
      shape (coordinates,), complex128: added in float64, so that one record moves the sum by no more than B (1 + 1e-12).
    """
    layout, features = problem.layout, problem.features
    gradient = vmap(grad(problem.loss), in_dims=(None, 0, 0))
    total = {
        name: torch.zeros(math.prod(shape) * (2 if kind else 1), dtype=torch.float64, device=features.device)
        for name, shape, kind in zip(layout.names, layout.shapes, layout.complex_kinds, strict=True)
    }
    for chunk in rows.split(microbatch_size) if len(rows) else ():
        pairs = {name: _real_pairs(value) for name, value in gradient(parameters, features[chunk], problem.labels[chunk]).items()}
        factors = _clip_factors(pairs, bound)
        for name, value in pairs.items():
            total[name] += value.mul_(factors[:, None]).sum(dim=0, dtype=torch.float64)
    return layout.flatten(
        {
            name: torch.view_as_complex(total[name].reshape(-1, 2)) if kind else total[name]
            for name, kind in zip(layout.names, layout.complex_kinds, strict=True)
        },
        torch.complex128,
    )


def _real_pairs(gradient: Tensor) -> Tensor:
    """(records, ...) -> (records, real numbers)."""
    pairs = torch.view_as_real(gradient.resolve_conj()) if gradient.is_complex() else gradient
    return pairs.reshape(len(gradient), -1).contiguous()


def _clip_factors(pairs: dict[str, Tensor], bound: float) -> Tensor:
    """min(1, B (1 - margin) / norm) for each record, (records,), float32. Sets the rows of records with NaN or infinity to 0, in place."""
    finite = torch.stack([value.isfinite().all(dim=1) for value in pairs.values()]).all(dim=0)
    for value in pairs.values():
        # Before the norm: inf / inf and NaN * 0 are NaN, which would tell that the record was there (errata Z22).
        value.masked_fill_(~finite[:, None], 0.0)
    norms = torch.stack([_squared_norms(value) for value in pairs.values()]).sum(dim=0).sqrt()
    aim = bound * (1.0 - CLIP_MARGIN)
    # A norm that overflowed is infinite and gets factor 0.
    return torch.where(norms <= aim, 1.0, aim / norms.clamp(min=aim)).to(torch.float32)


def _squared_norms(values: Tensor) -> Tensor:
    """Row sums of squares, float64: (records, n) -> (records,). cfloat norms would be up to 100 times slower."""
    whole = values.shape[1] // NORM_CHUNK * NORM_CHUNK
    head = torch.linalg.vector_norm(values[:, :whole].unflatten(1, (-1, NORM_CHUNK)), dim=2).double().square().sum(dim=1)
    return head + torch.linalg.vector_norm(values[:, whole:], dim=1).double().square()
