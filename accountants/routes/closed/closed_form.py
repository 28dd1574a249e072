r"""The closed form: compositions of Gaussian mechanisms without sampling are exactly mu-GDP with mu^2 = sum of mu_i^2."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import final

from zetadp.accountants.accountant import Accountant
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.profile import Bound, DeltaBound, PrivacyProfile, check_alpha, check_delta, check_epsilon, check_order
from zetadp.accountants.routes.closed.gdp_inversion import (
    MU_ERROR,
    ROUTE,
    epsilon_at,
    epsilon_upper_at,
    largest_mu,
    log_delta_bounds,
    log_delta_upper,
)
from zetadp.mechanisms.base import Step
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics.gdp import gdp_trade_off, trade_off_error

__all__ = ["ROUTE", "GdpAccountant", "GdpProfile", "epsilon_at", "largest_mu"]


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
        low, high = log_delta_bounds(self._mu, epsilon)
        return DeltaBound(log_lower=low, log_upper=high, route=ROUTE)

    def log_delta_upper(self, epsilon: float) -> float:
        check_epsilon(epsilon)
        return log_delta_upper(self._mu, epsilon)

    def epsilon(self, delta: float) -> Bound:
        check_delta(delta)
        return epsilon_at(self._mu, math.log(delta))

    def epsilon_at_log_delta(self, log_delta: float) -> Bound:
        if not -math.inf < log_delta < 0.0:
            raise InvalidParameter("log_delta", "finite and < 0", log_delta)
        return epsilon_at(self._mu, log_delta)

    def epsilon_upper(self, delta: float) -> float:
        check_delta(delta)
        return epsilon_upper_at(self._mu, math.log(delta))

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


@final
class GdpAccountant(Accountant):
    """Gaussian mechanisms, complex or real, repeated and composed, without sampling: exact."""

    name = ROUTE
    summary = "Closed form for compositions of Gaussian mechanisms without sampling; exact to rounding at any delta."
    sources = ("Balle and Wang 2018, arXiv:1805.06530", "Dong, Roth and Su 2022, arXiv:1905.02383")

    def unsupported_parts(self, parts: Mapping[Leaf, int]) -> str | None:
        for leaf in parts:
            if leaf.mechanism.privacy_loss().gdp_mu is None:
                return f"{leaf.mechanism.kind} isn't Gaussian, and the closed form is for Gaussian noise"
            if not leaf.is_whole:
                return f"a {'Poisson-sampled' if leaf.scheme == 'poisson' else 'sampled'} Gaussian has no closed form"
        return None

    def _profile(self, parts: Mapping[Leaf, int]) -> PrivacyProfile:
        mus = [(leaf.group * (leaf.mechanism.privacy_loss().gdp_mu or 0.0), count) for leaf, count in parts.items()]
        largest = max(mu for mu, _ in mus)
        # Divided by the largest part, so that squares neither overflow nor vanish.
        mu = largest * math.sqrt(math.fsum(count * (part / largest) ** 2 for part, count in mus))
        steps = tuple(step for leaf in parts for step in leaf.mechanism.derivation())
        total = Step(symbol="mu", value=mu, formula="sqrt(sum of count_i mu_i^2)", source="Dong, Roth and Su 2022, Corollary 3.3")
        return GdpProfile(mu, (*steps, total) if len(mus) > 1 or mus[0][1] > 1 else steps)
