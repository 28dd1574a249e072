r"""Complex features as ONE real tensor twice as long: the records' real parts first, then their imaginary parts.

``native`` complex (N, C, *space) <-> ``parts`` real (2N, C, *space), row n being Re z_n and row N + n being Im z_n. A real weight acts on
real and imaginary part alike, so an ordinary real layer without bias is the equivariant layer: torch's own kernels, on twice the records.
Planes (N, 2C, *space) would need every weight twice, or every layer in two groups.
"""

from __future__ import annotations

import torch
from torch import Tensor

from zetadp.mechanisms.errors import InvalidParameter


def halves(parts: Tensor) -> tuple[Tensor, Tensor]:
    """The real and the imaginary parts (N, C, *space) of parts (2N, C, *space), as views."""
    if parts.is_complex() or parts.ndim < 2 or len(parts) % 2:
        raise InvalidParameter("parts", "a real tensor (2 * records, channels, ...)", f"{parts.dtype} of shape {tuple(parts.shape)}")
    re, im = parts.unflatten(0, (2, -1)).unbind(0)
    return re, im


def to_parts(z: Tensor) -> Tensor:
    """Parts (2N, C, *space) of complex numbers (N, C, *space)."""
    if not z.is_complex():
        raise InvalidParameter("z", "a complex tensor (records, channels, ...)", f"{z.dtype} of shape {tuple(z.shape)}")
    return torch.cat((z.real, z.imag))


def from_parts(parts: Tensor) -> Tensor:
    """Complex numbers (N, C, *space) of parts (2N, C, *space)."""
    return torch.complex(*halves(parts))


def turned(re: Tensor, im: Tensor, theta: Tensor) -> Tensor:
    """Parts (2N, C, *space) of e^(i theta) (re + i im), with an angle for each record, (N,)."""
    cosine, sine = aligned(theta.cos(), re), aligned(theta.sin(), re)
    return torch.cat((cosine * re - sine * im, sine * re + cosine * im))


def turned_back(parts: Tensor, theta: Tensor) -> Tensor:
    """Re[h e^(-i theta)], (N, C, *space), of the parts of h: what the decoder gets (paper, eq. 3)."""
    re, im = halves(parts)
    return aligned(theta.cos(), re) * re + aligned(theta.sin(), re) * im


def aligned(values: Tensor, like: Tensor) -> Tensor:
    """A number for each record, (N,), as (N, 1, ...), to be multiplied with ``like``."""
    return values.reshape(-1, *(1,) * (like.ndim - 1))
