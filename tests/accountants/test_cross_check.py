from __future__ import annotations

import math

import pytest

from tests.accountants.events import WORK_SET, gaussian, laplace, training
from tests.selection import thinned
from zetadp.accountants import FixedSizeSampled, Grouped, NonPrivate, PoissonSampled, Release, Repeated, deadline, profile
from zetadp.accountants.cross_check import ACCURACY, recomputed_epsilon, recomputed_log_delta
from zetadp.accountants.routes.closed.closed_form import epsilon_at
from zetadp.mechanisms import Adjacency, Gaussian, Sensitivity, TimeLimitReached, UnsupportedEvent
from zetadp.mechanisms.numerics.gdp import gdp_log_delta


@pytest.mark.parametrize(("probability", "std", "count", "delta", "exact"), thinned(WORK_SET, every=3))
def test_recomputation_agrees_with_the_exact_epsilon(probability, std, count, delta, exact):
    assert recomputed_epsilon(training(probability, std, count), delta) == pytest.approx(exact, abs=1e-6)


def test_recomputation_agrees_with_the_closed_form():
    event = Repeated(count=4, event=gaussian(2.0))
    assert recomputed_epsilon(event, 1e-6) == pytest.approx(epsilon_at(1.0, math.log(1e-6)).upper, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 10.0, 30.0])
def test_log_delta_agrees_with_the_closed_form_far_below_the_floor_of_pld(epsilon):
    assert recomputed_log_delta(Repeated(count=4, event=gaussian(2.0)), epsilon) == pytest.approx(gdp_log_delta(1.0, epsilon), abs=1e-8)


def test_repeated_laplace_agrees_with_the_exact_epsilon():
    assert recomputed_epsilon(Repeated(count=1000, event=laplace(100.0)), 1e-6) == pytest.approx(1.36292, abs=2e-5)


@pytest.mark.parametrize("adjacency", thinned([Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT], every=2))
@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_recomputation_agrees_with_brackets_for_samples_of_a_fixed_size(adjacency, delta):
    event = Repeated(count=50, event=FixedSizeSampled(sample_size=10, population_size=100, event=_release(adjacency, 1.0, None)))
    _check_within_bracket(event, delta)


@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_recomputation_agrees_with_brackets_for_groups(delta):
    event = Repeated(count=50, event=PoissonSampled(probability=0.05, event=_release(Adjacency.ADD_REMOVE, 1.0, None)))
    _check_within_bracket(Grouped(size=4, unit="user", event=event), delta)


@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_recomputation_agrees_with_brackets_for_replaced_records(delta):
    event = PoissonSampled(probability=0.1, event=_release(Adjacency.REPLACE_ONE, 2.0, 1.0))
    _check_within_bracket(Repeated(count=50, event=event), delta)


def _release(adjacency, l2, contribution):
    sensitivity = Sensitivity(l2=l2, l2_contribution=contribution, adjacency=adjacency, unit="record")
    return Release(mechanism=Gaussian(std=3.0, sensitivity=sensitivity))


def _check_within_bracket(event, delta):
    bracket = profile(event).epsilon(delta)
    assert bracket.lower > 0.99999 * bracket.upper  # a bracket that says something
    assert bracket.lower * (1.0 - ACCURACY) <= recomputed_epsilon(event, delta) <= bracket.upper * (1.0 + ACCURACY)


def test_recomputation_stops_at_the_callers_time_limit():
    with pytest.raises(TimeLimitReached), deadline.time_limit(0.0):
        recomputed_epsilon(training(0.01, 1.0, 1000), 1e-5)


def test_a_law_with_atoms_and_few_releases_is_declined():
    with pytest.raises(UnsupportedEvent, match="doesn't decay"):
        recomputed_epsilon(laplace(1.0), 1e-3)


def test_an_event_without_guarantee_has_infinite_epsilon():
    assert recomputed_epsilon(NonPrivate(reason="test"), 1e-5) == math.inf
