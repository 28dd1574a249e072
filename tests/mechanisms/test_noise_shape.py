from __future__ import annotations

import math
import random

import numpy as np
import pytest

from tests.golden.oracles import oracle_rows
from zetadp.mechanisms import ComplexGaussian, Gaussian, InvalidParameter, Sensitivity
from zetadp.mechanisms.noise_shape import optimal_shape, total_std_for


def _sensitivity(l2, l2_real=None, l2_imag=None):
    return Sensitivity(l2=l2, l2_real=l2_real, l2_imag=l2_imag, adjacency="add_remove", unit="record")


def _random_sensitivity(generator):
    whole = 10 ** generator.uniform(-2, 2)
    return _sensitivity(whole, whole * generator.choice([1.0, generator.uniform(0.01, 1)]), whole * generator.uniform(0.01, 1))


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("cgm_equal_mse_optimum"))
def test_optimum_agrees_with_forty_digits(inputs, oracle):
    exact = {name: float(number) for name, number in oracle["value"].items()}
    whole, total = float(inputs["Delta"]), math.sqrt(float(inputs["V"]))
    shape = optimal_shape(_sensitivity(whole, min(whole, float(inputs["Delta_re"])), min(whole, float(inputs["Delta_im"]))))
    variances = sorted(std**2 for std in shape.stds(total))
    assert variances == pytest.approx([exact["v_small"], exact["v_big"]], rel=1e-12)
    assert shape.mechanism(total).privacy_loss().gdp_mu == pytest.approx(exact["mu_opt"], rel=1e-12)
    assert shape.optimal_mu_times_total_std / total == pytest.approx(exact["mu_opt"], rel=1e-12)
    assert shape.circular_mu_times_total_std / total == pytest.approx(exact["mu_circular"], rel=1e-12)
    assert shape.gain == pytest.approx(exact["mu_opt"] / exact["mu_circular"], rel=1e-12)


@pytest.mark.parametrize(
    ("sensitivity", "squared_error", "best", "circular"),
    # The three cases of errata C8.
    [((math.sqrt(10.0), 3.0, 1.0), 2.0, 8.0, 10.0), ((1.0, 1.0, 0.3), 2.0, 0.786, 1.0), ((math.sqrt(1.04), 1.0, 0.2), 2.0, 0.72, 1.04)],
)
def test_the_known_cases_come_out(sensitivity, squared_error, best, circular):
    shape, total = optimal_shape(_sensitivity(*sensitivity)), math.sqrt(squared_error)
    assert (shape.optimal_mu_times_total_std / total) ** 2 == pytest.approx(best, rel=3e-4)
    assert (shape.circular_mu_times_total_std / total) ** 2 == pytest.approx(circular, rel=1e-12)


def _mu_over_all_moves(sensitivity, v_real, v_imag, covariance):
    """By brute force, from the moves' own definition: not by the mechanism's closed form."""
    corners = (math.acos(sensitivity.l2_real / sensitivity.l2), math.asin(sensitivity.l2_imag / sensitivity.l2))
    angles = np.append(np.linspace(0.0, math.pi / 2, 2001), corners)
    real = np.minimum(sensitivity.l2 * np.cos(angles), sensitivity.l2_real)
    imag = np.minimum(sensitivity.l2 * np.sin(angles), sensitivity.l2_imag)
    form = v_imag * real**2 + v_real * imag**2 + 2 * abs(covariance) * real * imag
    return math.sqrt(float(form.max()) / (v_real * v_imag - covariance**2))


def test_no_covariance_of_the_same_trace_does_better():
    generator = random.Random(7)
    for _ in range(40):
        sensitivity = _random_sensitivity(generator)
        best = optimal_shape(sensitivity).optimal_mu_times_total_std
        for _ in range(100):
            share = generator.uniform(0.001, 0.999)
            covariance = generator.uniform(-0.999, 0.999) * math.sqrt(share * (1 - share))
            # A grid of moves finds a little less than the largest mu.
            assert _mu_over_all_moves(sensitivity, share, 1 - share, covariance) >= best * (1 - 1e-6)


def test_no_covariance_of_several_coordinates_does_better_either():
    # Over moves that turn both parts alike and conjugate, the form's mean is that of a 2x2 shape: some move has at least the optimum.
    generator = np.random.default_rng(4)
    for sensitivity in (_random_sensitivity(random.Random(seed)) for seed in range(40)):
        shape = optimal_shape(sensitivity)
        factor = generator.normal(size=(4, 4)) * generator.uniform(0.05, 3.0, size=(4, 1))
        covariance = factor @ factor.T + 1e-6 * np.eye(4)
        precision = np.linalg.inv(covariance * (2.0 / np.trace(covariance)))  # trace 1 a complex coordinate
        angles = np.arange(8) * math.pi / 8
        directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        moves = [np.concatenate((shape.r * turned, sign * shape.s * turned)) for turned in directions for sign in (1.0, -1.0)]
        assert max(float(move @ precision @ move) for move in moves) >= shape.optimal_mu_times_total_std**2 * (1 - 1e-9)


def test_searching_all_shapes_finds_the_optimum():
    generator = random.Random(8)
    for _ in range(25):
        sensitivity = _random_sensitivity(generator)
        shares = np.linspace(0.001, 0.999, 999)
        found = min(_mu_over_all_moves(sensitivity, share, 1 - share, 0.0) for share in shares)
        best = optimal_shape(sensitivity).optimal_mu_times_total_std
        assert best * (1 - 1e-6) <= found <= best * (1 + 2e-3)


def test_correlation_of_the_same_size_always_costs():
    generator = random.Random(9)
    for _ in range(200):
        sensitivity = _random_sensitivity(generator)
        std_real, std_imag = optimal_shape(sensitivity).stds(1.0)
        rho = generator.choice([-1, 1]) * generator.uniform(0.05, 0.95)
        alone = ComplexGaussian(std_real=std_real, std_imag=std_imag, sensitivity=sensitivity)
        correlated = ComplexGaussian(std_real=std_real, std_imag=std_imag, correlation=rho, sensitivity=sensitivity)
        assert correlated.privacy_loss().mu > alone.privacy_loss().mu


def test_moving_away_from_the_shape_costs():
    generator = random.Random(10)
    for _ in range(200):
        sensitivity = _random_sensitivity(generator)
        shape = optimal_shape(sensitivity)
        std_real, _ = shape.stds(1.0)
        for factor in (0.9, 1.1):
            v_real = min(std_real**2 * factor, 0.999)
            other = ComplexGaussian(std_real=math.sqrt(v_real), std_imag=math.sqrt(1.0 - v_real), sensitivity=sensitivity)
            assert other.privacy_loss().mu > shape.optimal_mu_times_total_std * (1 + 1e-6)


def test_claimed_mu_is_the_mechanisms_own_and_the_error_is_what_was_asked_for():
    generator = random.Random(11)
    for _ in range(500):
        sensitivity, total = _random_sensitivity(generator), 10 ** generator.uniform(-3, 3)
        shape = optimal_shape(sensitivity)
        assert shape.mechanism(total).privacy_loss().gdp_mu == pytest.approx(shape.optimal_mu_times_total_std / total, rel=1e-14)
        assert math.hypot(*shape.stds(total)) == pytest.approx(total, rel=1e-15)


def test_circular_noise_has_the_stated_mu():
    generator = random.Random(12)
    for _ in range(200):
        sensitivity = _random_sensitivity(generator)
        circular = ComplexGaussian(std=math.sqrt(0.5), sensitivity=sensitivity)
        assert circular.privacy_loss().mu == pytest.approx(optimal_shape(sensitivity).circular_mu_times_total_std, rel=1e-13)


def test_the_saving_lies_between_none_and_a_factor_of_two_in_squared_error():
    generator = random.Random(13)
    for _ in range(500):
        assert 0.5 <= optimal_shape(_random_sensitivity(generator)).gain ** 2 * (1 + 1e-15) <= 1.0 + 2e-15


@pytest.mark.parametrize(("l2_real", "l2_imag"), [(1.0, 0.0), (0.0, 0.4)])
def test_a_part_that_never_moves_gets_no_noise_and_the_other_real_noise(l2_real, l2_imag):
    shape = optimal_shape(_sensitivity(1.0, l2_real, l2_imag))
    mechanism = shape.mechanism(2.0)
    assert isinstance(mechanism, Gaussian)
    assert mechanism.privacy_loss().mu == pytest.approx((l2_real + l2_imag) / 2.0, rel=1e-15)
    assert 0.0 in shape.stds(2.0)
    assert shape.gain**2 == pytest.approx(0.5, rel=1e-15)


def test_the_limit_is_approached_by_tiny_sensitivities():
    limit = optimal_shape(_sensitivity(1.0, 1.0, 0.0)).mechanism(2.0).privacy_loss().gdp_mu
    for tiny in (1e-6, 1e-12, 1e-40):
        mechanism = optimal_shape(_sensitivity(1.0, 1.0, tiny)).mechanism(2.0)
        assert isinstance(mechanism, ComplexGaussian)
        assert mechanism.privacy_loss().mu == pytest.approx(limit, rel=2 * tiny + 1e-14)


@pytest.mark.parametrize("mu", [1e-40, 0.3, 1.0, 1e40])
def test_noise_for_a_mu_meets_it_and_a_little_less_does_not(mu):
    generator = random.Random(14)
    for _ in range(50):
        shape = optimal_shape(_random_sensitivity(generator))
        total = total_std_for(shape, mu)
        assert shape.mechanism(total).privacy_loss().gdp_mu <= mu
        assert shape.mechanism(total * (1 - 1e-13)).privacy_loss().gdp_mu > mu


def test_noise_beyond_the_largest_scale_is_refused():
    with pytest.raises(InvalidParameter, match="target must be such that total_std lies in"):
        total_std_for(optimal_shape(_sensitivity(1e30)), 1e-30)


def test_a_component_below_the_smallest_scale_is_refused():
    with pytest.raises(InvalidParameter, match="total_std must be such that both components' deviations lie in"):
        optimal_shape(_sensitivity(1.0, 1.0, 1e-50)).mechanism(1e-40)


def test_no_l2_bound_is_refused():
    with pytest.raises(InvalidParameter, match=r"sensitivity.l2 must be given"):
        optimal_shape(Sensitivity(l1=1.0, adjacency="add_remove", unit="record"))


@pytest.mark.parametrize("scale", [1e-50, 1e-20, 1e20, 1e50])
def test_shapes_do_not_depend_on_the_unit_of_the_query(scale):
    share = 0.25 if scale > 1e-49 else 1.0  # no part is smaller than the smallest scale
    unit = optimal_shape(_sensitivity(1.0, 1.0, share))
    assert optimal_shape(_sensitivity(scale, scale, share * scale)).gain == pytest.approx(unit.gain, rel=1e-15)
