"""Shuffled batches: the bracket against every order of small data sets, the published gap to Poisson samples, and what is refused."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from scipy import special, stats

from tests.accountants.events import gaussian, laplace
from tests.mechanisms.local import local_gaussian
from tests.selection import chosen, thinned
from zetadp.accountants import (
    Composed,
    Event,
    Grouped,
    PoissonSampled,
    RandomlyAllocated,
    Release,
    Repeated,
    RepeatedAndSelected,
    Shuffled,
    accountant_named,
    calibrate_scale,
    leaves,
    profile,
)
from zetadp.accountants.dp_accounting_events import to_dp_accounting
from zetadp.accountants.shuffled import epochs
from zetadp.mechanisms import InvalidParameter, UnsupportedEvent
from zetadp.mechanisms.declared.runs import GeometricRuns

EVENT = TypeAdapter(Event)
AXIS = np.linspace(-10.0, 10.0, 401)
"""For integrals over the two outputs of an epoch of two batches, right to some 1e-4 of themselves: their integrand has a bend."""

ROOM = 1.0 + 1e-3


def shuffled(steps, std, count=1, adjacency="zero_out"):
    return Repeated(count=count, event=Shuffled(steps=steps, event=gaussian(std, adjacency=adjacency)))


def density_of_two_batches(records, std):
    """Of both sums with noise, in units of the noise, over all orders of the records: (points, points)."""
    half, found = len(records) // 2, np.zeros((len(AXIS), len(AXIS)))
    batches = list(itertools.combinations(range(len(records)), half))
    for first in batches:
        sums = sum(records[k] for k in first), sum(x for k, x in enumerate(records) if k not in first)
        one, other = (np.exp(-0.5 * (AXIS - total / std) ** 2) / math.sqrt(2.0 * math.pi) for total in sums)
        found += np.outer(one, other) / len(batches)
    return found


def delta_of_two_batches(first, second, std, epsilon):
    p, q = density_of_two_batches(first, std), density_of_two_batches(second, std)
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * (AXIS[1] - AXIS[0]) ** 2)


@pytest.mark.parametrize("epsilon", thinned([0.0, 0.5, 1.0, 2.0], every=2))
@pytest.mark.parametrize("std", [1.0, 2.0])
def test_no_small_data_set_loses_more_and_the_worst_one_loses_what_the_lower_end_says(std, epsilon):
    found = profile(shuffled(2, std)).delta(epsilon)
    others = [(-1.0, -1.0, -1.0), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (-1.0, 0.5, 1.0)]
    # Under zero_out one record, here of size 1 or -1, takes the place of a null one.
    losses = [
        delta_of_two_batches((a, *rest), (b, *rest), std, epsilon)
        for rest in others
        for a, b in ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))
    ]
    assert found.lower <= max(losses) * ROOM
    assert max(losses) <= found.upper * ROOM
    assert found.lower > 0.5 * max(losses)  # the tests are good ones


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0])
def test_replaced_records_lose_what_the_lower_end_says_and_no_more_than_the_upper(epsilon):
    found = profile(shuffled(2, 1.0, adjacency="replace_one")).delta(epsilon)
    # Contributions in [0, 1], so that two records are at most 1 apart.
    losses = [
        delta_of_two_batches((a, *rest), (1.0 - a, *rest), 1.0, epsilon)
        for rest in ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (0.0, 0.5, 1.0))
        for a in (0.0, 1.0)
    ]
    assert 0.5 * max(losses) < found.lower <= max(losses) * ROOM
    assert max(losses) <= found.upper * ROOM


def test_the_published_gap_to_poisson_samples_is_found():
    # Chua et al. 2024, arXiv:2403.17673: noise 0.4, 10 000 steps, epsilon 4: Poisson samples have a delta of at most 1.18e-5, and
    # shuffled batches one of at least 0.226.
    poisson = Repeated(count=10_000, event=PoissonSampled(probability=1e-4, event=gaussian(0.4, adjacency="zero_out")))
    assert profile(poisson).delta(4.0).upper <= 1.18e-5
    assert profile(shuffled(10_000, 0.4)).delta(4.0).lower == pytest.approx(0.226, abs=5e-4)


@pytest.mark.parametrize(("std", "steps", "count"), [(0.4, 10_000, 1), (0.5, 1000, 1), (0.6, 100, 5), (0.8, 1000, 10)])
def test_poisson_accounting_of_shuffled_batches_would_claim_too_much(std, steps, count):
    poisson = Repeated(count=steps * count, event=PoissonSampled(probability=1.0 / steps, event=gaussian(std, adjacency="zero_out")))
    assert profile(poisson).epsilon(1e-5).upper < profile(shuffled(steps, std, count)).epsilon(1e-5).lower


@pytest.mark.parametrize("accountant", thinned(["auto", "gdp", "contour", "fft", "rdp"], every=3))
@pytest.mark.parametrize("count", [1, 7])
def test_the_upper_end_is_that_of_one_whole_release_an_epoch(accountant, count):
    named = accountant_named(accountant)
    whole = named.profile(Repeated(count=count, event=gaussian(1.5, adjacency="zero_out")))
    found = named.profile(shuffled(50, 1.5, count))
    assert found.epsilon(1e-5).upper == whole.epsilon(1e-5).upper
    assert found.delta(1.0).log_upper == whole.delta(1.0).log_upper
    assert found.rdp(4.0) == whole.rdp(4.0)
    assert found.epsilon_upper(1e-5) == whole.epsilon_upper(1e-5)
    assert found.gdp_mu is None  # an upper bound isn't the profile
    assert any("not amplified" in step.formula for step in found.derivation())


@pytest.mark.parametrize("count", thinned([1, 3, 40], every=2))
@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_lower_ends_of_epsilon_and_delta_agree_and_fall(count, adjacency):
    found = profile(shuffled(20, 1.0, count, adjacency))
    deltas = [found.delta(epsilon).lower for epsilon in (0.0, 0.5, 1.0, 3.0, 9.0)]
    assert deltas == sorted(deltas, reverse=True)
    for delta in (1e-2, 1e-5, 1e-9):
        lower = found.epsilon(delta).lower
        assert lower > 0.0
        assert found.delta(lower * (1.0 - 1e-6)).lower >= delta > found.delta(lower * (1.0 + 1e-6)).lower


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (1.0, 2.0)])
def test_probabilities_of_sets_are_those_of_simulated_epochs(low, high):
    draw, shape = np.random.default_rng(0), (100_000, 3, 4)

    def largest(shift):
        chosen = np.arange(4) == draw.integers(0, 4, shape[:2])[..., None]
        return (draw.standard_normal(shape) + shift * chosen).max(axis=2)

    shifted, less = largest(high), largest(low)
    thresholds = np.linspace(epochs.LEAST, high + epochs.BEYOND, 400)
    above_or_below = [dict(epochs.counts(*ends, 3)) for ends in epochs.largest(low, high, 4, 400).tests]
    for k in (1, 2, 3):
        counted = [found[k] for found in above_or_below]
        for place in range(60, 120, 7):
            sets = [[one > thresholds[place] for one in (shifted, less)], [one <= thresholds[place] for one in (less, shifted)]]
            for (log_p, log_q), hits in zip(counted, sets, strict=True):
                for log_of, hit in zip((log_p, log_q), hits, strict=True):
                    share, expected = float((hit.sum(axis=1) >= k).mean()), math.exp(log_of[place])
                    assert share == pytest.approx(expected, abs=5.0 * math.sqrt(max(expected * (1.0 - expected), 0.0) / shape[0]) + 1e-4)


@pytest.mark.parametrize("count", [2, 40, 200])
def test_tails_of_counts_are_exact_to_their_allowance(count):
    p, q = Fraction(3, 64), Fraction(1, 2**20)
    for k, (log_p, log_q) in epochs.counts(np.log([float(p)]), np.log([float(q)]), count):
        for found, one in ((log_p[0], p), (log_q[0], q)):
            tail = 1 - sum(math.comb(count, j) * one**j * (1 - one) ** (count - j) for j in range(k))
            if found > -600.0:
                assert abs(found - float(mpmath.log(mpmath.mpf(tail.numerator) / tail.denominator))) < 2e-9
        assert log_p[0] < 0.0


def mean_of_normals(x, shift):
    """Log density ratio of the mean over batches of one shifted output to noise alone, of every epoch: (draws,)."""
    each = special.logsumexp(shift * x - 0.5 * shift**2, axis=2) - math.log(x.shape[2])
    return each.sum(axis=1)


@pytest.mark.parametrize(
    ("steps", "count", "std"), chosen([(2, 2, 1.0), (4, 5, 1.5), (8, 8, 2.0), (10, 3, 0.7)], [(2, 2, 1.0), (10, 3, 0.7)])
)
def test_several_epochs_lose_no_more_than_is_simulated_of_their_pairs(steps, count, std):
    found, m, draw = profile(shuffled(steps, std, count)), 1.0 / std, np.random.default_rng(steps)
    for epsilon in (0.25, 1.0, 3.0):
        ends = []
        for p, q in ((2 * m, m), (m, 2 * m), (m, 0.0), (0.0, m)):
            x = draw.standard_normal((30_000, count, steps))
            x += p * (np.arange(steps) == draw.integers(0, steps, x.shape[:2])[..., None])
            lost = np.maximum(-np.expm1(epsilon - mean_of_normals(x, p) + mean_of_normals(x, q)), 0.0)
            ends.append((float(lost.mean()), 5.0 * float(lost.std()) / math.sqrt(len(lost))))
        assert found.delta(epsilon).lower <= max(mean + error for mean, error in ends)
        assert found.delta(epsilon).lower >= 0.3 * max(mean - error for mean, error in ends)


def test_slices_and_sums_of_labels_are_between_their_ends():
    below = epochs.largest(1.0, 2.0, 50, 400).high
    slices = epochs._slices(below)
    assert np.all(slices.least <= slices.most)
    exact = np.diff(np.concatenate(([0.0], np.exp(below), [1.0])))
    assert np.all((slices.least <= exact + 1e-15) & (exact - 1e-15 <= slices.most))
    assert slices.least.sum() == pytest.approx(1.0, abs=1e-8)
    assert slices.most.sum() == pytest.approx(1.0, abs=1e-8)
    for count in (1, 2, 7, 100):
        assert epochs._tails(np.array([0.75, 0.25]), count) == pytest.approx(
            stats.binom.sf(np.arange(count + 1) - 1, count, 0.25), rel=1e-10
        )


def test_a_composition_loses_what_any_of_its_parts_loses():
    other = Repeated(count=200, event=PoissonSampled(probability=0.1, event=gaussian(1.0, adjacency="zero_out")))
    both = profile(Composed(events=(shuffled(1000, 3.0), other)))
    assert both.epsilon(1e-5).lower >= profile(other).epsilon(1e-5).lower > profile(shuffled(1000, 3.0)).epsilon(1e-5).lower
    assert both.delta(1.0).log_lower >= profile(other).delta(1.0).log_lower
    whole = profile(Composed(events=(gaussian(3.0, adjacency="zero_out"), other)))
    # A route's brackets of the same composition, asked in another order, agree to their width.
    assert both.epsilon(1e-5).upper == pytest.approx(whole.epsilon(1e-5).upper, rel=1e-7)


def test_other_noise_has_only_the_upper_end():
    found, whole = (profile(event) for event in (Shuffled(steps=9, event=laplace(adjacency="zero_out")), laplace(adjacency="zero_out")))
    assert found.epsilon(1e-5).upper == whole.epsilon(1e-5).upper
    assert found.epsilon(1e-5).lower == 0.0


def test_several_releases_of_each_batch_are_one_release_of_it():
    parts = Composed(events=(gaussian(1.0, adjacency="zero_out"), gaussian(3.0, adjacency="zero_out")))
    found = profile(Shuffled(steps=9, event=parts))
    one = profile(Shuffled(steps=9, event=gaussian(1.0 / math.sqrt(1.0 + 1.0 / 9.0), adjacency="zero_out")))
    assert found.epsilon(1e-5).upper == pytest.approx(one.epsilon(1e-5).upper, rel=1e-12)
    assert found.epsilon(1e-5).lower == pytest.approx(one.epsilon(1e-5).lower, rel=1e-9)
    assert any("2 releases of one sample" in step.formula for step in found.derivation())


def test_groups_are_bounded_by_a_group_in_one_whole_release():
    event = Grouped(size=3, unit="user", event=Shuffled(steps=9, event=gaussian(2.0, adjacency="zero_out")))
    whole = Grouped(size=3, unit="user", event=gaussian(2.0, adjacency="zero_out"))
    assert profile(event).epsilon(1e-5).upper == profile(whole).epsilon(1e-5).upper


def test_one_batch_is_the_whole_release_and_local_releases_are_made_once():
    assert list(leaves(Shuffled(steps=1, event=gaussian()))) == list(leaves(gaussian()))
    local = Release(mechanism=local_gaussian(3))
    assert list(leaves(Shuffled(steps=9, event=local))) == list(leaves(local))


def test_records_more_or_less_are_refused_with_the_reason():
    with pytest.raises(UnsupportedEvent, match=r"under add_remove.*one record more moves others.*Under zero_out and replace_one"):
        profile(shuffled(10, 1.0, adjacency="add_remove"))


def test_the_best_of_several_shuffled_runs_is_refused():
    event = RepeatedAndSelected(runs=GeometricRuns(mean=5.0), event=shuffled(10, 1.0))
    with pytest.raises(UnsupportedEvent, match="best of several runs of shuffled batches"):
        profile(event)


def test_noise_is_calibrated_for_the_upper_end():
    factor = calibrate_scale(shuffled(100, 1.0, 3), epsilon=2.0, delta=1e-5)
    whole = calibrate_scale(Repeated(count=3, event=gaussian(1.0, adjacency="zero_out")), epsilon=2.0, delta=1e-5)
    assert factor == pytest.approx(whole, rel=1e-9)


def test_its_json_is_checked():
    event = Shuffled(steps=4, event=gaussian(adjacency="zero_out"))
    assert EVENT.validate_json(event.model_dump_json()) == event
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        Shuffled(steps=0, event=gaussian())
    with pytest.raises(InvalidParameter, match=r"shuffled\.event"):
        leaves(Shuffled(steps=4, event=RandomlyAllocated(steps=4, event=gaussian())))
    with pytest.raises(InvalidParameter, match="shuffled batches"):
        to_dp_accounting(event)
