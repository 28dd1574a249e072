"""Where all largest losses of Laplace noise together are likelier than delta, they give epsilon from both sides, at once."""

from __future__ import annotations

import itertools
import math

import mpmath
import pytest

from tests.accountants.events import laplace
from tests.selection import thinned
from zetadp.accountants import Grouped, PoissonSampled, Repeated, leaves, profile
from zetadp.accountants.densities import LAPLACE
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.grids.hockey_stick import reverse
from zetadp.accountants.largest_loss import epsilon_from_largest, largest_atom, largest_loss, log_delta_from_largest
from zetadp.accountants.pairs import Pair
from zetadp.accountants.routes.fft.fft import FftProfile
from zetadp.accountants.routes.fft.near_largest import epsilon_near_largest, log_delta_near_largest, log_delta_upper


def sampled(probability, scale, count, group=1):
    event = Repeated(count=count, event=PoissonSampled(probability=probability, event=laplace(scale)))
    return Grouped(size=group, unit="user", event=event) if group > 1 else event


def sampled_pair(probability, distance):
    return Pair(LAPLACE, Mixture((1.0 - probability, probability), (0.0, distance)), Mixture((1.0,), (0.0,)))


def exact_delta(probability, distance, count, epsilon):
    """Of one or two sampled releases against the plain noise, to 30 digits: the second one in closed form, given the first."""
    q, m = mpmath.mpf(probability), mpmath.mpf(distance)

    def tail(x):
        return mpmath.exp(-x) / 2 if x > 0 else 1 - mpmath.exp(x) / 2

    def one(level):
        share = (mpmath.exp(level) - 1 + q) / q
        if share >= mpmath.exp(m):
            return mpmath.mpf(0)
        if share <= mpmath.exp(-m):
            return 1 - mpmath.exp(level)
        cut = (m + mpmath.log(share)) / 2
        return (1 - q) * tail(cut) + q * tail(cut - m) - mpmath.exp(level) * tail(cut)

    if count == 1:
        return one(epsilon)

    def density(x):
        return ((1 - q) * mpmath.exp(-abs(x)) + q * mpmath.exp(-abs(x - m))) / 2

    def both(x):
        loss = mpmath.log(1 - q + q * mpmath.exp(abs(x) - abs(x - m)))
        return density(x) * one(epsilon - loss)

    top = mpmath.log(1 + q * mpmath.expm1(m))
    kinks = [mpmath.mpf(0), *((m + mpmath.log((mpmath.exp(epsilon - end) - 1 + q) / q)) / 2 for end in (top,)), m]
    inner = sorted(kink for kink in kinks if 0 <= kink <= m)
    middle = sum(mpmath.quad(both, list(pair)) for pair in itertools.pairwise(inner))
    return (
        middle
        + tail(mpmath.mpf(0)) * ((1 - q) + q * mpmath.exp(-m)) * one(epsilon - mpmath.log(1 - q + q * mpmath.exp(-m)))
        + ((1 - q) * tail(m) + q / 2) * one(epsilon - top)
    )


@pytest.mark.parametrize(("count", "delta"), [(1, 1e-3), (1, 1e-12), (2, 1e-2), (2, 1e-9)])
def test_delta_at_the_lower_end_is_above_delta_and_hardly_so(count, delta):
    q, m = 0.3, 0.7
    low = epsilon_from_largest([(sampled_pair(q, m), count)], math.log(delta))
    with mpmath.workdps(30):
        assert exact_delta(q, m, count, mpmath.mpf(low)) > delta
        # The claim isn't empty: where delta is far smaller than the atom, little above the end its delta is below.
        if delta < 1e-8:
            assert exact_delta(q, m, count, mpmath.mpf(low) * (1 + mpmath.mpf(1e-7))) < delta


@pytest.mark.parametrize("group", [1, 3])
def test_such_brackets_are_narrow_and_next_to_the_largest_loss(group):
    q, scale, count = 0.02136, 2.201, 5
    bound = profile(sampled(q, scale, count, group)).epsilon(3.63e-15 if group == 1 else 1e-30)
    with mpmath.workdps(40):
        member = 1 + mpmath.mpf(q) * mpmath.expm1(1 / mpmath.mpf(scale))
        largest = count * group * mpmath.log(member)
    assert bound.upper - bound.lower <= 1e-9 * bound.upper
    assert bound.lower <= largest <= bound.upper * (1 + mpmath.mpf(1e-9))


def test_deltas_beyond_the_grids_floor_are_answered_from_both_sides():
    bound = profile(sampled(0.15, 1.9, 61)).epsilon(1e-300)
    assert 0.0 < bound.upper - bound.lower <= 1e-9 * bound.upper


def test_a_likely_delta_gets_nothing_from_the_largest_losses():
    pair = sampled_pair(0.3, 0.7)
    _, log_probability = largest_atom(pair)
    assert epsilon_from_largest([(pair, 40)], 40.0 * log_probability - 0.5) == 0.0


def test_each_direction_has_its_own_largest_loss():
    """The pure epsilon is the larger one's, and the ratio of the weights of a copy alone bounds the smaller one by log 1 / (1 - q)."""
    q, m = 0.15, 0.52
    removed = Pair(LAPLACE, Mixture((1.0,), (0.0,)), Mixture((q, 1.0 - q), (-m, 0.0)))
    exact = -math.log1p(q * math.expm1(-m))
    assert exact <= largest_loss(removed) <= exact * (1.0 + 1e-12)
    assert largest_loss(removed) < min(-math.log1p(-q), math.log1p(q * math.expm1(m)))
    assert largest_loss(reverse(removed)) == pytest.approx(math.log1p(q * math.expm1(m)), rel=1e-12)


def near_largest(pair, count, delta):
    """(lower end, upper end) by the largest losses alone, for the pair's own distances."""
    low = epsilon_from_largest([(pair, count)], math.log(delta))
    return low, epsilon_near_largest([(pair, count)], count * largest_loss(pair), low, math.log(delta))


@pytest.mark.parametrize("delta", thinned([1e-3, 1e-5, 1e-9, 1e-13], every=2))
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("q", "m"), thinned([(0.3, 0.7), (0.01, 0.2), (0.9, 1.0), (0.5, 5.0), (0.02, 6.0)], every=2))
def test_delta_at_the_upper_end_is_at_most_delta_and_hardly_less(q, m, count, delta):
    low, high = near_largest(sampled_pair(q, m), count, delta)
    with mpmath.workdps(40):
        assert exact_delta(q, m, count, mpmath.mpf(high)) <= delta
    # The claim isn't empty: where the gap is small, hardly any other losses are in it.
    gap = count * math.log1p(q * math.expm1(m)) - low
    if low > 0.0 and gap <= 1e-3 * low:
        assert high - low <= 0.05 * gap + 1e-10 * low


@pytest.mark.parametrize("delta", thinned([1e-5, 1e-8, 1e-11], every=2))
@pytest.mark.parametrize(
    ("q", "scale", "count"), thinned([(0.1, 0.2, 3), (0.5, 0.2, 5), (0.9, 1.0, 4), (0.01, 5.0, 3), (0.3, 0.1, 7)], every=5)
)
def test_the_ends_by_the_largest_losses_meet_the_grids_bracket(q, scale, count, delta):
    found = FftProfile(leaves(sampled(q, scale, count)))
    low, high = found._from_largest(math.log(delta))
    grid = found._epsilon(math.log(delta))
    assert max(low, grid[0]) <= min(high, grid[1])


@pytest.mark.parametrize(("q", "scale", "count", "delta"), [(0.5, 1.0, 2, 1e-5), (0.01, 5.0, 5, 1e-8), (0.9, 0.2, 3, 1e-5)])
def test_few_samples_near_their_largest_losses_need_no_grid(q, scale, count, delta, monkeypatch):
    monkeypatch.setattr(FftProfile, "_epsilon", lambda *_: pytest.fail("a grid is laid"))
    bound = profile(sampled(q, scale, count)).epsilon(delta)
    assert 0.0 < bound.lower <= bound.upper <= bound.lower * (1.0 + 1e-6)


@pytest.mark.parametrize("share", thinned([1e-3, 1e-5, 1e-8, 1e-11], every=2))
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("q", "m"), thinned([(0.3, 0.7), (0.01, 0.2), (0.9, 1.0), (0.5, 5.0), (0.02, 6.0)], every=2))
def test_delta_near_the_largest_losses_is_between_its_bounds_and_they_are_near(q, m, count, share):
    pair = sampled_pair(q, m)
    largest = count * largest_loss(pair)
    epsilon = largest * (1.0 - share)
    low, high = log_delta_from_largest([(pair, count)], epsilon), log_delta_upper([(pair, count)], largest, epsilon)
    with mpmath.workdps(40):
        truth = mpmath.log(exact_delta(q, m, count, mpmath.mpf(epsilon)))
        assert low <= truth <= high
    # They differ by the losses inside the gap, and by what the largest loss is known to, relative to the gap.
    assert high - low <= 20.0 * share + 5e-12 / share


@pytest.mark.parametrize(("q", "scale", "count", "delta"), [(0.5, 1.0, 2, 1e-5), (0.01, 5.0, 5, 1e-8), (0.9, 0.2, 3, 1e-5)])
def test_delta_near_the_largest_losses_needs_no_grid(q, scale, count, delta, monkeypatch):
    parts = leaves(sampled(q, scale, count))
    epsilon = FftProfile(parts).epsilon(delta).upper
    grid = FftProfile(parts)._log_delta(epsilon)
    monkeypatch.setattr(FftProfile, "_log_delta", lambda *_: pytest.fail("a grid is laid"))
    bound = FftProfile(parts).delta(epsilon)
    assert bound.log_lower <= grid[1]
    assert grid[0] <= bound.log_upper <= bound.log_lower + 1e-3


def test_nothing_is_said_of_delta_far_below_the_largest_losses_or_without_them():
    pair = sampled_pair(0.3, 0.7)
    largest = 9 * largest_loss(pair)
    assert log_delta_upper([(pair, 9)], largest, 0.5 * largest) == 0.0
    assert log_delta_near_largest([((pair, 9),)], [largest], 0.5 * largest, 1e-6) is None
    assert log_delta_near_largest([((pair, 9),)], [largest], largest, 1e-6) is None
    assert log_delta_near_largest([((pair, 9),)], [math.inf], 1.0, 1e-6) is None


def test_far_below_the_largest_losses_nothing_is_said_from_above():
    pair = sampled_pair(0.3, 0.7)
    assert epsilon_near_largest([(pair, 9)], 9 * largest_loss(pair), 0.0, -5.0) == 9 * largest_loss(pair)


def test_improbable_largest_losses_still_decide_where_they_are_likelier_than_delta():
    # All seven of a user's records are sampled twice with probability 1e-45, which rounding of the weight of none used to hide.
    q, scale, count, group = 5.798e-4, 0.06667, 2, 7
    bound = profile(sampled(q, scale, count, group)).epsilon(1e-228)
    assert 0.0 < bound.upper - bound.lower < 1e-9 * bound.upper
    # All records were sampled in every release: delta is that probability times what each release's losses are below their largest.
    with mpmath.workdps(40):
        largest = count * group * mpmath.log1p(mpmath.mpf(q) * mpmath.expm1(1 / mpmath.mpf(scale)))
        atom = (((1 - mpmath.mpf(q)) * mpmath.exp(-1 / mpmath.mpf(scale)) + q) ** group / 2) ** count
        assert bound.lower <= largest + mpmath.log1p(-mpmath.mpf("1e-228") / atom) <= largest <= bound.upper
