from __future__ import annotations

import math
import random

import numpy as np
import pytest
from pydantic import ValidationError

from tests.golden.oracles import oracle_rows
from zetadp.mechanisms import Adjacency, ComplexGaussian, InvalidParameter, NumpySource, Sensitivity
from zetadp.mechanisms.complex_gaussian import whitened_length


def _sensitivity(l2=1.0, l2_real=None, l2_imag=None):
    return Sensitivity(l2=l2, l2_real=l2_real, l2_imag=l2_imag, adjacency=Adjacency.ADD_REMOVE, unit="record")


def _oracle_sensitivity(inputs):
    whole = float(inputs["Delta"])
    return _sensitivity(whole, min(whole, float(inputs["Delta_re"])), min(whole, float(inputs["Delta_im"])))


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("cgm_noncircular_mu"))
def test_mu_of_equal_parts_is_tight(inputs, oracle):
    noise = ComplexGaussian(std=float(inputs["sigma_component"]), correlation=float(inputs["rho"]), sensitivity=_oracle_sensitivity(inputs))
    assert noise.privacy_loss().mu == pytest.approx(float(oracle["value"]["tight"]), rel=1e-13)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("cgm_general_covariance_mu"))
def test_mu_of_unequal_parts_is_tight(inputs, oracle):
    std_real, std_imag = math.sqrt(float(inputs["v_re"])), math.sqrt(float(inputs["v_im"]))
    noise = ComplexGaussian(
        std_real=std_real,
        std_imag=std_imag,
        correlation=float(inputs["cov"]) / (std_real * std_imag),
        sensitivity=_oracle_sensitivity(inputs),
    )
    assert noise.privacy_loss().mu == pytest.approx(float(oracle["value"]), rel=1e-13)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("cgm_equal_mse_optimum"))
def test_mu_of_the_optimal_shape_agrees_with_forty_digits(inputs, oracle):
    big, small = math.sqrt(float(oracle["value"]["v_big"])), math.sqrt(float(oracle["value"]["v_small"]))
    sensitivity = _oracle_sensitivity(inputs)
    real_is_larger = sensitivity.l2_real >= sensitivity.l2_imag
    noise = ComplexGaussian(std_real=big if real_is_larger else small, std_imag=small if real_is_larger else big, sensitivity=sensitivity)
    assert noise.privacy_loss().mu == pytest.approx(float(oracle["value"]["mu_opt"]), rel=1e-12)


def _brute_force_mu(noise: ComplexGaussian) -> float:
    whole, std = noise.sensitivity, noise.stds
    angles = np.linspace(0.0, math.pi / 2, 20001)
    r = np.minimum(whole.l2 * np.cos(angles), whole.l2_real if whole.l2_real is not None else whole.l2) / std[0]
    s = np.minimum(whole.l2 * np.sin(angles), whole.l2_imag if whole.l2_imag is not None else whole.l2) / std[1]
    rho = abs(noise.correlation)
    return float(np.sqrt((r**2 + s**2 + 2 * rho * r * s).max() / (1 - rho**2)))


def test_mu_is_the_maximum_over_all_admissible_moves():
    generator = random.Random(2)
    for _ in range(200):
        whole = 10 ** generator.uniform(-2, 2)
        noise = ComplexGaussian(
            std_real=10 ** generator.uniform(-1, 1),
            std_imag=10 ** generator.uniform(-1, 1),
            correlation=generator.uniform(-0.99, 0.99),
            sensitivity=_sensitivity(whole, whole * generator.uniform(0.01, 1), whole * generator.uniform(0.01, 1)),
        )
        brute = _brute_force_mu(noise)
        assert brute * (1 - 1e-12) <= noise.privacy_loss().mu <= brute * (1 + 1e-4)


def test_a_purely_imaginary_query_pays_only_for_imaginary_noise():
    noise = ComplexGaussian(std_real=1e-3, std_imag=2.0, sensitivity=_sensitivity(1.0, 0.0, 1.0))
    assert noise.privacy_loss().mu == pytest.approx(0.5, rel=1e-15)


@pytest.mark.parametrize("part", [1e-3, 1e-6, 1e-9, 1e-12])
def test_mu_keeps_its_digits_where_a_tiny_part_meets_tiny_noise(part):
    # Nearly all of the loss comes from the real part, which is tiny but hardly noised: mu^2 = (part / std_real)^2 + 1 - part^2.
    noise = ComplexGaussian(std_real=part / 1e4, std_imag=1.0, sensitivity=_sensitivity(1.0, part, 1.0))
    assert noise.privacy_loss().mu == pytest.approx(math.sqrt(1e8 + 1.0 - part**2), rel=1e-15)


def test_whitened_length_is_the_mahalanobis_distance():
    generator = random.Random(6)
    for _ in range(100):
        std_real, std_imag, rho = 10 ** generator.uniform(-2, 2), 10 ** generator.uniform(-2, 2), generator.uniform(-0.99, 0.99)
        moves = [complex(generator.gauss(0, 1), generator.gauss(0, 1)) for _ in range(5)]
        cross = rho * std_real * std_imag
        precision = np.linalg.inv([[std_real**2, cross], [cross, std_imag**2]])
        squared = sum(np.array([move.real, move.imag]) @ precision @ np.array([move.real, move.imag]) for move in moves)
        assert whitened_length(moves, std_real, std_imag, rho) == pytest.approx(math.sqrt(squared), rel=1e-11)


def test_the_worst_move_is_as_far_apart_as_mu_says_and_no_other_is_farther():
    generator = random.Random(7)
    for _ in range(100):
        whole = 10 ** generator.uniform(-2, 2)
        noise = ComplexGaussian(
            std_real=10 ** generator.uniform(-1, 1),
            std_imag=10 ** generator.uniform(-1, 1),
            correlation=generator.uniform(-0.99, 0.99),
            sensitivity=_sensitivity(whole, whole * generator.uniform(0.01, 1), whole * generator.uniform(0.01, 1)),
        )
        r, s = noise.worst_move()
        worst = complex(r, -math.copysign(s, noise.correlation))
        assert whitened_length([worst], *noise.stds, noise.correlation) == pytest.approx(noise.privacy_loss().mu, rel=1e-13)
        # Moves of two coordinates within the bounds, at random.
        for _ in range(20):
            real, imag = ([generator.gauss(0, 1) for _ in range(2)] for _ in range(2))
            r, s = (generator.random() * bound for bound in (noise.sensitivity.l2_real, noise.sensitivity.l2_imag))
            shrunk = min(1.0, whole / math.hypot(r, s))
            scales = shrunk * r / math.hypot(*real), shrunk * s / math.hypot(*imag)
            moves = [complex(x * scales[0], y * scales[1]) for x, y in zip(real, imag, strict=True)]
            assert whitened_length(moves, *noise.stds, noise.correlation) <= noise.privacy_loss().mu * (1 + 1e-13)


def test_mu_survives_extreme_scales():
    noise = ComplexGaussian(std=1e50, correlation=1 - 1e-15, sensitivity=_sensitivity(1e-50))
    assert 0.0 < noise.privacy_loss().mu < 1e-90


def test_total_std_is_sqrt_two_times_the_component():
    assert ComplexGaussian(std=3.0, sensitivity=_sensitivity()).total_std == pytest.approx(3.0 * math.sqrt(2.0), rel=1e-15)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"std": 1.0, "std_real": 1.0}, "std must be given alone, or std_real and std_imag without it, got 'both'"),
        ({}, "std must be given, or both std_real and std_imag, got 'neither'"),
        ({"std_real": 1.0}, "std must be given, or both std_real and std_imag, got 'only one of the two'"),
        ({"std": 1.0, "correlation": 1.0}, "Input should be less than 1"),
        ({"std": 1.0, "correlation": -1.0}, "Input should be greater than -1"),
        ({"std": -1.0}, "Input should be greater than or equal to"),
        ({"std": math.nan}, "Input should be a finite number"),
        ({"std": True}, "Input should be a valid number"),
    ],
)
def test_bad_parameters_are_refused_with_what_was_expected(parameters, text):
    with pytest.raises(ValidationError) as caught:
        ComplexGaussian(sensitivity=_sensitivity(), **parameters)
    assert text in str(caught.value)


def test_real_values_are_refused():
    with pytest.raises(InvalidParameter, match="value must be complex for this mechanism, got 'real'"):
        ComplexGaussian.example().release(np.zeros(3), NumpySource.from_operating_system())


def test_values_that_are_not_finite_are_refused():
    with pytest.raises(InvalidParameter, match="finite in every coordinate"):
        ComplexGaussian.example().release(np.array([1.0 + 0j, complex(math.inf, 0.0)]), NumpySource.from_operating_system())
