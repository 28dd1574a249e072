r"""The epsilon spent so far, computed cheaply enough to show while training runs."""

from __future__ import annotations

from typing import final

from zetadp import accountants
from zetadp.accountants import deadline
from zetadp.mechanisms import NumericalFloor, TimeLimitReached, UnsupportedEvent
from zetadp.trainer.specs.plan_base import Plan

TIGHT_ACCOUNTANTS = ("gdp", "single", "contour")
"""Where these give an answer, it is as tight as that of ``auto`` and takes about a millisecond."""

QUICK_ACCOUNTANT = "rdp"
"""Always gives an answer quickly; a few per cent too high, never below the truth."""

LIMIT_SECONDS = 0.1
"""Time limit for one query to a tight accountant: few and sparse steps would take seconds."""

_AHEAD = (1, 8)


@final
class EpsilonSpent:
    r"""Upper bounds on the epsilon of the first steps of a plan, at its delta.

    Epsilon grows with the number of steps, so a bound for more steps, or for the whole run, holds for fewer: where too few steps have no
    quick tight answer, eight times as many may have one. The last step's value is the one the certificate will state.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._whole = accountants.profile(plan.event).epsilon_upper(plan.delta)

    def after(self, steps: int) -> float:
        """The bound for the first ``steps`` steps, >= 1."""
        if steps == self._plan.steps:
            return self._whole
        for ahead in (steps * multiple for multiple in _AHEAD if steps * multiple < self._plan.steps):
            if (tight := self._tight(ahead)) is not None:
                return min(tight, self._whole)
        quick = accountants.accountant_named(QUICK_ACCOUNTANT).profile(self._plan.event_after(steps))
        return min(quick.epsilon_upper(self._plan.delta), self._whole)

    def _tight(self, steps: int) -> float | None:
        """The bound of the first tight accountant that answers in time."""
        event = self._plan.event_after(steps)
        for accountant in accountants.ACCOUNTANTS:
            if accountant.name not in TIGHT_ACCOUNTANTS or accountant.unsupported(event) is not None:
                continue
            try:
                with deadline.time_limit(LIMIT_SECONDS):
                    return accountant.profile(event).epsilon_upper(self._plan.delta)
            except (UnsupportedEvent, NumericalFloor, TimeLimitReached):
                continue
        return None
