r"""Pooling of planes (N, 2C, length) and (N, 2C, height, width): of complex numbers, never of a real part without its imaginary part.

An average is linear, so planes are averaged as they are. A maximum is the number of largest |z|^2 in the window, the first of equals;
its position comes from the magnitudes alone, so that both planes are read at the same place.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.layers.planes import split

Sizes: TypeAlias = "int | tuple[int, ...]"
"""One for all axes, or one an axis."""


def average_pool(planes: Tensor, kernel: Sizes, stride: Sizes) -> Tensor:
    """Means of windows: (N, 2C, *space) -> (N, 2C, *windows)."""
    image, sizes = _image(planes), (_pair("kernel", kernel, planes), _pair("stride", stride, planes))
    return _as(planes, functional.avg_pool2d(image, *sizes))


def max_pool(planes: Tensor, kernel: Sizes, stride: Sizes, padding: int = 0) -> Tensor:
    """The complex number of largest magnitude in every window: (N, 2C, *space) -> (N, 2C, *windows); padding is never the largest."""
    lengths, sizes = _lengths(planes), (_pair("kernel", kernel, planes), _pair("stride", stride, planes))
    beside = (padding, padding if planes.ndim == 4 else 0)
    return _pick(planes, functional.max_pool2d_with_indices(lengths, *sizes, beside)[1])


def adaptive_average_pool(planes: Tensor, size: Sizes) -> Tensor:
    """Means over ``size`` windows along every axis: (N, 2C, *space) -> (N, 2C, *size)."""
    image, sizes = _image(planes), _pair("size", size, planes)
    window = equal_windows(tuple(image.shape[2:]), sizes)
    pooled = functional.adaptive_avg_pool2d(image, sizes) if window is None else functional.avg_pool2d(image, window)
    return _as(planes, pooled)


def equal_windows(space: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    r"""The windows of an adaptive pool, where they are all alike and don't overlap; else None.

    torch's pool with these windows keeps channels_last in the backward pass; its adaptive one hands on a gradient in the other order, and
    the layer before then runs over two orders at once.

    >>> equal_windows((8, 6), (1, 3)), equal_windows((8, 6), (1, 4))
    ((8, 2), None)
    """
    if any(length % size for length, size in zip(space, sizes, strict=True)):
        return None
    return tuple(length // size for length, size in zip(space, sizes, strict=True))


def adaptive_max_pool(planes: Tensor, size: Sizes) -> Tensor:
    """The complex number of largest magnitude in each of ``size`` windows along every axis: (N, 2C, *space) -> (N, 2C, *size)."""
    places = functional.adaptive_max_pool2d_with_indices(_lengths(planes), _pair("size", size, planes))[1]
    return _pick(planes, places)


def _pair(name: str, value: Sizes, planes: Tensor) -> tuple[int, int]:
    """The two extents of an image; a series is an image of width 1."""
    axes = planes.ndim - 2
    sizes = (value,) * axes if isinstance(value, int) else value
    if len(sizes) != axes or min(sizes) < 1:
        raise InvalidParameter(name, f"a positive integer, or {axes} of them", value)
    return sizes[0], sizes[1] if axes == 2 else 1


def _image(x: Tensor) -> Tensor:
    if x.ndim not in {3, 4}:
        raise InvalidParameter("planes", "(records, 2 * channels, length) or (records, 2 * channels, height, width)", tuple(x.shape))
    return x if x.ndim == 4 else x.unsqueeze(-1)


def _as(planes: Tensor, image: Tensor) -> Tensor:
    return image if planes.ndim == 4 else image.squeeze(-1)


def _lengths(planes: Tensor) -> Tensor:
    # Which number is the largest has no derivative; the number has.
    return torch.hypot(*split(_image(planes.detach())))


def _pick(planes: Tensor, places: Tensor) -> Tensor:
    """Both parts at the positions (N, C, height, width), each a number of the flattened image."""
    index = torch.cat((places, places), dim=1)
    return _as(planes, planes.flatten(2).gather(2, index.flatten(2)).reshape(index.shape))


@final
class AveragePool(nn.Module):
    """``average_pool`` as a layer."""

    def __init__(self, kernel: Sizes, stride: Sizes) -> None:
        super().__init__()
        self._kernel, self._stride = kernel, stride

    def forward(self, planes: Tensor) -> Tensor:
        return average_pool(planes, self._kernel, self._stride)


@final
class RectifiedMeans(nn.Module):
    """``relu`` and then ``average_pool`` of images: real ones, or planes, whose ``crelu`` it is. Bits are those of the two in a row.

    The image's slopes are written over the rectified image's: one tensor less of a step's largest ones.
    """

    def __init__(self, kernel: int, stride: int) -> None:
        super().__init__()
        self._kernel, self._stride = kernel, stride

    def forward(self, images: Tensor) -> Tensor:
        return cast("tuple[Tensor, Tensor]", _RectifiedMeans.apply(images, self._kernel, self._stride))[0]  # type: ignore[no-untyped-call]


@final
class _RectifiedMeans(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(images: Tensor, kernel: int, stride: int) -> tuple[Tensor, Tensor]:
        rectified = torch.relu(images)
        return functional.avg_pool2d(rectified, kernel, stride), rectified

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, int], output: tuple[Tensor, Tensor]) -> None:
        ctx.sizes = inputs[1:]
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # or zeros as large as the image would be made
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor | None) -> tuple[Tensor | None, None, None]:
        (rectified,), (kernel, stride), of_means = ctx.saved_tensors, ctx.sizes, slopes[0]
        if of_means is None:
            return None, None, None
        aten = torch.ops.aten
        of_rectified = aten.avg_pool2d_backward(of_means, rectified, [kernel], [stride], [0], False, True, None)
        if torch.is_grad_enabled():
            # torch.func always asks; an ordinary backward pass doesn't.
            return aten.threshold_backward(of_rectified, rectified, 0.0), None, None
        return aten.threshold_backward.grad_input(of_rectified, rectified, 0.0, grad_input=of_rectified), None, None


@final
class MaxPool(nn.Module):
    """``max_pool`` as a layer."""

    def __init__(self, kernel: Sizes, stride: Sizes) -> None:
        super().__init__()
        self._kernel, self._stride = kernel, stride

    def forward(self, planes: Tensor) -> Tensor:
        return max_pool(planes, self._kernel, self._stride)


@final
class AdaptiveAveragePool(nn.Module):
    """``adaptive_average_pool`` as a layer."""

    def __init__(self, size: Sizes) -> None:
        super().__init__()
        self._size = size

    def forward(self, planes: Tensor) -> Tensor:
        return adaptive_average_pool(planes, self._size)


@final
class AdaptiveMaxPool(nn.Module):
    """``adaptive_max_pool`` as a layer."""

    def __init__(self, size: Sizes) -> None:
        super().__init__()
        self._size = size

    def forward(self, planes: Tensor) -> Tensor:
        return adaptive_max_pool(planes, self._size)
