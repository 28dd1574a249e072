"""Duchi, Jordan and Wainwright's l-infinity mechanism: its law by enumeration, its constants against many digits, its claims."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from pydantic import ValidationError

from tests.mechanisms.local import duchi
from tests.selection import chosen, thinned
from zetadp.mechanisms import DuchiLinf, InvalidParameter, NumpySource, RandomOrigin
from zetadp.mechanisms.duchi_linf import central_factor, compare_with_laplace, minority_numerator, shown_probability
from zetadp.mechanisms.sampling.source import FAIR, PROBABILITY_BITS

WHOLE = 1 << PROBABILITY_BITS


class EveryOutcome:
    """A source whose draws are all outcomes at once, one a record: every vector of fair signs, with either minority sign."""

    origin = RandomOrigin.USER_SEED

    def __init__(self, signs):
        fair = np.array(list(itertools.product((-1.0, 1.0), repeat=signs)))
        self.fair = np.repeat(fair, 2, axis=0)
        self.minority = np.tile([1.0, -1.0], len(fair))
        self.numerator = None

    @property
    def count(self):
        return len(self.minority)

    def uniform(self, shape):
        return np.full(shape, 0.5)

    def signs(self, shape, negative=FAIR):
        if negative == FAIR and shape == self.fair.shape:
            return self.fair
        assert shape == self.minority.shape
        self.numerator = negative
        return self.minority

    def is_complex(self, value):
        return np.iscomplexobj(value)

    def all_finite(self, value):
        return bool(np.isfinite(value).all())

    def hides(self, value):
        return value.dtype != np.float64

    def all_within(self, value, lower, upper):
        return bool(((value >= lower) & (value <= upper)).all())


def law(mechanism, corner):
    """Exact probability of every released sign vector for a record in a corner of [-1, 1]^n, as fractions of the code's own draws."""
    source = EveryOutcome(mechanism.signs)
    released = mechanism.release(np.tile(np.asarray(corner, dtype=float), (source.count, 1)), source)
    rare = Fraction(source.numerator, WHOLE)
    found: dict[tuple[float, ...], Fraction] = {}
    for row, sign in zip(np.sign(released).tolist(), source.minority, strict=True):
        weight = (rare if sign < 0 else 1 - rare) / 2**mechanism.signs
        found[tuple(row)] = found.get(tuple(row), Fraction(0)) + weight
    assert np.array_equal(np.abs(released), np.full(released.shape, mechanism.size))
    return found, rare


def corners(dimension):
    return list(itertools.product((-1.0, 1.0), repeat=dimension))


SMALL = [(1, 0.5), (1, 3.0), (3, 1.0), (5, 0.2), (5, 2.0), (2, 1.0), (4, 0.7), (6, 1.5)]
PAIRED = chosen(SMALL, [case for case in SMALL if case[0] < 6])
"""By default without all pairs of the 64 corners of six dimensions, which take seconds: four is even too."""


@pytest.mark.parametrize(("dimension", "epsilon"), thinned(PAIRED, every=2))
def test_the_largest_ratio_of_two_records_laws_is_exactly_that_of_the_two_sides(dimension, epsilon):
    mechanism = duchi(dimension, epsilon)
    laws = [law(mechanism, corner)[0] for corner in corners(dimension)]
    rare = law(mechanism, corners(dimension)[0])[1]
    largest = max(one[signs] / other[signs] for one in laws for other in laws for signs in one)
    assert largest == (1 - rare) / rare
    with mpmath.workdps(100):
        realised = mpmath.log(mpmath.mpf((1 - rare).numerator) / mpmath.mpf(rare.numerator) * rare.denominator / (1 - rare).denominator)
        assert epsilon * (1 - mpmath.mpf(10) ** -70) <= realised <= epsilon


@pytest.mark.parametrize(("dimension", "epsilon"), thinned(SMALL, every=3))
def test_the_whole_law_sums_to_one_and_a_side_to_its_probability(dimension, epsilon):
    corner = (1.0,) * dimension
    found, rare = law(duchi(dimension, epsilon), corner)
    assert sum(found.values()) == 1
    if dimension % 2:
        assert sum(weight for signs, weight in found.items() if sum(signs) > 0) == 1 - rare
        assert len({weight for signs, weight in found.items() if sum(signs) > 0}) == 1


@pytest.mark.parametrize(("dimension", "epsilon"), thinned(PAIRED, every=3))
@pytest.mark.parametrize("t", thinned([0.0, 0.05, 0.15, 0.6, 1.4, 2.9], every=3))
def test_the_claimed_pair_dominates_every_two_corners_and_opposite_ones_attain_it(dimension, epsilon, t):
    mechanism = duchi(dimension, epsilon)
    laws = {corner: law(mechanism, corner)[0] for corner in corners(dimension)}
    level = Fraction(math.exp(t))

    def delta(one, other):
        return float(sum(max(weight - level * laws[other][signs], Fraction(0)) for signs, weight in laws[one].items()))

    claimed = math.exp(mechanism.privacy_loss().log_delta(t))
    worst = max(delta(one, other) for one in laws for other in laws)
    opposite = delta(corners(dimension)[0], corners(dimension)[-1])
    assert worst == opposite
    assert opposite == pytest.approx(claimed, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(("dimension", "epsilon"), thinned(SMALL, every=3))
def test_corners_are_released_without_bias_and_with_the_least_variance(dimension, epsilon):
    mechanism, corner = duchi(dimension, epsilon), corners(dimension)[dimension // 2]
    found, _ = law(mechanism, corner)
    mean = [mechanism.size * float(sum(weight * Fraction(signs[j]) for signs, weight in found.items())) for j in range(dimension)]
    assert mean == pytest.approx(corner, rel=1e-13)
    assert mechanism.variance(np.array(corner)) == pytest.approx(mechanism.size**2 - 1.0, rel=1e-12)
    assert mechanism.least_variance == pytest.approx(mechanism.size**2 - 1.0, rel=1e-12)


def test_signs_are_drawn_with_the_records_mean():
    """share = (x - lower) / (upper - lower): 1 where the uniform is at most that, so with exactly this probability."""

    class Sure(EveryOutcome):
        draw = 0.0

        def uniform(self, shape):
            return np.full(shape, self.draw)

    mechanism = duchi(1, 700.0, lower=2.0, upper=6.0)
    outcomes = {}
    for draw in (2.0**-53, 0.25, 0.25 + 2.0**-53, 1.0):
        source = Sure(1)
        source.draw = draw
        outcomes[draw] = mechanism.release(np.full((source.count, 1), 3.0), source)[source.minority > 0]
    assert np.all(outcomes[2.0**-53] == mechanism.outputs[1])
    assert np.all(outcomes[0.25] == mechanism.outputs[1])
    assert np.all(outcomes[0.25 + 2.0**-53] == mechanism.outputs[0])
    assert np.all(outcomes[1.0] == mechanism.outputs[0])


@pytest.mark.parametrize(
    "epsilon", thinned([1e-50, 1e-30, 1e-6, 0.1, 1.0, 36.0, 37.0, 88.0, 177.0, 178.0, 299.9, 300.1, 700.0, 1e4, 1e50], every=4)
)
def test_the_minoritys_probability_is_the_next_multiple_above_the_exact_one(epsilon):
    with mpmath.workdps(200):
        exact = mpmath.mpf(2) ** 256 / (1 + mpmath.exp(min(mpmath.mpf(epsilon), mpmath.mpf(10**6))))
        assert exact <= minority_numerator(epsilon) < exact + 1.000001
        assert 1 <= minority_numerator(epsilon) < FAIR


@pytest.mark.parametrize("signs", thinned([1, 3, 5, 15, 101, 127, 129, 131, 1001, 99_999, 1_000_001], every=4))
@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0, 20.0, 700.0])
def test_the_size_of_outputs_is_right_to_its_last_digits(signs, epsilon):
    with mpmath.workdps(40):
        exact = mpmath.mpf(2) ** (signs - 1) / mpmath.binomial(signs - 1, (signs - 1) // 2)
        assert central_factor(signs) == pytest.approx(float(exact), rel=1e-15)
        size = exact * mpmath.coth(mpmath.mpf(epsilon) / 2)
        assert duchi(min(signs, 10**6), epsilon).size == pytest.approx(float(size), rel=2e-15)


@pytest.mark.parametrize("epsilon", thinned([1e-6, 0.5, 3.0, 40.0, 200.0, 700.0], every=3))
@pytest.mark.parametrize("dimension", thinned([1, 2, 3, 14], every=2))
def test_least_variance_keeps_its_digits(dimension, epsilon):
    mechanism = duchi(dimension, epsilon, lower=0.0, upper=1.0)
    with mpmath.workdps(700):
        d = mechanism.signs
        size = mpmath.mpf(2) ** (d - 1) / mpmath.binomial(d - 1, (d - 1) // 2) * mpmath.coth(mpmath.mpf(epsilon) / 2)
        assert mechanism.least_variance == pytest.approx(float((size**2 - 1) / 4), rel=1e-13)
        assert mechanism.worst_variance == pytest.approx(float(size**2 / 4), rel=1e-14)


def test_variance_between_centre_and_end_is_the_sum_of_both_parts():
    mechanism = duchi(3, 1.0, lower=2.0, upper=6.0)
    record = np.array([[2.0, 4.0, 5.0]])
    v = (record - 4.0) / 2.0
    assert mechanism.variance(record) == pytest.approx(4.0 * (mechanism.size**2 - v**2), rel=1e-14)
    with pytest.raises(InvalidParameter, match="record must be within"):
        mechanism.variance(np.array([2.0, 1.0, 6.0]))


@pytest.mark.parametrize("dimension", thinned([2, 4, 6, 14, 100, 126, 128, 130, 1000, 99_998, 10**6], every=4))
def test_how_often_an_even_record_is_shown_is_never_understated(dimension):
    with mpmath.workdps(40):
        exact = 1 - mpmath.binomial(dimension, dimension // 2) / mpmath.mpf(2) ** dimension
        assert exact <= shown_probability(dimension) <= exact * (1 + mpmath.mpf(1e-14))


def test_fourteen_coordinates_at_epsilon_one_vary_fifteen_times_less_than_with_laplace_noise():
    found = compare_with_laplace(duchi(14, 1.0, lower=0.0, upper=1.0))
    assert found.laplace == 392.0
    assert found.duchi_worst == pytest.approx(26.6797, abs=1e-4)
    assert found.ratio == pytest.approx(found.laplace / found.duchi_worst, rel=1e-14)


@pytest.mark.parametrize("dimension", thinned([1, 2, 3, 14, 101, 5000, 10**6], every=3))
def test_neither_local_release_is_better_at_every_epsilon(dimension):
    even = compare_with_laplace(duchi(dimension, 1.0)).even_at
    assert even > 2.3
    assert compare_with_laplace(duchi(dimension, even)).ratio == pytest.approx(1.0, rel=1e-12)
    for share, better in ((1e-6, True), (0.1, True), (0.999, True), (1.001, False), (3.0, False), (1e6, False)):
        found = compare_with_laplace(duchi(dimension, share * even))
        assert (found.duchi_worst < found.laplace) is better
        assert (found.ratio > 1.0) is better


def test_noise_scale_is_one_over_epsilon_and_scaling_divides_it():
    mechanism = duchi(5, 2.0)
    assert mechanism.noise_scale == 0.5
    assert mechanism.scaled(4.0).epsilon == 0.5


def test_the_box_only_moves_the_outputs():
    shifted, plain = duchi(3, 1.0, lower=10.0, upper=14.0), duchi(3, 1.0)
    low, high = shifted.outputs
    assert (low, high) == (12.0 - 2.0 * plain.size, 12.0 + 2.0 * plain.size)
    assert shifted.privacy_loss() == plain.privacy_loss()
    v = np.array([-1.0, 0.25, 0.5])
    released = shifted.release(12.0 + 2.0 * v, NumpySource.from_seed(5))
    assert np.array_equal(released, 12.0 + 2.0 * plain.release(v, NumpySource.from_seed(5)))


@pytest.mark.parametrize("shape", [(7,), (0, 7), (3, 7), (2, 3, 7)])
@pytest.mark.parametrize("epsilon", thinned([1e-50, 1.0, 1e50], every=2))
def test_releases_have_the_shape_of_their_records_and_two_values(shape, epsilon):
    mechanism = duchi(7, epsilon)
    released = mechanism.release(np.zeros(shape), NumpySource.from_seed(3))
    assert released.shape == shape
    assert set(np.unique(released)) <= set(mechanism.outputs)


def test_a_record_of_a_million_coordinates_is_released():
    released = duchi(10**6, 1.0).release(np.full(10**6, 0.5), NumpySource.from_seed(4))
    assert abs(float(np.mean(released)) - 0.5) < 5.0 * abs(float(released[0])) / 1000.0


@pytest.mark.parametrize(
    ("changes", "text"),
    thinned(
        [
            ({"epsilon": 0.0}, "greater than or equal to"),
            ({"epsilon": -1.0}, "greater than or equal to"),
            ({"epsilon": math.inf}, "finite number"),
            ({"epsilon": 1e51}, "less than or equal to"),
            ({"dimension": 0}, "greater than or equal to 1"),
            ({"upper": -2.0}, "upper must be above lower"),
            ({"sensitivity": {"l1": 1.0, "adjacency": "replace_one", "unit": "record"}}, "sensitivity.l1 must be at least dimension"),
            ({"sensitivity": {"l1": 6.0, "adjacency": "add_remove", "unit": "record"}}, "sensitivity.adjacency must be replace_one"),
        ],
        every=3,
    ),
)
def test_what_makes_no_sense_is_refused(changes, text):
    fields = {
        "lower": -1.0,
        "upper": 1.0,
        "dimension": 3,
        "epsilon": 1.0,
        "sensitivity": {"l1": 6.0, "adjacency": "replace_one", "unit": "record"},
    }
    with pytest.raises(ValidationError, match=text):
        DuchiLinf.model_validate(fields | changes)


def test_records_outside_the_box_are_refused():
    with pytest.raises(InvalidParameter, match=r"value must be within \[-1.0, 1.0\]"):
        duchi(2, 1.0).release(np.array([0.0, 1.0 + 1e-15]), NumpySource.from_seed(1))
