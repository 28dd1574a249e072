"""Grids for extreme questions: where nearly all outcomes are within a step, decide by the thousandth of a loss, or hardly ever happen."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy import special

from tests.accountants.events import fixed_size, laplace, replace_one_gaussian, training
from tests.selection import chosen
from zetadp.accountants import Grouped, PoissonSampled, Release, Repeated, profile
from zetadp.accountants.densities import GAUSSIAN
from zetadp.accountants.densities.curve import log_ratio
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.dominating import pair_of
from zetadp.accountants.events import leaves
from zetadp.accountants.grids.convolution import TiltedLaw
from zetadp.accountants.grids.grid import GridLaw, _chain, _mended
from zetadp.accountants.grids.layers import Plan
from zetadp.accountants.grids.layout import Estimates
from zetadp.accountants.pairs import widened
from zetadp.mechanisms.declared import DiscreteLaplace
from zetadp.mechanisms.errors import UnsupportedEvent


def sampled(probability, release, count, group=1):
    event = Repeated(count=count, event=PoissonSampled(probability=probability, event=release))
    return Grouped(size=group, unit="user", event=event) if group > 1 else event


# Their epsilons were [1.8506413e-4, 1.8506657e-4], [0, .26660562], [85.460808, 85.462143], [.011614335, .01161683], [0, 10179.7].
# Truths: the last to 50 digits, by its moment function in ball arithmetic; the others by floats on lattices of three steps on which every
# outcome is split between neighbours so that P's and Q's mass are kept, extrapolated: to about ten digits.
LAPLACE = [
    (4.6636115441452353e-07, 0.13236639415822707, 767, 1, 0.00012999017138107813, 0.00018506655495),
    (0.0001576389197383985, 0.6059557593829218, 134, 3, 2.7218309905599124e-212, 0.2665882575),
    (0.0008801257320422604, 0.056833818794281614, 13, 8, 7.636160426163386e-13, 85.4621429622),
]
CASES = [
    *(
        pytest.param(sampled(q, laplace(scale), count, group), delta, truth, id=f"laplace-{count}")
        for q, scale, count, group, delta, truth in LAPLACE
    ),
    pytest.param(training(1.0564166104960022e-06, 0.31984551576280346, 792), 3.985250966751031e-05, 0.011616816367, id="gaussian-792"),
    pytest.param(
        sampled(0.024880295745366647, replace_one_gaussian(0.053605490139578105), 4, 3),
        4.715235635404955e-292,
        10166.90466607998,
        id="gaussian-4",
    ),
]


@pytest.mark.parametrize(("event", "delta", "truth"), chosen(CASES, [CASES[1], *CASES[3:]]))
def test_extreme_questions_have_narrow_brackets(event, delta, truth):
    bound = profile(event, accountant="fft").epsilon(delta)
    assert bound.lower <= truth * (1.0 + 1e-9)
    assert truth * (1.0 - 1e-9) <= bound.upper
    assert bound.upper - bound.lower <= 1e-5 * bound.upper


@pytest.mark.parametrize("probability", [1e-50, 1e-40, 1e-12])
def test_delta_at_zero_of_very_rare_samples_is_that_of_centred_lognormals(probability):
    # To a share q of itself delta(0) = q E S_+ = q E|S| / 2 of a sum S of ten lognormals of mean 1, each minus 1:
    # E|S| = 2 / pi times the integral of (1 - Re phi(t)) / t^2 with phi the characteristic function of S.
    z = np.linspace(-12.0, 12.0, 4001)
    weights = np.exp(-0.5 * z * z) * (z[1] - z[0]) / math.sqrt(2.0 * math.pi)
    t = np.linspace(0.0, 40.0, 4001)[1:] - 0.005
    phi = (np.exp(1j * np.outer(t, np.expm1(z - 0.5))) @ weights) ** 10
    absolute = 2.0 / math.pi * (float(((1.0 - phi.real) / t**2).sum()) * 0.01 + 1.0 / 40.0)
    truth = math.log(0.5 * absolute) + math.log(probability)
    # Below q = 1e-30 a lattice was laid on one side of 0: an assertion failed.
    bound = profile(training(probability, 1.0, 10)).delta(0.0)
    assert bound.log_lower <= truth + 2e-6
    assert truth - 2e-6 <= bound.log_upper
    assert bound.log_upper - bound.log_lower <= 1e-5


def test_losses_of_very_rare_samples_keep_their_digits_where_the_copy_is_likelier():
    x = np.linspace(-10.0, 45.0, 221)
    loss, error = log_ratio(GAUSSIAN, Mixture((1.0, 1e-40), (0.0, 1.0)), Mixture((1.0,), (0.0,)), x)
    with mpmath.workdps(60):
        truth = [mpmath.log1p(mpmath.mpf(1e-40) * mpmath.expm1(mpmath.mpf(float(at)) - mpmath.mpf(0.5))) for at in x]
        assert all(abs(a - b) <= e for a, b, e in zip(loss.tolist(), truth, error.tolist(), strict=True))
    assert np.all(error <= 1e-13 * np.abs(loss) + 1e-54)


def by_counts(epsilon, scale=0.2, moves=5, q=1e-3, count=1000):
    """delta of samples with discrete Laplace noise: the loss takes six values, and all but the least two are rare enough to be counted."""
    f = {x: math.tanh(0.5 / scale) * math.exp(-abs(x) / scale) for x in range(-40, 46)}
    law = {}
    for x, value in f.items():
        p, place = (1.0 - q) * value + q * f.get(x - moves, 0.0), min(max(x, 0), moves)
        law.setdefault(place, [0.0, math.log1p(q * math.expm1((abs(x) - abs(x - moves)) / scale))])[0] += p
    often = law[0][0] + law[1][0]
    usual = (law[0][0] * law[0][1] + law[1][0] * law[1][1]) / often
    total = 0.0
    for counts in itertools.product(range(8), range(3), range(4), range(25)):
        rest = count - sum(counts)
        log_p = math.lgamma(count + 1.0) - math.lgamma(rest + 1.0) + rest * math.log(often)
        log_p += sum(k * math.log(law[place][0]) - math.lgamma(k + 1.0) for place, k in enumerate(counts, 2))
        loss = rest * usual + sum(k * law[place][1] for place, k in enumerate(counts, 2))
        total += math.exp(log_p) * max(-math.expm1(epsilon - loss), 0.0)
    return total


@pytest.mark.parametrize("first", [None, 1e-6, 0.3])
def test_a_delta_between_two_numbers_of_jumps_is_found_whatever_was_asked_before(first):
    # All of these brackets were [0, .6323], and others if an epsilon had been asked for first.
    noise = DiscreteLaplace(scale=0.2, moves=5, adjacency="add_remove", unit="record")
    found = profile(sampled(1e-3, Release(mechanism=noise), 1000))
    if first is not None:
        found.epsilon(first)
    for epsilon in (1.0, 10.0, 20.0, 24.0):
        bound, truth = found.delta(epsilon), by_counts(epsilon)
        assert bound.lower <= truth * (1.0 + 1e-8)
        assert truth * (1.0 - 1e-8) <= bound.upper
        assert bound.log_upper - bound.log_lower <= 1e-4


@pytest.mark.parametrize("place", [0, 2])
def test_a_grid_that_takes_long_is_laid_once_from_both_sides(place, monkeypatch):
    q, scale, count, group, delta, truth = LAPLACE[place]
    grids = []
    layer = Plan.layer

    def counted(plan, step, both):
        grids.append(both)
        return layer(plan, step, both)

    monkeypatch.setattr(Plan, "layer", counted)
    bound = profile(sampled(q, laplace(scale), count, group), accountant="fft").epsilon(delta)
    assert bound.lower <= truth <= bound.upper
    assert bound.upper - bound.lower <= 1e-5 * bound.upper
    # There were two and four: a finer one than was needed, which the points that a grid has made no finer.
    assert grids.count(True) == 1


def test_a_contour_of_too_many_points_leaves_the_answer_to_a_grid():
    # 305,467 points of 49,090 nodes each took seven seconds.
    event = sampled(6.813e-06, laplace(0.0833), 12219)
    with pytest.raises(UnsupportedEvent, match="points of"):
        profile(event, accountant="contour").epsilon(1.29e-267)
    bound = profile(event).epsilon(1.29e-267)
    assert bound.route == "fft"
    assert bound.upper - bound.lower <= 1e-5 * bound.upper


def test_outcomes_with_nearly_the_same_loss_are_at_nodes():
    q, scale, count, group, delta, _ = LAPLACE[2]
    ((leaf, _),) = leaves(sampled(q, laplace(scale), count, group)).items()
    pairs = ((widened(pair_of(leaf)), count),)
    estimates, saddle = Estimates.for_delta(pairs, math.log(delta))
    ((losses, _),) = estimates.leaves
    for wanted in (0.004, 0.0008):
        step = Plan(pairs, estimates, saddle).reachable(wanted)[0]
        assert 0.5 * wanted < step <= wanted
        places, shares = losses.clusters(saddle.tilt, 0.1 * step)
        # Nearly all outcomes are at the least loss, where nobody was sampled; a twelfth at that of one who was.
        assert shares == pytest.approx([0.858, 0.0799], rel=0.01)
        misses = (places - losses.atoms[0]) / step
        assert misses == pytest.approx(np.round(misses), abs=0.002)


def test_weights_that_vanish_have_no_part_in_what_wraps_around():
    law = GridLaw(-1.0, 1.0, np.array([0, 2000]), np.array([0.9, 0.1]), 0.0)
    tilted = TiltedLaw(law, 1.0, grow=False)
    assert tilted.weights[0] == 0.0
    assert tilted.log_moment(-0.5, slice(None)) == pytest.approx(-1000.0, abs=1e-6)
    assert tilted.log_moment(0.5, slice(None)) >= 1000.0


def test_a_direction_whose_losses_end_before_epsilon_is_left_out() -> None:
    # With one direction's grid around its largest loss of 1.15, far from this epsilon, the bracket was [0.116, 0.533].
    bound = profile(fixed_size(18466, 201895, 0.2, 12), accountant="fft").delta(109.0)
    assert 0.0 < bound.log_upper - bound.log_lower < 1e-5
    # A record moves the noise by 10 deviations, so that but for 1e-6 it shows how often it was drawn: k times it is a normal loss.
    q, total = 18466 / 201895, 0.0
    for k in range(1, 13):
        mean, deviation = k * (50.0 + math.log(q)) + (12 - k) * math.log1p(-q), 10.0 * math.sqrt(k)
        z = (mean - 109.0) / deviation
        delta = special.ndtr(z) - math.exp(109.0 - mean + 0.5 * deviation**2 + special.log_ndtr(z - deviation))
        total += math.comb(12, k) * q**k * (1.0 - q) ** (12 - k) * float(delta)
    assert math.exp(bound.log_upper) == pytest.approx(total, rel=3e-5)


@pytest.mark.parametrize("seed", range(4))
def test_mending_around_removed_nodes_finds_what_the_whole_curve_says(seed):
    generator = np.random.default_rng(seed)
    nodes = np.sort(generator.uniform(0.0, 3.0, 400))
    curve = np.maximum.reduce([at - np.exp(nodes) * at / np.exp(1.5 + at) for at in np.linspace(-2.0, 3.0, 60)])
    # Some are so low that many of their neighbours are above chords through them; one is so high that it is alone.
    curve[generator.choice(np.arange(5, 395), 3, replace=False)] -= generator.uniform(0.0, 0.2, 3)
    curve[200] += 0.5
    slopes = np.diff(curve) / np.diff(np.exp(nodes))
    above = 1 + np.flatnonzero(np.diff(slopes) < 0.0)
    kept = np.delete(np.arange(400), above)
    whole = _chain(np.arange(400), nodes, curve)
    assert len(whole) < len(kept)
    assert _mended(kept, nodes, curve, np.searchsorted(kept, above)).tolist() == whole.tolist()
