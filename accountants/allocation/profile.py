r"""The profile of a composition with groups in random allocations: a proved upper end, and what some of the outputs lose at least."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from typing import final

from zetadp.accountants.profile import Bound, DeltaBound, PrivacyProfile
from zetadp.mechanisms.base import Step
from zetadp.mechanisms.errors import NumericalFloor, UnsupportedEvent


@final
class AllocatedGroupsProfile(PrivacyProfile):
    """Between the profile of the bounding pairs and those of compositions that lose less. proofs/allocation.md, Groups.

    Args:
      above: the profile of the bounding pairs, of which only upper ends are used.
      below: makes the profiles of what loses less, for whoever asks for a lower end.
    """

    def __init__(self, above: PrivacyProfile, below: Callable[[], list[PrivacyProfile]]) -> None:
        self._above, self._make = above, below

    @property
    def route(self) -> str:
        return self._above.route

    def delta(self, epsilon: float) -> DeltaBound:
        found = self._above.delta(epsilon)
        log_lower = max(self._lower(lambda profile: profile.delta(epsilon).log_lower), default=-math.inf)
        return DeltaBound(log_lower=min(log_lower, found.log_upper), log_upper=found.log_upper, route=found.route)

    def epsilon(self, delta: float) -> Bound:
        return self._between(self._above.epsilon(delta), lambda profile: profile.epsilon(delta))

    def epsilon_at_log_delta(self, log_delta: float) -> Bound:
        return self._between(self._above.epsilon_at_log_delta(log_delta), lambda profile: profile.epsilon_at_log_delta(log_delta))

    def epsilon_upper(self, delta: float) -> float:
        return self._above.epsilon_upper(delta)

    def log_delta_upper(self, epsilon: float) -> float:
        return self._above.log_delta_upper(epsilon)

    def rdp(self, order: float) -> float | None:
        return self._above.rdp(order)

    def derivation(self) -> tuple[Step, ...]:
        return self._above.derivation()

    @cached_property
    def _below(self) -> list[PrivacyProfile]:
        return self._make()

    def _lower(self, ask: Callable[[PrivacyProfile], float]) -> Iterator[float]:
        for profile in self._below:
            with suppress(NumericalFloor, UnsupportedEvent):  # then this one says nothing
                yield ask(profile)

    def _between(self, found: Bound, ask: Callable[[PrivacyProfile], Bound]) -> Bound:
        lower = max(self._lower(lambda profile: ask(profile).lower), default=0.0)
        return Bound(lower=min(lower, found.upper), upper=found.upper, route=found.route)
