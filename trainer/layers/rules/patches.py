r"""The pictures of a convolution's weight gradient: what its kernel sees at each position, for a few units at a time.

A weight gradient correlates an image with the gradient of the output: dW[k, c, d] = sum_p a[stride p + dilation k, c] g[p, d]. Here the
image's channels stand last, so that along a row of the kernel they are one contiguous stretch of memory. Complex numbers are two parts:
all real channels, then all imaginary ones.

Ways, equal but for rounding:
  strips: the image is copied once for each column of the kernel, kernel_width times its size; each row of the kernel is then one batched
    matrix product of a window into these strips. The fastest one where the rows lie one below the other (vertical stride 1);
  windows: the image is copied once for each place of the kernel, and everything is one batched matrix product;
  groups: one convolution in which every group of every unit is a group, for layers that have groups themselves: theirs are too small for
    matrix products;
  Gram matrices of the windows, without the gradient itself (``base.gram_squared_norms``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor
from torch.nn.grad import conv2d_weight

from zetadp.trainer.layers.rules.analysis import Analysis


@final
@dataclass(frozen=True)
class Geometry:
    r"""The geometry of the correlation over two spatial axes; a layer over one axis has height 1.

    Attributes:
      kernel, stride, dilation, before: vertical and horizontal; ``before``: zeros above and to the left of the image.
      groups: of channels that don't see each other.
      parts: 2 for complex numbers, 1 for real ones.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    before: tuple[int, int]
    groups: int
    parts: int

    @property
    def places(self) -> int:
        """The number of places of the kernel."""
        return self.kernel[0] * self.kernel[1]

    @property
    def of_one_place(self) -> Geometry:
        """The same channels, with a kernel that sees one number at each position."""
        return replace(self, kernel=(1, 1), stride=(1, 1), dilation=(1, 1), before=(0, 0))


@final
@dataclass(frozen=True)
class Correlated:
    r"""The image and gradient of one use of a layer, for R records in each of U units, and G groups.

    Attributes:
      images: (R, U, G, height, width, parts * channels), padded with zeros, contiguous inside.
      gradients: (R, U, G, positions, parts * outputs); without groups in whichever order the network left them.
      columns: positions in a row; ``rows``: their number.
    """

    images: Tensor
    gradients: Tensor
    rows: int
    columns: int

    def of_units(self, first: int, last: int) -> Correlated:
        """A view of some units."""
        return Correlated(self.images[:, first:last], self.gradients[:, first:last], self.rows, self.columns)


def correlated(images: Tensor, gradients: Tensor, geometry: Geometry, units: int) -> Correlated:
    r"""Brings images and gradients into this order; copies only where the order differs or zeros are missing.

    Args:
      images, gradients: (N, parts * channels, height, width), real; N = units * records, unit-major.
    """
    rows, columns = gradients.shape[2:]
    padded = _padded(images.movedim(1, -1), geometry, (rows, columns))
    grouped = _grouped(padded, geometry, units)
    last = gradients.movedim(1, -1)
    if geometry.groups == 1 and gradients.is_contiguous():
        # A matrix product takes either order, and a copy of a first layer's gradients is half of its time.
        return Correlated(grouped, _by_unit(last, units).flatten(3, 4), rows, columns)
    return Correlated(grouped, _grouped(last, geometry, units).flatten(3, 4), rows, columns)


def _padded(images: Tensor, geometry: Geometry, positions: tuple[int, int]) -> Tensor:
    """(N, height, width, channels), contiguous, with all the kernel sees: zeros around the image where it sees more."""
    seen = [
        (count - 1) * stride + (kernel - 1) * dilation + 1
        for count, stride, kernel, dilation in zip(positions, geometry.stride, geometry.kernel, geometry.dilation, strict=True)
    ]
    top, left = geometry.before
    height, width = (min(images.shape[1], seen[0] - top), min(images.shape[2], seen[1] - left))
    if (top, left) == (0, 0) and (height, width) == tuple(seen):
        return images.contiguous()
    padded = images.new_zeros(images.shape[0], *seen, images.shape[3])
    # A kernel may see less than the padding: nothing of the image is left then.
    if height > 0 and width > 0:
        padded[:, top : top + height, left : left + width] = images[:, :height, :width]
    return padded


def _grouped(values: Tensor, geometry: Geometry, units: int) -> Tensor:
    """(N, height, width, parts * groups * channels) -> (records, units, groups, height, width, parts * channels), contiguous inside."""
    height, width = values.shape[1:3]
    if geometry.groups == 1:
        return _by_unit(values.contiguous(), units)
    split = values.reshape(units, -1, height, width, geometry.parts, geometry.groups, values.shape[3] // (geometry.parts * geometry.groups))
    return split.permute(1, 0, 5, 2, 3, 4, 6).contiguous().flatten(5, 6)


def _by_unit(values: Tensor, units: int) -> Tensor:
    """A view without groups, (N, height, width, channels) -> (records, units, 1, height, width, channels)."""
    return values.unflatten(0, (units, -1)).unsqueeze(2).transpose(0, 1)


def strips(uses: Sequence[Correlated], geometry: Geometry) -> Tensor:
    r"""Each unit's gradient, (kernel_height, U * G, kernel_width * parts * channels, parts * outputs). Vertical stride 1."""
    height, width = geometry.kernel
    first = uses[0]
    batch = first.images.shape[1] * geometry.groups
    total = first.images.new_empty(height, batch, width * first.images.shape[5], first.gradients.shape[4])
    empty = True
    for use in uses:
        stretch, window = _strip(use, geometry).flatten(1, 2), use.rows * use.columns
        for strip, gradient in zip(stretch, use.gradients.flatten(1, 2), strict=True):
            for row in range(height):
                start = row * geometry.dilation[0] * use.columns
                seen = strip[:, start : start + window].mT
                if empty:
                    torch.bmm(seen, gradient, out=total[row])
                else:
                    total[row].baddbmm_(seen, gradient)
            empty = False
    return total


def _strip(use: Correlated, geometry: Geometry) -> Tensor:
    """(R, U, G, height * columns, kernel_width * parts * channels)."""
    images, width = use.images, geometry.kernel[1]
    *outer, across, _ = images.stride()
    shape = (*images.shape[:4], use.columns, width, images.shape[5])
    steps = (*outer, geometry.stride[1] * across, geometry.dilation[1] * across, 1)
    return images.as_strided(shape, steps).reshape(*images.shape[:3], images.shape[3] * use.columns, width * images.shape[5])


def windows(use: Correlated, geometry: Geometry) -> tuple[Tensor, Tensor]:
    r"""What the kernel sees, (U, G, R * positions, places * parts * channels), and the gradients, (U, G, R * positions, ...)."""
    images = use.images
    record, unit, group, down, across, _ = images.stride()
    records, units, groups, channels = *images.shape[:3], images.shape[5]
    shape = (units, groups, records, use.rows, use.columns, *geometry.kernel, channels)
    of_positions = (geometry.stride[0] * down, geometry.stride[1] * across)
    of_places = (geometry.dilation[0] * down, geometry.dilation[1] * across)
    seen = images.as_strided(shape, (unit, group, record, *of_positions, *of_places, 1))
    positions = records * use.rows * use.columns
    gradients = use.gradients.permute(1, 2, 0, 3, 4).reshape(units, groups, positions, -1)
    return seen.reshape(units, groups, positions, geometry.places * channels), gradients


def summed_windows(use: Correlated, geometry: Geometry, analysis: Analysis) -> Correlated:
    r"""What a kernel of which frequency 0 alone is kept sees, as images of one number at each position: (R, U, G, rows, columns, C).

    M is one row of equal numbers, so M dW = sum_p (M a_p) g_p: the window is summed before the product, one axis after the other.
    """
    across = _window_sums(use.images, 4, use.columns, geometry)
    return Correlated(
        _window_sums(across, 3, use.rows, geometry) / math.sqrt(math.prod(analysis.transform)), use.gradients, use.rows, use.columns
    )


def _window_sums(values: Tensor, axis: int, positions: int, geometry: Geometry) -> Tensor:
    """Over what the kernel sees along one axis of an image, 3 down or 4 across, at each of so many positions."""
    kernel, stride, dilation = (pair[axis - 3] for pair in (geometry.kernel, geometry.stride, geometry.dilation))
    reach = (positions - 1) * stride + 1
    first, *others = (
        values[(slice(None),) * axis + (slice(start, start + reach, stride),)] for start in range(0, kernel * dilation, dilation)
    )
    if not others:
        return first
    total = first + others[0]
    for other in others[1:]:
        total += other
    return total


def by_groups(use: Correlated, geometry: Geometry) -> Tensor:
    r"""Each unit's gradient, (1, U * G, places * parts * channels, parts * outputs), by one convolution of U * G groups, over R records."""
    images = use.images.permute(0, 1, 2, 5, 3, 4).flatten(1, 3)
    gradients = use.gradients.mT.unflatten(4, (use.rows, use.columns)).flatten(1, 3)
    return _weight_gradient(images, gradients, geometry, use.images.shape[1] * geometry.groups)


def _weight_gradient(images: Tensor, gradients: Tensor, geometry: Geometry, groups: int) -> Tensor:
    """(1, groups, places * channels of a group, outputs of a group), of (N, channels, height, width) and (N, outputs, rows, columns)."""
    shape = (gradients.shape[1], images.shape[1] // groups, *geometry.kernel)
    stride, dilation = geometry.stride, geometry.dilation
    # torch's own type says one integer for both axes; a pair has always been taken.
    weight = conv2d_weight(images, shape, gradients, stride, 0, dilation, groups)  # pyright: ignore[reportArgumentType]
    return weight.unflatten(0, (groups, -1)).permute(0, 3, 4, 2, 1).reshape(1, groups, geometry.places * shape[1], -1)
