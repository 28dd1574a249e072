r"""What one step of an adaptive analysis costs: given as a number in some currency, or read off an event."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Literal, Self, TypeAlias, final

import scipy
from pydantic import Field, model_validator

from zetadp.accountants.dominating import pair_of
from zetadp.accountants.events import Event, leaves, non_private_reason, releases
from zetadp.accountants.largest_loss import pure_epsilon
from zetadp.accountants.leaf import Leaf, Selection
from zetadp.accountants.routes.rdp.rdp import RdpAccountant
from zetadp.accountants.selected.largest import largest_loss_of
from zetadp.mechanisms.base import NonNegative, Value
from zetadp.mechanisms.declared.base import Declared
from zetadp.mechanisms.errors import InvalidParameter, UnsupportedEvent

FILTER = "filter"

_ROUNDING = 1e-13
"""Relative allowance for mu from epsilon: measured against 40 digits, less than a tenth of it is used."""

_NEAR = 3.0
_FAR = 600.0


@final
class PureSpend(Value):
    """epsilon-DP."""

    kind: Literal["pure"] = "pure"
    epsilon: NonNegative


@final
class ZcdpSpend(Value):
    """rho-zCDP: Renyi divergence at most rho times the order, for every order > 1."""

    kind: Literal["zcdp"] = "zcdp"
    rho: NonNegative


@final
class GdpSpend(Value):
    """mu-GDP."""

    kind: Literal["gdp"] = "gdp"
    mu: NonNegative


@final
class RdpSpend(Value):
    """Renyi divergence at most ``values[k]`` at ``orders[k]``; the orders must be the budget's."""

    kind: Literal["rdp"] = "rdp"
    orders: tuple[float, ...]
    values: tuple[NonNegative, ...]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.orders) != len(self.values):
            raise InvalidParameter("values", f"as many as orders, {len(self.orders)}", len(self.values))
        return self


AnySpend: TypeAlias = Annotated[PureSpend | ZcdpSpend | GdpSpend | RdpSpend, Field(discriminator="kind")]
Spend: TypeAlias = AnySpend | Event


def pure_cost(spend: Spend) -> Fraction:
    """epsilon. Raises UnsupportedEvent where the spend isn't epsilon-DP for any epsilon that is known here."""
    match spend:
        case PureSpend():
            return Fraction(spend.epsilon)
        case ZcdpSpend() | GdpSpend() | RdpSpend():
            raise UnsupportedEvent(FILTER, f"a spend in {spend.kind} isn't pure epsilon-DP")
        case _:
            _refuse_non_private(spend)
            # Local releases stay whole: epsilon of their coordinates, each rounded up, would be more than the epsilon they were given.
            return sum((count * Fraction(_pure_epsilon_of(leaf)) for leaf, count in releases(spend).items()), Fraction(0))


def zcdp_cost(spend: Spend) -> Fraction:
    """rho: mu^2 / 2 of mu-GDP, epsilon^2 / 2 of epsilon-DP (Bun and Steinke 2016, Propositions 1.6 and 3.3)."""
    match spend:
        case ZcdpSpend():
            return Fraction(spend.rho)
        case GdpSpend():
            return Fraction(spend.mu) ** 2 / 2
        case PureSpend():
            return Fraction(spend.epsilon) ** 2 / 2
        case RdpSpend():
            raise UnsupportedEvent(FILTER, "a Renyi bound at some orders isn't one at all orders, which zCDP needs")
        case _:
            return sum((count * _slope(leaf) for leaf, count in _parts(spend)), Fraction(0))


def gdp_cost(spend: Spend) -> Fraction:
    """mu^2; epsilon-DP is mu-GDP with mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)) (proofs/filters.md, section 4)."""
    match spend:
        case GdpSpend():
            return Fraction(spend.mu) ** 2
        case PureSpend():
            return Fraction(mu_of_pure(spend.epsilon)) ** 2
        case ZcdpSpend() | RdpSpend():
            raise UnsupportedEvent(FILTER, f"a spend in {spend.kind} isn't mu-GDP for any mu that is known here")
        case _:
            total = Fraction(0)
            for leaf, count in _parts(spend):
                size, is_pure = _mu_or_epsilon(leaf)
                total += count * Fraction(mu_of_pure(size) if is_pure else size) ** 2
            return total


def rdp_cost(spend: Spend, orders: tuple[float, ...]) -> tuple[Fraction, ...]:
    """Renyi divergences at the orders; for epsilon-DP min(epsilon, order epsilon^2 / 2)."""
    match spend:
        case RdpSpend():
            if spend.orders != orders:
                raise InvalidParameter("orders", f"the budget's, {orders}", spend.orders)
            return tuple(Fraction(value) for value in spend.values)
        case ZcdpSpend() | GdpSpend():
            rho = zcdp_cost(spend)
            return tuple(Fraction(order) * rho for order in orders)
        case PureSpend():
            epsilon = Fraction(spend.epsilon)
            return tuple(min(epsilon, Fraction(order) * epsilon**2 / 2) for order in orders)
        case _:
            _refuse_non_private(spend)
            found = RdpAccountant().profile(spend)
            return tuple(_finite(found.rdp(order), order) for order in orders)


def _finite(value: float | None, order: float) -> Fraction:
    if value is None or not math.isfinite(value):
        raise UnsupportedEvent(FILTER, f"no finite Renyi divergence of order {order:g} is known for it")
    return Fraction(value)


def mu_of_pure(epsilon: float) -> float:
    """The smallest mu for which epsilon-DP implies mu-GDP, rounded up: both curves pass through their symmetric point.

    >>> round(mu_of_pure(1.0), 6)
    1.232035
    """
    if epsilon <= _NEAR:
        return 2.0 * math.sqrt(2.0) * float(scipy.special.erfinv(math.tanh(0.5 * epsilon))) * (1.0 + _ROUNDING)
    if epsilon <= _FAR:
        return 2.0 * math.sqrt(2.0) * float(scipy.special.erfcinv(2.0 / (1.0 + math.exp(epsilon)))) * (1.0 + _ROUNDING)
    # Phi(-x) <= e^{-x^2 / 2} / 2, and e^-epsilon / 2 <= 1 / (1 + e^epsilon).
    return math.sqrt(8.0 * epsilon) * (1.0 + _ROUNDING)


def _pure_epsilon_of(leaf: Leaf) -> float:
    epsilon = _largest_loss(leaf)
    if epsilon == math.inf:
        raise UnsupportedEvent(FILTER, f"{leaf.mechanism.kind} noise isn't pure epsilon-DP; use a zcdp, gdp or rdp budget")
    return epsilon


def _largest_loss(leaf: Leaf) -> float:
    """The largest loss of a leaf; infinite for unbounded noise."""
    if not isinstance(leaf.mechanism, Selection):
        return pure_epsilon(pair_of(leaf))
    found = largest_loss_of(leaf)
    if found == math.inf:
        reason = "the best of several runs of something that isn't pure epsilon-DP costs Renyi divergences only; use an rdp budget"
        raise UnsupportedEvent(FILTER, reason)
    return found


def _mu_or_epsilon(leaf: Leaf) -> tuple[float, bool]:
    """(epsilon, True) of any release that is pure epsilon-DP, or (mu, False) of a Gaussian release on all of the data."""
    epsilon = _largest_loss(leaf)
    if epsilon < math.inf:
        return epsilon, True
    pair = pair_of(leaf)
    mu = pair.family.gdp_mu(pair.distance) if pair.is_whole else None
    if mu is None:
        raise UnsupportedEvent(
            FILTER, f"a sampled {pair.family.name} release is neither zCDP nor GDP with a useful parameter; use an rdp budget"
        )
    return mu, False


def _slope(leaf: Leaf) -> Fraction:
    """rho of one release."""
    if not isinstance(leaf.mechanism, Declared):
        return Fraction(_mu_or_epsilon(leaf)[0]) ** 2 / 2
    rho = leaf.mechanism.privacy_loss().renyi_slope if leaf.is_whole else None
    if rho is None:
        raise UnsupportedEvent(FILTER, f"{leaf.mechanism.kind} isn't zCDP for any rho that is known here")
    return leaf.group**2 * rho


def _parts(event: Event) -> Iterator[tuple[Leaf, int]]:
    _refuse_non_private(event)
    yield from leaves(event).items()


def _refuse_non_private(event: Event) -> None:
    if (reason := non_private_reason(event)) is not None:
        raise UnsupportedEvent(FILTER, f"it has no guarantee, so no budget covers it: {reason}")
