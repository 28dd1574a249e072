r"""The closed form: compositions of Gaussian mechanisms without sampling are mu-GDP exactly, mu^2 = sum of mu_i^2."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import final

from scipy import optimize

from accountants.events import Event, leaves, non_private_reason
from accountants.profile import (
    Accountant,
    Bound,
    DeltaBound,
    NonPrivateProfile,
    PrivacyProfile,
    check_alpha,
    check_delta,
    check_epsilon,
    check_order,
)
from mechanisms.base import Step
from mechanisms.errors import InvalidParameter, UnsupportedEvent
from mechanisms.gdp import gdp_log_delta, gdp_trade_off, log_delta_error, trade_off_error

ROUTE = "gdp"

MU_ERROR = 1e-14
"""Relative error allowed for mu: a few roundings in each part's mu and in the root of the sum of squares (fsum adds none)."""


@final
class GdpProfile(PrivacyProfile):
    """The profile of N(0, 1) against N(mu, 1)."""

    def __init__(self, mu: float, steps: tuple[Step, ...]) -> None:
        self._mu = mu
        self._steps = steps

    @property
    def route(self) -> str:
        return ROUTE

    @property
    def gdp_mu(self) -> float | None:
        return self._mu

    def delta(self, epsilon: float) -> DeltaBound:
        check_epsilon(epsilon)
        low, high = _log_delta_bounds(self._mu, epsilon)
        return DeltaBound(log_lower=low, log_upper=high, route=ROUTE)

    def epsilon(self, delta: float) -> Bound:
        check_delta(delta)
        return epsilon_at(self._mu, math.log(delta))

    def rdp(self, order: float) -> float | None:
        check_order(order)
        return 0.5 * order * self._mu**2 * (1.0 + 2.0 * MU_ERROR)

    def trade_off(self, alpha: float) -> float:
        check_alpha(alpha)
        mu = self._mu * (1.0 + MU_ERROR)
        return gdp_trade_off(mu, alpha) * (1.0 - trade_off_error(mu, alpha))

    def derivation(self) -> tuple[Step, ...]:
        formula = "delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)"
        return (
            *self._steps,
            Step(symbol="delta(eps)", value=formula, formula="mu-GDP in closed form", source="Balle and Wang 2018, Theorem 8"),
        )


def _log_delta_bounds(mu: float, epsilon: float) -> tuple[float, float]:
    low = gdp_log_delta(mu * (1.0 - MU_ERROR), epsilon)
    high = gdp_log_delta(mu * (1.0 + MU_ERROR), epsilon)
    return low - log_delta_error(low), min(0.0, high + log_delta_error(high))


def epsilon_at(mu: float, log_delta: float) -> Bound:
    """Bounds on the epsilon of mu-GDP at a delta given by its logarithm (so that 1e-400 can be asked for).

    >>> round(epsilon_at(5.0, math.log(1e-9)).upper, 9)
    41.833375081
    """
    if _log_delta_bounds(mu, 0.0)[1] <= log_delta:
        return Bound(lower=0.0, upper=0.0, route=ROUTE)
    # delta(eps) <= Phi(-x) <= e^{-x^2/2} with x = eps/mu - mu/2 >= 0: at this end the target is met.
    top = 0.5 * mu**2 + mu * math.sqrt(-2.0 * log_delta) + mu
    # For mu beyond 1e8 rounding of eps/mu - mu/2 can hide that by a few units in the last place.
    top = _moved(top, +1.0, lambda e: gdp_log_delta(mu, e) <= log_delta)
    root = float(optimize.brentq(lambda e: max(gdp_log_delta(mu, e), -1e300) - log_delta, 0.0, top, xtol=1e-300, rtol=1e-15))
    upper = _moved(root, +1.0, lambda e: _log_delta_bounds(mu, e)[1] <= log_delta)
    lower = _moved(root, -1.0, lambda e: e <= 0.0 or _log_delta_bounds(mu, e)[0] > log_delta)
    return Bound(lower=max(lower, 0.0), upper=upper, route=ROUTE)


def largest_mu(epsilon: float, log_delta: float) -> float:
    """The largest mu for which mu-GDP implies (epsilon, delta), rounded down. Balle and Wang 2018, Theorem 9.

    >>> round(1.0 / largest_mu(1.0, math.log(1e-5)), 9)
    3.730631635
    """
    check_epsilon(epsilon)
    if not -math.inf < log_delta < 0.0:
        raise InvalidParameter("log_delta", "finite and < 0", log_delta)

    def excess(log_mu: float) -> float:
        return max(gdp_log_delta(math.exp(log_mu), epsilon), -1e300) - log_delta

    # At mu = 2 sqrt(2 eps) + 4 sqrt(2 L) ... delta exceeds any target; below eps / (2 sqrt(2 L) + ...) it is under it. A walk by
    # factors of 4 from a first guess brackets the root without a case analysis.
    low = high = math.log(max(epsilon, math.exp(max(log_delta, -700.0))) / math.sqrt(2.0 * max(1.0, -log_delta)))
    while excess(high) <= 0.0:
        high += math.log(4.0)
    while excess(low) > 0.0:
        low -= math.log(4.0)
    root = math.exp(float(optimize.brentq(excess, low, high, xtol=1e-15, rtol=1e-15)))
    return _moved(root, -1.0, lambda mu: _log_delta_bounds(mu, epsilon)[1] <= log_delta)


def _moved(root: float, sign: float, good: Callable[[float], bool]) -> float:
    """The root, moved by doubling relative steps in the direction ``sign`` until ``good`` holds: a safe end, checked."""
    width, value = 1e-15, root
    while not good(value):
        value = root * (1.0 + sign * width)
        width *= 2.0
    return value


@final
class GdpAccountant(Accountant):
    """Gaussian mechanisms, complex or real, repeated and composed, without sampling: exact."""

    name = ROUTE
    summary = "Closed form for compositions of Gaussian mechanisms without sampling; exact to rounding at any delta."
    sources = ("Balle and Wang 2018, arXiv:1805.06530", "Dong, Roth and Su 2022, arXiv:1905.02383")

    def unsupported(self, event: Event) -> str | None:
        if non_private_reason(event) is not None:
            return None
        for leaf in leaves(event):
            if leaf.mechanism.privacy_loss().gdp_mu is None:
                return f"{leaf.mechanism.kind} isn't Gaussian, and the closed form is for Gaussian noise"
            if not leaf.is_whole:
                return f"a {'Poisson-sampled' if leaf.scheme == 'poisson' else 'sampled'} Gaussian has no closed form"
        return None

    def profile(self, event: Event) -> PrivacyProfile:
        if (reason := non_private_reason(event)) is not None:
            return NonPrivateProfile(reason)
        if (reason := self.unsupported(event)) is not None:
            raise UnsupportedEvent(self.name, reason)
        parts = [
            (leaf.mechanism, leaf.group * (leaf.mechanism.privacy_loss().gdp_mu or 0.0), count) for leaf, count in leaves(event).items()
        ]
        largest = max(mu for _, mu, _ in parts)
        # Divided by the largest part: squares then neither overflow nor vanish.
        mu = largest * math.sqrt(math.fsum(count * (part / largest) ** 2 for _, part, count in parts))
        steps = tuple(step for mechanism, _, _ in parts for step in mechanism.derivation())
        total = Step(symbol="mu", value=mu, formula="sqrt(sum of count_i mu_i^2)", source="Dong, Roth and Su 2022, Corollary 3.3")
        return GdpProfile(mu, (*steps, total) if len(parts) > 1 or parts[0][2] > 1 else steps)
