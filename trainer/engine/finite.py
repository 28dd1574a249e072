r"""Whether all numbers of a tensor are finite, in one pass where they are."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from zetadp.trainer.layers.flat_parameters import as_real


def all_finite(values: Tensor) -> bool:
    """No NaN and no infinity. A sum with one of them is never finite; a sum may also overflow, so then each number is checked."""
    real = as_real(values)
    return math.isfinite(real.sum().item()) or bool(torch.isfinite(real).all())
