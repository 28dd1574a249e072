from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from accountants import Composed, NonPrivate, Target, accountant_named, calibrate, calibrate_scale, profile
from accountants.calibration import RdpPoint
from mechanisms import CalibrationFailed, UnsupportedEvent
from tests.accountants.events import complex_gaussian, gaussian, laplace, training
from tests.golden.oracles import oracle_rows


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("gaussian_calibration"))
def test_gaussian_noise_is_the_least_that_suffices(inputs, oracle):
    exact = float(oracle["value"]["sigma_component"]) / float(inputs["Delta"])
    factor = calibrate_scale(gaussian(1.0), epsilon=float(inputs["eps"]), delta=float(inputs["delta"]))
    assert exact <= factor <= exact * (1 + 1e-12)


@pytest.mark.parametrize(
    ("epsilon", "delta", "probability", "count", "exact"),
    [(3.0, 1e-5, 0.01, 10_000, 1.564965535), (1.0, 1e-6, 0.001, 100_000, 1.505833562)],
)
def test_sampled_noise_is_safe_and_tight(epsilon, delta, probability, count, exact):
    factor = calibrate_scale(training(probability, 1.0, count), epsilon=epsilon, delta=delta)
    assert exact * (1 - 1e-9) <= factor <= exact * (1 + 2e-4)


EVENTS = {
    "gaussian": gaussian(0.3),
    "complex": complex_gaussian(5.0, 0.9),
    "laplace": laplace(2.0),
    "training": training(0.05, 3.0, 50),
    "mixture": Composed(events=(gaussian(), laplace(), training(0.1, 1.0, 10))),
}


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("target", [Target(epsilon=1.0, delta=1e-5), Target(epsilon=0.0, delta=0.01), Target(advantage=0.2)], ids=str)
def test_the_calibrated_event_meets_the_target_and_less_noise_does_not(name, target):
    auto = accountant_named("auto")
    event, _ = calibrate(EVENTS[name], target, auto)
    assert target.excess(auto.profile(event)) <= 0.0
    from accountants.events import scaled

    assert target.excess(auto.profile(scaled(event, 0.999))) > 0.0


def test_mu_target_is_met_exactly():
    event, factor = calibrate(complex_gaussian(2.0, 0.5), Target(gdp_mu=0.25), accountant_named("gdp"))
    assert (factor, profile(event).gdp_mu) == (pytest.approx(math.sqrt(2.0) / 0.5, rel=1e-12), pytest.approx(0.25, rel=1e-12))
    assert profile(event).gdp_mu <= 0.25


def test_renyi_target_is_met():
    target = Target(rdp=RdpPoint(order=8.0, value=0.5))
    event, _ = calibrate(training(0.1, 1.0, 100), target, accountant_named("rdp"))
    assert 0.49999 <= profile(event, "rdp").rdp(8.0) <= 0.5


def test_mu_target_for_a_sampled_event_is_refused():
    with pytest.raises(UnsupportedEvent, match="Gaussian and not sampled"):
        calibrate(training(0.1, 1.0, 10), Target(gdp_mu=1.0), accountant_named("auto"))


def test_no_noise_helps_a_non_private_event():
    with pytest.raises(CalibrationFailed, match="no noise can help"):
        calibrate(NonPrivate(reason="raw labels"), Target(epsilon=1.0, delta=1e-5), accountant_named("auto"))


def test_a_target_out_of_reach_fails_with_the_bracket():
    with pytest.raises(CalibrationFailed, match="no noise in the searched range is proved to meet the target"):
        calibrate(training(0.5, 1e-9, 1000), Target(epsilon=1e-9, delta=1e-9), accountant_named("auto"))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"epsilon": 1.0}, "target must be epsilon and delta together, got 'only one of the two'"),
        ({}, "target must be exactly one of"),
        ({"gdp_mu": 1.0, "advantage": 0.1}, "target must be exactly one of"),
        ({"epsilon": 1.0, "delta": 1.0}, "Input should be less than 1"),
    ],
)
def test_bad_targets_are_refused(fields, text):
    with pytest.raises(ValidationError) as caught:
        Target(**fields)
    assert text in str(caught.value)


def test_a_tiny_epsilon_is_met_where_delta_alone_covers_it():
    factor = calibrate_scale(training(0.28, 1.0, 200), epsilon=1e-90, delta=1e-5)
    event = training(0.28, factor, 200)
    assert profile(event).delta(0.0).upper <= 1e-5
    assert profile(training(0.28, 0.999 * factor, 200)).epsilon(1e-5).upper > 0.0
