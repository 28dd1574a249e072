"""``import zetadp``: the commonest questions in one call each, with the answers of the event that they stand for."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

import zetadp
from tests.selection import thinned
from zetadp.accountants import PoissonSampled, Release, Repeated, conversions, profile
from zetadp.mechanisms import CalibrationFailed, ComplexGaussian, Gaussian, InvalidParameter, Sensitivity

ONE = Sensitivity(l2=1.0, adjacency="add_remove", unit="record")
TRAINING = {"sampling_probability": 0.01, "steps": 1000}


def training(std: float) -> Repeated:
    return Repeated(count=1000, event=PoissonSampled(probability=0.01, event=Release(mechanism=Gaussian(std=std, sensitivity=ONE))))


def test_epsilon_and_delta_are_those_of_the_event() -> None:
    assert zetadp.epsilon(noise_multiplier=1.0, delta=1e-5, **TRAINING) == profile(training(1.0)).epsilon(1e-5)
    assert zetadp.delta(noise_multiplier=1.0, epsilon=2.0, **TRAINING) == profile(training(1.0)).delta(2.0)


def test_without_sampling_and_steps_it_is_one_gaussian_release() -> None:
    assert zetadp.dp_sgd(noise_multiplier=2.0) == Release(mechanism=Gaussian(std=2.0, sensitivity=ONE))
    assert zetadp.gaussian(noise_multiplier=2.0) == zetadp.dp_sgd(noise_multiplier=2.0, sampling_probability=1.0, steps=1)


def test_complex_noise_that_is_correlated_protects_less() -> None:
    correlated = zetadp.complex_gaussian(noise_multiplier=2.0, correlation=0.5)
    assert correlated == Release(mechanism=ComplexGaussian(std=2.0, correlation=0.5, sensitivity=ONE))
    assert zetadp.profile(correlated).epsilon(1e-5).lower > zetadp.epsilon(noise_multiplier=2.0, delta=1e-5).upper


def test_epsilon_of_laplace_noise_is_the_reciprocal_of_its_multiplier() -> None:
    found = zetadp.profile(zetadp.laplace(noise_multiplier=4.0)).epsilon(1e-12)
    assert found.lower <= 0.25 <= found.upper * (1.0 + 1e-9)
    assert found.upper == pytest.approx(0.25, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_calibrated_noise_is_enough_and_no_less_would_be(epsilon: float) -> None:
    found = zetadp.noise_multiplier(epsilon=epsilon, delta=1e-5, **TRAINING)
    assert found.event == training(found.value)
    assert found.epsilon == zetadp.epsilon(noise_multiplier=float(found), delta=1e-5, **TRAINING)
    assert found.epsilon.upper <= epsilon
    assert zetadp.epsilon(noise_multiplier=0.9999 * found.value, delta=1e-5, **TRAINING).lower > epsilon


def test_one_step_more_is_too_many() -> None:
    found = zetadp.steps(noise_multiplier=1.0, epsilon=2.0, delta=1e-5, sampling_probability=0.01)
    assert zetadp.epsilon(noise_multiplier=1.0, sampling_probability=0.01, steps=int(found), delta=1e-5).upper <= 2.0
    assert zetadp.epsilon(noise_multiplier=1.0, sampling_probability=0.01, steps=int(found) + 1, delta=1e-5).lower > 2.0


def test_numbers_of_numpy_are_numbers() -> None:
    asked = {"noise_multiplier": np.float32(1.0), "delta": np.float64(1e-5), "sampling_probability": np.float32(0.5), "steps": np.int64(10)}
    assert zetadp.epsilon(**asked) == zetadp.epsilon(noise_multiplier=1.0, delta=1e-5, sampling_probability=0.5, steps=10)


@pytest.mark.parametrize(
    ("changed", "text"),
    thinned(
        [
            ({"noise_multiplier": 0.0}, r"noise_multiplier must be in \[1e-50, 1e\+50\], got 0.0"),
            ({"noise_multiplier": float("nan")}, "noise_multiplier must be in"),
            ({"noise_multiplier": "1"}, "noise_multiplier must be a number, got '1'"),
            ({"noise_multiplier": None}, "noise_multiplier must be a number, got None"),
            ({"noise_multiplier": True}, "noise_multiplier must be a number, got True"),
            ({"sampling_probability": 1.5}, r"sampling_probability must be in \[1e-50, 1\], got 1.5"),
            ({"sampling_probability": 0.0}, "sampling_probability must be in"),
            ({"sampling_probability": 1e-60}, "sampling_probability must be in"),
            ({"steps": 0}, "steps must be a whole number from 1 to"),
            ({"steps": 1.5}, "steps must be a whole number from 1 to .*, got 1.5"),
            ({"steps": float("inf")}, "steps must be a whole number"),
            ({"steps": float("nan")}, "steps must be a whole number"),
            ({"delta": 0.0}, r"delta must be in \(0, 1\), got 0.0"),
            ({"delta": 1.0}, "delta must be in"),
        ],
        every=4,
    ),
)
def test_what_cant_be_says_what_was_expected(changed: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        zetadp.epsilon(**{"noise_multiplier": 1.0, "delta": 1e-5, **changed})


def test_targets_are_checked() -> None:
    with pytest.raises(InvalidParameter, match="epsilon must be >= 0, got -1"):
        zetadp.noise_multiplier(epsilon=-1, delta=1e-5)
    with pytest.raises(InvalidParameter, match=r"delta must be in \(0, 1\), got 2"):
        zetadp.steps(noise_multiplier=1.0, epsilon=1.0, delta=2)
    with pytest.raises(InvalidParameter, match=r"correlation must be in \(-1, 1\), got 1.0"):
        zetadp.complex_gaussian(noise_multiplier=1.0, correlation=1.0)
    with pytest.raises(CalibrationFailed):
        zetadp.steps(noise_multiplier=0.5, epsilon=0.1, delta=1e-5)


def test_attack_risk_is_that_of_the_profile_and_rises_with_less_noise() -> None:
    found = profile(training(1.0))
    risk = zetadp.attack_risk(training(1.0), prior=0.1, false_positive_rate=0.05)
    assert risk == zetadp.attack_risk(profile(training(1.0)), prior=0.1, false_positive_rate=0.05)
    # A profile's later answers may use its earlier ones: their last digits depend on what was asked before.
    assert risk.advantage == pytest.approx(conversions.advantage(found), rel=1e-6)
    assert risk.success == pytest.approx(conversions.bayes_success(found, 0.1), rel=1e-6)
    assert risk.true_positive_rate == pytest.approx(conversions.true_positive_rate(found, 0.05), rel=1e-6)
    for less, more in pairwise(zetadp.attack_risk(training(std)) for std in (2.0, 1.0, 0.7)):
        assert less.success < more.success
        assert less.advantage < more.advantage


def test_every_public_name_is_there_and_nothing_else_is() -> None:
    assert all(getattr(zetadp, name) is not None for name in zetadp.__all__)
    assert dir(zetadp) == zetadp.__all__
    with pytest.raises(AttributeError, match="module 'zetadp' has no attribute 'espilon'"):
        _ = zetadp.espilon


def test_nothing_heavy_is_loaded_before_it_is_asked_for() -> None:
    code = """
import sys, zetadp
before = set(sys.modules)
zetadp.epsilon(noise_multiplier=1.0, delta=1e-5)
print(sorted(before & {"numpy", "scipy", "pydantic"}), sorted(sys.modules.keys() & {"torch", "fastapi", "sqlalchemy"}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] []\n"
