r"""The default route: the closed form where it applies, otherwise every other accountant's bound, intersected."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, final

from accountants.events import Event, non_private_reason
from accountants.gdp import GdpAccountant
from accountants.pld import PldAccountant
from accountants.profile import Accountant, Bound, DeltaBound, NonPrivateProfile, PrivacyProfile, check_order
from accountants.rdp import RdpAccountant
from mechanisms.base import Step
from mechanisms.errors import NumericalFloor, UnsupportedEvent

ROUTE = "auto"

_Answer = TypeVar("_Answer")


@final
class IntersectedProfile(PrivacyProfile):
    """Several profiles of one event: the smallest upper end and the largest lower end of those that can answer."""

    def __init__(self, profiles: tuple[PrivacyProfile, ...]) -> None:
        self._profiles = profiles

    @property
    def route(self) -> str:
        return " and ".join(profile.route for profile in self._profiles)

    def delta(self, epsilon: float) -> DeltaBound:
        answers = self._answers(lambda profile: profile.delta(epsilon))
        best = min(answers, key=lambda bound: bound.log_upper)
        return DeltaBound(log_lower=min(best.log_upper, max(b.log_lower for b in answers)), log_upper=best.log_upper, route=best.route)

    def epsilon(self, delta: float) -> Bound:
        answers = self._answers(lambda profile: profile.epsilon(delta))
        best = min(answers, key=lambda bound: bound.upper)
        return Bound(lower=min(best.upper, max(b.lower for b in answers)), upper=best.upper, route=best.route)

    def epsilon_upper(self, delta: float) -> float:
        return min(self._answers(lambda profile: profile.epsilon_upper(delta)))

    def log_delta_upper(self, epsilon: float) -> float:
        return min(self._answers(lambda profile: profile.log_delta_upper(epsilon)))

    def rdp(self, order: float) -> float | None:
        check_order(order)
        values = [value for profile in self._profiles if (value := profile.rdp(order)) is not None]
        return min(values, default=None)

    def derivation(self) -> tuple[Step, ...]:
        return self._profiles[0].derivation()

    def _answers(self, ask: Callable[[PrivacyProfile], _Answer]) -> list[_Answer]:
        found: list[_Answer] = []
        refusal: NumericalFloor | None = None
        for profile in self._profiles:
            try:
                found.append(ask(profile))
            except NumericalFloor as floor:
                refusal = floor
        if not found and refusal is not None:
            raise refusal
        return found


@final
class AutoAccountant(Accountant):
    """Picks: gdp where the event has a closed form, else the tightest of pld and rdp at each question."""

    name = ROUTE
    summary = "The closed form where there is one, otherwise the tighter upper bound of pld and rdp; the answer names its route."
    sources = ("the sources of gdp, pld and rdp",)

    _closed = GdpAccountant()
    _others: tuple[Accountant, ...] = (PldAccountant(), RdpAccountant())

    def unsupported(self, event: Event) -> str | None:
        if self._closed.unsupported(event) is None:
            return None
        reasons = [accountant.unsupported(event) for accountant in self._others]
        return None if None in reasons else reasons[-1]

    def profile(self, event: Event) -> PrivacyProfile:
        if (reason := non_private_reason(event)) is not None:
            return NonPrivateProfile(reason)
        if self._closed.unsupported(event) is None:
            return self._closed.profile(event)
        usable = tuple(accountant.profile(event) for accountant in self._others if accountant.unsupported(event) is None)
        if not usable:
            raise UnsupportedEvent(self.name, self.unsupported(event) or "no accountant supports it")
        return usable[0] if len(usable) == 1 else IntersectedProfile(usable)
