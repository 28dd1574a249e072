r"""Recomputing a certificate's figures from its event: by the accountant it names, by another one, and by code that only checks.

Two questions. Does the bracket of the named accountant, or of another one, contradict a figure? And does the independent recomputation
(``accountants.cross_check``, accurate to 1e-6, not a bound) find a figure too small?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import final

from zetadp.accountants import ACCOUNTANTS, cross_check, deadline, profile
from zetadp.accountants.accountant import Accountant
from zetadp.accountants.events import Event
from zetadp.accountants.profile import PrivacyProfile
from zetadp.app.certificates.facts.claims import is_whole, pure_epsilon, without_sampling
from zetadp.app.certificates.facts.guarantee import ApproximateDp, DeltaPoint
from zetadp.app.certificates.facts.report import Check, failed, not_checked, outcome
from zetadp.mechanisms import NumericalFloor, PrivacyError, TimeLimitReached, UnsupportedEvent

TOLERANCE = cross_check.ACCURACY
"""How far below a recomputed figure a certified one may be, relatively: the accuracy of the independent recomputation."""

NUMERICAL_FAILURES = (PrivacyError, ArithmeticError, ValueError, RuntimeError)
"""Exceptions of numerical code, including SciPy's root finders, on an event that it can't handle: the check fails, nothing crashes."""

_OTHERS = ("contour", "fft", "lattice", "single", "pld", "rdp")
"""Accountants to use in addition to the named one; the first that answers counts, and accountants not listed come last."""

_SECONDS = 1.5
"""For epsilon by an accountant that the certificate doesn't name: one that takes longer leaves it to the next."""

_RECOMPUTATION_SECONDS = 3.0
"""For epsilon, and for the curve, by the independent recomputation: thousands of different releases would take minutes."""

_CURVE_SECONDS = 1.0
"""For the points of the curve by each accountant; those that none reaches are said not to be checked."""


def check_figures(event: Event, claim: ApproximateDp) -> list[Check]:
    """Checks every figure of the claim that can be recomputed. If one route fails, the others still report their findings."""
    brackets, recomputation = _Brackets(event, claim), _Recomputation(event, claim)
    return [
        _guarded("accountants", brackets.check),
        _guarded("other_figures", lambda: _check_other_figures(event, claim)),
        _guarded("recomputation", lambda: recomputation.check(brackets.proved_by)),
        *_check_reach(claim, brackets.reached | recomputation.reached),
    ]


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except NUMERICAL_FAILURES as error:
        return failed(name, f"the figures can't be recomputed from this event: {error}")


@final
class _Brackets:
    r"""What the named accountant and another one say about the certified epsilon and curve.

    Attributes:
      proved_by: once checked, the accountant whose bracket reproduces epsilon; None if neither does.
      reached: the epsilons of the curve at which one of them proves the certified delta.
    """

    def __init__(self, event: Event, claim: ApproximateDp) -> None:
        self._event, self._claim = event, claim
        self._epsilon = float(claim.epsilon)
        self._recomputed: list[str] = []
        self._problems: list[str] = []
        self.proved_by: str | None = None
        self.reached: set[str] = set()

    def check(self) -> Check:
        """Fails if an accountant's bracket contradicts a figure."""
        claim = self._claim
        # "auto" only picks among the others.
        known = {accountant.name: accountant for accountant in ACCOUNTANTS if accountant.name != "auto"}
        named = known.pop(claim.accountant, None)
        if named is None:
            self._recomputed.append(f"{claim.accountant}: this version has no accountant with that name")
        else:
            self._ask(named, math.inf)
        for other in sorted(known.values(), key=_preference):
            if self._ask(other, _SECONDS):
                break
        certified = f"epsilon {self._claim.epsilon} at delta {self._claim.delta}, named accountant {self._claim.accountant}"
        return outcome("accountants", self._problems, f"{certified}; brackets of epsilon recomputed: {'; '.join(self._recomputed)}")

    def _ask(self, accountant: Accountant, seconds: float) -> bool:
        """Returns whether it answered."""
        name = accountant.name
        if (reason := accountant.unsupported(self._event)) is not None:
            self._recomputed.append(f"{name}: {reason}")
            return False
        try:
            with deadline.time_limit(seconds):
                found = accountant.profile(self._event)
                bound = found.epsilon(float(self._claim.delta))
        except (NumericalFloor, UnsupportedEvent, TimeLimitReached) as error:
            self._recomputed.append(f"{name}: {error}")
            return False
        self._recomputed.append(f"{name} [{bound.lower:.7g}, {bound.upper:.7g}]")
        if self.proved_by is None and self._epsilon >= bound.upper:
            self.proved_by = name
        if self._epsilon < bound.lower:
            self._problems.append(f"epsilon is {self._claim.epsilon}, but by {name} it is at least {bound.lower!r}")
        if float(self._claim.epsilon_lower) > bound.upper:
            self._problems.append(f"epsilon_lower is {self._claim.epsilon_lower}, but by {name} epsilon is at most {bound.upper!r}")
        self._compare_curve(name, found)
        return True

    def _compare_curve(self, name: str, found: PrivacyProfile) -> None:
        asked, curve = 0, self._claim.delta_curve
        try:
            with deadline.time_limit(_CURVE_SECONDS):
                for point in curve:
                    # One bracket a point is enough beside the recomputation, which goes through all of them as far as it answers; no point
                    # costs more than here.
                    if point.epsilon not in self.reached:
                        self._compare_point(name, found, point)
                    asked += 1
        except TimeLimitReached:
            self._recomputed.append(f"{name} was asked for {asked} of the curve's {len(curve)} points, since time ran out")

    def _compare_point(self, name: str, found: PrivacyProfile, point: DeltaPoint) -> None:
        try:
            bound = found.delta(float(point.epsilon))
        except (NumericalFloor, UnsupportedEvent):
            return
        # Only the upper end proves a stated delta. One inside the bracket may be too small by as much as the bracket is wide.
        if bound.upper <= float(point.delta):
            self.reached.add(point.epsilon)
        if float(point.delta) < bound.lower:
            self._problems.append(f"delta({point.epsilon}) is {point.delta}, but by {name} it is at least {bound.lower!r}")


def _preference(accountant: Accountant) -> int:
    return _OTHERS.index(accountant.name) if accountant.name in _OTHERS else len(_OTHERS)


def _check_other_figures(event: Event, claim: ApproximateDp) -> Check:
    """Renyi bounds, mu, and epsilon without sampling, by the accountants again."""
    found = profile(event, accountant="auto")
    stated: dict[str, tuple[str | None, float | None]] = {
        f"renyi({point.order})": (point.epsilon, found.rdp(float(point.order))) for point in claim.renyi or ()
    }
    stated["gdp_mu"] = claim.gdp_mu, found.gdp_mu
    if claim.pure_epsilon is not None:
        pure = pure_epsilon(event)
        stated["pure_epsilon"] = claim.pure_epsilon, None if pure is None else float(pure)
    if claim.epsilon_without_sampling is not None:
        stated["epsilon_without_sampling"] = claim.epsilon_without_sampling, _least_without_sampling(event, float(claim.delta))
    return outcome("other_figures", list(_too_small(stated)), f"{', '.join(stated)}: none is below its recomputed value")


def _least_without_sampling(event: Event, delta: float) -> float | None:
    """Lower end of epsilon for the releases on all of the data; None if that isn't stated for such an event."""
    whole = None if is_whole(event) else without_sampling(event)
    if whole is None:
        return None
    return profile(whole, accountant="auto").epsilon(delta).lower


def _too_small(stated: Mapping[str, tuple[str | None, float | None]]) -> Iterator[str]:
    for name, (text, value) in stated.items():
        if text is None:
            continue
        if value is None:
            yield f"{name} is stated as {text}, but this event has none"
        elif float(text) < value * (1.0 - TOLERANCE):
            yield f"{name} is {text}, but recomputed it is {value!r}"


@final
class _Recomputation:
    r"""Epsilon and the curve by inverting the moment function.

    Attributes:
      reached: the epsilons of the curve at which delta was recomputed.
    """

    def __init__(self, event: Event, claim: ApproximateDp) -> None:
        self._event, self._claim = event, claim
        self.reached: set[str] = set()

    def check(self, proved_by: str | None) -> Check:
        """If the inversion declines, an accountant's bracket must have reproduced epsilon."""
        claim = self._claim
        try:
            with deadline.time_limit(_RECOMPUTATION_SECONDS):
                epsilon = cross_check.recomputed_epsilon(self._event, float(claim.delta))
        except (UnsupportedEvent, TimeLimitReached) as error:
            if proved_by is not None:
                return not_checked("recomputation", f"{error}; the bracket of accountant {proved_by} reproduces epsilon {claim.epsilon}")
            return failed("recomputation", f"{error}; and no accountant's bracket reproduces epsilon {claim.epsilon}")
        problems: list[str] = []
        if float(claim.epsilon) < epsilon * (1.0 - TOLERANCE):
            problems.append(f"epsilon is {claim.epsilon}, but recomputed from the event it is {epsilon:.9g}")
        try:
            with deadline.time_limit(_RECOMPUTATION_SECONDS):
                self._compare_curve(problems)
        except TimeLimitReached:
            pass  # the points that nobody reached are told
        points = len(claim.delta_curve)
        curve = "so is the curve" if len(self.reached) == points else f"so is the curve at {len(self.reached)} of its {points} points"
        good = f"epsilon {claim.epsilon} is at least the independently recomputed {epsilon:.9g}; {curve}"
        return outcome("recomputation", problems, good)

    def _compare_curve(self, problems: list[str]) -> None:
        recomputed = cross_check.recomputed_log_deltas(self._event)
        for point in self._claim.delta_curve:
            stated = float(point.delta)
            try:
                log_delta = recomputed(float(point.epsilon))
            except UnsupportedEvent:
                continue
            self.reached.add(point.epsilon)
            if stated == 0.0 or math.log(stated) < log_delta + math.log1p(-TOLERANCE) * max(1.0, -log_delta):
                problems.append(f"delta({point.epsilon}) is {point.delta}, but recomputed its logarithm is {log_delta:.9g}")


def _check_reach(claim: ApproximateDp, reached: set[str]) -> Iterator[Check]:
    """Nothing, or the points of the curve that no route reproduced: the certificate may be right there, but nobody has checked."""
    missed = [point.epsilon for point in claim.delta_curve if point.epsilon not in reached]
    if missed:
        yield not_checked("curve", f"no route reproduced delta at epsilon {', '.join(missed)}")
