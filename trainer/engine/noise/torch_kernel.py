r"""The loops of noise on a grid as torch operations, for an accelerator: the numbers of ``mechanisms.sampling.kernel``, bit for bit.

Every operation is one of integers, or one of float64 that IEEE 754 rounds; none is fused with another.
"""

from __future__ import annotations

import torch
from torch import Tensor

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling import kernel
from zetadp.mechanisms.sampling.grid import STEP
from zetadp.trainer.engine.finite import all_finite

_THRESHOLD_MASK = (1 << kernel.THRESHOLD_BITS) - 1
_OFFSET_MASK = (1 << kernel.OFFSET_BITS) - 1


def normals(words: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    r"""The normal number that each word encodes, (cell + 1/2) / 2^32, and whether the slow path must decide it.

    Args:
      words: (count,), int64 of the words' 64 bits.
      columns: (4096,), int64, of ``grid_normal.Table``.
    Returns:
      (count,) float64, of which only the sign is decided where the second, (count,) bool, is true.
    """
    own = (words >> 52) & 0xFFF
    entries = columns.index_select(0, own)
    outcome = torch.where(((words >> 25) & _THRESHOLD_MASK) < (entries >> 16), own, entries & 0xFFFF)
    is_rest = outcome == kernel.REST
    cells = ((outcome << kernel.OFFSET_BITS) | (words & _OFFSET_MASK)).masked_fill_(is_rest, 0)
    # A cell [v, v + 1) mirrored is [-1 - v, -v).
    cells ^= -((words >> kernel.OFFSET_BITS) & 1)
    return cells.double().add_(0.5).mul_(STEP), is_rest


def released(value: Tensor, noise: Tensor, factor: float, largest: float, scale: float) -> Tensor:
    r"""(value * factor, held within +-largest and rounded to the grid, + noise) * scale, in the type of the value.

    Args:
      value: real, of more than ``grid.FEW`` numbers.
      noise: standard noise of the same shape, on the grid, float64.
    Raises:
      InvalidParameter: the value isn't finite everywhere.
    """
    if not all_finite(value):
        raise InvalidParameter("value", "finite in every coordinate", "a value with NaN or infinity")
    steps = value.double() * factor
    steps.clamp_(-largest, largest).mul_(1.0 / STEP).round_().mul_(STEP).add_(noise).mul_(scale)
    return steps.to(value.dtype) if value.is_floating_point() else steps
