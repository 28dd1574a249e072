r"""Group, layer and instance norm of complex numbers: each group of a record is whitened, by that record's own statistics.

With the mean m and the covariance S (2 x 2, of real and imaginary part, divided by the number of values) of a group's numbers, the pair
(Re z, Im z) goes to (S + eps I)^(-1/2) (pair - m), the symmetric square root, in closed form: with d = sqrt(det) and t = sqrt(trace + 2 d)
the inverse root of [[p, q], [q, r]] is [[r + d, -q], [-q, p + d]] / (d t). No eigenvectors, whose derivatives are NaN for equal
eigenvalues, and no division by (values - 1): groups of zeros, of {1, i, -1, -i}, of real numbers and of one number all have finite
gradients (errata C17). No statistics are kept: records don't mix, and evaluation equals training.

Laws, for eps small against S, before the affine part. Shifting a group by a complex number and scaling it by a positive one change
nothing. Turning it by e^(i phi), or reflecting it, turns or reflects the output. Any other invertible real affine map of the pairs
changes the output by an orthogonal map only: magnitudes stay.

Source: complex federated learning paper, Listing 4 (which divides by values - 1); Trabelsi et al. 2018, section 3.5.
"""

from __future__ import annotations

import math
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from mechanisms.errors import InvalidParameter
from trainer.layers.planes import join, split
from trainer.layers.trainable_activations import align

FLOOR = 1e-5
"""eps of the paper's listing: added to both variances of a group, in squared units of the activations."""

ROUNDING = 2.0**-20
"""Part of a group's variance that is added too: a group on a line has rounding errors across it, which 1 / sqrt(eps) would blow up."""


def whiten(pairs: Tensor, floor: float) -> Tensor:
    r"""Whitened pairs, of the same shape.

    Args:
      pairs: real (..., 2, values): row 0 the real parts, row 1 the imaginary parts of a group.
      floor: eps > 0.
    """
    centred = pairs - pairs.mean(dim=-1, keepdim=True)
    covariance = centred @ centred.mT / pairs.shape[-1]
    return inverse_root(covariance, floor) @ centred


def inverse_root(covariance: Tensor, floor: float) -> Tensor:
    """(S + (floor + ROUNDING trace S) I)^(-1/2) of symmetric positive semi-definite S (..., 2, 2)."""
    size = covariance[..., 0, 0] + covariance[..., 1, 1]
    lifted = floor + ROUNDING * size
    trace = size + 2.0 * lifted
    # In units of the trace, where no product overflows.
    p, q, r = (covariance[..., 0, 0] + lifted) / trace, covariance[..., 0, 1] / trace, (covariance[..., 1, 1] + lifted) / trace
    least = lifted / trace
    # Eigenvalues of at least ``least`` that add to 1 make det >= least (1 - least); where p r and q^2 cancel, rounding could leave less.
    root = torch.maximum(p * r - q * q, least * (1.0 - least)).sqrt()
    scale = (root * (trace * (1.0 + 2.0 * root)).sqrt()).reciprocal()
    off = -q * scale
    return torch.stack((torch.stack(((r + root) * scale, off), -1), torch.stack((off, (p + root) * scale), -1)), -2)


def whiten_planes(planes: Tensor, groups: int, floor: float) -> Tensor:
    """Planes (N, 2C, *space) with every record's ``groups`` groups of C / groups channels whitened."""
    channels = planes.shape[1] // 2
    if planes.shape[1] % 2 or channels % groups:
        raise InvalidParameter("planes", f"2 * channels, channels a multiple of groups = {groups}", tuple(planes.shape))
    records, space = planes.shape[0], planes.shape[2:]
    pairs = planes.reshape(records, 2, groups, -1).transpose(1, 2)
    return whiten(pairs, floor).transpose(1, 2).reshape(records, 2 * channels, *space)


def affine_planes(planes: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``weight`` z + ``bias`` for each channel of planes; both are complex (C,), or (N, C): a record's own."""
    re, im = split(planes)
    weight_re, weight_im, bias_re, bias_im = (align(part, planes) for part in (weight.real, weight.imag, bias.real, bias.imag))
    return join(
        (bias_re + weight_re * re).addcmul(weight_im, im, value=-1.0),
        (bias_im + weight_re * im).addcmul(weight_im, re),
    )


class ComplexNorm(nn.Module):
    r"""What the three norms share: ``weight`` (C,), at first (1 + i) / sqrt 2 (of magnitude 1), and ``bias`` (C,), at first 0.

    Both are complex64 and may come with a leading axis of records, (N, C).
    """

    batched_parameters: ClassVar[bool] = True

    def __init__(self, channels: int, floor: float) -> None:
        super().__init__()
        if not 0.0 < floor < math.inf:
            raise InvalidParameter("floor", "a positive number", floor)
        self._floor = floor
        self.weight = nn.Parameter(torch.full((channels,), complex(math.sqrt(0.5), math.sqrt(0.5)), dtype=torch.complex64))
        self.bias = nn.Parameter(torch.zeros(channels, dtype=torch.complex64))


@final
class ComplexGroupNorm(ComplexNorm):
    """Whitens each of ``groups`` groups of neighbouring channels of planes over channels and positions, then scales every channel."""

    def __init__(self, groups: int, channels: int, floor: float = FLOOR) -> None:
        super().__init__(channels, floor)
        if groups < 1 or channels % groups:
            raise InvalidParameter("groups", f"a divisor of channels = {channels}", groups)
        self._groups = groups

    def forward(self, planes: Tensor) -> Tensor:
        return affine_planes(whiten_planes(planes, self._groups, self._floor), self.weight, self.bias)


@final
class ComplexInstanceNorm(ComplexNorm):
    """Whitens every channel of planes over its positions, then scales it."""

    def __init__(self, channels: int, floor: float = FLOOR) -> None:
        super().__init__(channels, floor)

    def forward(self, planes: Tensor) -> Tensor:
        return affine_planes(whiten_planes(planes, planes.shape[1] // 2, self._floor), self.weight, self.bias)


@final
class ComplexLayerNorm(ComplexNorm):
    """Whitens a record's planes over all channels and positions; native complex tensors over their last axis. Then scales."""

    def __init__(self, features: int, floor: float = FLOOR) -> None:
        super().__init__(features, floor)

    def forward(self, z: Tensor) -> Tensor:
        if not z.is_complex():
            return affine_planes(whiten_planes(z, 1, self._floor), self.weight, self.bias)
        whitened = torch.view_as_complex(whiten(torch.view_as_real(z.resolve_conj()).mT, self._floor).mT.contiguous())
        return whitened * align(self.weight, z) + align(self.bias, z)
