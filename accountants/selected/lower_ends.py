r"""What a base that attains its profile loses when the best of its runs is chosen by concrete scores. proofs/selected.md, section 4."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from zetadp.accountants import deadline
from zetadp.accountants.profile import DeltaBound
from zetadp.mechanisms.declared.runs import AnyRuns, PoissonRuns
from zetadp.mechanisms.numerics import logspace

_STEPS = (2e-3, 2e-2)
"""Slopes of a profile are taken over a share of the epsilon at which it is asked, between these: the root of its bracket's width, twice."""


_ROUNDING = 1e-12
"""Allowance for sums and differences of logarithms, relative to 1 plus their sizes: thousands of units: lower ends are not that tight."""


class BestTest(NamedTuple):
    """Of one set of outputs: a lower end of its probability under P, which has more of it, and an upper end under Q."""

    p_low: float
    q_high: float


class Above(NamedTuple):
    """Of a set of outputs that is ranked above a test's: an upper end of its probability under P, a lower one under Q, which has more."""

    p_high: float
    q_low: float


NOTHING = Above(0.0, 0.0)

SHARES = (1.0, 0.1, 0.01, 1e-3, 1e-4)
"""Also a random part of a test's set is one: small sets lose more, as the best run is in them with m times their probability."""


def _chosen(runs: AnyRuns, share: float) -> float:
    """The probability that the best run is among the base's best outputs of this total probability, 1 - phi(1 - share)."""
    if isinstance(runs, PoissonRuns):
        return -math.expm1(-runs.mean * share)
    t, eta = runs.spread.low, runs.eta
    if t == 0.0:
        return share
    u = math.log1p(share * math.expm1(t))
    return u / t if eta == 0.0 else math.expm1(-eta * u) / math.expm1(-eta * t)


def _chosen_error(runs: AnyRuns) -> float:
    """Relative allowance for ``_chosen``: its rounding, and that of log(1 / gamma)."""
    if isinstance(runs, PoissonRuns):
        return 1e-12
    low, high = runs.spread
    return 1e-10 + (0.0 if low == high else (high - low) * (4.0 + 4.0 / low) if low > 0.0 else 1.0)


def best_test(delta: Callable[[float], DeltaBound], epsilon: float) -> BestTest | None:
    """A set S with P(S) - e^epsilon Q(S) = delta(epsilon): Q(S) lies between the profile's slopes to the right and to the left."""
    deadline.check()
    here = delta(epsilon)
    if here.log_lower == -math.inf or epsilon > 300.0:
        return None
    step = max(min(max(2.0 * math.sqrt(here.log_upper - here.log_lower), _STEPS[0]), _STEPS[1]) * epsilon, 1e-3)
    r, more, less = math.exp(epsilon), math.exp(epsilon + step), math.exp(epsilon - step)
    before = delta(epsilon - step).upper if epsilon >= step else 1.0 - less + less * delta(step - epsilon).upper
    q_high = (before - here.lower) / (r - less) * (1.0 + 1e-12)
    q_low = max((here.lower - delta(epsilon + step).upper) / (more - r) * (1.0 - 1e-12), 0.0)
    p_low = (here.lower + r * q_low) * (1.0 - 1e-12)
    return BestTest(p_low, min(q_high, 1.0)) if q_high > 0.0 and p_low > 0.0 else None


def chosen_between(runs: AnyRuns, above: Above, test: BestTest) -> tuple[float, float] | None:
    """P's log probability that the best run is in the test's set, rounded down, and Q's, rounded up; None where P's may be 0."""
    error = _chosen_error(runs)
    p_all, q_all = min(above.p_high + test.p_low, 1.0), min(above.q_low + test.q_high, 1.0)
    p = _chosen(runs, p_all) * (1.0 - error) - _chosen(runs, above.p_high) * (1.0 + error)
    q = _chosen(runs, q_all) * (1.0 + error) - _chosen(runs, above.q_low) * (1.0 - error)
    return (math.log(p), math.log(q)) if p > 0.0 and q > 0.0 else None


def log_excess(log_p: float, log_q: float, epsilon: float) -> float:
    """log(P - e^epsilon Q), rounded down; -inf where it isn't positive."""
    log_q += epsilon + _ROUNDING * (1.0 + abs(log_q) + abs(log_p) + epsilon)
    return -math.inf if log_q >= log_p else log_p + logspace.log_one_minus_exp(log_q - log_p) - _ROUNDING * (1.0 - log_p)


def least_epsilon(log_p: float, log_q: float, log_delta: float) -> float:
    """The epsilon at which P - e^epsilon Q is delta, rounded down."""
    log_delta += _ROUNDING * (1.0 - log_delta - log_p)
    if log_delta >= log_p:
        return -math.inf
    return log_p + logspace.log_one_minus_exp(log_delta - log_p) - log_q - _ROUNDING * (1.0 - log_p + abs(log_q))
