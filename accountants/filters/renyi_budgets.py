r"""Budgets in Renyi divergence at orders that are chosen before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Literal, Self, final

from pydantic import Field, model_validator

from zetadp.accountants.filters.budgets import Budget, Limit, float_down
from zetadp.accountants.filters.renyi import renyi_epsilon, renyi_loss, renyi_value
from zetadp.accountants.filters.spends import AnySpend, RdpSpend, Spend, rdp_cost
from zetadp.accountants.profile import check_delta, check_order
from zetadp.mechanisms.base import OpenProbability
from zetadp.mechanisms.errors import InvalidParameter

Orders = Annotated[tuple[float, ...], Field(min_length=1, max_length=64)]

DEFAULT_ORDERS = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0, 128.0, 256.0)
"""Orders that serve budgets from epsilon = .1 to 20. For ``RdpTargetBudget`` take the two or three that suit the work planned: all of
these cost 10 to 30 % of epsilon against one that is right."""


@final
class RdpBudget(Budget):
    """Renyi divergence of at most ``values[k]`` at ``orders[k]``, all at once. Feldman and Zrnic 2021, Theorem 3.1, at each order."""

    kind: Literal["rdp"] = "rdp"
    orders: Orders
    values: tuple[Limit, ...]

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_orders(self.orders)
        if len(self.values) != len(self.orders):
            raise InvalidParameter("values", f"as many as orders, {len(self.orders)}", len(self.values))
        return self

    @property
    def limits(self) -> tuple[Fraction, ...]:
        return tuple(Fraction(value) for value in self.values)

    def cost(self, spend: Spend) -> tuple[Fraction, ...]:
        return rdp_cost(spend, self.orders)

    @property
    def quantities(self) -> tuple[str, ...]:
        return _quantities(self.orders)

    def as_spend(self, rest: tuple[Fraction, ...]) -> AnySpend:
        return RdpSpend(orders=self.orders, values=tuple(float_down(amount) for amount in rest))

    def epsilon_at(self, delta: float) -> float:
        check_delta(delta)
        return max(0.0, min(renyi_epsilon(order, value, math.log(delta)) for order, value in zip(self.orders, self.values, strict=True)))

    def loss_at(self, parts: tuple[Fraction | None, ...], log_failure: float) -> float:
        return renyi_loss(self.orders, self.limits, parts, log_failure)


@final
class RdpTargetBudget(Budget):
    r"""(epsilon, delta)-DP in all, by Renyi divergences at several orders of which one has to stay within its limit.

    Which order that is may depend on the outputs, so each of the K orders answers for delta / K: a rule that holds the whole delta
    against every order and stops at the last one isn't covered by the theorem (proofs/filters.md, section 3).
    """

    kind: Literal["rdp_target"] = "rdp_target"
    epsilon: Limit
    delta: OpenProbability
    orders: Orders

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_orders(self.orders)
        if not any(limit > 0 for limit in self.limits):
            raise InvalidParameter("orders", "such that one of them can meet (epsilon, delta); a larger order may", self.orders)
        return self

    @property
    def limits(self) -> tuple[Fraction, ...]:
        return tuple(Fraction(renyi_value(order, self.epsilon, self._log_share(self.delta))) for order in self.orders)

    def _log_share(self, delta: float) -> float:
        return math.log(delta) - math.log(len(self.orders))

    def cost(self, spend: Spend) -> tuple[Fraction, ...]:
        return rdp_cost(spend, self.orders)

    def is_kept(self, within: Sequence[bool]) -> bool:
        return any(within)

    @property
    def quantities(self) -> tuple[str, ...]:
        return _quantities(self.orders)

    def as_spend(self, rest: tuple[Fraction, ...]) -> AnySpend:
        return RdpSpend(orders=self.orders, values=tuple(float_down(amount) for amount in rest))

    def epsilon_at(self, delta: float) -> float:
        check_delta(delta)
        if delta == self.delta:
            return self.epsilon
        log_share = self._log_share(delta)
        return max(
            renyi_epsilon(order, float(limit), log_share) for order, limit in zip(self.orders, self.limits, strict=True) if limit > 0
        )

    def loss_at(self, parts: tuple[Fraction | None, ...], log_failure: float) -> float:
        return renyi_loss(self.orders, self.limits, parts, log_failure)


def _quantities(orders: tuple[float, ...]) -> tuple[str, ...]:
    return tuple(f"Renyi divergence of order {order:g}" for order in orders)


def _check_orders(orders: tuple[float, ...]) -> None:
    for order in orders:
        check_order(order)
    if any(not a < b for a, b in pairwise(orders)):
        raise InvalidParameter("orders", "ascending and distinct", orders)
