r"""The epsilon spent so far, cheap enough to show while training runs."""

from __future__ import annotations

from typing import final

import accountants
from trainer.plan import ExecutionPlan

LIVE_ACCOUNTANT = "rdp"
"""Answers in milliseconds where ``auto`` takes a second; a few per cent above it, never below the truth."""


@final
class EpsilonSpent:
    r"""Proved upper bounds on the epsilon of the first steps of a plan, at its delta.

    Epsilon grows with the number of steps, so the whole run's tight bound holds for every part of it: the live value is the smaller of
    that and a quick bound on the part, and the last step's is the one the certificate will state.
    """

    def __init__(self, plan: ExecutionPlan) -> None:
        self._plan = plan
        self._whole = accountants.profile(plan.event).epsilon_upper(plan.delta)

    def after(self, steps: int) -> float:
        """For the first ``steps`` steps, >= 1."""
        if steps == self._plan.steps:
            return self._whole
        event = self._plan.event_after(steps)
        live = accountants.accountant_named(LIVE_ACCOUNTANT)
        # An event that only slower accountants know is shown at their price; the publisher then asks less often.
        part = live.profile(event) if live.unsupported(event) is None else accountants.profile(event)
        return min(part.epsilon_upper(self._plan.delta), self._whole)
