r"""Recomputing a certificate's figures from its event: by every accountant that can, and by a route that shares nothing with them.

Two questions. Does any accountant's bracket contradict a figure, or give it again? And does the independent recomputation
(``accountants.cross_check``, accurate to 1e-6, not a bound) find a figure too small?
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import final

from accountants import ACCOUNTANTS, cross_check, profile
from accountants.events import Event, leaves
from accountants.profile import PrivacyProfile
from app.certificates.claims import without_sampling
from app.certificates.guarantee import ApproximateDp
from app.certificates.report import Check, failed, not_checked, outcome
from mechanisms import NumericalFloor, PrivacyError, UnsupportedEvent

TOLERANCE = cross_check.ACCURACY
"""How far below a recomputed figure a certified one may lie, relatively: the accuracy of the independent recomputation."""

NUMERICAL_FAILURES = (PrivacyError, ArithmeticError, ValueError, RuntimeError)
"""What numerical code raises on an event it can't handle, SciPy's root finders included: a check that fails, never a crash."""


def check_figures(event: Event, claim: ApproximateDp) -> list[Check]:
    """Every figure of the claim that can be recomputed. The claim's parts have been found to agree with each other."""
    try:
        brackets = _Brackets(event, claim)
        return [brackets.check(), _check_other_figures(event, claim), _check_independently(event, claim, proved=brackets.prove_epsilon)]
    except NUMERICAL_FAILURES as error:
        return [failed("recomputation", f"the figures can't be recomputed from this event: {error}")]


@final
class _Brackets:
    """What every accountant of the registry says of the certified epsilon and curve."""

    def __init__(self, event: Event, claim: ApproximateDp) -> None:
        self._claim = claim
        self._epsilon = float(claim.epsilon)
        self._told: list[str] = []
        self._problems: list[str] = []
        self.prove_epsilon = False
        # "auto" only picks among the others.
        for accountant in ACCOUNTANTS:
            if accountant.name == "auto":
                continue
            if (reason := accountant.unsupported(event)) is not None:
                self._told.append(f"{accountant.name}: {reason}")
            else:
                self._ask(accountant.name, accountant.profile(event))

    def check(self) -> Check:
        """Failed where an accountant's bracket contradicts a figure."""
        certified = f"epsilon {self._claim.epsilon} at delta {self._claim.delta}, named accountant {self._claim.accountant}"
        return outcome("accountants", self._problems, f"{certified}; brackets of epsilon recomputed: {'; '.join(self._told)}")

    def _ask(self, name: str, found: PrivacyProfile) -> None:
        try:
            bound = found.epsilon(float(self._claim.delta))
        except NumericalFloor as error:
            self._told.append(f"{name}: {error}")
            return
        self._told.append(f"{name} [{bound.lower:.7g}, {bound.upper:.7g}]")
        self.prove_epsilon = self.prove_epsilon or self._epsilon >= bound.upper
        if self._epsilon < bound.lower:
            self._problems.append(f"epsilon is {self._claim.epsilon}, but by {name} it is at least {bound.lower!r}")
        if float(self._claim.epsilon_lower) > bound.upper:
            self._problems.append(f"epsilon_lower is {self._claim.epsilon_lower}, but by {name} epsilon is at most {bound.upper!r}")
        self._problems.extend(_curve_below(self._claim, name, found))


def _curve_below(claim: ApproximateDp, name: str, found: PrivacyProfile) -> Iterator[str]:
    for point in claim.delta_curve:
        try:
            low = found.delta(float(point.epsilon)).lower
        except NumericalFloor:
            continue
        if float(point.delta) < low:
            yield f"delta({point.epsilon}) is {point.delta}, but by {name} it is at least {low!r}"


def _check_other_figures(event: Event, claim: ApproximateDp) -> Check:
    """Renyi bounds, mu, and epsilon without sampling, by the accountants again."""
    found = profile(event, accountant="auto")
    stated: dict[str, tuple[str | None, float | None]] = {
        f"renyi({point.order})": (point.epsilon, found.rdp(float(point.order))) for point in claim.renyi or ()
    }
    stated["gdp_mu"] = claim.gdp_mu, found.gdp_mu
    if any(leaf.probability < 1.0 for leaf in leaves(event)) and claim.epsilon_without_sampling is not None:
        low = profile(without_sampling(event), accountant="auto").epsilon(float(claim.delta)).lower
        stated["epsilon_without_sampling"] = claim.epsilon_without_sampling, low
    return outcome("other_figures", list(_too_small(stated)), f"{', '.join(stated)}: none is below its recomputed value")


def _too_small(stated: Mapping[str, tuple[str | None, float | None]]) -> Iterator[str]:
    for name, (text, value) in stated.items():
        if text is None:
            continue
        if value is None:
            yield f"{name} is stated as {text}, but this event has none"
        elif float(text) < value * (1.0 - TOLERANCE):
            yield f"{name} is {text}, but recomputed it is {value!r}"


def _check_independently(event: Event, claim: ApproximateDp, *, proved: bool) -> Check:
    """Epsilon and the curve by inverting the moment function. Where that declines, a bracket must have proved epsilon again."""
    try:
        epsilon = cross_check.recomputed_epsilon(event, float(claim.delta))
    except UnsupportedEvent as error:
        if proved:
            return not_checked("recomputation", f"{error}; an accountant's bracket gives epsilon {claim.epsilon} again")
        return failed("recomputation", f"{error}; and no accountant's bracket gives epsilon {claim.epsilon} again")
    problems = []
    if float(claim.epsilon) < epsilon * (1.0 - TOLERANCE):
        problems.append(f"epsilon is {claim.epsilon}, but recomputed from the event it is {epsilon:.9g}")
    problems.extend(_curve_too_small(event, claim))
    return outcome(
        "recomputation", problems, f"epsilon {claim.epsilon} is at least the independently recomputed {epsilon:.9g}; so is the curve"
    )


def _curve_too_small(event: Event, claim: ApproximateDp) -> Iterator[str]:
    for point in claim.delta_curve:
        stated = float(point.delta)
        try:
            log_delta = cross_check.recomputed_log_delta(event, float(point.epsilon))
        except UnsupportedEvent:
            continue  # a point that this route can't reach; the accountants' brackets still cover it
        if stated == 0.0 or math.log(stated) < log_delta + math.log1p(-TOLERANCE) * max(1.0, -log_delta):
            yield f"delta({point.epsilon}) is {point.delta}, but recomputed its logarithm is {log_delta:.9g}"
