r"""Heads: from complex outputs (n, classes) to real class scores of the same shape."""

from __future__ import annotations

import torch
from torch import Tensor


def magnitude(z: Tensor) -> Tensor:
    """|z|, with gradient 0 at z = 0 (the subgradient of smallest norm), where 0 / 0 would give NaN; it neither overflows nor underflows."""
    re, im = z.real, z.imag
    zero = (re == 0) & (im == 0)
    # Both branches of ``where`` are differentiated: the inner one keeps the unused branch finite.
    return torch.where(zero, 0.0, torch.hypot(torch.where(zero, 1.0, re), im))


def real_part(z: Tensor) -> Tensor:
    """Re z."""
    return z.real


def magnitude_softmax(z: Tensor) -> Tensor:
    r"""log(exp |z_k| / sum_j exp |z_j|) over the last axis: log-probabilities, which a cross-entropy leaves as they are."""
    return torch.log_softmax(magnitude(z), dim=-1)
