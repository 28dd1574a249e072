from __future__ import annotations

import math

import pytest

from accountants import Composed, Repeated, profile
from accountants.gdp import epsilon_at, largest_mu
from mechanisms import UnsupportedEvent
from mechanisms.gdp import gdp_log_delta
from tests.accountants.events import complex_gaussian, gaussian, laplace, training
from tests.golden.oracles import oracle_rows


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("gdp_eps"))
def test_epsilon_brackets_forty_digits_narrowly(inputs, oracle):
    bound, exact = epsilon_at(float(inputs["mu"]), math.log(float(inputs["delta"]))), float(oracle["value"])
    assert bound.lower <= exact <= bound.upper
    assert bound.upper - bound.lower <= 1e-12 * exact


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("gaussian_calibration"))
def test_largest_mu_is_safe_and_tight(inputs, oracle):
    exact = float(oracle["value"]["mu"])
    assert exact * (1 - 1e-12) <= largest_mu(float(inputs["eps"]), math.log(float(inputs["delta"]))) <= exact


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("gdp_composition"))
def test_mu_of_a_composition_is_the_root_of_the_sum_of_squares(inputs, oracle):
    event = Composed(events=tuple(gaussian(1.0 / float(mu)) for mu in inputs["mus"].split(",")))
    assert profile(event, "gdp").gdp_mu == pytest.approx(float(oracle["value"]), rel=1e-14)


@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 0.5, 30.0, 300.0])
def test_delta_bracket_holds_the_closed_form(epsilon):
    bound = profile(gaussian(0.7), "gdp").delta(epsilon)
    assert bound.log_lower <= gdp_log_delta(1.0 / 0.7, epsilon) <= bound.log_upper


def test_delta_beyond_the_smallest_float_keeps_its_logarithm_and_is_not_zero():
    bound = profile(gaussian(1.0), "gdp").delta(1000.0)
    assert bound.log_upper == pytest.approx(-499514.8594518, rel=1e-9)
    assert bound.upper > 0.0


@pytest.mark.parametrize("mu", [1e-100, 1e-8, 1e5, 1e90])
@pytest.mark.parametrize("log_delta", [-1e-6, -1.0, -40.0, -1e5])
def test_epsilon_meets_its_delta_at_any_scale(mu, log_delta):
    assert gdp_log_delta(mu, epsilon_at(mu, log_delta).upper) <= log_delta


def test_complex_noise_is_accounted_by_its_own_mu():
    assert profile(Repeated(count=4, event=complex_gaussian(1.0, 0.5))).gdp_mu == pytest.approx(2.0 * math.sqrt(2.0), rel=1e-14)


@pytest.mark.parametrize(("event", "reason"), [(laplace(), "laplace isn't Gaussian"), (training(0.1, 1.0, 2), "no closed form")])
def test_other_events_are_refused_with_the_reason(event, reason):
    with pytest.raises(UnsupportedEvent, match=reason):
        profile(event, "gdp")
