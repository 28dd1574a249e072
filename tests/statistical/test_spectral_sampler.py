"""The spectral mechanism's noise has the claimed law, and tests that can't see a 30 % error don't count."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tests.selection import chosen, thinned
from zetadp.mechanisms import NumpySource, Sensitivity, Spectral
from zetadp.mechanisms.analysis.spectral_noise import NoiseReading, reading_gdp_mu
from zetadp.mechanisms.numerics.gdp import gdp_log_delta

COUNT = 60_000
STD = 0.8
SENSITIVITY = Sensitivity(l2=1.0, adjacency="add_remove", unit="record")
# Even and odd lengths, the constant alone, the Nyquist bin just left out and just kept, everything, and two axes.
FILTERS = [
    ((8,), (3,)),
    ((9,), (3,)),
    ((8,), (1,)),
    ((8,), (4,)),
    ((8,), (5,)),
    ((9,), (5,)),
    ((1,), (1,)),
    ((6, 5), (2, 3)),
    ((4, 4), (3, 1)),
]
CASES = [pytest.param(Spectral(shape=n, kept=k, std=STD, sensitivity=SENSITIVITY), id=f"{n}-{k}") for n, k in FILTERS]


def _samples(mechanism, seed=31, count=COUNT):
    released = mechanism.release(np.zeros((count, *mechanism.shape)), NumpySource.from_seed(seed))
    return released.reshape(count, -1)


def _projection(mechanism):
    size = mechanism.low_pass.dimensions
    return mechanism.low_pass.project(np.eye(size).reshape(size, *mechanism.shape)).reshape(size, size)


def _covariance_is_plausible(samples, covariance):
    """Whether every entry of the sample covariance (of mean 0) is within 5.5 standard errors of ``covariance``."""
    found = samples.T @ samples / len(samples)
    variances = np.diag(covariance)
    error = np.sqrt((np.outer(variances, variances) + covariance**2) / len(samples))
    return bool(np.all(np.abs(found - covariance) <= 5.5 * error))


def _energy_is_plausible(samples, std, dimensions):
    """Whether the whole energy is a draw of std^2 chi^2 with ``dimensions`` degrees of freedom a sample, at 1e-6."""
    energy = stats.chi2(dimensions * len(samples))
    total = float(np.sum(samples**2)) / std**2
    return min(energy.cdf(total), energy.sf(total)) > 1e-6


@pytest.mark.parametrize("mechanism", thinned(CASES, every=3))
def test_noise_has_the_covariance_of_the_projection(mechanism):
    assert _covariance_is_plausible(_samples(mechanism), STD**2 * _projection(mechanism))


@pytest.mark.parametrize("mechanism", thinned(CASES, every=3))
def test_noise_has_one_variance_at_every_position(mechanism):
    variance = STD**2 * mechanism.low_pass.variance_ratio
    found = np.mean(_samples(mechanism) ** 2, axis=0)
    assert np.all(np.abs(found / variance - 1.0) < 5.0 * math.sqrt(2.0 / COUNT))


@pytest.mark.parametrize("mechanism", thinned(CASES, every=3))
def test_noise_has_the_autocovariance_of_dirichlets_kernel(mechanism):
    samples = _samples(mechanism)
    variance = STD**2 * mechanism.low_pass.variance_ratio
    for index, lag in enumerate(np.ndindex(*mechanism.shape)):
        expected = STD**2 * mechanism.low_pass.covariance(lag)
        assert np.mean(samples[:, 0] * samples[:, index]) == pytest.approx(expected, abs=5.0 * variance * math.sqrt(2.0 / COUNT))


@pytest.mark.parametrize("mechanism", thinned(CASES, every=3))
def test_noise_fills_exactly_the_dimensions_that_are_counted(mechanism):
    kept = mechanism.low_pass.kept_dimensions
    assert _energy_is_plausible(_samples(mechanism), STD, kept)
    assert not _energy_is_plausible(_samples(mechanism), STD, kept + 1)


@pytest.mark.parametrize("mechanism", thinned(CASES, every=3))
def test_noise_is_normal_in_the_kept_coordinates(mechanism):
    values, vectors = np.linalg.eigh(_projection(mechanism))
    coordinates = _samples(mechanism) @ vectors[:, values > 0.5]
    assert coordinates.shape[1] == mechanism.low_pass.kept_dimensions
    for column in coordinates.T:
        assert stats.kstest(column, "norm", args=(0.0, STD)).pvalue > 1e-5


@pytest.mark.parametrize("mechanism", thinned(CASES, every=5))
@pytest.mark.parametrize("wrong", [0.7, 1.3])
def test_the_checks_reject_a_scale_that_is_thirty_percent_off(mechanism, wrong):
    samples = wrong * _samples(mechanism, count=4000)
    assert not _covariance_is_plausible(samples, STD**2 * _projection(mechanism))
    assert not _energy_is_plausible(samples, STD, mechanism.low_pass.kept_dimensions)


def test_the_covariance_check_rejects_white_noise_of_the_same_variance():
    mechanism = Spectral(shape=(8,), kept=(3,), std=STD, sensitivity=SENSITIVITY)
    white = NumpySource.from_seed(3).standard_normal((4000, 8)) * STD * math.sqrt(mechanism.low_pass.variance_ratio)
    assert not _covariance_is_plausible(white, STD**2 * _projection(mechanism))


def _waves(mechanism):
    """Unit signals that the filter keeps: constant, a sine, and the highest frequency kept."""
    size, top = mechanism.low_pass.dimensions, min(mechanism.kept[-1] - 1, mechanism.shape[-1] // 2)
    n = np.arange(mechanism.shape[-1]) / mechanism.shape[-1]
    waves = [np.ones_like(n), np.cos(2 * np.pi * top * n)]
    if top >= 1 and mechanism.shape[-1] >= 3:
        waves.append(np.sin(2 * np.pi * n))
    full = [np.broadcast_to(wave, mechanism.shape).reshape(size) for wave in waves]
    return [wave / np.linalg.norm(wave) for wave in full]


def _observed_delta(null, moved, wave, std, epsilon):
    """Hockey-stick value of the best test along ``wave``, a unit signal, from samples less five standard errors."""

    def hits(samples):
        return np.mean((samples @ wave - 0.5) / std**2 > epsilon)

    hit, false = hits(moved), hits(null)
    error = math.sqrt(hit * (1 - hit) / len(moved)) + math.exp(epsilon) * math.sqrt(false * (1 - false) / len(null))
    return hit - math.exp(epsilon) * false - 5.0 * error


def _released_pair(mechanism, wave, factor=1.0):
    null = factor * _samples(mechanism, 41)
    release = mechanism.release(np.broadcast_to(wave.reshape(mechanism.shape), (COUNT, *mechanism.shape)), NumpySource.from_seed(42))
    moved = release.reshape(COUNT, -1)
    return null, wave + factor * (moved - wave)


@pytest.mark.parametrize("mechanism", thinned(CASES, every=3))
@pytest.mark.parametrize("epsilon", chosen([0.1, 1.0], [1.0]))
def test_no_test_along_a_kept_wave_beats_the_claimed_delta(mechanism, epsilon):
    claimed = math.exp(mechanism.privacy_loss().log_delta(epsilon))
    for wave in _waves(mechanism):
        assert _observed_delta(*_released_pair(mechanism, wave), wave, STD, epsilon) <= claimed


@pytest.mark.parametrize("mechanism", thinned(CASES, every=3))
def test_the_same_test_catches_noise_that_is_thirty_percent_too_small(mechanism):
    claimed = math.exp(mechanism.privacy_loss().log_delta(0.5))
    for wave in _waves(mechanism):
        assert _observed_delta(*_released_pair(mechanism, wave, 0.7), wave, 0.7 * STD, 0.5) > claimed


@pytest.mark.parametrize("length", [15, 16])
def test_real_noise_on_complex_bins_leaves_the_odd_part_exact(length):
    # Errata P1: the noise is even in time, so that no scale hides an odd signal.
    n = np.arange(length)
    sine = np.sin(2 * np.pi * n / length) / math.sqrt(length / 2)
    noise = 1e3 * NumpySource.from_seed(6).standard_normal((200, length))
    for query in (sine, np.zeros(length)):
        released = np.fft.ifft(np.fft.fft(query, norm="ortho") + noise, axis=-1, norm="ortho").real
        odd = 0.5 * (released - released[:, -n % length])
        np.testing.assert_allclose(odd, np.broadcast_to(query, odd.shape), atol=1e-11)


@pytest.mark.parametrize("reading", [NoiseReading.COMPLEX_TOTAL_VARIANCE, NoiseReading.HALF_SPECTRUM_COMPLEX_RANDN])
def test_unit_complex_normals_fail_the_claim_of_one_over_sigma_and_meet_sqrt_two_over_sigma(reading):
    length, epsilon = 8, 0.5
    half = reading is NoiseReading.HALF_SPECTRUM_COMPLEX_RANDN
    bins = length // 2 + 1 if half else length
    normals = NumpySource.from_seed(8).standard_normal((2, COUNT, 2, bins)) * STD * math.sqrt(0.5)
    noise = normals[:, :, 0] + 1j * normals[:, :, 1]
    wave = np.full(length, length**-0.5)
    if half:
        null, moved = (
            np.fft.irfft(np.fft.rfft(q, norm="ortho") + v, n=length, norm="ortho") for q, v in zip((0 * wave, wave), noise, strict=True)
        )
    else:
        null, moved = (
            np.fft.ifft(np.fft.fft(q, norm="ortho") + v, norm="ortho").real for q, v in zip((0 * wave, wave), noise, strict=True)
        )
    low_pass = Spectral(shape=(length,), kept=(length,), std=STD, sensitivity=SENSITIVITY).low_pass
    observed = _observed_delta(null, moved, wave, STD * math.sqrt(0.5), epsilon)
    assert observed > math.exp(gdp_log_delta(1.0 / STD, epsilon))
    assert observed <= math.exp(gdp_log_delta(reading_gdp_mu(reading, low_pass, STD), epsilon))
