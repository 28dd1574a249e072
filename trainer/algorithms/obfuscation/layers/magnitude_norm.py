r"""Norm of complex parts without a mean: f / sqrt(E |f|^2), one statistic per channel.

While training, E is over records and positions of the batch, as in the paper's App. A (its eq. 7 has one for every position: another
layer), and a running mean of it is kept. In evaluation that running mean replaces it, frozen: with statistics of the current
batch one user's feature would depend on another's (errata O13). So a model file isn't complete without the statistics.
"""

from __future__ import annotations

from typing import Any, cast, final

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from zetadp.mechanisms.errors import InvalidParameter

FLOOR = 1e-5
"""Added to E |f|^2."""
MOMENTUM = 0.1
"""The newest batch's share of the running mean, as in torch's batch norm."""


@final
class MagnitudeNorm(nn.Module):
    """Of parts (2N, C, *space) or flat ones (2N, features). Buffer ``running_square``: the running mean of E |f|^2, (C,), at first 1."""

    running_square: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("running_square", torch.ones(channels))

    def forward(self, parts: Tensor) -> Tensor:
        if parts.ndim < 2 or parts.shape[1] != len(self.running_square):
            raise InvalidParameter("parts", f"(2 * records, {len(self.running_square)} channels, ...)", tuple(parts.shape))
        if not self.training:
            return parts * _per_channel((self.running_square + FLOOR).rsqrt(), parts)
        square = _squares(parts.detach())
        self.running_square.lerp_(square, MOMENTUM)
        return cast("Tensor", _Normalised.apply(parts, square))


def _squares(parts: Tensor) -> Tensor:
    """E |f|^2 of each channel, (C,): both parts of a number are one |f|^2."""
    return _products(parts, parts) / _numbers(parts)


def _products(first: Tensor, second: Tensor) -> Tensor:
    """Sums of products of each channel, (C,); as dot products, several times faster than a product and its sum over three axes."""
    if first.ndim == 2:
        return (first * second).sum(dim=0)
    rows = (len(first) * first.shape[1], 1, -1)
    return torch.bmm(first.reshape(rows), second.reshape(rows).mT).reshape(first.shape[:2]).sum(dim=0)


def _numbers(parts: Tensor) -> int:
    """The number of complex numbers in a channel."""
    return parts.numel() // (2 * parts.shape[1])


def _per_channel(values: Tensor, parts: Tensor) -> Tensor:
    return values.reshape(-1, *(1,) * (parts.ndim - 2))


class _Normalised(Function):
    @staticmethod
    def forward(ctx: Any, parts: Tensor, square: Tensor) -> Tensor:
        inverse = (square + FLOOR).rsqrt()
        ctx.save_for_backward(parts, inverse)
        return parts * _per_channel(inverse, parts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride] (the decorator's parameters have no names)
        parts, inverse = ctx.saved_tensors
        (gradient,) = gradients
        # r g - r^3 f sum <f, g> / numbers: how all numbers move the one statistic.
        share = _products(parts, gradient) * inverse**3 / -_numbers(parts)
        return (gradient * _per_channel(inverse, parts)).addcmul_(parts, _per_channel(share, parts)), None
