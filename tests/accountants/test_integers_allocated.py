"""Random allocations of noise on whole numbers: against sums over all outcomes, and beside noise on the line."""

from __future__ import annotations

import itertools
import math

import mpmath
import pytest

from tests.selection import thinned
from zetadp.accountants import RandomlyAllocated, Release, Repeated, profile
from zetadp.mechanisms import Gaussian, Sensitivity
from zetadp.mechanisms.declared import DiscreteGaussian, DiscreteGaussianSum, DiscreteLaplace, Skellam

WHO = {"adjacency": "add_remove", "unit": "record"}
DIGITS = 30


def allocated(mechanism, steps):
    return RandomlyAllocated(steps=steps, event=Release(mechanism=mechanism))


def ratios_of(mechanism, weight, reach):
    """[(X, its probability where nothing moves)], equal ones together; ``weight`` is the law up to a factor."""
    f = {x: weight(mpmath.mpf(x)) for x in range(-reach, reach + 1)}
    total = mpmath.fsum(f.values())
    found = {}
    for x in range(-reach + mechanism.moves, reach + 1):
        ratio = mpmath.nstr(f[x - mechanism.moves] / f[x], 20)
        found[ratio] = found.get(ratio, 0) + f[x] / total
    return [(mpmath.mpf(ratio), mass) for ratio, mass in found.items() if mass > mpmath.mpf(10) ** -14]


def both_orders(ratios, steps, epsilon):
    """The larger of E (S/t - g)_+ and E (1 - g S/t)_+, S a sum of t ratios: over all multisets of them."""
    g, ahead, behind = mpmath.exp(epsilon), mpmath.mpf(0), mpmath.mpf(0)
    for chosen in itertools.combinations_with_replacement(range(len(ratios)), steps):
        counts = [chosen.count(k) for k in set(chosen)]
        ways = mpmath.factorial(steps) / mpmath.fprod(mpmath.factorial(n) for n in counts)
        mass = ways * mpmath.fprod(ratios[k][1] for k in chosen)
        mean = mpmath.fsum(ratios[k][0] for k in chosen) / steps
        ahead, behind = ahead + mass * max(mean - g, 0), behind + mass * max(1 - g * mean, 0)
    return float(max(ahead, behind))


def laplace(scale, moves):
    return DiscreteLaplace(scale=scale, moves=moves, **WHO), lambda x: mpmath.exp(-abs(x) / mpmath.mpf(scale)), 120


def gaussian(scale, moves):
    return DiscreteGaussian(scale=scale, moves=moves, **WHO), lambda x: mpmath.exp(-x * x / (2 * mpmath.mpf(scale) ** 2)), 14


CASES = [(laplace(2.0, 1), 20), (laplace(1.0, 2), 12), (gaussian(1.5, 1), 3), (laplace(3.0, 3), 8), (gaussian(2.0, 2), 2)]


@pytest.mark.parametrize(("law", "steps"), thinned(CASES, every=2), ids=lambda value: value if isinstance(value, int) else value[0].kind)
def test_one_epoch_is_the_sum_over_all_outcomes(law, steps):
    mechanism, weight, reach = law
    found = profile(allocated(mechanism, steps))
    with mpmath.workdps(DIGITS):
        ratios = ratios_of(mechanism, weight, reach)
        for epsilon in (0.0, 0.1, 0.3):
            truth, bound = both_orders(ratios, steps, epsilon), found.delta(epsilon)
            assert bound.lower <= truth * (1.0 + 1e-12) + 1e-12
            assert truth <= bound.upper * (1.0 + 1e-12)
            assert bound.upper - bound.lower <= 1e-2 * bound.upper + 1e-12


def test_the_largest_loss_of_bounded_noise_is_an_end():
    # P is at most e^{m / b} Q in the mean over the steps, too.
    assert profile(allocated(laplace(2.0, 1)[0], 10)).delta(0.5001).upper == 0.0


@pytest.mark.parametrize(("steps", "count"), thinned([(100, 10), (50, 1), (1000, 2)], every=2))
def test_much_noise_is_nearly_that_on_the_line(steps, count):
    smooth = Gaussian(std=3.0, sensitivity=Sensitivity(l2=1.0, **WHO))
    theirs, ours = (
        profile(Repeated(count=count, event=allocated(one, steps))).epsilon(1e-5)
        for one in (smooth, DiscreteGaussian(scale=3.0, moves=1, **WHO))
    )
    assert ours.upper == pytest.approx(theirs.upper, rel=2e-3)
    assert ours.upper - ours.lower <= 2e-3 * ours.upper


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out"])
def test_sums_of_parties_have_brackets(adjacency):
    who = WHO | {"adjacency": adjacency}
    for mechanism in (Skellam(variance=6.0, moves=2, **who), DiscreteGaussianSum(scale=1.0, honest=5, moves=2, **who)):
        found = profile(allocated(mechanism, 20)).epsilon(1e-5)
        assert 0.0 < found.lower <= found.upper <= found.lower * 1.002
        assert found.upper < profile(Release(mechanism=mechanism)).epsilon(1e-5).lower


def test_where_only_a_part_of_the_noise_is_tabled_nothing_is_claimed_from_below():
    shared = DiscreteGaussianSum(scale=0.5, honest=10**5, moves=200, **WHO)
    assert shared.law.is_part
    found = profile(allocated(shared, 10)).epsilon(1e-5)
    assert found.lower == 0.0
    assert math.isfinite(found.upper)
