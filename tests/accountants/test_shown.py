"""Local releases that show a record only sometimes: their exact sum against a mean over how many were shown, and against the grid."""

from __future__ import annotations

import itertools
import math

import mpmath
import pytest

from tests.accountants.two_point_truth import repeated_shown_delta, response
from tests.selection import thinned
from zetadp.accountants import Repeated, accountant_named, leaves, profile
from zetadp.accountants.densities.sums.shown import MOST_RELEASES, RepeatedShown
from zetadp.accountants.dominating import pair_of


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(90):
        yield


@pytest.mark.parametrize("share", thinned([0.0, 0.02, 0.3, 0.97], every=3))
@pytest.mark.parametrize("shown", thinned([1e-9, 0.05, 0.79, 1.0 - 2.0**-50], every=2))
@pytest.mark.parametrize(("epsilon", "count"), thinned([(0.01, 3), (1.0, 2), (2.5, 40), (0.1, 200), (30.0, 90)], every=3))
def test_the_sum_of_releases_that_are_shown_only_sometimes_is_the_mean_over_how_many_were_shown(epsilon, count, shown, share):
    low, high = RepeatedShown(epsilon, count, shown).log_delta(share * count * epsilon)
    exact = mpmath.log(repeated_shown_delta(epsilon, count, shown, share * count * epsilon))
    assert low <= exact <= high + 1e-70
    assert high - low <= 2e-11 * max(1.0, -high)


@pytest.mark.parametrize("log10_delta", thinned([-1, -5, -300, -3000], every=3))
@pytest.mark.parametrize(("epsilon", "count"), thinned([(1.0, 2), (1.0, 9), (0.1, 150)], every=2))
def test_epsilon_of_repeated_releases_of_an_even_dimension_is_where_the_sum_falls_to_delta(epsilon, count, log10_delta):
    event = Repeated(count=count, event=response(epsilon, dimension=14))
    bound, shown = profile(event).epsilon_at_log_delta(log10_delta * math.log(10.0)), pair_of(next(iter(leaves(event)))).shown
    target = mpmath.exp(mpmath.mpf(log10_delta * math.log(10.0)))
    assert repeated_shown_delta(epsilon, count, shown, bound.upper) <= target
    assert repeated_shown_delta(epsilon, count, shown, bound.lower) > target
    assert bound.route == "lattice"
    assert bound.upper - bound.lower <= 1e-10 * bound.upper


@pytest.mark.parametrize("epsilon", thinned([1e-50, 1e-5, 707.0, 709.0, 1e50], every=3))
@pytest.mark.parametrize("shown", thinned([1e-50, 0.3, 1.0 - 2.0**-53], every=2))
@pytest.mark.parametrize("count", thinned([2, MOST_RELEASES], every=2))
def test_extreme_releases_that_are_shown_only_sometimes_have_narrow_ordered_sums(epsilon, shown, count):
    law = RepeatedShown(epsilon, count, shown)
    found = [law.log_delta(share * epsilon * count) for share in (0.0, 0.3, 0.999, 1.0 - 1e-15)]
    assert all(high - low <= 1e-8 * max(1.0, -high) for low, high in found)
    assert all(after[0] <= before[1] for before, after in itertools.pairwise(found))
    assert law.log_delta(law.largest_loss) == (-math.inf, -math.inf)


@pytest.mark.parametrize("count", [MOST_RELEASES, MOST_RELEASES + 1])
def test_many_releases_that_are_shown_only_sometimes_are_in_the_grids_bracket(count):
    event = Repeated(count=count, event=response(0.05, dimension=14))
    ours, grid = (accountant_named(route).profile(event).epsilon(1e-6) for route in ("lattice", "fft"))
    assert grid.lower <= ours.upper
    assert ours.lower <= grid.upper
