"""Laplace noise at one distance, repeated: the closed sum against sums over outcomes and against the lattice."""

from __future__ import annotations

import itertools
import math

import mpmath
import pytest

from tests.accountants.events import gaussian, laplace
from tests.accountants.laplace_truth import product_delta, repeated_laplace_delta
from tests.selection import chosen, thinned
from zetadp.accountants import Composed, Repeated, accountant_named, profile
from zetadp.accountants.densities.sums.laplace import MOST_RELEASES, RepeatedLaplace, short_from
from zetadp.accountants.routes.rdp.rdp import RdpProfile
from zetadp.mechanisms import InvalidParameter


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(24):
        yield


def repeated(epsilon, count):
    return Repeated(count=count, event=laplace(1.0 / epsilon))


CONVOLUTIONS = [*itertools.product((0.25, 2.0), (1, 2), (0.0, 0.1, 0.7, 0.999)), (2.0, 3, 0.6), (0.25, 3, 0.05)]


@pytest.mark.parametrize(("epsilon", "count", "share"), chosen(CONVOLUTIONS, CONVOLUTIONS[:-1]))
def test_the_sum_is_the_convolution_of_the_losses(epsilon, count, share):
    t = share * count * epsilon
    low, high = RepeatedLaplace(epsilon, count).log_delta(t)
    exact = mpmath.log(product_delta([epsilon] * count)(mpmath.mpf(t)))
    assert low <= exact <= high
    assert high - low <= 1e-13


@pytest.mark.parametrize("share", thinned([0.0, 0.2, 0.6, 0.95, 1.0 - 1e-9], every=3))
@pytest.mark.parametrize(("epsilon", "count"), thinned([(0.01, 5), (1.0 / 14.0, 8), (0.5, 9), (3.0, 6)], every=2))
def test_the_sum_is_that_over_what_happened_to_each_release(epsilon, count, share):
    t = share * count * epsilon
    low, high = RepeatedLaplace(epsilon, count).log_delta(t)
    assert low <= mpmath.log(repeated_laplace_delta(epsilon, count, t)) <= high


@pytest.mark.parametrize("share", [0.45, 0.9])
def test_the_sum_for_a_record_of_fourteen_coordinates_is_that_over_what_happened_to_each(share):
    low, high = RepeatedLaplace(1.0 / 14.0, 14).log_delta(share)
    assert low <= mpmath.log(repeated_laplace_delta(1.0 / 14.0, 14, share)) <= high


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_both_directions_of_neighbours_have_one_profile(share):
    """H_g(Q || P) = 1 - g + g H_{1/g}(P || Q)."""
    exact, t = product_delta([0.5, 0.5]), mpmath.mpf(share)
    assert abs(1 - mpmath.exp(t) + mpmath.exp(t) * exact(-t) - exact(t)) < mpmath.mpf(10) ** -18


@pytest.mark.parametrize("delta", thinned([1e-3, 1e-5, 1e-9, 1e-20, 1e-290], every=3))
@pytest.mark.parametrize(
    ("epsilon", "count"), thinned([(0.05, 2), (1.0 / 14.0, 14), (0.3, 47), (0.1, 48), (0.02, 140), (1.5, 1000)], every=3)
)
def test_epsilon_lies_where_delta_falls_to_what_was_asked(epsilon, count, delta):
    found = accountant_named("lattice").profile(repeated(epsilon, count))
    bound = found.epsilon(delta)
    assert found.delta(bound.upper).upper <= delta * (1.0 + 1e-5)
    assert found.delta(bound.lower * (1.0 - 1e-12)).upper > delta
    assert bound.upper - bound.lower <= 1e-6 * bound.upper
    assert bound.upper <= epsilon * count * (1.0 + 3e-14)


@pytest.mark.parametrize(
    ("epsilon", "count", "share"),
    thinned([*itertools.product((0.02, 0.3), (20, 30), (0.1, 0.5, 0.8)), (2.0, 47, 0.1), (2.0, 47, 0.9), (1.0 / 14.0, 140, 0.95)], every=2),
)
def test_the_sum_lies_within_the_grids_bracket(epsilon, count, share):
    t = share * count * epsilon
    assert t >= short_from(epsilon, count)
    low, high = RepeatedLaplace(epsilon, count).log_delta(t)
    grid = accountant_named("fft").profile(repeated(epsilon, count)).delta(t)
    assert grid.log_lower <= high
    assert low <= grid.log_upper


@pytest.mark.parametrize("count", [48, 100, 300])
def test_sum_and_lattice_meet_where_one_hands_over_to_the_other(count):
    start = short_from(0.2, count)
    found = accountant_named("lattice").profile(repeated(0.2, count))
    before, after = found.delta(start * (1.0 - 1e-9)), found.delta(start)
    assert after.log_lower <= before.log_upper
    assert before.log_lower <= after.log_upper + 1e-5 * abs(after.log_upper)
    target = after.log_upper
    left, right = found.epsilon_at_log_delta(target + 1e-3), found.epsilon_at_log_delta(target - 1e-3)
    assert left.lower <= right.upper
    assert left.upper <= start * (1.0 + 1e-5)
    assert right.lower >= start * (1.0 - 1e-5)


def test_the_most_releases_of_a_sum_have_only_what_no_lattice_can_see():
    start = short_from(0.2, MOST_RELEASES)
    assert RepeatedLaplace(0.2, MOST_RELEASES).log_delta(start)[1] < -590.0
    assert 0.99 * 200.0 < start < 200.0


def test_few_releases_have_no_floor():
    found = profile(repeated(0.5, 14))
    bound = found.epsilon_at_log_delta(-3000.0)
    assert bound.lower > 7.0 * (1.0 - 3e-14)
    assert bound.upper <= 7.0 * (1.0 + 3e-14)
    assert found.delta(7.0 * (1.0 + 3e-14)).upper == 0.0
    assert 0.0 < found.delta(7.0 * (1.0 - 1e-12)).lower < 2.0**-14


def test_delta_falls_with_epsilon_and_rises_with_the_count():
    found = [profile(repeated(0.3, count)) for count in (1, 2, 5, 14, 46, 47, 48)]
    deltas = [[one.delta(t).log_upper for t in (0.0, 0.01, 0.1, 0.25, 0.29)] for one in found]
    assert all(later < earlier for row in deltas for earlier, later in itertools.pairwise(row))
    assert all(fewer < more for column in zip(*deltas, strict=True) for fewer, more in itertools.pairwise(column))


@pytest.mark.parametrize("log_delta", [0.0, math.nan, 1.0])
def test_questions_out_of_range_are_refused(log_delta):
    with pytest.raises(InvalidParameter, match="log_delta must be finite and < 0"):
        profile(repeated(0.5, 14)).epsilon_at_log_delta(log_delta)


@pytest.mark.parametrize("delta", [1e-5, 1e-30, 1e-300])
def test_renyi_bounds_never_exceed_the_largest_loss(delta):
    found = accountant_named("rdp").profile(Composed(events=(repeated(1e-9, 50), repeated(2e-9, 25))))
    assert isinstance(found, RdpProfile)
    assert found.epsilon(delta).upper <= 1e-7 * (1.0 + 1e-13)
    assert found.delta(1e-7 * (1.0 + 1e-13)).upper == 0.0
    assert found.delta(0.9e-7).upper > 0.0


def test_a_renyi_bound_beside_gaussian_noise_has_no_largest_loss():
    found = accountant_named("rdp").profile(Composed(events=(repeated(1e-9, 50), gaussian(100.0))))
    assert found.delta(1e3).upper > 0.0
    assert found.pure_epsilon == math.inf
