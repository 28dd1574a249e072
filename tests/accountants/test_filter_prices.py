"""Prices: a spend's cost computed beforehand, and how often it still fits."""

from __future__ import annotations

import pytest

from tests.accountants.events import gaussian
from zetadp.accountants.filters import Filter, GdpBudget, GdpSpend, Price, PureBudget, PureSpend, RdpSpend, RdpTargetBudget, ZcdpBudget
from zetadp.mechanisms import Adjacency, IncompatibleEvent, InvalidParameter
from zetadp.mechanisms.errors import BudgetExceeded

ORDERS = (2.0, 8.0)
TARGET = RdpTargetBudget(epsilon=3.0, delta=1e-5, orders=ORDERS)


def opened(budget, unit="record"):
    return Filter.opened(budget, Adjacency.ADD_REMOVE, unit)


@pytest.mark.parametrize(
    ("budget", "spend"),
    [(PureBudget(epsilon=1.0), PureSpend(epsilon=0.3)), (GdpBudget(mu=1.0), gaussian(2.0)), (TARGET, gaussian(3.0))],
    ids=["pure", "gdp", "rdp_target"],
)
def test_a_price_is_spent_and_refunded_as_its_spend(budget, spend):
    state = opened(budget)
    price = state.price(spend)
    assert state.spend(price) == state.spend(spend)
    assert state.spend(spend).refund(price).spent == state.spent
    assert Price.model_validate_json(price.model_dump_json()) == price


@pytest.mark.parametrize(
    ("budget", "spend"),
    [
        (PureBudget(epsilon=1.0), PureSpend(epsilon=0.3)),
        (PureBudget(epsilon=1.0), PureSpend(epsilon=0.25)),
        (ZcdpBudget(rho=1.0), gaussian(4.0)),
        (GdpBudget(mu=1.0), GdpSpend(mu=0.3)),
        (TARGET, gaussian(3.0)),
        (TARGET, RdpSpend(orders=ORDERS, values=(0.0, 0.2))),
    ],
    ids=["pure", "pure exactly", "zcdp", "gdp", "rdp_target", "rdp_target, one order free"],
)
def test_repetitions_are_counted_exactly(budget, spend):
    state = opened(budget).spend(spend)
    price = state.price(spend)
    count = state.repetitions(price)
    for _ in range(count):
        state = state.spend(price)
    assert state.repetitions(price) == 0
    with pytest.raises(BudgetExceeded):
        state.spend(price)


def test_what_costs_nothing_fits_without_end():
    state = opened(PureBudget(epsilon=1.0))
    assert state.repetitions(state.price(PureSpend(epsilon=0.0))) is None
    assert state.spend(PureSpend(epsilon=1.0)).repetitions(state.price(PureSpend(epsilon=0.0))) is None


def test_an_order_that_was_exceeded_counts_for_nothing():
    first = RdpSpend(orders=ORDERS, values=(1e6, 0.1))
    state = opened(TARGET).spend(first)
    assert state.repetitions(state.price(RdpSpend(orders=ORDERS, values=(0.0, 0.1)))) == int(
        (TARGET.limits[1] - state.budget.grids[1].amount(state.spent[1])) / state.budget.cost(first)[1]
    )


def test_a_refusal_speaks_of_a_limit_that_held_until_then():
    """Order 2 can't meet the target at all and the spend costs nothing there: the quotient of the two was a division by zero."""
    assert TARGET.grids[0].limit < 0
    with pytest.raises(BudgetExceeded, match="order 8"):
        opened(TARGET).spend(RdpSpend(orders=ORDERS, values=(0.0, 5.0)))


def test_a_price_of_another_budget_is_refused():
    price = opened(TARGET).price(gaussian(3.0))
    with pytest.raises(InvalidParameter, match=r"price must be of a budget with the same number of limits, 1, got 2"):
        opened(PureBudget(epsilon=1.0)).spend(price)


def test_a_price_is_only_for_the_filter_s_own_neighbours():
    with pytest.raises(IncompatibleEvent):
        opened(GdpBudget(mu=1.0), "user").price(gaussian(3.0))
