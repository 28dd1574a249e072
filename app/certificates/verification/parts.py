r"""The parts of a comparison as its certificate states them, each with its own guarantee."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import final

from zetadp.accountants import deadline, profile
from zetadp.accountants.events import Event, non_private_reason
from zetadp.accountants.profile import Bound
from zetadp.app.certificates.errors import CertificateRefused
from zetadp.app.certificates.facts.claims import pure_epsilon
from zetadp.app.certificates.facts.decimals import exact, fraction, upper
from zetadp.app.certificates.facts.errata import rows_in_order
from zetadp.app.certificates.facts.guarantee import SEED_SENTENCE
from zetadp.app.certificates.facts.report import Check, failed, not_checked, outcome
from zetadp.app.certificates.facts.run import CertificateInput
from zetadp.app.certificates.facts.statement import PartFacts, PartGuarantee
from zetadp.app.certificates.verification.recomputation import NUMERICAL_FAILURES, TOLERANCE
from zetadp.mechanisms import NumericalFloor, RandomOrigin, TimeLimitReached, UnsupportedEvent
from zetadp.trainer.specs.algorithms.comparison import Comparison
from zetadp.trainer.specs.plans import ComparisonPlan

_SECONDS = 10.0
"""For the figures of all parts together, when they are verified."""


def parts_of(given: CertificateInput) -> tuple[PartFacts, ...]:
    """Every part of a comparison with its own figures and rows; none of anything else.

    Raises:
      CertificateRefused: spec and plan name different parts.
      UnknownRow: an algorithm names a row that the errata don't have.
    """
    spec, plan = given.spec, given.plan
    if not isinstance(plan, ComparisonPlan):
        return ()
    if not isinstance(spec, Comparison):
        raise CertificateRefused("the kind of plan", spec.algorithm, type(plan).__name__)
    known: dict[str, PartGuarantee] = {}  # repetitions have one event
    parts: list[PartFacts] = []
    for run, part in zip(spec.runs(), plan.parts, strict=True):
        event = part.plan.event
        key = event.model_dump_json()
        if key not in known:
            known[key] = _by_itself(event, plan.delta, given.report.random_origin)
        rows = rows_in_order((*run.spec.ERRATA, *(row for one in part.plan.mechanisms for row in type(one).FACTS.errata)))
        parts.append(PartFacts(name=part.name, algorithm=run.spec.algorithm, by_itself=known[key], errata=rows))
    return tuple(parts)


def check_parts_alone(plan: ComparisonPlan, parts: tuple[PartFacts, ...], origin: RandomOrigin) -> Check:
    """Checks every part's own figures against its event's bracket, as far as time allows."""
    brackets: dict[tuple[str, str], _Alone] = {}
    problems: list[str] = []
    missed: list[str] = []
    began = time.thread_time()
    for part, planned in zip(parts, plan.parts, strict=True):
        event = planned.plan.event
        key = event.model_dump_json(), part.by_itself.delta
        if key not in brackets:
            left = _SECONDS - (time.thread_time() - began)
            try:
                brackets[key] = _alone(event, float(part.by_itself.delta), origin, max(left, 0.01))
            except NUMERICAL_FAILURES as error:
                return failed("parts_alone", f"part {part.name}: its figures can't be recomputed from its event: {error}")
        found = brackets[key]
        problems.extend(f"part {part.name}: {problem}" for problem in _contradictions(part.by_itself, found))
        if part.by_itself.epsilon is not None and not found.proves(part.by_itself.epsilon):
            missed.append(part.name)
    if missed and not problems:
        return not_checked("parts_alone", f"no accountant's bracket reproduced what these guarantee by themselves: {', '.join(missed)}")
    return outcome("parts_alone", problems, "what each part guarantees by itself follows from its own event")


@final
@dataclass(frozen=True)
class _Alone:
    r"""What is known about one part: the bracket of its epsilon and the pure one, or why there is neither.

    Attributes:
      is_certain: the reason is the part's own, not a want of time or of an accountant.
    """

    bound: Bound | None
    pure: Fraction | None
    reason: str | None
    is_certain: bool = True

    def proves(self, epsilon: str) -> bool:
        """Whether the bracket gives this epsilon again, to the digits that a certificate has."""
        return self.bound is not None and float(epsilon) >= self.bound.upper * (1.0 - TOLERANCE)


def _by_itself(event: Event, delta: float, origin: RandomOrigin) -> PartGuarantee:
    found = _alone(event, delta, origin, math.inf)
    if found.bound is None:
        return PartGuarantee(delta=exact(delta), reason=found.reason)
    pure = None if found.pure is None else upper(found.pure)
    return PartGuarantee(epsilon=upper(found.bound.upper), delta=exact(delta), pure_epsilon=pure, route=found.bound.route)


def _alone(event: Event, delta: float, origin: RandomOrigin, seconds: float) -> _Alone:
    if (reason := non_private_reason(event)) is not None:
        return _Alone(None, None, reason)
    if origin is RandomOrigin.USER_SEED:
        return _Alone(None, None, SEED_SENTENCE)
    try:
        with deadline.time_limit(seconds):
            bound = profile(event, accountant="auto").epsilon(delta)
    except (UnsupportedEvent, NumericalFloor, TimeLimitReached) as error:
        return _Alone(None, None, f"no accountant proves a bound for this part: {error}", is_certain=False)
    if not math.isfinite(bound.upper):
        return _Alone(None, None, f"no finite epsilon was proved at delta = {delta!r}")
    return _Alone(bound, pure_epsilon(event), None)


def _contradictions(stated: PartGuarantee, found: _Alone) -> Iterator[str]:
    if stated.epsilon is not None and found.bound is None and found.is_certain:
        yield f"by_itself.epsilon is {stated.epsilon}, but there is none: {found.reason}"
    if stated.epsilon is not None and found.bound is not None and float(stated.epsilon) < found.bound.lower * (1.0 - TOLERANCE):
        yield f"by_itself.epsilon is {stated.epsilon}, but it is at least {found.bound.lower!r}"
    if stated.pure_epsilon is None:
        return
    if found.pure is None and (found.bound is not None or found.is_certain):
        yield f"by_itself.pure_epsilon is {stated.pure_epsilon}, but its event has none"
    elif found.pure is not None and fraction(stated.pure_epsilon) < found.pure:
        yield f"by_itself.pure_epsilon is {stated.pure_epsilon}, but recomputed it is {float(found.pure)!r}"
