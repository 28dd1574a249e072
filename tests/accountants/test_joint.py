"""Gaussian and Laplace noise on one sample: a pair of two coordinates, against sums over a plane, data sets and each noise alone."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests.accountants.events import gaussian, laplace, replace_one_gaussian
from tests.accountants.test_dominating import PLANE, both_orders, noise_density
from tests.selection import thinned
from zetadp import accountants
from zetadp.accountants import Composed, Grouped, PoissonSampled, RandomlyAllocated, RandomlyWeighted, Release, Repeated, Shuffled, leaves
from zetadp.accountants.densities import GAUSSIAN, LAPLACE
from zetadp.accountants.densities.joint import JointDensity
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.dominating import pair_of
from zetadp.accountants.grids.hockey_stick import calls
from zetadp.accountants.pairs import Pair
from zetadp.accountants.routes.rdp.rdp import pair_renyi
from zetadp.mechanisms import Gaussian, Laplace, Sensitivity, UnsupportedEvent

NULL = Mixture((1.0,), (0.0,))
X = np.linspace(-14.0, 16.0, 3001)
POINTS, WEIGHTS = np.polynomial.legendre.leggauss(16)


def both(std=2.0, scale=4.0, **neighbours):
    return Composed(events=(gaussian(std, **neighbours), laplace(scale, **neighbours)))


def sampled(event, probability=0.4):
    return PoissonSampled(probability=probability, event=event)


def densities(mixture, slope, y):
    """Of shape (y, X)."""
    normal = np.exp(-0.5 * np.square(X[None, :] - np.array(mixture.shifts)[:, None])) / math.sqrt(2.0 * math.pi)
    other = 0.5 * np.exp(-np.abs(y[:, None] - slope * np.array(mixture.shifts)))
    return (other * np.array(mixture.weights)) @ normal


def plane(upper, lower, slope):
    """(masses of nodes, P, Q) of the plane."""
    kinks = sorted({0.0, *(slope * shift for shift in (*upper.shifts, *lower.shifts))})
    edges = np.unique(np.concatenate([np.linspace(a, b, 25) for a, b in itertools.pairwise((kinks[0] - 40.0, *kinks, kinks[-1] + 40.0))]))
    half = 0.5 * np.diff(edges)[:, None]
    y = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * POINTS).ravel()
    return (half * WEIGHTS).ravel()[:, None] * (X[1] - X[0]), densities(upper, slope, y), densities(lower, slope, y)


PAIRS = [
    (0.3, Mixture((1.0,), (1.1,)), NULL),
    (2.0, Mixture((0.8, 0.2), (0.0, 0.7)), NULL),
    (1.0, NULL, Mixture((0.3, 0.7), (-0.9, 0.0))),
    (0.7, Mixture((0.6, 0.4), (0.0, 0.8)), Mixture((0.4, 0.6), (-0.8, 0.0))),
    (1.5, Mixture((0.5, 0.3, 0.2), (0.0, 0.4, 0.8)), Mixture((1.0,), (-0.2,))),
]


@pytest.mark.parametrize(("slope", "upper", "lower"), PAIRS)
def test_a_sum_over_the_plane_lies_in_a_narrow_bracket(slope, upper, lower):
    weights, p, q = plane(upper, lower, slope)
    epsilons = np.array([-0.5, 0.0, 0.4, 1.0])
    found = JointDensity(slope).calls(upper, lower, epsilons)
    for epsilon, low, high in zip(epsilons, found.lower, found.upper, strict=True):
        truth = float(np.sum(weights * np.maximum(p - math.exp(epsilon) * q, 0.0)))
        assert low * (1.0 - 1e-5) - 1e-8 <= truth <= high * (1.0 + 1e-5) + 1e-8
        assert high - low <= 2e-3 * high + 1e-12


@pytest.mark.parametrize(("slope", "upper", "lower"), PAIRS)
def test_tangents_stay_below_the_curve(slope, upper, lower):
    epsilons = np.linspace(0.0, 2.0, 9)
    found = JointDensity(slope).calls(upper, lower, epsilons)
    for k, epsilon in enumerate(epsilons):
        line = found.lower[k] + found.tail[k] * -np.expm1(epsilons - epsilon)
        assert (line <= found.upper + found.doubt[k]).all()


@pytest.mark.parametrize("probability", [1e-12, 1e-5])
def test_rare_samples_keep_their_digits(probability):
    upper, level = Mixture((1.0 - probability, probability), (0.0, 0.8)), 1.0
    (rare,) = JointDensity(0.5).calls(upper, NULL, np.log1p(np.array([probability * level]))).upper
    (whole,) = JointDensity(0.5).calls(Mixture((1.0,), (0.8,)), NULL, np.log1p(np.array([level]))).upper
    # q H at 1 + (g - 1) / q: (2) of proofs/pairs.md.
    assert rare == pytest.approx(probability * whole, rel=1e-3)


@pytest.mark.parametrize(("slope", "upper", "lower"), PAIRS)
@pytest.mark.parametrize("order", [1.5, 4.0])
def test_renyi_divergences_are_just_above_those_of_the_plane(slope, upper, lower, order):
    weights, p, q = plane(upper, lower, slope)
    moments = [float(np.sum(weights * np.exp(power * np.log(p) + (1.0 - power) * np.log(q)))) for power in (order, 1.0 - order)]
    truth = math.log(max(moments)) / (order - 1.0)
    assert truth * (1.0 - 1e-4) <= pair_renyi(Pair(JointDensity(slope), upper, lower), order) <= truth * 1.003


def test_the_worse_direction_has_its_moments():
    upper, order = Mixture((0.7, 0.3), (0.0, 0.9)), 3.0
    weights, p, q = plane(upper, NULL, 0.8)
    ratio = p / q
    above = np.where(ratio > 1.0, (ratio ** (order - 1.0) - 1.0) * (ratio - ratio ** (1.0 - order)), 0.0)
    truth = math.log1p(float(np.sum(weights * q * above))) / (order - 1.0)
    found = pair_renyi(Pair(JointDensity(0.8), upper, NULL, worst_of_both=True), order)
    assert truth * (1.0 - 1e-4) <= found <= truth * 1.003


def law(records, probability, second):
    """Density of (Gaussian output, Laplace output) on a plane, over all samples of the records; ``second`` maps the first output."""
    total = 0.0
    for chosen in itertools.product((0, 1), repeat=len(records)):
        weight = math.prod(probability if c else 1 - probability for c in chosen)
        first, then = (np.array(chosen) @ records) if len(records) else np.zeros(2)
        moved = (PLANE[None, :] - then * second(PLANE)[:, None]).ravel()
        far = noise_density(LAPLACE, [0.0], [moved]).reshape(len(PLANE), len(PLANE))
        total = total + weight * noise_density(GAUSSIAN, [first], [PLANE])[:, None] * far
    return total


def fixed(output):
    return np.ones_like(output)


def adaptive(output):
    return np.where(output > 0.3, 1.0, np.where(output > -1.0, -1.0, 0.4))


LEVELS = (0.5, 1.0, 1.5, 2.5)


def delta(event, level):
    (leaf,) = leaves(event)
    return float(calls(pair_of(leaf), np.array([math.log(level)])).upper[0])


@pytest.mark.parametrize("second", [fixed, adaptive])
def test_no_data_set_exceeds_the_pair_of_a_shared_sample(second):
    rng = np.random.default_rng(5)
    event = sampled(both(2.0, 1.0))
    for _ in range(4):
        records = rng.choice([-1.0, 1.0, 0.7], size=(3, 2)) * np.array([0.5, 1.0])
        laws = [law(one, 0.4, second) for one in (records, records[:-1])]
        for level in LEVELS:
            (leaf,) = leaves(event)
            pair = pair_of(leaf)
            reverse = Pair(pair.family, pair.lower.mirrored, pair.upper.mirrored)
            most = max(float(calls(one, np.array([math.log(level)])).upper[0]) for one in (pair, reverse))
            assert both_orders(*laws, level, [PLANE, PLANE]) <= most + 2e-3


def test_one_record_attains_it():
    one, nothing = law(np.array([[0.5, 1.0]]), 0.4, fixed), law(np.zeros((0, 2)), 0.4, fixed)
    for level in LEVELS:
        assert both_orders(one, nothing, level, [PLANE, PLANE]) >= delta(sampled(both(2.0, 1.0)), level) - 2e-3


def test_a_group_is_attained_by_equal_members():
    event = Grouped(size=2, unit="user", event=sampled(both(2.0, 1.0)))
    first, second = (law(np.array([[0.5, 1.0]] * n).reshape(-1, 2), 0.4, fixed) for n in (2, 0))
    for level in (1.0, 1.5, 2.5):
        assert both_orders(first, second, level, [PLANE, PLANE]) == pytest.approx(delta(event, level), abs=3e-3)


def test_replacing_is_attained_by_opposites():
    moves = Sensitivity(l2=1.0, l2_contribution=0.5, l1=2.0, l1_contribution=1.0, adjacency="replace_one", unit="record")
    parts = (Gaussian(std=1.0, sensitivity=moves), Laplace(scale=1.0, sensitivity=moves))
    event = sampled(Composed(events=tuple(Release(mechanism=one) for one in parts)))
    first, second = (law(np.array([[sign * 0.5, sign]]), 0.4, fixed) for sign in (1.0, -1.0))
    for level in LEVELS:
        assert both_orders(first, second, level, [PLANE, PLANE]) == pytest.approx(delta(event, level), abs=2e-3)


@pytest.mark.parametrize(("probability", "count"), thinned([(0.3, 1), (0.02, 300), (1e-4, 10**5)], every=1))
def test_both_lose_more_than_each_alone_and_less_than_samples_of_their_own_twice(probability, count):
    found = accountants.profile(Repeated(count=count, event=sampled(both(), probability))).epsilon(1e-5)
    assert found.upper - found.lower <= 5e-4 * found.upper
    for one in (gaussian(2.0), laplace(4.0)):
        assert accountants.profile(Repeated(count=count, event=sampled(one, probability))).epsilon(1e-5).upper < found.lower
    # What is 1/4-DP is 1/2-GDP, as 1 / (1 + e^(1/4)) is more than Phi(-1/4).
    gdp = Composed(events=(gaussian(2.0), gaussian(2.0)))
    assert found.lower < accountants.profile(Repeated(count=count, event=sampled(gdp, probability))).epsilon(1e-5).upper


def test_the_renyi_bound_is_above():
    event = Repeated(count=100, event=sampled(both(), 0.05))
    assert accountants.profile(event, "rdp").epsilon(1e-5).upper > accountants.profile(event).epsilon(1e-5).lower


def test_an_allocation_loses_less_than_its_whole_release_and_more_than_its_gaussian_part():
    found = accountants.profile(RandomlyAllocated(steps=10, event=both())).epsilon(1e-5)
    assert found.upper < accountants.profile(both()).epsilon(1e-5).lower
    assert found.lower > accountants.profile(RandomlyAllocated(steps=10, event=gaussian(2.0))).epsilon(1e-5).upper


@pytest.mark.parametrize("kind", [RandomlyAllocated, Shuffled])
def test_replacing_in_epochs_is_bounded_by_a_whole_release_and_by_the_gaussian_part(kind):
    whole = accountants.profile(both(0.5, 0.7, adjacency="replace_one")).epsilon(1e-5)
    found = accountants.profile(kind(steps=3, event=both(0.5, 0.7, adjacency="replace_one"))).epsilon(1e-5)
    alone = accountants.profile(kind(steps=3, event=gaussian(0.5, adjacency="replace_one"))).epsilon(1e-5)
    assert found.upper == pytest.approx(whole.upper, rel=1e-3)
    assert found.upper >= whole.lower
    assert found.lower == pytest.approx(alone.lower, rel=1e-9)


def test_random_shares_of_everything_are_a_sample():
    shares = RandomlyWeighted(shares=(1.0,), probabilities=(0.3,), event=both())
    ours, theirs = (accountants.profile(one).epsilon(1e-3) for one in (shares, sampled(both(), 0.3)))
    assert ours.upper == pytest.approx(theirs.upper, rel=1e-9)


def test_replacing_needs_both_contributions():
    event = sampled(Composed(events=(replace_one_gaussian(2.0), laplace(1.0, adjacency="replace_one"))))
    with pytest.raises(UnsupportedEvent, match=r"needs sensitivity\.l2_contribution and l1_contribution"):
        accountants.profile(event)


def test_too_little_laplace_noise_is_refused():
    with pytest.raises(UnsupportedEvent, match="moved by at most 100 of its scales"):
        accountants.profile(sampled(both(1.0, 0.009)))


def test_the_derivation_names_both_moves():
    lines = accountants.profile(sampled(both())).derivation()
    assert [(line.symbol, line.value) for line in lines[:2]] == [("mu", 0.5), ("epsilon", 0.25)]
