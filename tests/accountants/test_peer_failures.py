"""Questions that other accountants get wrong or refuse, on our engine (theory/accounting.md has the list).

Truths to 13 digits are by ``tests/golden/truth.py``: an inverse Laplace transform in arithmetic of 64 bits, apart from this project's
code, whose digits don't move when its steps are halved. The others are closed forms with mpmath.
"""

from __future__ import annotations

import math

import mpmath
import pytest

from tests.accountants.events import gaussian, laplace, training
from zetadp.accountants import Composed, FixedSizeSampled, Repeated, profile
from zetadp.accountants.routes.closed.closed_form import largest_mu
from zetadp.mechanisms.numerics.gdp import gdp_log_delta

BEYOND_PESSIMISTIC_PLD = [
    # dp-accounting's PLD is below the first three by 0.001, 0.048, 0.198 and infinite at 1e-18; prv-accountant raises from 1e-14 on.
    (0.01, 1.0, 10_000, 1e-10, 9.316138525882),
    (0.01, 1.0, 10_000, 1e-12, 10.34668983767),
    (0.01, 1.0, 10_000, 1e-13, 10.83309988852),
    (0.01, 1.0, 10_000, 1e-14, 11.30355881232),
    (0.01, 1.0, 10_000, 1e-15, 11.75997850224),
    (0.01, 1.0, 10_000, 1e-18, 13.05978484132),
    (0.01, 1.0, 10_000, 1e-30, 17.63506105289),
]
BEYOND_RENYI_GRIDS = [
    # dp-accounting's RDP drops the low orders: 1072 and 1960; prv-accountant and opacus prv fail on the second.
    (0.05, 0.4, 5000, 1e-5, 366.3041698377),
    (0.5, 0.5, 1000, 1e-5, 877.6568458561),
]
BELOW_ZERO = [
    # Other PRV accountants publish a negative lower end and an upper end of a hundredth for the first.
    (1e-3, 20.0, 100, 1e-5, 8.365979077743e-04),
    (1e-3, 20.0, 100, 1e-8, 1.901278848712e-03),
    (1e-3, 20.0, 100, 1e-14, 3.212956550370e-03),
]
BEYOND_THE_CENTRAL_LIMIT = [
    # opacus GDP: 45 % and 29 % below the truth.
    (3e-5, 0.5, 1_000_000, 1e-5, 1.455878562461),
    (0.2, 1.0, 10, 1e-5, 4.984213398691),
]
COARSE_ELSEWHERE = [
    # dp-accounting's PLD at 1e-4 answers 0.1733 to the first.
    (3e-5, 1.0, 1_000_000, 1e-5, 0.1235385732538),
    (0.005, 0.61, 4000, 1e-5, 6.608032655149),
    (0.063, 5.0, 1588, 5e-4, 1.497088931675),
    (0.009, 1.0, 556, 1e-5, 1.242621491763),
    (0.001, 1.1, 10_000, 1e-5, 0.4023368869337),
    (0.01, 1.0, 10_000, 1e-6, 6.907384495045),
    (0.256, 4.0, 2000, 1e-5, 16.04112962758),
]
DIGITS = 1e-11


@pytest.mark.parametrize(
    ("probability", "std", "count", "delta", "truth"),
    BEYOND_PESSIMISTIC_PLD + BEYOND_RENYI_GRIDS + BELOW_ZERO + BEYOND_THE_CENTRAL_LIMIT + COARSE_ELSEWHERE,
)
def test_epsilon_is_bracketed_within_a_millionth(probability, std, count, delta, truth):
    bound = profile(training(probability, std, count)).epsilon(delta)
    assert bound.lower * (1 - DIGITS) <= truth <= bound.upper * (1 + DIGITS)
    assert bound.upper - bound.lower <= 1e-6 * truth


@pytest.mark.parametrize(("probability", "std", "count", "delta", "truth"), BEYOND_RENYI_GRIDS)
def test_renyi_orders_near_one_are_there(probability, std, count, delta, truth):
    assert truth <= profile(training(probability, std, count), "rdp").epsilon_upper(delta) <= 1.06 * truth


@pytest.mark.parametrize(("delta", "removed", "added"), [(1e-6, 6.907384495045, 6.2), (1e-10, 9.316138525882, 8.121744764902095)])
def test_epsilon_covers_both_directions_of_neighbours(delta, removed, added):
    assert profile(training(0.01, 1.0, 10_000)).epsilon(delta).upper >= max(removed * (1 - DIGITS), added)


@pytest.mark.parametrize("log_delta", [-math.log(1e300), -1000.0, -1e5])
def test_delta_below_the_smallest_float_is_answered_in_log_space(log_delta):
    bound = profile(training(0.01, 1.0, 10_000)).epsilon_at_log_delta(log_delta)
    assert 0.0 < bound.upper - bound.lower <= 1e-6 * bound.upper
    assert profile(training(0.01, 1.0, 10_000)).delta(bound.upper * 1.0001).log_upper < log_delta


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-13), (1.0, 1e-15)])
def test_gaussian_calibration_meets_tiny_deltas(epsilon, delta):
    # autodp's noise gives 7.1 and 41 times these deltas.
    with mpmath.workdps(60):
        mu, e = mpmath.mpf(largest_mu(epsilon, math.log(delta))), mpmath.mpf(epsilon)
        exact = mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)
        assert 1 - 1e-10 < exact / mpmath.mpf(delta) <= 1


def test_large_mu_has_an_epsilon():
    with mpmath.workdps(60):  # opacus raises
        mu = mpmath.mpf(40)

        def excess(e):
            return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu) - mpmath.mpf(1e-5)

        truth = mpmath.findroot(excess, (900, 1100), solver="illinois", tol=1e-90)
    bound = profile(gaussian(1.0 / 40.0)).epsilon(1e-5)
    assert bound.lower <= truth <= bound.upper <= truth * (1 + 1e-12)


def test_true_epsilon_of_zero_is_zero():
    bound = profile(gaussian(1e3)).epsilon(1e-2)  # delta(0) is 4e-4; opacus raises
    assert (bound.lower, bound.upper) == (0.0, 0.0)


@pytest.mark.parametrize("event", [gaussian(1.0 / 3.0), Composed(events=(gaussian(1.0 / 3.0), laplace(1e6)))])
def test_trade_off_at_tiny_alpha_is_on_the_safe_side(event):
    # riskcal's is 4.7e-3 above. Adding a release can only make it smaller.
    with mpmath.workdps(40):
        quantile = mpmath.findroot(lambda x: mpmath.ncdf(x) - mpmath.mpf(1e-7), -5.2)
        exact = mpmath.ncdf(-quantile - 3)
    beta = profile(event).trade_off(1e-7)
    assert 0.99 * exact <= beta <= exact


@pytest.mark.parametrize("delta", [1e-5, 1e-9])
def test_samples_of_a_fixed_size_are_not_poisson_samples(delta):
    # Errata Z12: the pair is that of Poisson sampling with half the noise.
    fixed = Repeated(count=1000, event=FixedSizeSampled(sample_size=1, population_size=100, event=gaussian(2.0)))
    of_fixed, halved, naive = (profile(event).epsilon(delta) for event in (fixed, training(0.01, 1.0, 1000), training(0.01, 2.0, 1000)))
    assert of_fixed.lower <= halved.upper
    assert halved.lower <= of_fixed.upper <= halved.upper * (1 + 1e-6)
    assert of_fixed.lower > naive.upper


def test_repetition_counts_every_time():
    # dp-accounting composes ten randomized responses as one. Every loss of ten Laplace releases is epsilon0 with probability 2^-10.
    epsilon0 = 1.0986
    upper = profile(Repeated(count=10, event=laplace(1.0 / epsilon0))).epsilon(1e-9).upper
    assert 10 * epsilon0 + math.log1p(-1e-9 * 2**10) <= upper <= 10 * epsilon0 * (1 + 1e-9)


def test_thousand_laplace_releases():
    bound = profile(Repeated(count=1000, event=laplace(100.0))).epsilon(1e-6)
    assert bound.lower <= 1.3629246 + 1e-7
    assert bound.upper >= 1.3629246 - 1e-7
    assert bound.upper - bound.lower <= 1e-6 * bound.upper


def test_delta_far_below_floats_is_not_zero():
    assert gdp_log_delta(1.0, 1000.0) == pytest.approx(-499514.8594518, rel=1e-9)
    assert profile(gaussian(1.0)).delta(1000.0).upper > 0.0
