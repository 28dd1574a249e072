r"""The best of a random number of runs, from the base's own profile, and its largest loss. proofs/selected.md.

With phi(z) = E z^K and m = E[K], F_P(x) the probability under P that a run is no better than x, the output of the selection has the density
p(x) phi'(F_P(x)), and phi'(F_P) <= m. If phi'(F_P) / phi'(F_Q) <= e^s everywhere, for either order of the outputs,

    delta(eps) <= m delta_base(eps - s),   s = (1 + eta) log r  with  (1 / gamma - 1) delta_base(log r) <= r - 1,   or   m delta_base(0)

for a negative binomial and a Poisson number of runs. The lower end is what a base that attains its profile loses when its outputs are
ordered by the worst tests that the profile has.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import NamedTuple, final

from zetadp.accountants import deadline
from zetadp.accountants.dominating import pair_of, unsupported_reason
from zetadp.accountants.largest_loss import pure_epsilon
from zetadp.accountants.leaf import Leaf, Selection
from zetadp.accountants.profile import SMALLEST_LOG_DELTA, Bound, DeltaBound, PrivacyProfile, check_delta, check_epsilon
from zetadp.mechanisms.base import Step
from zetadp.mechanisms.declared.runs import AnyRuns, NegativeBinomialRuns, PoissonRuns
from zetadp.mechanisms.errors import InvalidParameter, NumericalFloor, UnsupportedEvent
from zetadp.mechanisms.numerics import logspace

ROUTE = "selected"

_ROUNDING = 1e-14
"""Allowance for a sum of a few terms, relative to the sum of their sizes: some forty units of 1.1e-16."""

_TIGHT = 1e-6
"""How far, relatively, the root for the shift may lie on its safe side."""

_STEP = 0.02
"""Slopes of a profile are taken over this share of the epsilon at which it is asked."""


class _Test(NamedTuple):
    """Of one set of outputs: a lower end of its probability under P, which has more of it, and an upper end under Q."""

    p_low: float
    q_high: float


def alone(parts: Mapping[Leaf, int]) -> Selection | None:
    """The selection, if these leaves are a single one and nothing else."""
    if len(parts) != 1:
        return None
    ((leaf, count),) = parts.items()
    return leaf.mechanism if count == 1 and isinstance(leaf.mechanism, Selection) else None


def largest_loss_of(leaf: Leaf) -> float:
    r"""The largest loss of any leaf in either direction, rounded up; infinite where no bound is known.

    For a base that is epsilon-DP the best of K runs has epsilon + (1 + eta) log((e^epsilon + gamma) / (1 + gamma e^epsilon)), which is at
    most (2 + eta) epsilon (Papernot and Steinke 2022, Corollary 3), or epsilon + m tanh(epsilon / 2) for a Poisson number of runs.
    """
    if not isinstance(leaf.mechanism, Selection):
        return math.inf if unsupported_reason(leaf) is not None else pure_epsilon(pair_of(leaf))
    epsilon = math.fsum(count * largest_loss_of(one) for one, count in leaf.mechanism.parts) * (1.0 + _ROUNDING)
    return epsilon if epsilon in (0.0, math.inf) else (epsilon + shift_of_pure(leaf.mechanism.runs, epsilon)) * (1.0 + _ROUNDING)


def shift_of_pure(runs: AnyRuns, epsilon: float) -> float:
    """log of the largest phi'(F_P) / phi'(F_Q) where the base is epsilon-DP, rounded up."""
    if isinstance(runs, PoissonRuns):
        return runs.mean * math.tanh(0.5 * epsilon) * (1.0 + _ROUNDING)
    t = runs.spread.high
    # (e^epsilon + gamma) / (1 + gamma e^epsilon) - 1 = (e^epsilon - 1)(1 - gamma) / (1 + gamma e^epsilon), divided by e^epsilon.
    ratio = -math.expm1(-epsilon) * -math.expm1(-t) / (math.exp(-epsilon) + math.exp(-t))
    return (1.0 + runs.eta) * min(math.log1p(ratio), epsilon) * (1.0 + _ROUNDING)


def log_chosen(runs: AnyRuns, log_share: float) -> float:
    """log of the probability that the best run is among the base's best outputs of this total probability, off by rounding only."""
    share = math.exp(log_share)
    if isinstance(runs, PoissonRuns):
        return math.log(-math.expm1(-runs.mean * share))
    t, eta = runs.spread.low, runs.eta
    if t == 0.0:
        return log_share
    u = math.log1p(share * math.expm1(t))
    return math.log(u / t) if eta == 0.0 else math.log(math.expm1(-eta * u) / math.expm1(-eta * t))


def _chosen_error(runs: AnyRuns) -> float:
    """Relative allowance for ``log_chosen``'s probability: its rounding, and that of log(1 / gamma)."""
    if isinstance(runs, PoissonRuns):
        return 1e-12
    low, high = runs.spread
    return 1e-10 + (0.0 if low == high else (high - low) * (4.0 + 4.0 / low) if low > 0.0 else 1.0)


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
        self._tests: dict[float, _Test | None] = {}

    @property
    def route(self) -> str:
        return f"{ROUTE}({self._base.route})"

    def delta(self, epsilon: float) -> DeltaBound:
        check_epsilon(epsilon)
        own, other = self._log_delta(epsilon), self._renyi_delta(epsilon)
        upper, route = (own, self.route) if other is None or own <= other.log_upper else (other.log_upper, other.route)
        near = max(epsilon - self._shift, 0.0)
        tests = self._both((epsilon, near, 0.5 * (epsilon + near), 1.2 * epsilon))
        lower = max((_excess(p, q, epsilon) for p, q in tests), default=-math.inf)
        return DeltaBound(log_lower=min(lower, upper), log_upper=upper, route=route)

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
            Step(symbol="delta(eps)", value="m delta_base(eps - s)", formula="the best run's output alone", source="proofs/selected.md"),
        )

    @cached_property
    def _shift(self) -> float:
        """s, rounded up: the log of the largest ratio of phi' at two neighbours."""
        runs = self._runs
        if isinstance(runs, PoissonRuns):
            return runs.mean * math.exp(self._base.log_delta_upper(0.0)) * (1.0 + _ROUNDING)
        return (1.0 + runs.eta) * self._log_ratio(runs) * (1.0 + _ROUNDING)

    def _log_ratio(self, runs: NegativeBinomialRuns) -> float:
        """log r, rounded up: the root of a function that falls, approached from where it is negative."""
        t = runs.spread.high
        if t == 0.0:
            return 0.0
        log_factor = t + logspace.log_one_minus_exp(-t)

        def excess(x: float) -> float:
            deadline.check()
            log_delta = self._base.log_delta_upper(x)
            if log_delta == -math.inf:
                return -1.0
            log_gain = x + logspace.log_one_minus_exp(-x)
            return log_factor + log_delta - log_gain + _ROUNDING * (t + abs(log_delta) + x + abs(log_gain))

        low, high = 0.0, 1.0
        while excess(high) > 0.0:
            low, high = high, 2.0 * high
        while low == 0.0 and high > 1e-12 and excess(0.5 * high) <= 0.0:
            high *= 0.5
        low = max(low, 0.5 * high)
        # Rounded answers are not exactly monotone, and only what was tried counts.
        while high - low > _TIGHT * high:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if excess(middle) > 0.0 else (low, middle)
        return high

    def _log_delta(self, epsilon: float) -> float:
        """The upper end that the base's profile gives."""
        most = math.log(-math.expm1(-self._runs.mean)) * (1.0 - _ROUNDING) if isinstance(self._runs, PoissonRuns) else 0.0
        at = (epsilon - self._shift) * (1.0 - _ROUNDING) if epsilon < math.inf else math.inf
        if at < 0.0:
            return min(most, 0.0)
        log_delta = self._base.log_delta_upper(at)
        if log_delta == -math.inf:
            return log_delta
        return min(most, 0.0, self._log_mean + log_delta + _ROUNDING * (abs(self._log_mean) + abs(log_delta)))

    def _renyi_delta(self, epsilon: float) -> DeltaBound | None:
        return None if self._renyi is None else self._renyi.delta(epsilon)

    def _epsilon(self, log_delta: float, delta: float | None) -> Bound:
        near = self._base_epsilon(log_delta)
        upper, route = self._epsilon_upper(log_delta, delta, near)
        if near == math.inf:
            return Bound(lower=0.0, upper=upper, route=route)
        tests = self._both((near, 0.9 * near, 0.75 * near, 1.1 * near))
        lower = max((_least_epsilon(p, q, log_delta) for p, q in tests), default=0.0)
        return Bound(lower=min(max(lower, 0.0), upper), upper=upper, route=route)

    def _epsilon_upper(self, log_delta: float, delta: float | None, near: float) -> tuple[float, str]:
        """The smaller upper end, and its origin; ``near`` is the base's epsilon at delta / m."""
        if self._log_delta(0.0) <= log_delta:
            return 0.0, self.route
        own = (near + self._shift) * (1.0 + 4.0 * _ROUNDING)
        if self._renyi is None or (delta is None and log_delta < SMALLEST_LOG_DELTA):
            return own, self.route
        other = self._renyi.epsilon_at_log_delta(log_delta) if delta is None else self._renyi.epsilon(delta)
        return (own, self.route) if own <= other.upper else (other.upper, other.route)

    def _base_epsilon(self, log_delta: float) -> float:
        """The base's epsilon at delta / m."""
        at = log_delta - self._log_mean - 2.0 * _ROUNDING * (abs(log_delta) + abs(self._log_mean))
        return self._base.epsilon_at_log_delta(at).upper if at < 0.0 else 0.0

    @cached_property
    def _is_symmetric(self) -> bool:
        """Whether both orders of the base have the same profile, so that a set which Q has more of is as bad as one that P has more of."""
        return all(unsupported_reason(leaf) is None and pair_of(leaf).symmetric for leaf, _ in self._parts)

    def _both(self, places: tuple[float, ...]) -> list[tuple[float, float]]:
        """(a lower end of P's log probability, an upper end of Q's) of the selection, for sets at the top of an order and just below it."""
        above: list[_Test | None] = [None]
        if isinstance(self._runs, NegativeBinomialRuns) and self._is_symmetric:
            above.append(self._test(self._shift / (1.0 + self._runs.eta)))
        found: list[tuple[float, float]] = []
        for first, place in itertools.product(dict.fromkeys(above), dict.fromkeys(places)):
            test = self._test(place)
            if test is not None and (ends := _chosen_between(self._runs, first, test)) is not None:
                found.append(ends)
        return found

    def _test(self, epsilon: float) -> _Test | None:
        """The best test at this epsilon, whose error rates are the slopes of the profile; None where its lower end says nothing."""
        if epsilon not in self._tests:
            try:
                self._tests[epsilon] = _test_at(self._base.delta, epsilon)
            except (NumericalFloor, UnsupportedEvent):
                self._tests[epsilon] = None
        return self._tests[epsilon]


def _test_at(delta: Callable[[float], DeltaBound], epsilon: float) -> _Test | None:
    """A set S with P(S) - e^epsilon Q(S) = delta(epsilon): Q(S) lies between the profile's slopes to the right and to the left."""
    deadline.check()
    here, step = delta(epsilon), max(_STEP * epsilon, 1e-3)
    r, more, less = math.exp(epsilon), math.exp(epsilon + step), math.exp(epsilon - step)
    if here.log_lower == -math.inf or not r * more < math.inf:
        return None
    before = delta(epsilon - step).upper if epsilon >= step else 1.0 - less + less * delta(step - epsilon).upper
    q_high = (before - here.lower) / (r - less) * (1.0 + 1e-12)
    q_low = max((here.lower - delta(epsilon + step).upper) / (more - r) * (1.0 - 1e-12), 0.0)
    p_low = (here.lower + r * q_low) * (1.0 - 1e-12)
    return _Test(p_low, min(q_high, 1.0)) if q_high > 0.0 and p_low > 0.0 else None


def _chosen_between(runs: AnyRuns, first: _Test | None, test: _Test) -> tuple[float, float] | None:
    """P's log probability that the best run is in the test's set, rounded down, and Q's, rounded up; above it a set that Q has more of."""
    error = _chosen_error(runs)
    # The set above is the mirror image of a test: Q has as much of it as P has of the test's.
    p_above, q_above = (0.0, 0.0) if first is None else (first.q_high, first.p_low)
    p_all, q_all = min(p_above + test.p_low, 1.0), min(q_above + test.q_high, 1.0)
    p = _share(runs, p_all) * (1.0 - error) - _share(runs, p_above) * (1.0 + error)
    q = _share(runs, q_all) * (1.0 + error) - _share(runs, q_above) * (1.0 - error)
    return (math.log(p), math.log(q)) if p > 0.0 and q > 0.0 else None


def _share(runs: AnyRuns, share: float) -> float:
    return math.exp(log_chosen(runs, math.log(share))) if share > 0.0 else 0.0


def _excess(log_p: float, log_q: float, epsilon: float) -> float:
    """log(P - e^epsilon Q), rounded down; -inf where it isn't positive."""
    log_q += epsilon
    return -math.inf if log_q >= log_p else log_p + logspace.log_one_minus_exp(log_q - log_p) - 1e-12


def _least_epsilon(log_p: float, log_q: float, log_delta: float) -> float:
    """The epsilon at which P - e^epsilon Q is delta, rounded down."""
    return -math.inf if log_delta >= log_p else log_p + logspace.log_one_minus_exp(log_delta - log_p) - log_q - 1e-12
