"""The best of a random number of runs as an event: routes, groups, compositions, filters, calibration."""

from __future__ import annotations

import itertools
import math

import pytest
from dp_accounting import dp_event as library
from pydantic import TypeAdapter, ValidationError

from tests.accountants.events import gaussian, laplace, training
from tests.accountants.selections import LAWS, WHO, best_of, pure
from zetadp.accountants import (
    Composed,
    Grouped,
    NonPrivate,
    PoissonSampled,
    Release,
    Repeated,
    Target,
    accountant_named,
    leaves,
    profile,
)
from zetadp.accountants.calibration import NoiseScale, calibrate_scale, solve
from zetadp.accountants.dp_accounting_events import from_dp_accounting
from zetadp.accountants.events import Event
from zetadp.accountants.filters.budgets import GdpBudget, PureBudget, ZcdpBudget
from zetadp.accountants.filters.filter import Filter
from zetadp.accountants.filters.renyi_budgets import RdpBudget
from zetadp.accountants.selected.largest import largest_loss_of
from zetadp.app.calculators.caveats import caveats_of
from zetadp.mechanisms import (
    Adjacency,
    InvalidParameter,
    UnsupportedEvent,
    ZcdpGuarantee,
)
from zetadp.mechanisms.declared.runs import GeometricRuns, LogarithmicRuns, PoissonRuns, TruncatedNegativeBinomialRuns


@pytest.mark.parametrize("runs", LAWS, ids=repr)
def test_it_comes_back_from_json_and_from_dp_accounting(runs):
    event = Composed(events=(gaussian(3.0), Repeated(count=2, event=best_of(runs, training(0.1, 2.0, 3)))))
    adapter: TypeAdapter[Event] = TypeAdapter(Event)
    assert adapter.validate_json(event.model_dump_json()) == event
    shape = {"geometric": 1.0, "logarithmic": 0.0, "poisson": math.inf}.get(runs.kind) or getattr(runs, "shape", 0.0)
    there = library.RepeatAndSelectDpEvent(library.GaussianDpEvent(2.0), runs.mean, shape)
    assert from_dp_accounting(there, adjacency=Adjacency.ADD_REMOVE, unit="record").runs == runs


def test_a_group_pays_for_its_size_in_every_run():
    inside = best_of(GeometricRuns(mean=5.0), Grouped(size=4, unit="user", event=gaussian(8.0)))
    outside = Grouped(size=4, unit="user", event=best_of(GeometricRuns(mean=5.0), gaussian(8.0)))
    assert leaves(inside) == leaves(outside)
    assert profile(outside).epsilon(1e-5) == profile(best_of(GeometricRuns(mean=5.0), gaussian(2.0))).epsilon(1e-5)


def test_one_run_is_the_base():
    for base in (gaussian(1.5), laplace(2.0), training(0.02, 1.0, 100)):
        one, plain = profile(best_of(GeometricRuns(mean=1.0), base)).epsilon(1e-5), profile(base).epsilon(1e-5)
        assert plain.upper <= one.upper <= plain.upper * (1 + 1e-9) + 1e-12
        assert one.lower <= plain.lower * (1 + 1e-9)


@pytest.mark.parametrize("name", ["auto", "gdp", "contour", "rdp"])
@pytest.mark.parametrize("runs", [GeometricRuns(mean=6.0), PoissonRuns(mean=3.0)], ids=repr)
def test_every_accountant_keeps_its_promises_about_a_selection(runs, name):
    event = best_of(runs, Repeated(count=3, event=gaussian(3.0)))
    found = accountant_named(name).profile(event)
    best = profile(event)
    for delta in (1e-2, 1e-5, 1e-9):
        bound = found.epsilon(delta)
        assert best.epsilon(delta).lower <= bound.upper
        assert bound.lower <= best.epsilon(delta).upper
        assert found.delta(bound.upper).upper <= delta * (1 + 1e-6)
        assert found.epsilon_upper(delta) == pytest.approx(bound.upper, rel=1e-6)
    deltas = [found.delta(epsilon) for epsilon in (0.0, 0.4, 0.8, 1.5, 3.0, math.inf)]
    assert all(later.log_upper <= earlier.log_upper for earlier, later in itertools.pairwise(deltas))
    assert deltas[-1].upper == 0.0
    assert all(step.source and step.formula for step in found.derivation())
    for ask, text in (
        (lambda: found.epsilon(0.0), "delta must be in (0, 1), got 0.0"),
        (lambda: found.epsilon_at_log_delta(0.0), "log_delta must be finite and < 0, got 0.0"),
        (lambda: found.delta(-1.0), "epsilon must be >= 0, got -1.0"),
        (lambda: found.rdp(1.0), "order must be finite and > 1, got 1.0"),
    ):
        with pytest.raises(InvalidParameter) as caught:
            ask()
        assert str(caught.value) == text


def test_a_bracket_of_many_gaussian_releases_is_proved_from_both_sides():
    for runs, width in ((GeometricRuns(mean=10.0), 1.25), (LogarithmicRuns(mean=10.0), 1.25)):
        found = profile(best_of(runs, gaussian(2.0))).epsilon(1e-5)
        assert found.route == "selected(gdp)"
        assert profile(gaussian(2.0)).epsilon(1e-5).upper < found.lower < found.upper < width * found.lower
        assert found.upper < profile(best_of(runs, gaussian(2.0)), "rdp").epsilon(1e-5).upper


def test_next_to_other_releases_it_has_a_renyi_bound_alone():
    both = Composed(events=(gaussian(2.0), best_of(GeometricRuns(mean=4.0), gaussian(3.0))))
    found = profile(both)
    assert found.epsilon(1e-5).lower == 0.0
    assert found.epsilon(1e-5).route.startswith("rdp")
    one, rest = profile(best_of(GeometricRuns(mean=4.0), gaussian(3.0)), "rdp"), profile(gaussian(2.0), "rdp")
    assert found.rdp(5.0) == pytest.approx(one.rdp(5.0) + rest.rdp(5.0), rel=1e-12)
    assert accountant_named("contour").unsupported(both) == (
        "the best of several runs has no dominating pair that is known here: only its Renyi divergences compose"
    )


def test_a_selection_of_selections_is_answered():
    inner = best_of(GeometricRuns(mean=2.0), pure(0.2))
    outer = best_of(LogarithmicRuns(mean=3.0), inner)
    found = profile(outer)
    assert found.epsilon(1e-9).upper <= largest_loss_of(*leaves(outer)) * (1 + 1e-9)
    assert profile(inner).epsilon(1e-6).upper < found.epsilon(1e-6).upper
    assert profile(outer, "rdp").rdp(4.0) >= profile(inner, "rdp").rdp(4.0)


def test_zcdp_has_a_selection_too_and_no_lower_end():
    bound = profile(best_of(GeometricRuns(mean=4.0), Release(mechanism=ZcdpGuarantee(rho=0.05, **WHO)))).epsilon(1e-5)
    assert 0.0 == bound.lower < bound.upper < math.inf


def test_samples_of_a_selection_are_refused():
    with pytest.raises(InvalidParameter, match="not the best of several runs"):
        leaves(PoissonSampled(probability=0.1, event=best_of(GeometricRuns(mean=2.0), gaussian())))


def test_without_a_guarantee_of_the_base_there_is_none():
    assert profile(best_of(PoissonRuns(mean=2.0), NonPrivate(reason="labels"))).epsilon(1e-5).lower == math.inf


def test_parts_agree_about_neighbours():
    with pytest.raises(ValidationError, match="must have the same unit, got 'record' and 'user'"):
        Composed(events=(best_of(PoissonRuns(mean=2.0), gaussian()), gaussian(unit="user")))


@pytest.mark.parametrize(
    ("law", "fields", "text"),
    [
        (GeometricRuns, {"mean": 0.5}, "greater than or equal to 1"),
        (PoissonRuns, {"mean": 0.0}, "greater than or equal to 0.000001"),
        (TruncatedNegativeBinomialRuns, {"mean": 2.0, "shape": -1.0}, "greater than -1"),
        (TruncatedNegativeBinomialRuns, {"mean": 1e6, "shape": -0.99}, "mean must be smaller for the shape -0.99"),
    ],
)
def test_laws_out_of_range_are_refused(law, fields, text):
    with pytest.raises(ValidationError, match=text):
        law(**fields)


def test_filters_charge_pure_epsilon_or_renyi_divergences_and_refuse_the_rest():
    def opened(budget):
        return Filter.opened(budget, Adjacency.ADD_REMOVE, "record")

    discrete, noisy = best_of(GeometricRuns(mean=4.0), pure(0.1)), best_of(GeometricRuns(mean=4.0), gaussian(4.0))
    left = 1.0 - opened(PureBudget(epsilon=1.0)).spend(discrete).remaining.epsilon
    assert left == pytest.approx(largest_loss_of(*leaves(discrete)), rel=1e-12)
    assert opened(ZcdpBudget(rho=1.0)).spend(discrete).remaining.rho == pytest.approx(1.0 - left**2 / 2, rel=1e-12)
    assert opened(GdpBudget(mu=1.0)).admits(discrete)
    spent = opened(RdpBudget(orders=(8.0,), values=(2.0,))).spend(noisy)
    assert spent.remaining.values[0] == pytest.approx(2.0 - profile(noisy, "rdp").rdp(8.0), rel=1e-12)
    for budget in (PureBudget(epsilon=1.0), ZcdpBudget(rho=1.0), GdpBudget(mu=1.0)):
        with pytest.raises(UnsupportedEvent, match="costs Renyi divergences only; use an rdp budget"):
            opened(budget).spend(noisy)


def test_noise_is_calibrated_for_the_whole_selection():
    event = best_of(LogarithmicRuns(mean=10.0), gaussian())
    factor = calibrate_scale(event, epsilon=2.0, delta=1e-5)
    assert profile(best_of(LogarithmicRuns(mean=10.0), gaussian(factor))).epsilon(1e-5).upper <= 2.0
    assert profile(best_of(LogarithmicRuns(mean=10.0), gaussian(0.999 * factor))).epsilon(1e-5).upper > 2.0
    inner = solve(event, NoiseScale(at="/event"), Target(epsilon=2.0, delta=1e-5), accountant_named("auto"))
    assert inner.value == pytest.approx(factor, rel=1e-4)


def test_answers_say_that_the_rest_of_the_runs_stay_secret():
    found = caveats_of(best_of(PoissonRuns(mean=3.0), gaussian()))
    assert "nothing is released of the runs but the best one's output, not even how many there were" in found
    assert "no record moves a query by more than the stated sensitivity" in found
