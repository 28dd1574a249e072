r"""Each unit's gradient of a convolution's weight in one pass in C, where the installation had a compiler and the processor has AVX2.

Nothing of what the kernel sees is copied, as it is for matrix products (``patches``), and the norm's squares and the bias's gradients are
found while a unit's numbers are in the nearest caches. A number is one chain of fused products and sums over the positions, so a unit's
bits depend neither on the other units nor on the number of threads or the width of the processor's registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, final

import torch
from torch import Tensor

from zetadp.trainer.layers.rules.patches import Correlated, Geometry

WIDEST: int = 16
"""The loops use registers of at most so many numbers."""

TOGETHER: Final = 8
"""Outputs, of each part of complex ones, are a multiple of it."""

SMALLEST_SHARE: Final = 2**22
"""Multiplications of a thread, at least: beginning one takes as long as some ten thousand."""


def _compiled() -> Any:
    try:
        found = import_module("zetadp.trainer.layers._correlation")
    except ImportError:
        return None
    return found if hasattr(found, "width") and found.width() else None


COMPILED: Any = _compiled()
"""The C module; None if there was no compiler, or the processor lacks what the loops need."""


@final
@dataclass(frozen=True)
class Found:
    r"""What the loops give, of U units.

    Attributes:
      weights: (1, U, parts, 1, places, channels, outputs): g conj(a).
      sums: of the gradients over the positions, (U, parts * outputs).
      squares: of each unit's weights, (U,).
    """

    weights: Tensor
    sums: Tensor
    squares: Tensor


def is_taken(use: Correlated, geometry: Geometry) -> bool:
    """Whether the loops take this use of a layer: one record a unit, no groups, single precision on a processor."""
    if COMPILED is None or geometry.groups != 1 or use.images.shape[0] != 1 or use.gradients.shape[4] % (TOGETHER * geometry.parts):
        return False
    images, gradients = use.images[0, :, 0], use.gradients[0, :, 0]
    plain = all(one.dtype == torch.float32 and one.device.type == "cpu" and not one.is_neg() for one in (images, gradients))
    return plain and images.is_contiguous() and (gradients.is_contiguous() or gradients.mT.is_contiguous())


def gradients_of(use: Correlated, geometry: Geometry) -> Found:
    """Of a use that is taken."""
    images, gradients = use.images[0, :, 0].detach(), use.gradients[0, :, 0].detach()
    is_planes = not gradients.is_contiguous()
    units, height, width, seen = images.shape
    parts, outputs = geometry.parts, gradients.shape[2]
    channels = seen // parts
    weights = images.new_empty(1, units, parts, 1, geometry.places, channels, outputs // parts)
    sums, squares = images.new_empty(units, outputs), images.new_empty(units, dtype=torch.float64)
    work = units * gradients.shape[1] * geometry.places * seen * outputs
    COMPILED.gradients(
        images.numpy(),
        (gradients.mT if is_planes else gradients).numpy(),
        weights.numpy(),
        sums.numpy(),
        squares.numpy(),
        is_planes,
        (units, height, width, channels, use.rows, use.columns, outputs // parts, parts),
        (*geometry.kernel, *geometry.stride, *geometry.dilation),
        (WIDEST, min(torch.get_num_threads(), max(1, work // SMALLEST_SHARE))),
    )
    return Found(weights, sums, squares.float())
