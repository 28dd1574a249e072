from __future__ import annotations

import math
import random

import mpmath
import numpy as np
import pytest

from zetadp.mechanisms.analysis.realised_lot import realised_lot_log_delta
from zetadp.mechanisms.errors import InvalidParameter


def _exact(lot, count, epsilon):
    """From the four incomplete gamma functions, with as many digits as cancel."""
    with mpmath.workdps(60 + int(0.9 * epsilon) + int(2 * math.log10(lot))):
        n, e = mpmath.mpf(lot), mpmath.mpf(epsilon)
        k, log_ratio = (1 + 1 / n) ** 2 - 1, 2 * count * mpmath.log(1 + 1 / n)
        t, u = (log_ratio + e) / k, (log_ratio - e) / k

        def upper(x):
            return mpmath.gammainc(count, x, mpmath.inf, regularized=True)

        smaller_first = upper(t) - mpmath.exp(e) * upper(t * (1 + k))
        larger_first = (1 - upper(u * (1 + k))) - mpmath.exp(e) * (1 - upper(u)) if u > 0 else mpmath.mpf(0)
        return float(mpmath.log(max(smaller_first, larger_first)))


@pytest.mark.parametrize(
    ("lot", "count", "epsilon"),
    [
        (64, 50, 1),
        (64, 5000, 1),
        (1, 1, 0),
        (1, 1, 10),
        (1, 1, 500),
        (10, 3, 0.5),
        (10**6, 5, 0),
        (10**9, 7, 0),
        (3, 20, 40),
        (64, 5000, 200),
    ],
)
def test_delta_is_an_upper_bound_and_agrees_with_many_digits(lot, count, epsilon):
    exact = _exact(lot, count, epsilon)
    assert exact <= realised_lot_log_delta(lot, count, epsilon) <= exact + 2e-11 + 1e-14 * abs(exact)


def test_delta_agrees_at_random_points():
    generator = random.Random(2)
    for _ in range(60):
        lot, count = int(10 ** generator.uniform(0, 5)), int(10 ** generator.uniform(0, 3.3))
        epsilon = generator.choice([0.0, generator.uniform(0, 3), 10 ** generator.uniform(-6, 2)])
        exact = _exact(lot, count, epsilon)
        assert exact <= realised_lot_log_delta(lot, count, epsilon) <= exact + 2e-11 + 1e-14 * abs(exact), (lot, count, epsilon)


@pytest.mark.parametrize(("count", "expected"), [(50, 6.0e-6), (5000, 0.577), (500_000, 1.0)])
def test_the_known_figures_come_out(count, expected):
    assert math.exp(realised_lot_log_delta(64, count, 1.0)) == pytest.approx(expected, rel=7e-3)


def test_an_attacker_who_looks_at_the_length_reaches_the_delta():
    lot, count, epsilon, draws = 20, 400, 0.5, 100_000
    generator = np.random.default_rng(5)
    fewer, more = (generator.gamma(count, size=draws) / size**2 for size in (lot, lot + 1))
    ratio = (1 + 1 / lot) ** 2
    threshold = (count * math.log(ratio) + epsilon) / (ratio - 1) / lot**2
    hit, false = np.mean(fewer > threshold), np.mean(more > threshold)
    error = 5 * (math.sqrt(hit / draws) + math.exp(epsilon) * math.sqrt(false / draws))
    claimed = math.exp(realised_lot_log_delta(lot, count, epsilon))
    assert abs(hit - math.exp(epsilon) * false - claimed) < error
    # The same experiment tells noise that is 30 % off in the lot's size from this one.
    assert abs(math.exp(realised_lot_log_delta(int(1.3 * lot), count, epsilon)) - claimed) > error


def test_delta_falls_with_epsilon_and_grows_with_the_dimension():
    by_epsilon = [realised_lot_log_delta(64, 1000, epsilon) for epsilon in (0.0, 0.1, 1.0, 3.0, 10.0, 100.0)]
    assert by_epsilon == sorted(by_epsilon, reverse=True)
    by_dimension = [realised_lot_log_delta(64, count, 1.0) for count in (1, 10, 100, 1000, 10_000)]
    assert by_dimension == sorted(by_dimension)


def test_the_ends_of_every_range_give_a_probability():
    for lot in (1, 10**9):
        for count in (1, 10**12):
            for epsilon in (0.0, 1e-300, 1.0, 1e10, 1e50):
                value = realised_lot_log_delta(lot, count, epsilon)
                assert -math.inf < value <= 0.0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0, 1, 1.0), "lot must be in"),
        ((10**9 + 1, 1, 1.0), "lot must be in"),
        ((1, 0, 1.0), "dimension must be in"),
        ((1, 1, -1.0), "epsilon must be in"),
        ((1, 1, math.nan), "epsilon must be in"),
        ((1, 1, math.inf), "epsilon must be in"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, text):
    with pytest.raises(InvalidParameter, match=text):
        realised_lot_log_delta(*arguments)
