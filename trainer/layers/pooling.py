r"""Pooling of planes (N, 2C, length) and (N, 2C, height, width): of complex numbers, never of a real part without its imaginary part.

An average is linear, so planes are averaged as they are. A maximum is the number of largest |z|^2 in the window, the first of equals;
its position comes from the magnitudes alone, so that both planes are read at the same place. No padding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from mechanisms.errors import InvalidParameter
from trainer.layers.planes import split

Sizes: TypeAlias = "int | tuple[int, ...]"
Function = TypeVar("Function", bound=Callable[..., object])


def average_pool(planes: Tensor, kernel: Sizes, stride: Sizes) -> Tensor:
    """Means of windows: (N, 2C, *space) -> (N, 2C, *windows)."""
    return _of(planes, functional.avg_pool1d, functional.avg_pool2d)(planes, kernel, stride)


def max_pool(planes: Tensor, kernel: Sizes, stride: Sizes) -> Tensor:
    """The complex number of largest magnitude in every window: (N, 2C, *space) -> (N, 2C, *windows)."""
    pool = _of(planes, functional.max_pool1d_with_indices, functional.max_pool2d_with_indices)
    return _pick(planes, pool(_squares(planes), kernel, stride)[1])


def adaptive_average_pool(planes: Tensor, size: Sizes) -> Tensor:
    """Means over ``size`` windows along every axis: (N, 2C, *space) -> (N, 2C, *size)."""
    return _of(planes, functional.adaptive_avg_pool1d, functional.adaptive_avg_pool2d)(planes, size)


def adaptive_max_pool(planes: Tensor, size: Sizes) -> Tensor:
    """The complex number of largest magnitude in each of ``size`` windows along every axis: (N, 2C, *space) -> (N, 2C, *size)."""
    pool = _of(planes, functional.adaptive_max_pool1d_with_indices, functional.adaptive_max_pool2d_with_indices)
    return _pick(planes, pool(_squares(planes), size)[1])


def _of(planes: Tensor, flat: Function, square: Function) -> Function:
    if planes.ndim not in {3, 4}:
        raise InvalidParameter(
            "planes", "of shape (records, 2 * channels, length) or (records, 2 * channels, height, width)", tuple(planes.shape)
        )
    return flat if planes.ndim == 3 else square


def _squares(planes: Tensor) -> Tensor:
    # The choice of the largest has no derivative; only the chosen number has.
    re, im = split(planes.detach())
    return torch.hypot(re, im)


def _pick(planes: Tensor, places: Tensor) -> Tensor:
    """Both planes at the positions (N, C, *windows), each a number of the flattened space."""
    flat, index = planes.flatten(2), torch.cat((places, places), dim=1)
    return flat.gather(2, index.flatten(2)).reshape(index.shape)


@final
class AveragePool(nn.Module):
    """``average_pool`` as a layer."""

    def __init__(self, kernel: Sizes, stride: Sizes) -> None:
        super().__init__()
        self._kernel, self._stride = kernel, stride

    def forward(self, planes: Tensor) -> Tensor:
        return average_pool(planes, self._kernel, self._stride)


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
