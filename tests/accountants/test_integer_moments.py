"""Whole orders of a sampled Gaussian: against 60 digits, always above, and above the reverse direction."""

from __future__ import annotations

import math
import random

import mpmath
import pytest

from zetadp.accountants.densities import GAUSSIAN, LAPLACE
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.pairs import Pair
from zetadp.accountants.routes.rdp import integer_moments
from zetadp.accountants.routes.rdp.moments import PairMoments

_NULL = Mixture((1.0,), (0.0,))


def _pair(q, s):
    return Pair(GAUSSIAN, Mixture((1.0 - q, q), (0.0, s)), _NULL)


def _truth(q, s, order):
    with mpmath.workdps(60):
        q, s = mpmath.mpf(q), mpmath.mpf(s)
        excess = mpmath.fsum(
            mpmath.binomial(order, k) * (1 - q) ** (order - k) * q**k * mpmath.expm1((k * k - k) * s**2 / 2) for k in range(2, order + 1)
        )
        return mpmath.log1p(excess) / (order - 1)


def test_the_bound_is_at_or_above_the_truth_and_close_for_random_pairs():
    generator = random.Random(41)
    for _ in range(300):
        q, s = 10 ** generator.uniform(-12, -0.01), 10 ** generator.uniform(-3, 1.3)
        order = generator.choice([2, 3, 7, 32, 100, 256])
        found, truth = integer_moments.renyi(_pair(q, s), order), _truth(q, s, order)
        assert truth <= found <= truth * (1 + mpmath.mpf("1e-11"))


def test_the_quadrature_agrees_in_both_directions():
    for q, s, order in [(0.01, 1.0, 4), (0.3, 2.0, 16), (1e-3, 0.5, 64)]:
        pair = _pair(q, s)
        moments = PairMoments.of(pair, float(order))
        assert moments is not None
        found = integer_moments.renyi(pair, order) * (order - 1)
        assert moments.log_moment(float(order)) == pytest.approx(found, rel=1e-10)
        assert moments.log_moment(1.0 - order) <= found * (1.0 + 1e-10)


@pytest.mark.parametrize(
    "pair",
    [
        Pair(LAPLACE, Mixture((0.9, 0.1), (0.0, 1.0)), _NULL),
        Pair(GAUSSIAN, Mixture((0.9, 0.1), (0.0, 1.0)), _NULL, worst_of_both=True),
        Pair(GAUSSIAN, Mixture((0.9, 0.1), (0.0, 1.0)), Mixture((0.1, 0.9), (-1.0, 0.0))),
        Pair(GAUSSIAN, Mixture((0.8, 0.1, 0.1), (0.0, 1.0, 2.0)), _NULL),
    ],
)
def test_other_pairs_are_left_to_the_quadrature(pair):
    assert not integer_moments.covers(pair, 2.0)


@pytest.mark.parametrize("order", [1.5, 2.5, 257.0, math.inf])
def test_other_orders_are_left_to_the_quadrature(order):
    assert not integer_moments.covers(_pair(0.1, 1.0), order)


def test_vanishing_and_enormous_shifts_stay_finite():
    assert 0.0 < integer_moments.renyi(_pair(1e-12, 1e-6), 2) < 1e-30
    assert integer_moments.renyi(_pair(0.5, 1e3), 256) == pytest.approx(0.5 * 256 * 1e6, rel=1e-6)


@pytest.mark.parametrize(("q", "s", "order"), [(1e-200, 1.0, 2), (1e-150, 1e-10, 8), (1.1207e-146, 4.4754e-16, 2), (1e-300, 1e-20, 256)])
def test_a_divergence_below_every_float_is_rounded_up_not_to_zero(q, s, order):
    assert integer_moments.renyi(_pair(q, s), order) >= max(5e-324, _truth(q, s, order))
