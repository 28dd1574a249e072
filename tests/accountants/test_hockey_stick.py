"""One release's delta against direct evaluation with 50 digits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from tests.selection import thinned
from zetadp.accountants.densities import GAUSSIAN, LAPLACE
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.grids.hockey_stick import calls, puts, reverse
from zetadp.accountants.pairs import Pair

pytestmark = pytest.mark.digits(50)

NULL = Mixture((1.0,), (0.0,))


def two(q, distance):
    return Mixture((1.0 - q, q), (0.0, distance))


def against_null(family, mixture, worst=False):
    return Pair(family, mixture, NULL, worst)


PAIRS = {
    "whole gaussian": against_null(GAUSSIAN, Mixture((1.0,), (1.3,))),
    "far gaussian": against_null(GAUSSIAN, Mixture((1.0,), (60.0,))),
    "sampled": against_null(GAUSSIAN, two(0.01, 1.0)),
    "far sampled": against_null(GAUSSIAN, two(0.5, 50.0)),
    "sparse": against_null(GAUSSIAN, two(1e-9, 1.0)),
    "nearly whole": against_null(GAUSSIAN, two(0.999999, 2.0)),
    "replace one": Pair(GAUSSIAN, two(0.2, 1.0), Mixture((0.2, 0.8), (-1.0, 0.0))),
    "group": against_null(GAUSSIAN, Mixture((0.729, 0.243, 0.027, 0.001), (0.0, 1.0, 2.0, 3.0))),
    "whole laplace": against_null(LAPLACE, Mixture((1.0,), (0.5,))),
    "sampled laplace": against_null(LAPLACE, two(0.01, 1.0)),
    "replace one laplace": Pair(LAPLACE, two(0.2, 1.0), Mixture((0.2, 0.8), (-1.0, 0.0))),
}
BOTH = [pytest.param(order(pair), id=f"{name} {order.__name__}") for name, pair in PAIRS.items() for order in (lambda p: p, reverse)]


def exact_weights(mixture):
    weights = [mpmath.mpf(w) for w in mixture.weights]
    if len(weights) > 1 and 0.0 in mixture.shifts:
        zero = mixture.shifts.index(0.0)
        weights[zero] = 1 - sum(w for i, w in enumerate(weights) if i != zero)
    return list(zip(weights, map(mpmath.mpf, mixture.shifts), strict=True))


def density(family, x):
    return mpmath.npdf(x) if family is GAUSSIAN else mpmath.exp(-abs(x)) / 2


def tail(family, x):
    if family is GAUSSIAN:
        return mpmath.ncdf(-x)
    return mpmath.exp(-x) / 2 if x > 0 else 1 - mpmath.exp(x) / 2


def exact_delta(pair, epsilon):
    """H_{e^eps}(P || Q) by bisection for the threshold; any real epsilon."""
    upper, lower, gamma = exact_weights(pair.upper), exact_weights(pair.lower), mpmath.exp(mpmath.mpf(epsilon))

    def excess(x):
        return sum(w * density(pair.family, x - s) for w, s in upper) - gamma * sum(w * density(pair.family, x - s) for w, s in lower)

    low, high = mpmath.mpf(-200), mpmath.mpf(200)
    if excess(high) <= 0:
        return mpmath.mpf(0)
    if excess(low) >= 0:
        return 1 - gamma
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if excess(middle) > 0 else (middle, high)
    return sum(w * tail(pair.family, low - s) for w, s in upper) - gamma * sum(w * tail(pair.family, low - s) for w, s in lower)


EPSILONS = np.concatenate(([0.0], np.geomspace(1e-7, 8.0, 9)))


@pytest.mark.parametrize("pair", thinned(BOTH, every=4))
def test_bracket_holds_delta_of_one_release(pair):
    answer = calls(pair, EPSILONS)
    for epsilon, low, high in zip(EPSILONS, answer.lower, answer.upper, strict=True):
        assert mpmath.mpf(float(low)) <= exact_delta(pair, float(epsilon)) <= mpmath.mpf(float(high))


@pytest.mark.parametrize("pair", thinned(BOTH, every=4))
def test_a_familys_own_curve_is_a_bracket_below_zero_too(pair):
    """Also below the least loss, where no threshold has a loss that is certified to be small enough."""
    answer = pair.family.calls(pair.upper, pair.lower, -EPSILONS)
    for epsilon, low, high in zip(-EPSILONS, answer.lower, answer.upper, strict=True):
        assert mpmath.mpf(float(low)) <= exact_delta(pair, float(epsilon)) <= mpmath.mpf(float(high)) + mpmath.mpf(1e-25)


@pytest.mark.parametrize("pair", thinned(BOTH, every=4))
def test_bracket_is_narrow_next_to_the_tail_probability(pair):
    answer = calls(pair, EPSILONS)
    assert np.all(answer.upper - answer.lower <= 1e-11 * (answer.upper + answer.tail) + 1e-299)


@pytest.mark.parametrize("name", ["sampled", "replace one", "whole laplace"])
def test_puts_are_delta_minus_one_plus_gamma_below_zero(name):
    epsilons = -EPSILONS[1:-2]
    answer = puts(PAIRS[name], epsilons)
    for epsilon, low, high in zip(epsilons, answer.lower, answer.upper, strict=True):
        exact = exact_delta(PAIRS[name], float(epsilon)) - 1 + mpmath.exp(mpmath.mpf(float(epsilon)))
        assert mpmath.mpf(float(low)) <= exact <= mpmath.mpf(float(high))


@pytest.mark.parametrize("pair", thinned(BOTH, every=4))
def test_tangents_stay_below_the_curve_everywhere(pair):
    """A threshold beyond the largest loss gives a line too, and it must not be steeper than it may be."""
    points = np.concatenate((EPSILONS, np.linspace(0.0, 3.0, 41)))
    answer = calls(pair, points)
    others = np.linspace(0.0, 3.0, 59)
    highest = calls(pair, others).upper
    for point, value, slope, doubt in zip(points, answer.lower, answer.tail, answer.doubt, strict=True):
        line = value - slope * np.expm1(others - point) - doubt * np.abs(np.expm1(others - point))
        assert np.all(line <= highest + 1e-15 * np.abs(line))


def test_sparse_release_keeps_its_digits():
    sparse = calls(against_null(GAUSSIAN, two(1e-30, 1.0)), np.array([0.0]))
    assert sparse.upper[0] - sparse.lower[0] <= 1e-13 * sparse.upper[0]
    assert sparse.upper[0] == pytest.approx(1e-30 * 0.38292492254802624, rel=1e-12)


def test_far_components_do_not_lose_the_second_term():
    """e^z S(x - b) is 0 times infinity in floats where P's component lies 50 deviations away from Q."""
    pair = against_null(GAUSSIAN, two(0.5, 50.0))
    epsilon = 0.5 * 50.0**2 - np.log(2.0)
    answer = calls(pair, np.array([epsilon]))
    exact = exact_delta(pair, epsilon)
    assert float(answer.lower[0]) <= exact <= float(answer.upper[0])
    assert exact < 0.249


def test_worst_of_both_is_the_larger_order():
    one = against_null(GAUSSIAN, two(0.1, 1.0))
    worst = calls(against_null(GAUSSIAN, two(0.1, 1.0), worst=True), EPSILONS)
    assert np.array_equal(worst.upper, np.maximum(calls(one, EPSILONS).upper, calls(reverse(one), EPSILONS).upper))


def test_laplace_delta_is_zero_from_its_largest_loss_on():
    assert calls(PAIRS["whole laplace"], np.array([0.5000001, 0.6, 5.0])).upper.tolist() == [0.0, 0.0, 0.0]
