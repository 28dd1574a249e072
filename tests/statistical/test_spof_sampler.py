"""The released coefficients against their claim, and both checks against noise that is 30 % off."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from zetadp.mechanisms import NumpySource, Sensitivity, SpofCoefficients

COUNT = 100_000
DIMENSION = 2
SCALE = 1.6


def _mechanism(scale=SCALE):
    sensitivity = Sensitivity(l1=float(DIMENSION), adjacency="replace_one", unit="record")
    return SpofCoefficients(dimension=DIMENSION, expansion_point=-0.8, stabilisation=2.5, scale=scale, sensitivity=sensitivity)


def _released(x, seed, scale=SCALE):
    """COUNT independent releases of the record (x, ..., x), shape (COUNT, DIMENSION)."""
    return _mechanism(scale).release(np.full((COUNT, DIMENSION), x), NumpySource.from_seed(seed))


@pytest.mark.parametrize("x", [0.0, 0.3, 1.0])
def test_a_released_coefficient_is_laplace_about_the_right_one(x):
    law = stats.laplace(_mechanism().public_linear - x, SCALE)
    for feature in _released(x, 41).T:
        assert stats.kstest(feature, law.cdf).pvalue > 1e-4


@pytest.mark.parametrize("wrong", [0.7, 1.3])
def test_that_check_rejects_a_scale_thirty_percent_off(wrong):
    law = stats.laplace(_mechanism().public_linear, SCALE)
    assert stats.kstest(_released(0.0, 42, wrong * SCALE)[:2000, 0], law.cdf).pvalue < 1e-4


def test_features_and_records_get_independent_noise():
    released = _released(0.5, 43)
    bound = 5.0 / math.sqrt(COUNT)
    assert abs(np.corrcoef(released[:, 0], released[:, 1])[0, 1]) < bound
    assert abs(np.corrcoef(released[:-1, 0], released[1:, 0])[0, 1]) < bound


def _observed_delta(epsilon, scale):
    """Hockey-stick value of the likelihood-ratio test between opposite corners of the box, less five standard errors."""
    public = _mechanism().public_linear

    def log_ratio(released):
        return (np.abs(released - public) - np.abs(released - (public - 1.0))).sum(axis=1) / SCALE

    hit = np.mean(log_ratio(_released(1.0, 44, scale)) > epsilon)
    false = np.mean(log_ratio(_released(0.0, 45, scale)) > epsilon)
    error = math.sqrt(hit * (1.0 - hit) / COUNT) + math.exp(epsilon) * math.sqrt(false * (1.0 - false) / COUNT)
    return hit - math.exp(epsilon) * false - 5.0 * error


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 1.2])
def test_no_test_between_opposite_corners_beats_the_claimed_delta(epsilon):
    assert _observed_delta(epsilon, SCALE) <= math.exp(_mechanism().privacy_loss().log_delta(epsilon))


def test_that_test_catches_noise_thirty_percent_too_small():
    # At 0.9 of the claimed epsilon: there the two corners' law with less noise shows best.
    epsilon = 0.9 * _mechanism().privacy_loss().epsilon
    assert _observed_delta(epsilon, 0.7 * SCALE) > math.exp(_mechanism().privacy_loss().log_delta(epsilon))


def test_the_worst_pairs_log_ratio_reaches_epsilon():
    # Beyond both corners the ratio is e^epsilon exactly: no smaller epsilon holds.
    released, public = _released(1.0, 46), _mechanism().public_linear
    beyond = np.all(released < public - 1.0, axis=1)
    ratio = (np.abs(released - public) - np.abs(released - (public - 1.0))).sum(axis=1) / SCALE
    assert beyond.mean() > 0.2
    np.testing.assert_allclose(ratio[beyond], _mechanism().privacy_loss().epsilon, rtol=1e-12)
