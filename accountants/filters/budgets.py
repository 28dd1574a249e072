r"""What may be spent in all, and what that guarantees. A budget has one or more limits, which sums of costs are compared with.

proofs/filters.md proves for each kind that whatever the analyst chooses, knowing all earlier outputs, the whole is as private as stated.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Literal, Self, final

import scipy
from pydantic import Field

from zetadp.accountants.conversions import loss_quantile
from zetadp.accountants.filters.exact_sums import Grid
from zetadp.accountants.filters.renyi import renyi_epsilon
from zetadp.accountants.filters.spends import AnySpend, GdpSpend, PureSpend, Spend, ZcdpSpend, gdp_cost, pure_cost, zcdp_cost
from zetadp.accountants.profile import check_delta
from zetadp.accountants.routes.closed.closed_form import GdpProfile
from zetadp.accountants.routes.closed.gdp_inversion import MU_ERROR, largest_mu
from zetadp.mechanisms.base import Positive, Value
from zetadp.mechanisms.errors import InvalidParameter

SMALLEST_LIMIT = 1e-30
LARGEST_LIMIT = 1e30

Limit = Annotated[Positive, Field(ge=SMALLEST_LIMIT, le=LARGEST_LIMIT)]
_ROUNDING = 1e-14
"""Allowance for the roundings of a conversion, relative to the sum of its terms' sizes."""


class Budget(Value, ABC):
    """Limits for sums of costs, and the guarantee that they enforce under fully adaptive spending."""

    @property
    @abstractmethod
    def limits(self) -> tuple[Fraction, ...]:
        """The exact limits; one at or below 0 is never kept."""

    @cached_property
    def grids(self) -> tuple[Grid, ...]:
        """The grid of each sum."""
        return tuple(Grid.of(limit) for limit in self.limits)

    @property
    @abstractmethod
    def quantities(self) -> tuple[str, ...]:
        """The name of each limit when a spend is refused."""

    @abstractmethod
    def cost(self, spend: Spend) -> tuple[Fraction, ...]:
        """What the spend adds to each sum. Raises UnsupportedEvent if it has no cost in this currency."""

    def is_kept(self, within: Sequence[bool]) -> bool:
        """Whether the rule holds, given for each limit whether its sum is within it: all of them, unless a budget says otherwise."""
        return all(within)

    def shown(self, amount: Fraction) -> float:
        """A cost or remainder in the user's terms."""
        return float(amount)

    @abstractmethod
    def as_spend(self, rest: tuple[Fraction, ...]) -> AnySpend:
        """The largest spend in the budget's own currency that fits the rests, rounded down; a rest below 0 counts as 0."""

    @abstractmethod
    def epsilon_at(self, delta: float) -> float:
        """An epsilon with which everything spent within this budget is (epsilon, delta)-DP, for delta in (0, 1)."""

    @abstractmethod
    def loss_at(self, parts: tuple[Fraction | None, ...], log_failure: float) -> float:
        """An epsilon that the loss of a run within these parts of the limits exceeds with at most this probability (its log).

        None means a limit that was exceeded, if the budget's rule allows that.
        """


@final
class PureBudget(Budget):
    """epsilon-DP in all: the sum of epsilons. Rogers, Roth, Ullman and Vadhan 2016, Section 3."""

    kind: Literal["pure"] = "pure"
    epsilon: Limit

    @property
    def limits(self) -> tuple[Fraction, ...]:
        return (Fraction(self.epsilon),)

    def cost(self, spend: Spend) -> tuple[Fraction, ...]:
        return (pure_cost(spend),)

    @property
    def quantities(self) -> tuple[str, ...]:
        return ("epsilon",)

    def as_spend(self, rest: tuple[Fraction, ...]) -> AnySpend:
        return PureSpend(epsilon=float_down(rest[0]))

    def epsilon_at(self, delta: float) -> float:
        check_delta(delta)
        return self.epsilon * (1.0 + 2.0 * MU_ERROR)

    def loss_at(self, parts: tuple[Fraction | None, ...], log_failure: float) -> float:
        del log_failure  # pure differential privacy holds for every output
        return _only(parts) * self.epsilon * (1.0 + 2.0 * MU_ERROR)


@final
class ZcdpBudget(Budget):
    """rho-zCDP in all: the sum of rhos. Feldman and Zrnic 2021, Theorem 3.1, at every order."""

    kind: Literal["zcdp"] = "zcdp"
    rho: Limit

    @classmethod
    def for_target(cls, epsilon: float, delta: float) -> Self:
        """The largest rho that implies (epsilon, delta), to ten digits, on the safe side.

        >>> round(ZcdpBudget.for_target(1.0, 1e-6).rho, 6)
        0.024356
        """
        check_delta(delta)
        low, high = SMALLEST_LIMIT, LARGEST_LIMIT
        if not zcdp_epsilon(low, delta) <= epsilon:
            raise InvalidParameter("epsilon", f"at least {zcdp_epsilon(low, delta):.3g}", epsilon)
        for _ in range(80):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if zcdp_epsilon(middle, delta) <= epsilon else (low, middle)
        return cls(rho=low)

    @property
    def limits(self) -> tuple[Fraction, ...]:
        return (Fraction(self.rho),)

    def cost(self, spend: Spend) -> tuple[Fraction, ...]:
        return (zcdp_cost(spend),)

    @property
    def quantities(self) -> tuple[str, ...]:
        return ("rho",)

    def as_spend(self, rest: tuple[Fraction, ...]) -> AnySpend:
        return ZcdpSpend(rho=float_down(rest[0]))

    def epsilon_at(self, delta: float) -> float:
        check_delta(delta)
        return zcdp_epsilon(self.rho, delta)

    def loss_at(self, parts: tuple[Fraction | None, ...], log_failure: float) -> float:
        rho = _only(parts) * self.rho * (1.0 + 2.0 * MU_ERROR)
        return (rho + 2.0 * math.sqrt(-rho * log_failure)) * (1.0 + _ROUNDING)


@final
class GdpBudget(Budget):
    """mu-GDP in all: the sum of squares of mu. Smith and Thakurta 2022; Koskela, Tobaben and Honkela 2022."""

    kind: Literal["gdp"] = "gdp"
    mu: Limit

    @classmethod
    def for_target(cls, epsilon: float, delta: float) -> Self:
        """The largest mu that implies (epsilon, delta), rounded down.

        >>> round(GdpBudget.for_target(1.0, 1e-5).mu, 6)
        0.268051
        """
        check_delta(delta)
        return cls(mu=largest_mu(epsilon, math.log(delta)))

    @property
    def limits(self) -> tuple[Fraction, ...]:
        return (Fraction(self.mu) ** 2,)

    def cost(self, spend: Spend) -> tuple[Fraction, ...]:
        return (gdp_cost(spend),)

    @property
    def quantities(self) -> tuple[str, ...]:
        return ("mu",)

    def shown(self, amount: Fraction) -> float:
        return math.sqrt(float(amount))

    def as_spend(self, rest: tuple[Fraction, ...]) -> AnySpend:
        mu = math.sqrt(float(rest[0]))
        while Fraction(mu) ** 2 > rest[0]:
            mu = math.nextafter(mu, 0.0)
        return GdpSpend(mu=mu)

    def epsilon_at(self, delta: float) -> float:
        check_delta(delta)
        return GdpProfile(self.mu, ()).epsilon_upper(delta)

    def loss_at(self, parts: tuple[Fraction | None, ...], log_failure: float) -> float:
        mu = math.sqrt(_only(parts)) * self.mu * (1.0 + MU_ERROR)
        return loss_quantile(GdpProfile(mu, ()), math.exp(log_failure) * (1.0 - _ROUNDING))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """epsilon of rho-zCDP at delta, at the best order. Canonne, Kamath and Steinke 2020, Proposition 12, with R(a) = rho a.

    >>> round(zcdp_epsilon(0.1, 1e-6), 4)
    2.1419
    """
    log_delta = math.log(delta)

    def at(log_excess: float) -> float:
        order = 1.0 + math.exp(log_excess)
        return renyi_epsilon(order, order * rho * (1.0 + 2.0 * MU_ERROR), log_delta)

    # The best order of the plain conversion, rho + 2 sqrt(rho log(1/delta)), is 1 + sqrt(log(1/delta) / rho): near the best one here.
    middle = 0.5 * math.log(-log_delta / rho)
    found = scipy.optimize.minimize_scalar(at, bounds=(middle - 2.0, middle + 2.0), method="bounded", options={"xatol": 1e-6})
    return max(0.0, float(found.fun))


def float_down(value: Fraction) -> float:
    """The float at or just below a value; 0 for one below 0."""
    nearest = max(0.0, float(value))
    return nearest if nearest == 0.0 or Fraction(nearest) <= value else math.nextafter(nearest, 0.0)


def _only(parts: tuple[Fraction | None, ...]) -> float:
    """The part of a budget's one limit, rounded up."""
    assert parts[0] is not None  # a sum beyond the only limit isn't admitted
    return math.nextafter(float(parts[0]), math.inf)
