r"""A release on the grid as torch operations, for an accelerator: the numbers of ``mechanisms.sampling.kernel``, bit for bit.

Every operation is one of float64 that IEEE 754 rounds; none is fused with another.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.grid import STEP
from zetadp.trainer.engine.finite import all_finite


def released(value: Tensor, noise: Tensor, factor: float, largest: float, scale: float, *, refuses: bool = True) -> Tensor:
    r"""(value * factor, held within +-largest and rounded to the grid, + noise) * scale, in the type of the value.

    Args:
      value: real, of more than ``grid.FEW`` numbers.
      noise: standard noise of the same shape, on the grid, float64.
      refuses: a value that isn't finite everywhere, which waits for the device; else NaN everywhere is what is released of it.
    Raises:
      InvalidParameter: as ``refuses`` says.
    """
    if refuses and not all_finite(value):
        raise InvalidParameter("value", "finite in every coordinate", "a value with NaN or infinity")
    wide = value.double()
    steps = wide * factor
    steps.clamp_(-largest, largest).mul_(1.0 / STEP).round_().mul_(STEP).add_(noise).mul_(scale)
    if not refuses:
        steps.masked_fill_(~torch.isfinite(wide).all(), math.nan)
    return steps.to(value.dtype) if value.is_floating_point() else steps
