r"""A distributed autoencoder's arithmetic: the forward pass, and gradients in closed form as outer products.

All encoders see every row, and a row keeps the hidden units of its own encoder: zeros elsewhere turn both sums over encoders into products.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor
from torch.nn.functional import pad

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.specs.autoencoder import AutoencoderDescent, AutoencoderShape, LossName

_ALIGNED = 16
"""The number of float32 values in 64 bytes."""

ENCODERS, DECODER = "encoders", "decoder"

Slopes = Callable[[Tensor, Tensor], Tensor]
"""Logits (rows, n) and targets (rows, ...) -> (rows, n): each loss's derivative with respect to its logit."""


class Pass(NamedTuple):
    r"""The result of a forward pass.

    Attributes:
      hidden: (rows, m l); zero except in the block of the row's own encoder.
      logits: (rows, n).
    """

    hidden: Tensor
    logits: Tensor


@final
@dataclass(frozen=True)
class Autoencoder:
    r"""The network over a flat vector: encoders (m, n, l), then decoder (m, l, n), float32.

    Attributes:
      masks: (m, m l); row j is 1 in encoder j's block.
    """

    shape: AutoencoderShape
    masks: Tensor

    @staticmethod
    def of(shape: AutoencoderShape, device: torch.device) -> Autoencoder:
        """The network on a device."""
        return Autoencoder(shape, torch.eye(shape.encoders, device=device).repeat_interleave(shape.hidden, dim=1))

    def split(self, parameters: Tensor) -> dict[str, Tensor]:
        """``encoders`` (m, n, l) and ``decoder`` (m, l, n), views of the vector."""
        m, n, width = self.shape.encoders, self.shape.features, self.shape.hidden
        encoders, decoder = parameters.split(self.shape.weights)
        return {ENCODERS: encoders.view(m, n, width), DECODER: decoder.view(m, width, n)}

    def masks_of(self, places: Tensor) -> Tensor:
        """(rows, m l): 1 at the units of a row's own encoder. ``places``: which encoder each row goes to, (rows,), int64."""
        return self.masks.index_select(0, places)

    def forward(self, parameters: Tensor, inputs: Tensor, masks: Tensor) -> Pass:
        """The forward pass of rows ``inputs`` (rows, n) with their ``masks`` (rows, m l)."""
        encoders, decoder = self._flat(parameters)
        hidden = torch.sigmoid(_product(inputs, encoders)).mul_(masks)
        return Pass(hidden, _product(hidden, decoder))

    def hidden_slopes(self, parameters: Tensor, found: Pass, slopes: Tensor) -> Tensor:
        """The losses' derivatives with respect to the hidden units' inputs, (rows, m l); ``slopes``: those for the logits, (rows, n)."""
        _, decoder = self._flat(parameters)
        # h (1 - h) is zero outside the row's own block, as h is there.
        return _product(slopes, decoder.T).mul_(found.hidden - found.hidden.square())

    def summed(self, inputs: Tensor, found: Pass, hidden_slopes: Tensor, slopes: Tensor) -> Tensor:
        """The sum over rows of the gradients, (coordinates,)."""
        return self.outer_products(inputs, hidden_slopes, found.hidden, slopes)

    def outer_products(self, inputs: Tensor, hidden_slopes: Tensor, hidden: Tensor, slopes: Tensor) -> Tensor:
        """Sums over rows of a layer's input times the slopes at its output, (coordinates,): x a^T, then h s^T."""
        m, n, width = self.shape.encoders, self.shape.features, self.shape.hidden
        encoders = (inputs.T @ hidden_slopes).view(n, m, width).transpose(0, 1)
        return torch.cat((encoders.reshape(-1), (hidden.T @ slopes).view(-1)))

    def gradient(self, parameters: Tensor, inputs: Tensor, targets: Tensor, masks: Tensor, slopes_of: Slopes) -> Tensor:
        """The gradient of the mean loss over rows, (coordinates,)."""
        found = self.forward(parameters, inputs, masks)
        slopes = slopes_of(found.logits, targets)
        return self.summed(inputs, found, self.hidden_slopes(parameters, found, slopes), slopes) / len(inputs)

    def _flat(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Encoders (n, m l) and decoder (m l, n)."""
        m, n, width = self.shape.encoders, self.shape.features, self.shape.hidden
        encoders, decoder = parameters.split(self.shape.weights)
        side_by_side = encoders.view(n, width) if m == 1 else encoders.view(m, n, width).transpose(0, 1).reshape(n, m * width)
        return side_by_side, decoder.view(m * width, n)


def _product(rows: Tensor, weights: Tensor) -> Tensor:
    """(rows, k) times (k, l), where every row begins at a multiple of 64 bytes.

    Otherwise libraries add a row's terms in an order that depends on where the row begins, and its bits depend on its place.
    """
    inputs, outputs = weights.shape
    across, down = -inputs % _ALIGNED, -outputs % _ALIGNED
    return (pad(rows, (0, across)) @ pad(weights, (0, down, 0, across)))[:, :outputs].contiguous()


def cross_entropy_slopes(logits: Tensor, targets: Tensor) -> Tensor:
    """The derivative of softplus(z) - x z: sigmoid(z) - x. Linear in x, so an unbiased x gives an unbiased slope."""
    return torch.sigmoid(logits).sub_(targets)


def taylor_slopes(logits: Tensor, targets: Tensor) -> Tensor:
    """The derivative of ln 2 + (1/2 - x) z + z^2 / 8: 1/2 - x + z / 4."""
    return torch.mul(logits, 0.25).add_(0.5).sub_(targets)


SLOPES: dict[LossName, Slopes] = {"cross_entropy": cross_entropy_slopes, "taylor": taylor_slopes}


def initial_parameters(spec: AutoencoderDescent, shape: AutoencoderShape, stream: RandomStream) -> Tensor:
    """Weights before the first step, (coordinates,) float32: from a public stream and public constants alone."""
    numbers = torch.from_numpy(stream.normal(shape.coordinates)).to(torch.float32)
    encoders, decoder = numbers.split(shape.weights)
    encoders *= spec.initial.spread / math.sqrt(shape.features)
    decoder *= spec.initial.spread / math.sqrt(shape.hidden)
    decoder += spec.stabilisation
    return numbers
