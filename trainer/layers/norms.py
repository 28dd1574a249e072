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

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.layers.trainable_activations import align
from zetadp.trainer.layers.whitening import Groups, whitened

FLOOR = 1e-5
"""eps of the paper's listing: added to both variances of a group, in squared units of the activations."""


def whiten(pairs: Tensor, floor: float) -> Tensor:
    r"""Whitened pairs, of the same shape.

    Args:
      pairs: real (..., 2, values): row 0 the real parts, row 1 the imaginary parts of a group.
      floor: eps > 0.
    """
    return whiten_planes(pairs.reshape(-1, 2, pairs.shape[-1]), None, None, 1, floor).reshape(pairs.shape)


def whiten_planes(planes: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, floor: float) -> Tensor:
    """``weight`` z + ``bias`` of planes (N, 2C, *space) with every record's ``groups`` groups of C / groups channels whitened.

    ``weight`` and ``bias`` are complex (C,), or (N, C), a record's own; None is 1 and 0.
    """
    if planes.ndim < 2 or planes.shape[1] % 2 or planes.shape[1] // 2 % groups:
        raise InvalidParameter("planes", f"2 * channels, channels a multiple of groups = {groups}", tuple(planes.shape))
    return whitened(planes, weight, bias, Groups(groups, floor))


class ComplexNorm(nn.Module):
    r"""The common part of the three norms: ``weight`` (C,), initially (1 + i) / sqrt 2 (of magnitude 1), and ``bias`` (C,), initially 0.

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
        return whiten_planes(planes, self.weight, self.bias, self._groups, self._floor)


@final
class ComplexInstanceNorm(ComplexNorm):
    """Whitens every channel of planes over its positions, then scales it."""

    def __init__(self, channels: int, floor: float = FLOOR) -> None:
        super().__init__(channels, floor)

    def forward(self, planes: Tensor) -> Tensor:
        return whiten_planes(planes, self.weight, self.bias, planes.shape[1] // 2, self._floor)


@final
class ComplexLayerNorm(ComplexNorm):
    """Whitens a record's planes over all channels and positions; native complex tensors over their last axis. Then scales."""

    def __init__(self, features: int, floor: float = FLOOR) -> None:
        super().__init__(features, floor)

    def forward(self, z: Tensor) -> Tensor:
        if not z.is_complex():
            return whiten_planes(z, self.weight, self.bias, 1, self._floor)
        whitened = torch.view_as_complex(whiten(torch.view_as_real(z.resolve_conj()).mT, self._floor).mT.contiguous())
        return whitened * align(self.weight, z) + align(self.bias, z)
