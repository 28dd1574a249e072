from __future__ import annotations

import math
import random

import pytest

from tests.accountants.events import complex_gaussian, gaussian, laplace, training
from tests.golden.oracles import oracle_rows
from zetadp.accountants import Composed, Repeated, profile
from zetadp.accountants.routes.closed.closed_form import epsilon_at, largest_mu
from zetadp.accountants.routes.closed.gdp_inversion import epsilon_upper_at, log_delta_bounds, log_delta_upper, log_deltas_upper
from zetadp.mechanisms import UnsupportedEvent
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics.gdp import gdp_log_delta


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


def _cases(seed, count):
    generator = random.Random(seed)
    for _ in range(count):
        mu = 10 ** generator.choice([generator.uniform(-12, 6), generator.uniform(-100, 100), generator.uniform(-3, 2)])
        epsilon = 10 ** generator.choice([generator.uniform(-12, 6), generator.uniform(-200, 200), generator.uniform(-3, 2)])
        yield mu, epsilon, -(10 ** generator.choice([generator.uniform(-12, 7), generator.uniform(-3, 3), generator.uniform(0, 200)]))


def test_both_ends_of_epsilon_pass_their_own_check():
    for mu, _, log_delta in _cases(1, 3000):
        bound = epsilon_at(mu, log_delta)
        assert bound.upper == epsilon_upper_at(mu, log_delta)
        assert bound.upper == 0.0 or log_delta_upper(mu, bound.upper) <= log_delta
        assert bound.lower == 0.0 or log_delta_bounds(mu, bound.lower)[0] > log_delta


def test_epsilon_brackets_are_narrow_at_ordinary_deltas():
    for mu, _, _ in _cases(2, 300):
        for log_delta in (math.log(1e-3), math.log(1e-9), -300.0, -1e4):
            bound = epsilon_at(mu, log_delta)
            assert bound.upper - bound.lower <= 1e-12 * (bound.upper + mu)


def test_largest_mu_passes_its_own_check_and_a_little_more_does_not():
    for _, epsilon, log_delta in _cases(3, 3000):
        mu = largest_mu(epsilon, log_delta)
        assert mu == 0.0 or log_delta_upper(mu, epsilon) <= log_delta
        if 1e-12 < epsilon < 1e6 and -1e7 < log_delta < -1e-3:
            assert log_delta_upper(mu * (1 + 1e-11), epsilon) > log_delta


def test_arrays_of_safe_deltas_are_the_scalar_ones():
    epsilons = [0.0, 0.1, 3.0, 50.0]
    expected = [log_delta_upper(0.7, epsilon) for epsilon in epsilons]
    assert log_deltas_upper(0.7, epsilons) == pytest.approx(expected, rel=4e-16, abs=1e-14)


def test_delta_of_zero_mu_and_at_infinite_epsilon_is_zero_from_above():
    assert log_delta_upper(0.0, 1.0) == log_delta_upper(1.0, math.inf) == -math.inf
    assert log_deltas_upper([0.0, 1.0], [1.0, math.inf]).tolist() == [-math.inf, -math.inf]


def test_no_delta_is_needed_at_infinite_epsilon_and_none_is_enough_beyond_floats():
    assert largest_mu(math.inf, -1.0) == math.inf
    assert largest_mu(0.0, -1e6) == 0.0  # delta(0) is about 0.4 mu: e^-1000000 allows no float but 0
    assert epsilon_at(1e160, -1.0).upper == math.inf
    assert epsilon_upper_at(1e160, -1.0) == math.inf


@pytest.mark.parametrize("log_delta", [0.0, -math.inf, math.nan, 1.0])
def test_log_delta_out_of_range_is_named(log_delta):
    with pytest.raises(InvalidParameter, match="log_delta must be finite and < 0"):
        epsilon_at(1.0, log_delta)


def test_complex_noise_is_accounted_by_its_own_mu():
    assert profile(Repeated(count=4, event=complex_gaussian(1.0, 0.5))).gdp_mu == pytest.approx(2.0 * math.sqrt(2.0), rel=1e-14)


@pytest.mark.parametrize(("event", "reason"), [(laplace(), "laplace isn't Gaussian"), (training(0.1, 1.0, 2), "no closed form")])
def test_other_events_are_refused_with_the_reason(event, reason):
    with pytest.raises(UnsupportedEvent, match=reason):
        profile(event, "gdp")
