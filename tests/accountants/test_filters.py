from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from pydantic import ValidationError

from tests.accountants.events import complex_gaussian, gaussian, laplace, training
from zetadp.accountants import Composed, NonPrivate, Repeated, profile
from zetadp.accountants.densities import LAPLACE
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.filters import (
    DEFAULT_ORDERS,
    AnyBudget,
    Filter,
    GdpBudget,
    GdpSpend,
    PureBudget,
    PureSpend,
    RdpBudget,
    RdpSpend,
    RdpTargetBudget,
    ZcdpBudget,
    ZcdpSpend,
)
from zetadp.accountants.filters.budgets import zcdp_epsilon
from zetadp.accountants.filters.renyi import renyi_epsilon, renyi_value
from zetadp.accountants.filters.spends import mu_of_pure, pure_epsilon
from zetadp.accountants.pairs import Pair
from zetadp.mechanisms import Adjacency, IncompatibleEvent, InvalidParameter, UnsupportedEvent
from zetadp.mechanisms.errors import BudgetExceeded
from zetadp.mechanisms.numerics.gdp import gdp_log_delta

ORDERS = (2.0, 8.0, 32.0)
BUDGETS: list[AnyBudget] = [
    PureBudget(epsilon=1.0),
    ZcdpBudget(rho=0.7),
    GdpBudget(mu=1.3),
    RdpBudget(orders=ORDERS, values=(0.5, 2.0, 9.0)),
    RdpTargetBudget(epsilon=3.0, delta=1e-5, orders=ORDERS),
]
NAMES = [budget.kind for budget in BUDGETS]


def opened(budget, adjacency=Adjacency.ADD_REMOVE, unit="record"):
    return Filter.opened(budget, adjacency, unit)


def own_spend(budget, size):
    """A spend in the budget's own currency."""
    match budget:
        case PureBudget():
            return PureSpend(epsilon=size)
        case ZcdpBudget():
            return ZcdpSpend(rho=size)
        case GdpBudget():
            return GdpSpend(mu=size)
        case _:
            return RdpSpend(orders=budget.orders, values=tuple(size * order for order in budget.orders))


def exact_sums(state):
    """What the state holds, in the limits' own units."""
    return [grid.amount(steps) for grid, steps in zip(state.budget.grids, state.spent, strict=True)]


@pytest.mark.parametrize("budget", BUDGETS, ids=NAMES)
def test_exactly_what_remains_is_admitted_and_nothing_more(budget):
    generator = np.random.default_rng(1)
    state = opened(budget)
    for _ in range(7):
        state = state.spend(own_spend(budget, float(generator.uniform(0.0, 0.04))))
    rest = state.remaining
    assert state.admits(rest)
    assert not state.spend(rest).admits(own_spend(budget, 1e-3))


@pytest.mark.parametrize("budget", BUDGETS, ids=NAMES)
def test_a_whole_budget_may_be_spent_at_once(budget):
    state = opened(budget)
    assert state.admits(state.remaining)
    if isinstance(budget, PureBudget | ZcdpBudget | GdpBudget):
        assert state.remaining == own_spend(budget, budget.model_dump()[{"pure": "epsilon", "zcdp": "rho", "gdp": "mu"}[budget.kind]])


def test_squares_of_mu_add_up():
    state = opened(GdpBudget(mu=2.0))
    for _ in range(4):
        state = state.spend(GdpSpend(mu=1.0))
    assert state.remaining == GdpSpend(mu=0.0)
    with pytest.raises(BudgetExceeded, match="mu"):
        state.spend(GdpSpend(mu=1e-9))


@pytest.mark.parametrize("budget", BUDGETS, ids=NAMES)
@pytest.mark.parametrize("size", [1e-300, 1e-40, 0.1 / 3.0, 1e-7])
def test_sums_are_never_short_and_over_by_less_than_a_step_a_spend(budget, size):
    state, number = opened(budget), 5
    spend = own_spend(budget, min(size, 0.01))
    for _ in range(number):
        state = state.spend(spend)
    for sum_, cost, grid in zip(exact_sums(state), budget.cost(spend), budget.grids, strict=True):
        assert 0 <= sum_ - number * cost < number * grid.amount(1)


def test_a_million_tiny_spends_are_not_counted_short():
    """In float64 1 + 1e-17 is 1, however often it is added."""
    budget = PureBudget(epsilon=2.0)
    spend = PureSpend(epsilon=1e-17)
    state = opened(budget).spend(PureSpend(epsilon=1.0))
    (step,), (grid,) = budget.cost(spend), budget.grids
    before = state.spent[0]
    for _ in range(1000):
        state = state.spend(spend)
    # A thousand are spent; the sums are whole numbers, so a million add up in the same way.
    each = (state.spent[0] - before) // 1000
    assert state.spent[0] == before + 1000 * each
    assert 0 <= grid.amount(each) - step < grid.amount(1)
    assert 1.0 + 1000 * 1e-17 > float(sum(exact_sums(state))) - 1e-15 > 1.0


@pytest.mark.parametrize("budget", BUDGETS, ids=NAMES)
def test_a_state_is_restored_exactly_from_its_json(budget):
    state = opened(budget).spend(own_spend(budget, 0.01 / 3)).spend(own_spend(budget, 1e-20))
    restored = Filter.model_validate_json(state.model_dump_json())
    assert restored == state
    assert restored.remaining == state.remaining
    assert '"spent":["' in state.model_dump_json()


@pytest.mark.parametrize("budget", BUDGETS, ids=NAMES)
def test_a_refund_undoes_a_spend_exactly(budget):
    state = opened(budget).spend(own_spend(budget, 0.011))
    spend = own_spend(budget, 0.01 / 7)
    assert state.spend(spend).refund(spend) == state
    with pytest.raises(InvalidParameter, match="refund must be of something that was spent"):
        opened(budget).refund(spend)


@pytest.mark.parametrize("budget", BUDGETS, ids=NAMES)
def test_a_refused_spend_changes_nothing_and_says_what_is_left(budget):
    state = opened(budget).spend(own_spend(budget, 0.01))
    with pytest.raises(BudgetExceeded) as caught:
        state.spend(own_spend(budget, 100.0))
    error = caught.value
    assert error.requested > error.remaining > 0.0
    assert error.quantity in str(error)
    assert repr(error.remaining) in str(error)
    assert state == opened(budget).spend(own_spend(budget, 0.01))


def test_the_largest_spends_are_refused_and_not_misread():
    for spend in (PureSpend(epsilon=1e50), PureSpend(epsilon=800.0)):
        for budget in BUDGETS:
            assert not opened(budget).admits(spend)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1e-300, -1.0])
def test_spends_that_are_no_numbers_are_refused(value):
    for build in (lambda x: PureSpend(epsilon=x), lambda x: ZcdpSpend(rho=x), lambda x: GdpSpend(mu=x)):
        with pytest.raises(ValidationError):
            build(value)
    with pytest.raises(ValidationError):
        RdpSpend(orders=ORDERS, values=(0.1, value, 0.1))


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0, 1e-40])
def test_budgets_that_are_no_budgets_are_refused(value):
    for build in (lambda x: PureBudget(epsilon=x), lambda x: ZcdpBudget(rho=x), lambda x: GdpBudget(mu=x)):
        with pytest.raises(ValidationError):
            build(value)


def test_a_state_beyond_its_budget_is_refused_when_restored():
    state = opened(PureBudget(epsilon=1.0)).spend(PureSpend(epsilon=1.0))
    text = state.model_dump_json().replace(str(state.spent[0]), str(state.spent[0] * 2))
    with pytest.raises(ValidationError, match="within the budget"):
        Filter.model_validate_json(text)
    with pytest.raises(ValidationError):
        Filter.model_validate_json(state.model_dump_json().replace(str(state.spent[0]), "-1"))
    with pytest.raises(ValidationError, match="one sum for each limit"):
        Filter(budget=PureBudget(epsilon=1.0), adjacency=Adjacency.ADD_REMOVE, unit="record", spent=(0, 0), count=0)


def test_events_cost_what_their_releases_cost():
    event = Composed(events=(Repeated(count=9, event=gaussian(3.0)), complex_gaussian(1.0, 0.5)))
    assert float(GdpBudget(mu=2.0).cost(event)[0]) == pytest.approx(1.0 + 2.0, rel=1e-14)
    assert float(ZcdpBudget(rho=2.0).cost(event)[0]) == pytest.approx(1.5, rel=1e-14)
    assert float(PureBudget(epsilon=2.0).cost(Repeated(count=3, event=laplace(4.0)))[0]) == 0.75
    assert float(ZcdpBudget(rho=2.0).cost(Repeated(count=3, event=laplace(4.0)))[0]) == 3 * 0.25**2 / 2


def test_renyi_costs_of_events_are_the_accountants():
    event = Composed(events=(training(0.01, 1.0, 100), laplace(10.0)))
    found = profile(event, "rdp")
    assert RdpBudget(orders=ORDERS, values=(1.0, 1.0, 1.0)).cost(event) == tuple(Fraction(found.rdp(order)) for order in ORDERS)


@pytest.mark.parametrize(
    ("budget", "spend", "reason"),
    [
        (PureBudget(epsilon=1.0), gaussian(), "gaussian noise isn't pure epsilon-DP"),
        (PureBudget(epsilon=1.0), GdpSpend(mu=0.1), "a spend in gdp isn't pure"),
        (ZcdpBudget(rho=1.0), training(0.1, 1.0, 2), "use an rdp budget"),
        (GdpBudget(mu=1.0), training(0.1, 1.0, 2), "use an rdp budget"),
        (GdpBudget(mu=1.0), ZcdpSpend(rho=0.1), "isn't mu-GDP for any mu"),
        (ZcdpBudget(rho=1.0), RdpSpend(orders=(2.0,), values=(0.1,)), "isn't one at all orders"),
        (GdpBudget(mu=1.0), NonPrivate(reason="raw labels released"), "it has no guarantee, so no budget covers it: raw labels released"),
        (BUDGETS[3], Composed(events=(gaussian(), NonPrivate(reason="raw labels released"))), "raw labels released"),
    ],
)
def test_a_spend_without_a_cost_in_the_budgets_currency_is_refused_with_the_reason(budget, spend, reason):
    for ask in (opened(budget).admits, opened(budget).spend):
        with pytest.raises(UnsupportedEvent, match=reason):
            ask(spend)


def test_events_of_other_neighbours_or_units_are_refused():
    state = opened(GdpBudget(mu=5.0))
    with pytest.raises(IncompatibleEvent, match="adjacency"):
        state.admits(gaussian(adjacency="replace_one"))
    with pytest.raises(IncompatibleEvent, match="unit"):
        state.spend(gaussian(unit="patient"))


def test_renyi_spends_must_be_at_the_budgets_orders():
    with pytest.raises(InvalidParameter, match="orders must be the budget's"):
        opened(BUDGETS[3]).admits(RdpSpend(orders=(2.0, 8.0), values=(0.1, 0.1)))


@pytest.mark.parametrize("epsilon", [1e-20, 1e-12, 1e-3, 0.3, 1.0, 2.999, 3.001, 5.0, 40.0, 599.0, 601.0, 1e6])
def test_pure_privacy_is_gaussian_privacy_of_the_smallest_mu(epsilon):
    with mpmath.workdps(60):
        # By Newton's rule on log Phi(-mu / 2) = -log(1 + e^epsilon).
        half, goal = mpmath.mpf(mu_of_pure(epsilon)) / 2, -mpmath.mpf(epsilon) - mpmath.log1p(mpmath.exp(-mpmath.mpf(epsilon)))
        for _ in range(6):
            tail = mpmath.erfc(half / mpmath.sqrt(2)) / 2
            half += (mpmath.log(tail) - goal) * tail / mpmath.npdf(half)
    # Beyond 600 the simple bound sqrt(8 epsilon) is taken.
    assert 2 * half <= mu_of_pure(epsilon) <= 2 * half * (1 + (1e-12 if epsilon < 600 else 1e-2))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
def test_the_gaussian_profile_of_a_pure_spend_covers_randomized_response(epsilon):
    for e in np.linspace(0.0, epsilon, 50)[:-1]:
        exact = math.log(-math.expm1(e - epsilon)) - math.log1p(math.exp(-epsilon))
        assert exact <= gdp_log_delta(mu_of_pure(epsilon), float(e)) + 1e-12


@pytest.mark.parametrize("q", [1e-9, 0.01, 0.5, 1 - 1e-9])
@pytest.mark.parametrize("epsilon", [1e-6, 0.5, 3.0, 50.0, 900.0])
def test_a_sampled_laplace_release_costs_its_largest_loss(q, epsilon):
    both = Mixture((1.0 - q, q), (0.0, epsilon))
    found = pure_epsilon(Pair(LAPLACE, both, Mixture((1.0,), (0.0,))))
    with mpmath.workdps(50):
        exact = mpmath.log1p(mpmath.mpf(q) * mpmath.expm1(mpmath.mpf(epsilon)))
    assert exact <= found <= exact * (1 + 1e-12) + 2e-15


@pytest.mark.parametrize("q", [1e-6, 0.3, 0.999])
def test_a_sampled_replacement_costs_its_largest_loss(q):
    pair = Pair(LAPLACE, Mixture((1 - q, q), (0.0, 2.0)), Mixture((q, 1 - q), (-2.0, 0.0)))
    exact = math.log1p(q * math.expm1(2.0)) - math.log1p(q * math.expm1(-2.0))
    assert exact <= pure_epsilon(pair) <= exact * (1 + 1e-11) + 3e-15


@pytest.mark.parametrize("order", [1.001, 1.25, 2.0, 10.0, 1000.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-12])
def test_a_renyi_value_from_a_target_implies_the_target(order, delta):
    epsilon = 2.0 - renyi_value(order, 0.0, math.log(delta))
    value = renyi_value(order, epsilon, math.log(delta))
    assert renyi_epsilon(order, value, math.log(delta)) <= epsilon
    assert renyi_epsilon(order, value, math.log(delta)) >= epsilon - 1e-12 * (1 + epsilon)


def test_budgets_from_targets_keep_them_narrowly():
    for epsilon, delta in ((0.1, 1e-6), (1.0, 1e-5), (8.0, 1e-10)):
        for budget in (ZcdpBudget.for_target(epsilon, delta), GdpBudget.for_target(epsilon, delta)):
            assert epsilon * (1 - 1e-6) <= budget.epsilon_at(delta) <= epsilon * (1 + 1e-12)
    with pytest.raises(InvalidParameter, match="delta"):
        ZcdpBudget.for_target(1.0, 0.0)


def test_a_target_over_several_orders_pays_for_their_number():
    alone = RdpTargetBudget(epsilon=3.0, delta=1e-5, orders=(8.0,))
    several = RdpTargetBudget(epsilon=3.0, delta=1e-5, orders=ORDERS)
    assert alone.limits[0] == Fraction(renyi_value(8.0, 3.0, math.log(1e-5)))
    assert several.limits[1] == pytest.approx(float(alone.limits[0]) - math.log(3.0) / 7.0, rel=1e-12)
    assert several.epsilon_at(1e-5) == 3.0
    assert several.epsilon_at(1e-6) >= 3.0


def test_a_target_is_kept_as_long_as_one_order_is():
    state = opened(RdpTargetBudget(epsilon=3.0, delta=1e-5, orders=ORDERS))
    high = RdpSpend(orders=ORDERS, values=(0.01, 0.02, 1e6))
    state = state.spend(high)
    assert state.admits(high)
    assert not state.admits(RdpSpend(orders=ORDERS, values=(9.0, 9.0, 0.0)))


def test_orders_that_cannot_meet_the_target_are_refused():
    with pytest.raises(ValidationError, match="one of them can meet"):
        RdpTargetBudget(epsilon=0.1, delta=1e-9, orders=(2.0, 3.0))
    for orders in ((2.0, 2.0), (1.0, 2.0), (math.inf,)):
        with pytest.raises(ValidationError):
            RdpTargetBudget(epsilon=3.0, delta=1e-5, orders=orders)


def test_unusable_orders_are_never_within_their_limit():
    budget = RdpTargetBudget(epsilon=3.0, delta=1e-5, orders=(2.0, 32.0))
    assert budget.grids[0].limit == -1
    assert not opened(budget).admits(RdpSpend(orders=budget.orders, values=(0.0, 5.0)))


def adaptive_run(state, size, generator):
    """An analyst of Gaussian releases who spends more where the loss is already high, and stops where it is very high."""
    loss = 0.0
    while True:
        mu = size * (3.0 if loss > 0.0 else 1.0)
        if not state.admits(GdpSpend(mu=mu)):
            return loss, state
        state = state.spend(GdpSpend(mu=mu))
        loss += mu * float(generator.standard_normal()) + 0.5 * mu**2
        if loss > 3.0:
            return loss, state


def test_an_adaptive_analyst_stays_within_the_budgets_guarantee():
    generator = np.random.default_rng(7)
    budget, number = GdpBudget(mu=1.0), 3000
    losses = np.array([adaptive_run(opened(budget), 0.15, generator)[0] for _ in range(number)])
    for epsilon in (0.5, 1.5, 2.5):
        observed = np.maximum(0.0, -np.expm1(epsilon - losses)).mean()
        exact = math.exp(gdp_log_delta(1.0, epsilon))
        assert observed <= exact + 4.0 * math.sqrt(exact / number)


def test_an_analyst_beyond_the_budget_would_be_caught_by_that_check():
    generator = np.random.default_rng(7)
    number = 600
    losses = np.array([adaptive_run(opened(GdpBudget(mu=1.5)), 0.15, generator)[0] for _ in range(number)])
    exact = math.exp(gdp_log_delta(1.0, 1.5))
    assert np.maximum(0.0, -np.expm1(1.5 - losses)).mean() > exact + 4.0 * math.sqrt(exact / number)


def test_the_odometer_holds_at_all_times_for_an_analyst_who_stops_when_it_hurts():
    generator = np.random.default_rng(9)
    failed = 0
    for _ in range(400):
        loss, state = adaptive_run(opened(GdpBudget(mu=3.0)), 0.3, generator)
        failed += loss > state.epsilon_spent(0.05)
    assert failed <= 0.05 * 400


@pytest.mark.parametrize("budget", BUDGETS, ids=NAMES)
def test_the_odometer_rises_from_zero_with_what_is_spent(budget):
    state = opened(budget)
    readings = [state.epsilon_spent(1e-6)]
    for _ in range(4):
        state = state.spend(own_spend(budget, 0.01))
        readings.append(state.epsilon_spent(1e-6))
    assert readings[0] == 0.0
    assert readings == sorted(readings)
    assert 0.0 < readings[-1] < math.inf
    assert state.epsilon_spent(1e-3) <= readings[-1]


def test_what_a_budget_guarantees_is_what_its_currency_implies():
    assert PureBudget(epsilon=1.0).epsilon_at(1e-9) == pytest.approx(1.0, rel=1e-13)
    assert opened(GdpBudget(mu=1.0)).epsilon_at(1e-5) == profile(gaussian(1.0)).epsilon(1e-5).upper
    grid = np.linspace(1.01, 200.0, 200_000)
    best = (0.1 * grid + np.log1p(-1 / grid) - (math.log(1e-6) + np.log(grid)) / (grid - 1)).min()
    assert best * (1 - 1e-9) <= zcdp_epsilon(0.1, 1e-6) <= best * (1 + 1e-9)
    assert BUDGETS[3].epsilon_at(1e-5) == min(
        renyi_epsilon(order, value, math.log(1e-5)) for order, value in zip(ORDERS, (0.5, 2.0, 9.0), strict=True)
    )


def test_three_orders_chosen_up_front_cost_six_percent_of_epsilon_on_a_training_run():
    """Row 6 of the work set has epsilon 7.4137 by Renyi divergences if planned as a whole; the share log(3) / (order - 1) comes on top."""
    event, orders = training(0.01, 1.0, 10_000), (2.5, 4.0, 8.0)
    assert opened(RdpTargetBudget(epsilon=7.86, delta=1e-6, orders=orders)).admits(event)
    assert not opened(RdpTargetBudget(epsilon=7.84, delta=1e-6, orders=orders)).admits(event)
    assert opened(RdpTargetBudget(epsilon=7.49, delta=1e-6, orders=(4.0,))).admits(event)


def test_a_budget_of_a_planned_curve_costs_nothing_more_than_the_plan():
    event = training(0.01, 1.0, 1000)
    curve = profile(event, "rdp")
    budget = RdpBudget(orders=DEFAULT_ORDERS, values=tuple(curve.rdp(order) for order in DEFAULT_ORDERS))
    state = opened(budget)
    for _ in range(9):
        state = state.spend(training(0.01, 1.0, 111))
    assert not state.admits(training(0.01, 1.0, 2))
    assert budget.epsilon_at(1e-5) <= curve.epsilon(1e-5).upper * 1.01
