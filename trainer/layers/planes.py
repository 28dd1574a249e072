r"""Planes: a complex tensor as ONE real tensor, its real parts in the first half of the channels and its imaginary parts in the second.

``native`` complex (N, C, *spatial) <-> ``planes`` real (N, 2C, *spatial), channel c being Re z_c and channel C + c being Im z_c. One real
convolution over the 2C channels is a complex convolution, and elementwise functions run on plain floats, where torch has all its kernels.
Channels are axis 1. Both directions are isometries of the real pairs, so gradients have the same norm in either format.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter


def split(planes: Tensor) -> tuple[Tensor, Tensor]:
    """The real and the imaginary parts (N, C, *spatial) of planes (N, 2C, *spatial), as views."""
    if planes.is_complex() or planes.ndim < 2 or planes.shape[1] % 2:
        found = f"{planes.dtype} of shape {tuple(planes.shape)}"
        raise InvalidParameter("planes", "a real tensor (records, 2 * channels, ...)", found)
    # Two slices would each fill a whole tensor with zeros in the backward pass.
    re, im = planes.unflatten(1, (2, -1)).unbind(1)
    return re, im


def join(re: Tensor, im: Tensor) -> Tensor:
    """Planes (N, 2C, *spatial) of real and imaginary parts (N, C, *spatial)."""
    return torch.cat((re, im), dim=1)


def to_planes(z: Tensor) -> Tensor:
    """Planes (N, 2C, *spatial) of complex numbers (N, C, *spatial)."""
    if not z.is_complex() or z.ndim < 2:
        raise InvalidParameter("z", "a complex tensor (records, channels, ...)", f"{z.dtype} of shape {tuple(z.shape)}")
    return torch.view_as_real(z.resolve_conj()).movedim(-1, 1).flatten(1, 2)


def from_planes(planes: Tensor) -> Tensor:
    """Complex numbers (N, C, *spatial) of planes (N, 2C, *spatial); float32 ones of half precision, which has no complex numbers."""
    return torch.complex(*split(planes.float() if planes.dtype in (torch.float16, torch.bfloat16) else planes))


@final
class ToPlanes(nn.Module):
    """``to_planes`` as a layer."""

    def forward(self, z: Tensor) -> Tensor:
        return to_planes(z)


@final
class FromPlanes(nn.Module):
    """``from_planes`` as a layer."""

    def forward(self, planes: Tensor) -> Tensor:
        return from_planes(planes)
