r"""The best of a random number of runs, from the base's own profile. proofs/selected.md.

With phi(z) = E z^K and m = E[K], F_P(x) the probability under P that a run is no better than x, the output of the selection has the density
p(x) phi'(F_P(x)), and phi'(F_P) <= m. If phi'(F_P) / phi'(F_Q) <= e^s everywhere, for either order of the outputs,

    delta(eps) <= m delta_base(eps - s),   s = (1 + eta) log r  with  (1 / gamma - 1) delta_base(log r) <= r - 1,   or   m delta_base(0)

for a negative binomial and a Poisson number of runs (``poisson`` has less for the latter). What that says at a few larger epsilons, and the
largest loss where the base has one, bound delta at smaller ones (``guarantees``). The lower end is what a base that attains its
profile loses when its outputs are ordered by the best tests that the profile has (``lower_ends``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import final

from zetadp.accountants.dominating import pair_of, unsupported_reason
from zetadp.accountants.leaf import Leaf, Selection
from zetadp.accountants.profile import SMALLEST_LOG_DELTA, Bound, DeltaBound, PrivacyProfile, at_most, check_delta, check_epsilon
from zetadp.accountants.selected import poisson
from zetadp.accountants.selected.guarantees import Guarantee
from zetadp.accountants.selected.largest import largest_loss_of_best
from zetadp.accountants.selected.lower_ends import NOTHING, SHARES, Above, BestTest, best_test, chosen_between, least_epsilon, log_excess
from zetadp.accountants.selected.ratio import log_ratio
from zetadp.mechanisms.base import Step
from zetadp.mechanisms.declared.runs import NegativeBinomialRuns, PoissonRuns
from zetadp.mechanisms.errors import InvalidParameter, NumericalFloor, UnsupportedEvent

ROUTE = "selected"

_ROUNDING = 1e-14
"""Allowance for a sum of a few terms, relative to the sum of their sizes: some forty units of 1.1e-16."""

_TIGHT = 1e-6
"""How far, relatively, roots may lie on their safe side."""

_LEVELS = (0.1, 0.03, 0.01, 0.003)
"""Deltas whose epsilons bound delta at smaller epsilons."""

_LARGE = 0.01
"""From this delta on that is tried: below it the profile itself says more."""


def alone(parts: Mapping[Leaf, int]) -> Selection | None:
    """The selection, if these leaves are a single one and nothing else."""
    if len(parts) != 1:
        return None
    ((leaf, count),) = parts.items()
    return leaf.mechanism if count == 1 and isinstance(leaf.mechanism, Selection) else None


@final
class SelectedProfile(PrivacyProfile):
    """The profile of the best of several runs.

    Args:
      selection: the runs.
      base: the profile of one of them.
      renyi: another profile of the same selection, whose upper ends hold as well, if there is one.
    """

    def __init__(self, selection: Selection, base: PrivacyProfile, renyi: PrivacyProfile | None) -> None:
        self._runs, self._base, self._renyi = selection.runs, base, renyi
        self._parts = selection.parts
        self._log_mean = math.log(selection.runs.mean)
        self._tests: dict[float, BestTest | None] = {}
        self._asked: dict[float, float] = {}

    @property
    def route(self) -> str:
        return f"{ROUTE}({self._base.route})"

    def delta(self, epsilon: float) -> DeltaBound:
        check_epsilon(epsilon)
        own, other = self._log_delta(epsilon), self._renyi_delta(epsilon)
        upper, route = (own, self.route) if other is None or own <= other.log_upper else (other.log_upper, other.route)
        near = max(epsilon - self._shift, 0.0)
        tests = self._both((epsilon, near, 0.94 * near, 0.5 * (epsilon + near), 1.2 * epsilon))
        lower = max((log_excess(p, q, epsilon) for p, q in tests), default=-math.inf)
        return DeltaBound(log_lower=at_most("log delta", lower, upper), log_upper=upper, route=route)

    def log_delta_upper(self, epsilon: float) -> float:
        check_epsilon(epsilon)
        own, other = self._log_delta(epsilon), self._renyi_delta(epsilon)
        return own if other is None else min(own, other.log_upper)

    def epsilon(self, delta: float) -> Bound:
        check_delta(delta)
        return self._epsilon(math.log(delta), delta)

    def epsilon_at_log_delta(self, log_delta: float) -> Bound:
        if not -math.inf < log_delta < 0.0:
            raise InvalidParameter("log_delta", "finite and < 0", log_delta)
        return self._epsilon(log_delta, None)

    def epsilon_upper(self, delta: float) -> float:
        check_delta(delta)
        log_delta = math.log(delta)
        return self._epsilon_upper(log_delta, delta, self._base_epsilon(log_delta))[0]

    def rdp(self, order: float) -> float | None:
        return super().rdp(order) if self._renyi is None else self._renyi.rdp(order)

    def derivation(self) -> tuple[Step, ...]:
        runs = self._runs
        where = (
            "m times the base's at 0" if isinstance(runs, PoissonRuns) else "(1 + eta) log r, (1 / gamma - 1) delta_base(log r) <= r - 1"
        )
        return (
            *self._base.derivation(),
            Step(symbol="m", value=runs.mean, formula=f"mean number of runs, {runs.kind.replace('_', ' ')}", source="event"),
            Step(symbol="s", value=self._shift, formula=where, source="proofs/selected.md, section 3"),
            Step(
                symbol="delta(eps)",
                value="m delta_base(eps - s)",
                formula="the best run's output alone; where that is large, by the convexity of delta in e^eps and the largest loss",
                source="proofs/selected.md",
            ),
        )

    @cached_property
    def _shift(self) -> float:
        """s, rounded up: the log of the largest ratio of phi' at two neighbours."""
        runs = self._runs
        if isinstance(runs, PoissonRuns):
            return runs.mean * math.exp(self._base.log_delta_upper(0.0)) * (1.0 + _ROUNDING)
        return (1.0 + runs.eta) * log_ratio(runs, self._log_delta_of_base) * (1.0 + _ROUNDING)

    @cached_property
    def _mass(self) -> float:
        """The probability that there is an output, rounded up."""
        return min(-math.expm1(-self._runs.mean) * (1.0 + _ROUNDING), 1.0) if isinstance(self._runs, PoissonRuns) else 1.0

    @cached_property
    def _largest(self) -> Guarantee | None:
        """The largest loss, if the base has one."""
        largest = largest_loss_of_best(self._runs, self._parts)
        return Guarantee(largest, 0.0) if largest < math.inf else None

    @cached_property
    def _levels(self) -> tuple[Guarantee, ...]:
        """Guarantees at a few deltas, by the base's profile."""
        found: list[Guarantee] = []
        for delta in _LEVELS:
            log_delta = math.log(delta)
            with suppress(NumericalFloor, UnsupportedEvent):
                found.append(Guarantee(self._by_profile_epsilon(log_delta, self._base_epsilon(log_delta)), delta))
        return tuple(found)

    def _guarantees(self, delta: float) -> tuple[Guarantee, ...]:
        """What is known where delta is about so large."""
        return (*(() if self._largest is None else (self._largest,)), *(self._levels if delta > _LARGE else ()))

    def _log_delta(self, epsilon: float) -> float:
        """The smallest upper end that the base's profile and largest loss give."""
        found = self._by_profile(epsilon)
        if found == -math.inf:
            return found
        least = min((one.delta_at(epsilon, self._mass) for one in self._guarantees(math.exp(found))), default=1.0)
        return min(found, math.log(least) * (1.0 - _ROUNDING)) if least > 0.0 else -math.inf

    def _by_profile(self, epsilon: float) -> float:
        """The upper end that the base's profile gives at the same epsilon."""
        at = (epsilon - self._shift) * (1.0 - _ROUNDING) if epsilon < math.inf else math.inf
        log_delta = self._base.log_delta_upper(at) if at >= 0.0 else 0.0
        if log_delta == -math.inf:
            return log_delta
        found = self._log_mean + log_delta + _ROUNDING * (abs(self._log_mean) + abs(log_delta)) if at >= 0.0 else 0.0
        if not isinstance(self._runs, PoissonRuns):
            return min(found, 0.0)
        return min(
            found, math.log(self._mass) * (1.0 - _ROUNDING), poisson.log_delta_upper(self._runs.mean, self._log_delta_of_base, epsilon)
        )

    def _log_delta_of_base(self, epsilon: float) -> float:
        if epsilon not in self._asked:
            self._asked[epsilon] = self._base.log_delta_upper(epsilon)
        return self._asked[epsilon]

    def _renyi_delta(self, epsilon: float) -> DeltaBound | None:
        return None if self._renyi is None else self._renyi.delta(epsilon)

    def _epsilon(self, log_delta: float, delta: float | None) -> Bound:
        near = self._base_epsilon(log_delta)
        upper, route = self._epsilon_upper(log_delta, delta, near)
        if near == math.inf:
            return Bound(lower=0.0, upper=upper, route=route)
        tests = self._both((near, 0.94 * near, 0.87 * near, 0.75 * near, 1.1 * near))
        lower = max((least_epsilon(p, q, log_delta) for p, q in tests), default=0.0)
        return Bound(lower=at_most("epsilon", max(lower, 0.0), upper), upper=upper, route=route)

    def _epsilon_upper(self, log_delta: float, delta: float | None, near: float) -> tuple[float, str]:
        """The smaller upper end, and its origin; ``near`` is the base's epsilon at delta / m."""
        if self._log_delta(0.0) <= log_delta:
            return 0.0, self.route
        own = self._by_profile_epsilon(log_delta, near)
        known = math.exp(log_delta) * (1.0 - _ROUNDING)
        own = min([own, *(one.epsilon_at(known, self._mass) for one in self._guarantees(known))])
        if self._renyi is None or (delta is None and log_delta < SMALLEST_LOG_DELTA):
            return own, self.route
        other = self._renyi.epsilon_at_log_delta(log_delta) if delta is None else self._renyi.epsilon(delta)
        return (own, self.route) if own <= other.upper else (other.upper, other.route)

    def _by_profile_epsilon(self, log_delta: float, near: float) -> float:
        """The epsilon that the base's own says, ``near`` being that at delta / m."""
        own = (near + self._shift) * (1.0 + 4.0 * _ROUNDING)
        return self._less(near, own, log_delta) if isinstance(self._runs, PoissonRuns) else own

    def _less(self, low: float, high: float, log_delta: float) -> float:
        """An epsilon up to ``high`` at which the upper end, which only a search can invert, is at most delta."""
        if not high < math.inf:
            return high
        while high - low > _TIGHT * high:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self._by_profile(middle) <= log_delta else (middle, high)
        return high

    def _base_epsilon(self, log_delta: float) -> float:
        """The base's epsilon at delta / m."""
        at = log_delta - self._log_mean - 2.0 * _ROUNDING * (abs(log_delta) + abs(self._log_mean))
        if at >= 0.0:
            return 0.0
        try:
            return self._base.epsilon_at_log_delta(at).upper
        except NumericalFloor:
            # delta / m is below what the base's route can answer; Renyi divergences have no such floor.
            if self._renyi is None:
                raise
            return math.inf

    @cached_property
    def _is_symmetric(self) -> bool:
        """Whether both orders of the base have the same profile, so that a set which Q has more of is as bad as one that P has more of."""
        return all(unsupported_reason(leaf) is None and pair_of(leaf).symmetric for leaf, _ in self._parts)

    def _both(self, places: tuple[float, ...]) -> list[tuple[float, float]]:
        """Ends of log probabilities that the best run is in a set, as of ``chosen_between``, for many sets."""
        found: list[tuple[float, float]] = []
        for above, place in itertools.product(self._above, dict.fromkeys(places)):
            if (test := self._test(place)) is None or (place == 0.0 and above != NOTHING):
                continue
            thinned = (BestTest(test.p_low * share, test.q_high * share) for share in SHARES)
            found.extend(ends for one in thinned if (ends := chosen_between(self._runs, above, one)) is not None)
        return found

    @cached_property
    def _above(self) -> list[Above]:
        """Sets that Q has more of, below the level of any test: the rest of the best test at 0, and mirror images of tests."""
        found = [NOTHING]
        if (test := self._test(0.0)) is not None:
            rest = Above(1.0 - test.p_low + 1e-15, max(1.0 - test.q_high - 1e-15, 0.0))
            found.extend(Above(rest.p_high * share, rest.q_low * share) for share in (1.0, 0.5, 0.2))
        if self._is_symmetric:
            largest = (
                self._shift / (1.0 + self._runs.eta) if isinstance(self._runs, NegativeBinomialRuns) else 4.0 / (1.0 + self._runs.mean)
            )
            tests = (self._test(place) for place in (largest, 0.5 * largest) if place > 0.0)
            found.extend(Above(test.q_high, test.p_low) for test in tests if test is not None)
        return found

    def _test(self, epsilon: float) -> BestTest | None:
        """The best test at this epsilon, whose error rates are the slopes of the profile; None where its lower end says nothing."""
        if epsilon not in self._tests:
            try:
                self._tests[epsilon] = best_test(self._base.delta, epsilon)
            except (NumericalFloor, UnsupportedEvent):
                self._tests[epsilon] = None
        return self._tests[epsilon]
