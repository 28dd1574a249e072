r"""epsilon or mu of Gaussian differential privacy, from the other one and delta. Safe ends are checked at the returned numbers.

log delta falls concavely in epsilon and rises with mu, and two or three of Halley's steps find the root; this is only a proposal. It is
moved until it passes ``log_delta_bounds``, and the result is the safe end. So correctness doesn't depend on the iteration.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy
from numpy.typing import ArrayLike

from zetadp.accountants.profile import Bound, check_epsilon
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics.gdp import (
    LOG_DELTA_ERROR,
    NEAR_ONE,
    NEAR_ONE_ERROR,
    Floats,
    gdp_log_delta,
    gdp_log_deltas,
    log_delta_error,
    log_delta_slopes,
)
from zetadp.mechanisms.numerics.logspace import SMALLEST_FLOAT

ROUTE = "gdp"

MU_ERROR = 1e-14
"""Relative error allowed for mu: a few roundings in each part's mu and in the root of the sum of squares (fsum adds none)."""

_RAISED = 1.0 + MU_ERROR
_KEPT = 1.0 - 2e-15
_MOST_STEPS = 12
_NEARLY = 1e-5
_FLOOR = -1e300
_STEEPEST = -1e100
_LARGEST_MU = 1e150
"""Beyond it mu^2 / 2 overflows, and so would epsilon."""
_LARGEST_EPSILON = 1e300
_SQRT_EIGHTH = math.sqrt(0.125)


def log_delta_bounds(mu: float, epsilon: float) -> tuple[float, float]:
    """Bounds on log delta(epsilon) for any mu within MU_ERROR of this one."""
    low = gdp_log_delta(mu * (1.0 - MU_ERROR), epsilon)
    return (low - log_delta_error(low) if low > _FLOOR else -math.inf), log_delta_upper(mu, epsilon)


def log_delta_upper(mu: float, epsilon: float) -> float:
    """The upper bound of ``log_delta_bounds``.

    >>> round(math.exp(log_delta_upper(1.0, 1.0)), 12)
    0.126936737507
    """
    high = gdp_log_delta(mu * _RAISED, epsilon)
    # ``high`` plus its error, even at -infinity.
    return min(0.0, high * _KEPT + (LOG_DELTA_ERROR if high < NEAR_ONE else 1e-299 - NEAR_ONE_ERROR * high))


def log_deltas_upper(mu: ArrayLike, epsilon: ArrayLike) -> Floats:
    """``log_delta_upper`` element by element, the arguments broadcast against each other."""
    high = gdp_log_deltas(np.asarray(mu, dtype=np.float64) * _RAISED, epsilon)
    return np.minimum(0.0, high * _KEPT + np.minimum(LOG_DELTA_ERROR, 1e-299 - NEAR_ONE_ERROR * high))


def epsilon_at(mu: float, log_delta: float) -> Bound:
    """Bounds on the epsilon of mu-GDP at a delta given by its logarithm (so that it can be as small as 1e-400).

    >>> round(epsilon_at(5.0, math.log(1e-9)).upper, 9)
    41.833375081
    """
    _check_log_delta(log_delta)
    if _met_at_zero(mu, log_delta):
        return Bound(lower=0.0, upper=0.0, route=ROUTE)
    if mu > _LARGEST_MU:
        return Bound(lower=0.0, upper=math.inf, route=ROUTE)
    upper, width = _epsilon_upper(mu, log_delta)
    lower = _moved(upper - width, -0.5 * width, lambda e: e <= 0.0 or log_delta_bounds(mu, e)[0] > log_delta)
    return Bound(lower=max(lower, 0.0), upper=upper, route=ROUTE)


def epsilon_upper_at(mu: float, log_delta: float) -> float:
    """``epsilon_at(mu, log_delta).upper`` alone.

    >>> round(epsilon_upper_at(5.0, math.log(1e-9)), 9)
    41.833375081
    """
    _check_log_delta(log_delta)
    if mu > _LARGEST_MU:
        return math.inf
    return 0.0 if _met_at_zero(mu, log_delta) else _epsilon_upper(mu, log_delta)[0]


def _met_at_zero(mu: float, log_delta: float) -> bool:
    # delta(0) = erf(mu / sqrt 8); the certified value is needed only near it.
    at_zero = math.erf(mu * _SQRT_EIGHTH)
    return not (at_zero > 0.0 and math.log(at_zero) > log_delta + 1e-9) and log_delta_upper(mu, 0.0) <= log_delta


def _epsilon_upper(mu: float, log_delta: float) -> tuple[float, float]:
    """A safe epsilon, and the most by which it may exceed an epsilon that is known to be too small."""
    epsilon, width = _epsilon_by_newton(mu, log_delta) or (_epsilon_by_bisection(mu, log_delta), 0.0)
    return _moved(epsilon, 0.1 * width, lambda e: log_delta_upper(mu, e) <= log_delta), width


def _epsilon_by_newton(mu: float, log_delta: float) -> tuple[float, float] | None:
    if log_delta < _STEEPEST:
        return None
    raised = mu * _RAISED
    # delta = Phi(-x) (1 - R(x + mu) / R(x)), and the second factor varies slowly: two rounds with it give a start.
    x = -float(scipy.special.ndtri_exp(min(log_delta - min(0.0, math.log(raised)), -1e-9)))
    if x > 1.0:
        x = -float(scipy.special.ndtri_exp(min(log_delta - _log_factor(x, raised), -1e-9)))
    epsilon = max(raised * (x + 0.5 * raised), 0.0)
    for _ in range(_MOST_STEPS):
        if not epsilon < math.inf:
            return None
        value, by_epsilon, by_mu = log_delta_slopes(raised, epsilon)
        slope, by_log_mu = by_epsilon * raised, by_mu * raised
        if not (value > _FLOOR and -math.inf < slope < 0.0):
            return None
        error = log_delta_error(value)
        gap = log_delta - (value + error)
        nearly = abs(gap) < _NEARLY * min(1.0, -log_delta)
        # In x at a fixed mu, (e^eps Phi(-y))' = mu e^eps Phi(-y) - phi(x). The last step aims a little lower, to pass immediately.
        second = slope * raised + by_log_mu - slope * slope
        epsilon = max(epsilon + raised * _halley(gap - (0.1 * error if nearly else 0.0), slope, second), 0.0)
        if nearly:
            return epsilon, -raised * (2.3 * error + 2.2 * MU_ERROR * by_log_mu) / slope
    return None


def _epsilon_by_bisection(mu: float, log_delta: float) -> float:
    """The root when slopes vanish or exceed the range of floats."""
    # delta(eps) <= Phi(-x) <= e^{-x^2/2} with x = eps/mu - mu/2 >= 0: at this end the target is met.
    top = 0.5 * mu**2 + mu * math.sqrt(-2.0 * log_delta) + mu
    # For mu beyond 1e8 rounding of eps/mu - mu/2 can hide that by a few units in the last place.
    top = _moved(top, 0.0, lambda e: gdp_log_delta(mu, e) <= log_delta)
    return float(scipy.optimize.brentq(lambda e: max(gdp_log_delta(mu, e), _FLOOR) - log_delta, 0.0, top, xtol=1e-300, rtol=1e-15))


def largest_mu(epsilon: float, log_delta: float) -> float:
    """The largest mu for which mu-GDP implies (epsilon, delta), rounded down. Balle and Wang 2018, Theorem 9.

    >>> round(1.0 / largest_mu(1.0, math.log(1e-5)), 9)
    3.730631635
    """
    check_epsilon(epsilon)
    _check_log_delta(log_delta)
    if epsilon == math.inf:
        return math.inf
    # A guarantee for a smaller epsilon also holds for this one.
    epsilon = min(epsilon, _LARGEST_EPSILON)
    mu, width = _mu_by_newton(epsilon, log_delta) or (_mu_by_bisection(epsilon, log_delta), 0.0)
    return _moved(mu, -0.1 * width, lambda m: log_delta_upper(m, epsilon) <= log_delta)


def _mu_by_newton(epsilon: float, log_delta: float) -> tuple[float, float] | None:
    if log_delta < _STEEPEST:
        return None
    # delta < Phi(-x) and delta < mu / sqrt(2 pi): the true mu is above the value from either, and the first is refined as for epsilon.
    x = -float(scipy.special.ndtri_exp(log_delta))
    mu = max(_mu_at(x, epsilon), 2.5 * math.exp(max(log_delta, -700.0)))
    if x > 1.0:
        x = -float(scipy.special.ndtri_exp(min(log_delta - _log_factor(x, mu), -1e-9)))
        if x > 1.0:
            mu = max(_mu_at(x, epsilon), mu)
    for _ in range(_MOST_STEPS):
        if not 0.0 < mu < math.inf:
            return None
        value, _, by_mu = log_delta_slopes(mu * _RAISED, epsilon)
        if not value > _FLOOR:
            return None
        slope = mu * by_mu
        error = log_delta_error(value)
        gap = log_delta - (value + error)
        if not (0.0 < slope < math.inf and abs(gap) < 50.0 * slope):
            return None
        nearly = abs(gap) < _NEARLY * min(1.0, -log_delta)
        # d/d(log mu) of mu phi(x) / delta, with x and y as in ``mechanisms.numerics.gdp``.
        quotient = epsilon / mu
        second = slope * (1.0 + quotient * quotient - 0.25 * mu * mu - slope)
        mu *= math.exp(_halley(gap - (0.1 * error if nearly else 0.0), slope, second))
        if nearly:
            return mu, mu * error / slope
    return None


def _halley(gap: float, first: float, second: float) -> float:
    """The step that closes the gap, from the first and second derivatives; never more than twice Newton's step."""
    step = gap / first
    return step / min(max(1.0 + 0.5 * second * step / first, 0.5), 2.0)


def _mu_at(x: float, epsilon: float) -> float:
    """The mu with eps/mu - mu/2 = x."""
    root = math.sqrt(x * x + 2.0 * epsilon)
    return 2.0 * epsilon / (root + x) if x > 0.0 else root - x


def _log_factor(x: float, mu: float) -> float:
    """log(1 - R(x + mu) / R(x)) for x > 1, roughly: R(t) is near 4 / (3 t + sqrt(t^2 + 8))."""
    y = x + mu
    near, far = 3.0 * x + math.sqrt(x * x + 8.0), 3.0 * y + math.sqrt(y * y + 8.0)
    return math.log(max((far - near) / far, 1e-300))


def _mu_by_bisection(epsilon: float, log_delta: float) -> float:
    def excess(log_mu: float) -> float:
        return max(gdp_log_delta(math.exp(log_mu), epsilon), _FLOOR) - log_delta

    # At mu = 2 sqrt(2 eps) + 4 sqrt(2 L) ... delta exceeds any target; below eps / (2 sqrt(2 L) + ...) it is under it. Going by
    # factors of 4 from a first guess brackets the root without a case analysis.
    first = max(epsilon, math.exp(max(log_delta, -700.0))) / math.sqrt(2.0 * max(1.0, -log_delta))
    low = high = math.log(max(first, SMALLEST_FLOAT))
    while excess(high) <= 0.0:
        high += math.log(4.0)
    while excess(low) > 0.0:
        low -= math.log(4.0)
    return math.exp(float(scipy.optimize.brentq(excess, low, high, xtol=1e-15, rtol=1e-15)))


def _check_log_delta(log_delta: float) -> None:
    if not -math.inf < log_delta < 0.0:
        raise InvalidParameter("log_delta", "finite and < 0", log_delta)


def _moved(value: float, step: float, good: Callable[[float], bool]) -> float:
    """``value``, moved in the direction of ``step`` by steps that double, down to 0 at most, until ``good`` holds."""
    if good(value):
        return value
    step = math.copysign(max(abs(step), 4.0 * math.ulp(value)), step)
    while not good(max(value + step, 0.0)):
        step *= 2.0
    return max(value + step, 0.0)
