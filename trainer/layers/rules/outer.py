r"""The weighted sum of outer products in one pass in C, where the installation had a compiler and the processor has AVX2.

Slopes are weighted while they are brought into the order in which registers take them, and no product is held beside the sum. A number is
one chain of fused products and sums for each part of the units, so its bits depend neither on the number of threads nor on the width of
the processor's registers, and a library's choices have no part in them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import torch
from torch import Tensor

from zetadp.trainer.layers.flat_parameters import as_real

WIDEST: int = 16
"""The loops use registers of at most so many numbers."""

FEWEST: Final = 4
"""Outputs from which on it pays: inputs are copied, a few at a time, which takes as long as their products with fewer."""

DEPTH: Final = 128
"""Products in a chain, at most: inputs of as many units stay in a processor's nearest cache, and shorter chains round less
(mechanisms/proofs/clipped_sum.md: up to 2048 units, parts of 64 or more are on the side where fewer units at once round less)."""

SMALLEST_SHARE: Final = 2**22
"""Multiplications of a thread, at least: beginning one takes as long as some ten thousand."""


def _compiled() -> Any:
    try:
        found = import_module("zetadp.trainer.layers._outer")
    except ImportError:
        return None
    return found if hasattr(found, "width") and found.width() else None


COMPILED: Any = _compiled()
"""The C module; None if there was no compiler, or the processor lacks what the loops need."""


def is_taken(slopes: Tensor, inputs: Tensor) -> bool:
    """Whether the loops take these, (units, outputs) and (units, inputs): enough of single precision on a processor."""
    if COMPILED is None or slopes.shape[1] < FEWEST or not slopes.numel() or not inputs.numel() or slopes.dtype != inputs.dtype:
        return False
    return slopes.dtype in (torch.float32, torch.complex64) and slopes.device.type == inputs.device.type == "cpu"


def write_weighted_sum(slopes: Tensor, factors: Tensor, inputs: Tensor, into: Tensor, at_once: int) -> Tensor:
    r"""Writes sum_u factors[u] slopes_u^T conj(inputs_u) into a contiguous tensor of their type, (outputs, inputs).

    Args:
      at_once: units that float32 may add at once, at least.
    Returns:
      the sum of the weighted slopes, the bias's, in double precision, (outputs,).
    """
    (units, outputs), seen, parts = slopes.shape, inputs.shape[1], 2 if inputs.is_complex() else 1
    of_slopes = torch.empty(outputs, dtype=torch.complex128 if parts == 2 else torch.float64)
    work = units * outputs * seen * parts * parts
    COMPILED.weighted_sum(
        *(as_real(one.detach()).contiguous().numpy() for one in (slopes, factors, inputs)),
        as_real(into).numpy(),
        as_real(of_slopes).numpy(),
        (units, outputs, seen, parts),
        min(at_once, DEPTH // parts),
        (WIDEST, min(torch.get_num_threads(), max(1, work // SMALLEST_SHARE))),
    )
    return of_slopes
