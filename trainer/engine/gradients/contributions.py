r"""Measures what one unit adds to a clipped sum, on made-up units before the first release, and compares it with what the noise is for.

A bound that is too large, a layer that isn't clipped or a norm that leaves something out would go unnoticed: sums, noise and weights look
as they should. No outcome depends on anybody's data values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.engine.gradients.clipping import ClippedSum
from zetadp.trainer.engine.noise import releasing
from zetadp.trainer.specs.execution_plan import ExecutionPlan

UNITS = 4

BEYOND = 2.0**20
"""How many times the bound each unit's gradient is, so that every layer's part of it would stand out if it weren't clipped."""

SMALLEST = 1e-25
"""The smallest bound tried, unless the run's own is smaller: far below it float32 has no digits left."""

ROUNDING = 1e-9
"""Relative to the bound tried: clipping aims far enough below it to cover its own rounding."""

AGREEMENT = 1e-2
"""In bounds: how far a sum may be from the sum of its units, each alone. Rounding is 1e-6; if one unit changes another, far more."""

MadeUpSum = Callable[[Tensor, float], ClippedSum]
"""Numbers of made-up units, (sampled,), and a bound -> their clipped sum, computed exactly as for real ones."""


class Tried(Protocol):
    """``ClippedGradients`` and ``ClippedRows``."""

    def made_up(self, count: int) -> MadeUpSum:
        """Clipped sums over any of ``count`` made-up units, with made-up parameters."""
        ...


def check_contributions(clipped: Tried, plan: ExecutionPlan, bound: float) -> None:
    r"""Refuses a run in which one made-up unit moves what is released by more than the plan's noise is for.

    Args:
      bound: the bound that the next step clips to. Made-up gradients may be shorter, so a bound that is smaller in proportion is tried:
        clipping is the same at every bound.
    Raises:
      InvalidParameter: a unit alone, or one among others, moves the released vector by more.
    """
    summed, everybody = clipped.made_up(UNITS), torch.arange(UNITS)
    found = summed(everybody, bound)
    shortest = min((norm for norm in (found.norms.double() / found.bound).tolist() if norm > 0.0), default=BEYOND)
    share = min(1.0, max(shortest / BEYOND, SMALLEST / bound))
    given, order = plan.mechanism.sensitivity, 1 if plan.clipping.norm == "l1" else 2
    stated = (given.l1_contribution or given.l1) if order == 1 else (given.l2_contribution or given.l2)
    assert stated is not None  # the plan checked it against its clipping
    # In units of the bound, whatever that is, or of the gradient.
    allowed = stated if plan.clipping.IN_BOUNDS else share * stated
    rest = _released(summed, everybody, plan, bound, share)
    for unit in everybody.split(1):
        alone = _released(summed, unit, plan, bound, share)
        moved = float(torch.linalg.vector_norm(alone, ord=order))
        if not moved <= allowed * (1.0 + ROUNDING):
            raise _refused(f"{moved / allowed:.6g} times as much")
        rest -= alone
    mixed = float(torch.linalg.vector_norm(rest, ord=order))
    if not mixed <= allowed * AGREEMENT:
        raise _refused(f"a sum of {UNITS} units that differs from the sum of their own by {mixed / allowed:.6g} times as much")


def _released(summed: MadeUpSum, units: Tensor, plan: ExecutionPlan, bound: float, share: float) -> Tensor:
    """The vector that noise would be added to, in float64."""
    return releasing.query(plan.clipping, summed(units, share * bound), len(units), share * bound).double()


def _refused(got: str) -> InvalidParameter:
    return InvalidParameter("network", "one in which a made-up unit moves the released sum by at most the bound that the noise is for", got)
