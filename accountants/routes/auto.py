r"""The default route: the closed form if it applies, otherwise the cheapest route whose proven bracket is narrow enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeVar, final

from zetadp.accountants import deadline
from zetadp.accountants.accountant import Accountant
from zetadp.accountants.dominating import pair_of, unsupported_reason
from zetadp.accountants.leaf import Leaf, Selection
from zetadp.accountants.profile import Bound, DeltaBound, PrivacyProfile, check_order
from zetadp.accountants.routes.closed.closed_form import GdpAccountant
from zetadp.accountants.routes.contour.contour import ContourAccountant
from zetadp.accountants.routes.fft.fft import FftAccountant
from zetadp.accountants.routes.lattice.lattice import LatticeAccountant
from zetadp.accountants.routes.rdp.rdp import RdpAccountant
from zetadp.accountants.routes.single.single import SingleAccountant
from zetadp.accountants.selected.best_run import SelectedProfile
from zetadp.mechanisms.base import Step
from zetadp.mechanisms.errors import ContradictoryBounds, NumericalFloor, UnsupportedEvent

ROUTE = "auto"

WIDTH = 1e-6
"""An epsilon bracket is narrow enough if its width is at most this share of epsilon; a delta bracket may differ by ten times as much."""

FLOOR = 1e-9
"""Or if it is no wider than this: when epsilon is 0 or nearly 0, a relative width makes no sense."""

ENOUGH = 10.0
"""A bracket up to this many times as wide is kept: the next route takes a thousand times as long, and rounding limits all routes there."""

_Answer = TypeVar("_Answer", Bound, DeltaBound)
_Refusal = TypeVar("_Refusal", bound=UnsupportedEvent | NumericalFloor)


@final
class RoutedProfile(PrivacyProfile):
    """Routes for leaves with their counts, cheapest first: each query goes to the next route until a bracket is narrow enough.

    If none is, or moments may say more than pairs, the answer is the smallest upper and the largest lower end of all that answered.

    Raises:
      UnsupportedEvent: none of the routes supports them.
      ContradictoryBounds: two routes exclude each other, when asked.
    """

    def __init__(self, parts: Mapping[Leaf, int], routes: tuple[Accountant, ...]) -> None:
        self._parts, self._routes = parts, routes
        # Where moments say more than dominating pairs do, Renyi accounting may be below a bracket of theirs, however narrow that is.
        families = [pair_of(leaf).family for leaf in parts if unsupported_reason(leaf) is None]
        self._is_loose = any(one.is_bound or (one.is_loose and sum(parts.values()) > 1) for one in families)
        self._known: dict[str, PrivacyProfile | UnsupportedEvent] = {}
        self._first()

    @property
    def route(self) -> str:
        return self._first().route

    def delta(self, epsilon: float) -> DeltaBound:
        answers = self._answers(lambda profile: profile.delta(epsilon), _is_narrow_delta)
        if len(answers) == 1:
            return answers[0]
        best = min(answers, key=lambda bound: bound.log_upper)
        lower = self._agreeing("log delta", [(b.log_lower, b.log_upper, b.route) for b in answers], best.log_lower)
        return DeltaBound(log_lower=lower, log_upper=best.log_upper, route=best.route)

    def epsilon(self, delta: float) -> Bound:
        return self._epsilon(lambda profile: profile.epsilon(delta))

    def epsilon_at_log_delta(self, log_delta: float) -> Bound:
        return self._epsilon(lambda profile: profile.epsilon_at_log_delta(log_delta))

    def _epsilon(self, ask: Callable[[PrivacyProfile], Bound]) -> Bound:
        answers = self._answers(ask, _is_narrow)
        if len(answers) == 1:
            return answers[0]
        best = min(answers, key=lambda bound: bound.upper)
        lower = self._agreeing("epsilon", [(b.lower, b.upper, b.route) for b in answers], best.lower)
        return Bound(lower=lower, upper=best.upper, route=best.route)

    def _agreeing(self, quantity: str, ends: list[tuple[float, float, str]], own: float) -> float:
        """The largest lower end, which the smallest upper one mustn't contradict; where moments say more than pairs, theirs may."""
        lower, upper = _meeting(ends)
        if lower <= upper:
            return lower
        of_pairs = _meeting([end for end in ends if not (self._is_loose and end[2].startswith(RdpAccountant.name))])
        if of_pairs[0] > of_pairs[1]:
            raise ContradictoryBounds(quantity, *of_pairs)
        return own

    def rdp(self, order: float) -> float | None:
        check_order(order)
        for accountant in self._routes:
            profile = self._profile(accountant)
            if isinstance(profile, PrivacyProfile) and (value := profile.rdp(order)) is not None:
                return value
        return None

    def derivation(self) -> tuple[Step, ...]:
        return self._first().derivation()

    def _answers(self, ask: Callable[[PrivacyProfile], _Answer], is_narrow: Callable[[_Answer], bool]) -> list[_Answer]:
        found: list[_Answer] = []
        refusal: UnsupportedEvent | NumericalFloor | None = None
        wanted = self._routes
        for accountant in self._routes:
            if accountant not in wanted:
                continue
            deadline.check()
            profile = self._profile(accountant)
            if isinstance(profile, UnsupportedEvent):
                refusal = refusal or profile
                continue
            try:
                answer = ask(profile)
            except (UnsupportedEvent, NumericalFloor) as floor:
                refusal = _without_frames(floor)
                continue
            found.append(answer)
            if is_narrow(answer):
                if not self._is_loose:
                    break
                wanted = tuple(one for one in wanted if isinstance(one, RdpAccountant))
        if not found and refusal is not None:
            raise refusal
        return found

    def _first(self) -> PrivacyProfile:
        refusal: UnsupportedEvent | None = None
        for accountant in self._routes:
            profile = self._profile(accountant)
            if isinstance(profile, PrivacyProfile):
                return profile
            refusal = profile
        raise UnsupportedEvent(ROUTE, refusal.reason if refusal is not None else "no route was given")

    def _profile(self, accountant: Accountant) -> PrivacyProfile | UnsupportedEvent:
        """The route's profile, computed at the first query, or the reason why there is none."""
        if accountant.name not in self._known:
            try:
                self._known[accountant.name] = accountant.of_pairs(self._parts)
            except UnsupportedEvent as reason:
                self._known[accountant.name] = _without_frames(reason)
        return self._known[accountant.name]


def _meeting(ends: list[tuple[float, float, str]]) -> tuple[float, float]:
    """The largest lower and the smallest upper end."""
    return max((lower for lower, _, _ in ends), default=-math.inf), min((upper for _, upper, _ in ends), default=math.inf)


def _without_frames(refusal: _Refusal) -> _Refusal:
    """The refusal without its traceback, which would keep alive every grid of its frames, in a cycle that is freed late."""
    refusal.__traceback__ = None
    return refusal


def _is_narrow(bound: Bound) -> bool:
    if bound.upper == math.inf:
        return bound.lower == math.inf
    return bound.upper - bound.lower <= max(ENOUGH * WIDTH * bound.upper, FLOOR)


def _is_narrow_delta(bound: DeltaBound) -> bool:
    width = bound.log_upper - bound.log_lower if bound.log_upper > bound.log_lower else 0.0
    return width <= 10.0 * ENOUGH * WIDTH * max(1.0, math.fabs(bound.log_upper))


@final
class AutoAccountant(Accountant):
    """Picks gdp if the event has a closed form, otherwise for each query the first route whose bracket is narrow enough."""

    name = ROUTE
    summary = (
        "The closed form where there is one, otherwise the cheapest route with a proved bracket that is narrow enough; answers name it."
    )
    sources = ("the sources of the other accountants",)

    _closed = GdpAccountant()
    _others: tuple[Accountant, ...] = (SingleAccountant(), ContourAccountant(), LatticeAccountant(), FftAccountant(), RdpAccountant())
    _of_one = (*_others[:3], _others[4])
    _of_several = _others[1:]

    def unsupported_parts(self, parts: Mapping[Leaf, int]) -> str | None:
        reason = None
        for accountant in (self._closed, *self._others):
            reason = accountant.unsupported_parts(parts)
            if reason is None:
                return None
        return reason  # of the route that accepts the most

    def of_selection(self, parts: Mapping[Leaf, int], chosen: Selection) -> PrivacyProfile:
        base, renyi = self.of_all(dict(chosen.parts)), RdpAccountant()
        return SelectedProfile(chosen, base, renyi.of_parts(parts) if renyi.unsupported_selection(parts, chosen) is None else None)

    def _profile(self, parts: Mapping[Leaf, int]) -> PrivacyProfile:
        if self._closed.unsupported_parts(parts) is None:
            return self._closed.of_pairs(parts)
        # One release has a closed form. If rounding limits it, a grid has the same rounding after a thousand times the work.
        is_single = self._others[0].unsupported_parts(parts) is None
        return RoutedProfile(parts, self._of_one if is_single else self._of_several)
