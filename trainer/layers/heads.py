r"""Heads: from complex outputs to real class scores, elementwise."""

from __future__ import annotations

import torch
from torch import Tensor


def magnitude(z: Tensor) -> Tensor:
    """|z|, with gradient 0 at z = 0 (the subgradient of smallest norm) where sqrt alone would give NaN."""
    squared = z.real.square() + z.imag.square()
    positive = squared > 0
    # Both branches of ``where`` are differentiated: the inner one keeps the unused branch finite.
    return torch.where(positive, torch.where(positive, squared, 1.0).sqrt(), 0.0)


def real_part(z: Tensor) -> Tensor:
    """Re z."""
    return z.real
