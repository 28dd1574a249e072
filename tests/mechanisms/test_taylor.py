"""Remainders of the cross-entropy's second-order polynomial against hundreds of digits, and bounds against brute force."""

from __future__ import annotations

import itertools
import math
import random

import mpmath
import numpy as np
import pytest

from tests.selection import thinned
from zetadp.mechanisms.analysis import taylor

_SEED = random.Random(20)
_POINTS = [
    (a, a + sign * 10.0 ** _SEED.uniform(-9.0, 2.5))
    for a, sign in itertools.product([0.0, 1e-3, -0.4, 0.9, 3.0, -5.0, 30.0, -45.0, 300.0, -690.0], [1.0, -1.0] * 4)
]


def _remainder(z, a):
    with mpmath.workdps(700):
        z, a = mpmath.mpf(z), mpmath.mpf(a)
        s, step = 1 / (1 + mpmath.exp(-a)), z - a
        return mpmath.log1p(mpmath.exp(z)) - mpmath.log1p(mpmath.exp(a)) - s * step - s * (1 - s) * step * step / 2


@pytest.mark.parametrize(
    ("a", "z"), thinned([*_POINTS, (-800.0, -40.0), (-800.0, -1e50), (800.0, 38.0), (-800.0, 2.0), (-710.0, -730.0)], every=5)
)
def test_remainder_agrees_with_hundreds_of_digits(a, z):
    truth = _remainder(z, a)
    # Of the size of the terms that meet: where R changes its sign it has no relative precision to keep.
    size = abs(float(truth)) + 1e-3 * taylor.cubic_bound(abs(z - a)) * taylor.sigmoid_slope(a)
    assert taylor.remainder(z, a) == pytest.approx(float(truth), rel=0.0, abs=1e-12 * size)


@pytest.mark.parametrize("a", thinned([0.0, 0.7, -3.0, 12.0], every=2))
@pytest.mark.parametrize("step", thinned([1e-8, -1e-8, 1e-4, -0.1], every=2))
def test_remainder_keeps_its_digits_close_to_the_point(a, step):
    assert taylor.remainder(a + step, a) == pytest.approx(float(_remainder(a + step, a)), rel=1e-11)


@pytest.mark.parametrize("x", thinned([0.0, 0.3, 1.0], every=2))
@pytest.mark.parametrize(("a", "z"), thinned([(0.0, 2.0), (1.5, -4.0), (-2.0, 3.0)], every=2))
def test_loss_is_its_polynomial_and_the_remainder_whatever_x_is(x, a, z):
    assert taylor.loss(x, z) == pytest.approx(taylor.polynomial(x, z, a) + taylor.remainder(z, a), rel=1e-14)


@pytest.mark.parametrize("x", thinned([0.0, 0.3, 1.0], every=2))
@pytest.mark.parametrize("z", thinned([-1e50, -1e3, 0.0, 1.7, 1e3, 1e50], every=3))
def test_loss_agrees_with_its_definition(x, z):
    with mpmath.workdps(60):
        truth = x * (max(-z, 0) + mpmath.log1p(mpmath.exp(-abs(z)))) + (1 - mpmath.mpf(x)) * (max(z, 0) + mpmath.log1p(mpmath.exp(-abs(z))))
    assert taylor.loss(x, z) == pytest.approx(float(truth), rel=1e-13)


_INTERVALS = list(itertools.product([0.0, 0.2, 1.0, -1.0, 1.32, 3.0, -6.0], [0.05, 1.0, 4.0, 12.0, 60.0, 500.0]))


@pytest.mark.parametrize(("a", "distance"), thinned(_INTERVALS, every=4))
def test_largest_remainder_is_the_largest_on_a_fine_grid(a, distance):
    searched = max(abs(taylor.remainder(float(z), a)) for z in np.linspace(a - distance, a + distance, 4001))
    largest = taylor.largest_remainder(a, distance)
    assert searched <= largest * (1.0 + 1e-12)
    assert largest <= searched * (1.0 + 1e-3)


@pytest.mark.parametrize("a", thinned([0.05, 0.7, 1.316, 1.32, 2.0, 5.0], every=2))
def test_the_inner_maximum_never_exceeds_the_ends(a):
    # Left of -a the remainder turns; an interval that just holds the turning point has its largest value at the right end all the same.
    with mpmath.workdps(30):
        s, p = 1 / (1 + mpmath.exp(-a)), mpmath.exp(-a) / (1 + mpmath.exp(-a)) ** 2
        bracket = (a - 1 - mpmath.exp(a), -mpmath.mpf(a))
        turn = float(mpmath.findroot(lambda z: 1 / (1 + mpmath.exp(-z)) - s - p * (z - a), bracket, solver="anderson"))
    assert turn < -a
    inner = taylor.remainder(turn, a)
    assert inner > max(taylor.remainder(turn + step, a) for step in (-0.01, 0.01))
    assert inner < abs(taylor.remainder(2.0 * a - turn, a))


@pytest.mark.parametrize(
    ("a", "distance"),
    thinned([*_INTERVALS, (1e3, 1e3), (1e50, 1e50), (1e3, 1e50), (115.0, 1e50), (0.0, 1e-50), (0.3, 1e-50), (1.0, 6.52e-16)], every=4),
)
def test_proved_bounds_hold(a, distance):
    largest = taylor.largest_remainder(a, distance)
    assert 0.0 < largest <= taylor.cubic_bound(distance) * (1.0 + 1e-12)
    if a == 0.0:
        assert largest <= taylor.quartic_bound(distance) * (1.0 + 1e-12)


def test_proved_bounds_are_tight_for_small_distances():
    at = math.log((math.sqrt(3.0) + 1.0) / (math.sqrt(3.0) - 1.0))
    assert taylor.largest_remainder(at, 1e-4) == pytest.approx(taylor.cubic_bound(1e-4), rel=1e-3)
    assert taylor.largest_remainder(0.0, 1e-3) == pytest.approx(taylor.quartic_bound(1e-3), rel=1e-5)


def test_derivative_bounds_are_the_maxima():
    third = [abs(taylor.third_derivative(float(z))) for z in np.linspace(0.0, 5.0, 50001)]
    assert max(third) == pytest.approx(taylor.THIRD_DERIVATIVE_BOUND, rel=1e-8)
    assert max(third) <= taylor.THIRD_DERIVATIVE_BOUND * (1.0 + 1e-15)
    with mpmath.workdps(30):
        fourth = [abs(mpmath.diff(lambda z: mpmath.log1p(mpmath.exp(z)), mpmath.mpf(k) / 10, 4)) for k in range(60)]
    assert float(max(fourth)) == pytest.approx(taylor.FOURTH_DERIVATIVE_BOUND, rel=1e-10)


@pytest.mark.parametrize(("order", "eighths"), [(8, -8.5), (12, -691.0), (16, -232392.25), (20, -221930581.0)])
def test_derivatives_at_zero_are_exact(order, eighths):
    assert taylor.derivative_at_zero(order) * 8 == eighths


@pytest.mark.parametrize("order", thinned(range(2, 21), every=4))
def test_derivatives_at_zero_agree_with_the_series(order):
    with mpmath.workdps(60):
        coefficient = mpmath.taylor(lambda z: mpmath.log1p(mpmath.exp(z)), 0, 20)[order]
        assert float(coefficient * mpmath.factorial(order)) == pytest.approx(float(taylor.derivative_at_zero(order)), rel=1e-12, abs=1e-20)


@pytest.mark.parametrize("order", [8, 20, 60])
def test_derivatives_at_zero_grow_like_a_factorial_over_a_power_of_pi(order):
    expected = 2.0 * math.factorial(order - 1) / math.pi**order
    assert abs(float(taylor.derivative_at_zero(order))) == pytest.approx(expected, rel=2.0 * 3.0**-order + 1e-14)


@pytest.mark.parametrize("bound", [1e-50, 0.125, 1.0, 1e6, 1e50])
def test_every_bound_on_the_derivatives_is_exceeded(bound):
    order = taylor.first_order_above(bound)
    assert abs(taylor.derivative_at_zero(order)) > bound
    assert all(abs(taylor.derivative_at_zero(smaller)) <= bound for smaller in range(3, order))


@pytest.mark.parametrize("a", [0.0, 2.0, -7.0])
def test_the_series_turns_at_its_radius(a):
    # Terms of the series at 0.9 and 1.1 of the radius: the first fade, the second grow.
    radius = taylor.convergence_radius(a)
    with mpmath.workdps(60):
        terms = mpmath.taylor(lambda z: mpmath.log1p(mpmath.exp(z)), a, 50)
        inside = max(abs(terms[r]) * (0.8 * radius) ** r for r in range(40, 50))
        outside = max(abs(terms[r]) * (1.25 * radius) ** r for r in range(40, 50))
    assert inside < 1e-4
    assert outside > 10.0
