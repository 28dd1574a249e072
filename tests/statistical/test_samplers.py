"""Samplers against their claims: what is drawn has the claimed law, and a test that can't see a 30 % error doesn't count."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from zetadp.mechanisms import ComplexGaussian, Gaussian, Laplace, NumpySource, RandomOrigin, RandomStream, Sensitivity

COUNT = 200_000
_SENSITIVITY = Sensitivity(l2=1.0, l1=1.0, adjacency="add_remove", unit="record")
SHIFTS = {
    "gaussian": Gaussian(std=0.8, sensitivity=_SENSITIVITY),
    "laplace": Laplace(scale=0.7, sensitivity=_SENSITIVITY),
    "circular": ComplexGaussian(std=0.9, sensitivity=_SENSITIVITY),
    "correlated": ComplexGaussian(std=0.9, correlation=-0.6, sensitivity=_SENSITIVITY),
    "unequal": ComplexGaussian(std_real=0.5, std_imag=1.5, correlation=0.3, sensitivity=_SENSITIVITY),
}


def _noise(mechanism, seed=11, count=COUNT):
    return mechanism.noise((count,), NumpySource.from_seed(seed))


def _variance_is_plausible(values, variance, kurtosis=3.0):
    """Whether a sample's mean square is within five standard errors of ``variance``."""
    return abs(float(np.mean(values**2)) / variance - 1.0) < 5.0 * math.sqrt((kurtosis - 1.0) / len(values))


def test_gaussian_noise_has_the_claimed_law():
    assert stats.kstest(_noise(SHIFTS["gaussian"]), "norm", args=(0.0, 0.8)).pvalue > 1e-4


def test_laplace_noise_has_the_claimed_law():
    assert stats.kstest(_noise(SHIFTS["laplace"]), "laplace", args=(0.0, 0.7)).pvalue > 1e-4


@pytest.mark.parametrize("name", ["circular", "correlated", "unequal"])
def test_complex_noise_has_the_claimed_variance_per_component(name):
    noise, (std_real, std_imag) = _noise(SHIFTS[name]), SHIFTS[name].stds
    assert _variance_is_plausible(noise.real, std_real**2)
    assert _variance_is_plausible(noise.imag, std_imag**2)


@pytest.mark.parametrize("name", ["circular", "correlated", "unequal"])
def test_complex_noise_has_the_claimed_correlation(name):
    noise = _noise(SHIFTS[name])
    assert np.corrcoef(noise.real, noise.imag)[0, 1] == pytest.approx(SHIFTS[name].correlation, abs=5.0 / math.sqrt(COUNT))


@pytest.mark.parametrize("wrong", [0.7, 1.3])
def test_the_variance_check_rejects_a_scale_that_is_thirty_percent_off(wrong):
    assert not _variance_is_plausible(wrong * _noise(SHIFTS["circular"], count=2000).real, 0.81)


def test_the_variance_check_rejects_noise_that_shares_its_variance_between_components():
    assert not _variance_is_plausible(_noise(SHIFTS["circular"], count=2000).real / math.sqrt(2.0), 0.81)


def _worst_shift(mechanism):
    if not mechanism.is_complex:
        return 1.0
    r, s = mechanism.worst_move()
    return complex(r, -math.copysign(s, mechanism.correlation))


def _observed_delta(mechanism, noise_factor, epsilon):
    """Hockey-stick value of the best threshold test, from samples along the worst direction, less five standard errors."""
    shift = _worst_shift(mechanism)
    null, moved = noise_factor * _noise(mechanism, 21), noise_factor * _noise(mechanism, 22) + shift

    def log_ratio(x):
        if not mechanism.is_complex:
            density = stats.norm(0, mechanism.std).logpdf if isinstance(mechanism, Gaussian) else stats.laplace(0, mechanism.scale).logpdf
            return density(x - shift) - density(x)
        std_real, std_imag = mechanism.stds
        cross = mechanism.correlation * std_real * std_imag
        precision = np.linalg.inv([[std_real**2, cross], [cross, std_imag**2]])
        direction = precision @ np.array([shift.real, shift.imag])
        return x.real * direction[0] + x.imag * direction[1] - 0.5 * (direction @ np.array([shift.real, shift.imag]))

    hit, false = np.mean(log_ratio(moved) > epsilon), np.mean(log_ratio(null) > epsilon)
    error = math.sqrt(hit * (1 - hit) / COUNT) + math.exp(epsilon) * math.sqrt(false * (1 - false) / COUNT)
    return hit - math.exp(epsilon) * false - 5.0 * error


@pytest.mark.parametrize("name", SHIFTS)
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_no_test_on_samples_beats_the_claimed_delta(name, epsilon):
    assert _observed_delta(SHIFTS[name], 1.0, epsilon) <= math.exp(SHIFTS[name].privacy_loss().log_delta(epsilon))


@pytest.mark.parametrize("name", SHIFTS)
def test_the_same_test_catches_noise_that_is_too_small_by_sqrt_two(name):
    assert _observed_delta(SHIFTS[name], math.sqrt(0.5), 0.5) > math.exp(SHIFTS[name].privacy_loss().log_delta(0.5))


def test_streams_of_the_operating_system_differ():
    first, second = RandomStream.from_operating_system(), RandomStream.from_operating_system()
    assert not np.array_equal(first.normal(8), second.normal(8))


def test_a_seeded_stream_repeats_itself_and_says_where_it_comes_from():
    first, second = RandomStream.from_seed(7, "noise"), RandomStream.from_seed(7, "noise")
    assert np.array_equal(first.normal(9), second.normal(9))
    assert first.origin is RandomOrigin.USER_SEED


def test_streams_of_one_seed_differ_by_purpose():
    assert not np.array_equal(RandomStream.from_seed(7, "noise").normal(8), RandomStream.from_seed(7, "sampling").normal(8))


def test_two_draws_of_one_stream_are_uncorrelated():
    stream = RandomStream.from_seed(3, "noise")
    assert abs(np.corrcoef(stream.normal(COUNT), stream.normal(COUNT))[0, 1]) < 5.0 / math.sqrt(COUNT)


def test_uniforms_lie_in_the_half_open_interval_and_are_uniform():
    values = RandomStream.from_seed(5, "noise").uniform(COUNT)
    assert values.min() > 0.0
    assert values.max() <= 1.0
    assert stats.kstest(values, "uniform").pvalue > 1e-4
