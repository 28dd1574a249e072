r"""The paper's activation on parts (eq. 6): f |f| / max(|f|, c), which is f min(|f| / c, 1): the phase stays, small numbers shrink.

With s = min(|f| / c, 1), g the gradient of the output and <f, g> = Re f Re g + Im f Im g, the gradient is s g, and where |f| < c also
f <f, g> / (c |f|). Where c is the mean of |f| over P positions, f / |f| dL/dc / P is added to every number, dL/dc = -sum s <f, g> / c over
those below c. f / |f| is taken as 0 at f = 0, so every gradient is finite.
"""

from __future__ import annotations

import math
from typing import Any, Literal, cast, final

from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.algorithms.obfuscation.layers.parts import halves

SMALLEST = 1e-18
"""A magnitude below this counts as this, whose square float32 can still hold."""

Threshold = Literal["channel_mean"] | float


def delta(parts: Tensor, threshold: Threshold) -> Tensor:
    r"""f |f| / max(|f|, c) of parts (2N, C, *space), in the same shape.

    Args:
      threshold: c > 0, or ``channel_mean``: the mean of |f| over the positions of each record's channel. A flat record (2N, features) is
        one channel: a mean over the single position of a feature would be |f| itself, and the activation nothing.
    """
    if threshold == "channel_mean":
        return cast("Tensor", _ByChannelMean.apply(parts))
    if not 0.0 < threshold < math.inf:
        raise InvalidParameter("threshold", "a positive number or 'channel_mean'", threshold)
    return cast("Tensor", _ByConstant.apply(parts, float(threshold)))


@final
class Delta(nn.Module):
    """``delta`` as a layer."""

    def __init__(self, threshold: Threshold) -> None:
        super().__init__()
        self._threshold: Threshold = threshold

    def forward(self, parts: Tensor) -> Tensor:
        return delta(parts, self._threshold)


def _magnitudes(parts: Tensor) -> Tensor:
    """(N, C, *space)."""
    re, im = halves(parts)
    return (re * re).addcmul_(im, im).sqrt_()


def _inner(parts: Tensor, gradient: Tensor) -> Tensor:
    """<f, g>, (N, C, *space)."""
    (re, im), (by_re, by_im) = halves(parts), halves(gradient)
    return (re * by_re).addcmul_(im, by_im)


def _scaled(parts: Tensor, scale: Tensor) -> Tensor:
    return (parts.unflatten(0, (2, -1)) * scale).flatten(0, 1)


def _plus_scaled(gradient: Tensor, parts: Tensor, scale: Tensor) -> Tensor:
    """gradient + parts * scale, in place; ``scale`` is (N, C, *space)."""
    gradient.unflatten(0, (2, -1)).addcmul_(parts.unflatten(0, (2, -1)), scale)
    return gradient


class _ByConstant(Function):
    @staticmethod
    def forward(ctx: Any, parts: Tensor, threshold: float) -> Tensor:
        share = _magnitudes(parts)
        if threshold != 1.0:
            share.div_(threshold)
        share.clamp_(max=1.0)
        ctx.save_for_backward(parts, share)
        ctx.threshold = threshold
        return _scaled(parts, share)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride] (the decorator's parameters have no names)
        parts, share = ctx.saved_tensors
        (gradient,) = gradients
        below = share < 1.0
        along = _inner(parts, gradient).mul_(below).div_((share * ctx.threshold**2).clamp_(min=SMALLEST))
        return _plus_scaled(_scaled(gradient, share), parts, along), None


class _ByChannelMean(Function):
    @staticmethod
    def forward(ctx: Any, parts: Tensor) -> Tensor:
        magnitude = _magnitudes(parts)
        positions = tuple(range(2, magnitude.ndim)) or (1,)
        mean = magnitude.mean(dim=positions, keepdim=True).clamp_(min=SMALLEST)
        share = (magnitude / mean).clamp_(max=1.0)
        ctx.save_for_backward(parts, magnitude, mean)
        ctx.positions = positions
        return _scaled(parts, share)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride] (the decorator's parameters have no names)
        parts, magnitude, mean = ctx.saved_tensors
        (gradient,) = gradients
        share = magnitude / mean
        below = (share < 1.0).to(share.dtype)
        inner = _inner(parts, gradient).mul_(below)
        # dL/dc / P, with the share where it is below 1 only: ``inner`` is 0 elsewhere.
        by_mean = (inner * share).mean(dim=ctx.positions, keepdim=True).div_(mean).neg_()
        along = inner.div_(mean).add_(by_mean).div_(magnitude.clamp(min=SMALLEST))
        return _plus_scaled(_scaled(gradient, share.clamp_(max=1.0)), parts, along)
