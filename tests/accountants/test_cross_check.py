from __future__ import annotations

import math

import pytest

from accountants import NonPrivate, Repeated
from accountants.cross_check import recomputed_epsilon, recomputed_log_delta
from accountants.gdp import epsilon_at
from mechanisms import UnsupportedEvent
from mechanisms.gdp import gdp_log_delta
from tests.accountants.events import WORK_SET, gaussian, laplace, training


@pytest.mark.parametrize(("probability", "std", "count", "delta", "exact"), WORK_SET)
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


def test_a_law_with_atoms_and_few_releases_is_declined():
    with pytest.raises(UnsupportedEvent, match="doesn't decay"):
        recomputed_epsilon(laplace(1.0), 1e-3)


def test_an_event_without_guarantee_has_infinite_epsilon():
    assert recomputed_epsilon(NonPrivate(reason="test"), 1e-5) == math.inf
