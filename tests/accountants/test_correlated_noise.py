"""Correlated noise: its sensitivity against every participation pattern, and its guarantee against a Gaussian release."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from pydantic import ValidationError

from zetadp.accountants import Composed, Grouped, Release, profile
from zetadp.accountants.calibration import NoiseScale, calibrate_scale
from zetadp.mechanisms import Gaussian, Sensitivity
from zetadp.mechanisms.declared import Buffer, CorrelatedNoise
from zetadp.mechanisms.declared.correlated import inverse_column

WHO = {"adjacency": "zero_out", "unit": "record"}
SQUARE_ROOT = tuple(math.comb(2 * t, t) / 4.0**t for t in range(12))  # of the matrix of ones, the best strategy for prefix sums


def noise(coefficients, steps, separation, participations, std=1.0, buffers=(), inverse=()):
    limits = {"min_separation": separation, "max_participations": participations}
    return CorrelatedNoise(
        std=std, l2=1.0, steps=steps, coefficients=coefficients, buffers=buffers, inverse_coefficients=inverse, **limits, **WHO
    )


def matrix(column):
    steps = len(column)
    return np.array([[column[i - j] if i >= j else 0.0 for j in range(steps)] for i in range(steps)])


def largest(column, separation, participations):
    """Over all patterns, with every sign: the norm is convex, so that the corners of the cube of contributions are enough."""
    strategy, best, steps = matrix(column), 0.0, len(column)
    for size in range(1, participations + 1):
        for pattern in itertools.combinations(range(steps), size):
            if any(b - a < separation for a, b in itertools.pairwise(pattern)):
                continue
            for signs in itertools.product((-1.0, 1.0), repeat=size):
                best = max(best, float(np.linalg.norm(strategy[:, pattern] @ np.array(signs))))
    return best


@pytest.mark.parametrize("separation", [1, 2, 3, 5])
@pytest.mark.parametrize("participations", [1, 2, 4])
@pytest.mark.parametrize("band", [1, 2, 3])
def test_the_sensitivity_is_the_largest_of_all_patterns(separation, participations, band):
    coefficients = SQUARE_ROOT[:band]
    column = [*coefficients, *([0.0] * (9 - band))]
    found = noise(coefficients, 9, separation, participations).matrix_sensitivity
    truth = largest(column, separation, participations)
    assert truth <= found <= truth * (1 + 1e-9)


def test_a_band_that_fits_is_attained():
    column = [1.0, -0.4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    found = noise((1.0, -0.4), 8, 2, 4).matrix_sensitivity
    assert found == pytest.approx(largest(column, 2, 4), rel=1e-9)
    assert found == pytest.approx(math.sqrt(4 * 1.16), rel=1e-9)


@pytest.mark.parametrize("separation", [1, 3])
@pytest.mark.parametrize("participations", [1, 3])
def test_a_blts_sensitivity_is_the_largest_of_all_patterns(separation, participations):
    buffers = (Buffer(weight=0.3, decay=0.9), Buffer(weight=0.2, decay=0.4))
    column = [1.0, *(0.3 * 0.9**t + 0.2 * 0.4**t for t in range(8))]
    found = noise((1.0,), 9, separation, participations, buffers=buffers).matrix_sensitivity
    assert largest(column, separation, participations) <= found <= largest(column, separation, participations) * (1 + 1e-9)


@pytest.mark.parametrize("separation", [1, 3])
@pytest.mark.parametrize("participations", [1, 3])
@pytest.mark.parametrize("inverse", [(0.5,), (0.5, 0.125, 0.0625), (0.6, 0.2), (1.0,)])
def test_the_sensitivity_of_a_banded_matrixs_inverse_is_the_largest_of_all_patterns(separation, participations, inverse):
    band = np.eye(9) - sum(value * np.eye(9, k=-lag) for lag, value in enumerate(inverse, 1))
    column = list(2.0 * np.linalg.inv(band)[:, 0])
    found = noise((2.0,), 9, separation, participations, inverse=inverse).matrix_sensitivity
    assert largest(column, separation, participations) <= found <= largest(column, separation, participations) * (1 + 1e-9)


def test_the_rounding_of_an_inverses_column_is_within_what_is_allowed_for_it():
    # One band of weight 3/4 has the column (3/4)^t, and the pattern of all steps its prefix sums: 4 (1 - (3/4)^(t + 1)).
    exact = [4 * (1 - Fraction(3, 4) ** (t + 1)) for t in range(300)]
    truth = Fraction(noise((1.0,), 300, 1, 300, inverse=(0.75,)).matrix_sensitivity) ** 2 / sum(one * one for one in exact)
    assert 1 <= truth <= 1 + Fraction(1, 10**11)
    # An inverse of one band whose column stays at 1 is the matrix of sums.
    ones = noise((1.0,), 10**5, 10**5, 1, inverse=(1.0,)).matrix_sensitivity
    assert math.sqrt(10**5) <= ones <= math.sqrt(10**5) * (1 + 1e-9)


def test_a_rise_of_an_inverses_column_that_is_rounding_alone_is_none():
    # With w_2 = w_1 - w_1^2 the second and third entries are equal; here it is a unit of its last place more.
    inverses = [(first, math.nextafter(first - first * first, 1.0)) for first in (share / 97 for share in range(1, 97))]
    columns = [inverse_column(inverse, 9) for inverse in inverses]
    assert any(column[2] > column[1] for column in columns)
    for inverse, column in zip(inverses, columns, strict=True):
        found, truth = noise((1.0,), 9, 3, 3, inverse=inverse).matrix_sensitivity, largest(list(column), 3, 3)
        assert truth <= found <= truth * (1 + 1e-9)
    with pytest.raises(ValidationError, match="inverse_coefficients must be such that no entry"):
        noise((1.0,), 9, 3, 3, inverse=(0.5, 0.25 + 1e-8))


def test_independent_noise_is_its_own_special_case():
    found = profile(Release(mechanism=noise((1.0,), 100, 10, 10, std=4.0)))
    ten = profile(Release(mechanism=Gaussian(std=4.0 / math.sqrt(10.0), sensitivity=Sensitivity(l2=1.0, **WHO))))
    assert found.gdp_mu == pytest.approx(ten.gdp_mu, rel=1e-9)
    assert found.epsilon(1e-5).upper == pytest.approx(ten.epsilon(1e-5).upper, rel=1e-9)


def test_prefix_sums_need_less_noise_than_with_independent_noise():
    """The error of the last prefix sum, at the same guarantee: the square root's rows against a row of ones."""
    steps = 256
    root = [1.0]
    for t in range(1, steps):
        root.append(root[-1] * (2 * t - 1) / (2 * t))
    correlated = noise(tuple(root), steps, steps, 1)
    independent = noise((1.0,), steps, steps, 1)
    errors = [np.linalg.norm(root) * correlated.matrix_sensitivity, math.sqrt(steps) * independent.matrix_sensitivity]
    assert errors[0] < 0.3 * errors[1]


def test_it_composes_is_calibrated_and_grows_with_a_group():
    event = Release(mechanism=noise(SQUARE_ROOT[:4], 1000, 100, 5, std=2.0))
    both = profile(Composed(events=(event, Release(mechanism=Gaussian(std=2.0, sensitivity=Sensitivity(l2=1.0, **WHO))))))
    assert both.gdp_mu == pytest.approx(math.hypot(profile(event).gdp_mu, 0.5), rel=1e-9)
    assert profile(Grouped(size=3, unit="user", event=event)).gdp_mu == pytest.approx(3 * profile(event).gdp_mu, rel=1e-9)
    factor = calibrate_scale(event, epsilon=1.0, delta=1e-5)
    assert profile(NoiseScale().applied(event, factor)).epsilon(1e-5).upper <= 1.0


def test_a_million_steps_have_a_sensitivity():
    buffers = (Buffer(weight=0.02, decay=0.999), Buffer(weight=0.1, decay=0.9))
    assert noise((1.0,), 10**6, 10**5, 10, buffers=buffers).matrix_sensitivity > math.sqrt(10.0)
    # Every step: a million copies. They add up to prefix sums of the column.
    column = np.concatenate(([1.0], 0.02 * 0.999 ** np.arange(10**6 - 1.0) + 0.1 * 0.9 ** np.arange(10**6 - 1.0)))
    assert noise((1.0,), 10**6, 1, 10**6, buffers=buffers).matrix_sensitivity == pytest.approx(np.linalg.norm(np.cumsum(column)), rel=1e-10)


@pytest.mark.parametrize(
    ("coefficients", "separation", "buffers", "inverse"),
    [
        ((1.0, 0.5, 0.7), 2, (), ()),
        ((1.0, -0.5), 1, (), ()),
        ((0.0, 0.0), 5, (), ()),
        ((1.0, 0.5), 1, (Buffer(weight=0.1, decay=0.5),), ()),
        ((1.0, 0.5), 10, (), (0.5,)),
        ((-1.0,), 5, (), (0.5,)),
        ((1.0,), 5, (Buffer(weight=0.1, decay=0.5),), (0.5,)),
    ],
)
def test_what_isnt_proved_is_refused(coefficients, separation, buffers, inverse):
    with pytest.raises(ValidationError, match="coefficients"):
        noise(coefficients, 10, separation, 2, buffers=buffers, inverse=inverse)


def test_columns_that_rise_are_refused_by_what_was_given():
    with pytest.raises(ValidationError, match=r"buffers must be of weights that add up to at most c_0 = 0.3, and that > 0, got \[0.4\]"):
        noise((0.3,), 10, 5, 2, buffers=(Buffer(weight=0.4, decay=0.5),))
    with pytest.raises(ValidationError, match=r"inverse_coefficients must be such that no entry .* got \[0.25, 0.5\]"):
        noise((1.0,), 10, 5, 2, inverse=(0.25, 0.5))
    with pytest.raises(ValidationError, match="coefficients must be at most min_separation = 2 of them"):
        noise((1.0, 0.5, 0.7), 10, 2, 2)
