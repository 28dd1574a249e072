r"""How many integers sites release in a round, and of how many bits: what follows from a plan, before anything is released."""

from __future__ import annotations

from collections.abc import Callable

from zetadp.mechanisms import ComplexGaussian
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.shares import share_grid

Form = Callable[[int, int], bool]
"""Integers and bits of each -> whether a sum that counted can have them. Raises InvalidParameter for so many that no grid is for them."""


def integers_released(numbers: int, *, is_complex: bool) -> int:
    """How many integers a site releases for a gradient of so many real numbers: pairs of them where the noise is complex."""
    return numbers + numbers % 2 if is_complex else numbers


def form_of(plan: ExecutionPlan, parameters: int | None) -> Form:
    r"""The form of what counts in a federation with this plan.

    Args:
      parameters: real ones of the network; None where only its description is known, and so not how many integers there are.
    """
    if plan.aggregation is not None:
        return lambda numbers, width: parameters in {None, numbers} and width == share_grid(plan, numbers).width
    expected = None if parameters is None else integers_released(parameters, is_complex=isinstance(plan.mechanism, ComplexGaussian))
    # Without masks integers take the bits that their own size needs.
    return lambda numbers, _width: expected in {None, numbers}
