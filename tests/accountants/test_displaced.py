"""Groups with samples of a fixed size against small data sets whose every sample is listed, and the profile of row 5 against a scan."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy import special

from tests.accountants.events import gaussian, laplace
from tests.accountants.test_dominating import (
    FAMILIES,
    LEVELS,
    LINE,
    NULL,
    PLANE,
    QUADRATURE,
    _records,
    both_orders,
    divergence,
    fixed_size_law,
    leaf,
    noise_density,
    profile,
)
from tests.accountants.test_dominating import _tails as tails
from tests.selection import thinned
from zetadp import accountants
from zetadp.accountants import FixedSizeSampled, Grouped, Repeated, leaves
from zetadp.accountants.densities import GAUSSIAN, LAPLACE
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.dominating import LARGEST_SAMPLED_GROUP, pair_of, unsupported_reason
from zetadp.accountants.dominating.displaced import Displaced
from zetadp.accountants.grids.hockey_stick import calls
from zetadp.accountants.leaf import Leaf, Sizes
from zetadp.accountants.pairs import Pair
from zetadp.accountants.routes.rdp.rdp import pair_renyi
from zetadp.mechanisms.declared import DiscreteGaussian
from zetadp.mechanisms.numerics.hypergeometric import hypergeometric

SCAN = np.linspace(-30.0, 40.0, 140_001)


def group_leaf(family, sample, population, group, adjacency, move=1.0):
    one = leaf(family, sample / population, "fixed_size", group, adjacency, move)
    return Leaf(one.probability, one.mechanism, one.scheme, group, sizes=Sizes(sample, population))


def scanned(family, weights, shifts, level):
    """(3) of proofs/pairs.md, and the thresholds y_j with the best t, by a scan: an independent and less exact computation."""
    base, found, places = tails(family, NULL, SCAN), -(level - 1.0) * weights[0] * tails(family, NULL, SCAN), []
    for weight, shift in zip(weights[1:], shifts[1:], strict=True):
        alone = tails(family, Mixture((1.0,), (shift,)), SCAN) - level * base
        best = int(np.argmax(alone))
        places.append(np.maximum(np.arange(len(SCAN)), best))
        found = found + weight * alone[places[-1]]
    t = int(np.argmax(found))
    return float(found[t]), SCAN[t], [SCAN[place[t]] for place in places]


def bound(found, level):
    """The pair's profile at a level >= 1, as routes get it: the larger of both orders."""
    return float(calls(pair_of(found), np.array([math.log(level)])).upper[0])


# -- the mixture of add_remove -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
@pytest.mark.parametrize(("sample", "others", "members"), thinned([(3, 4, 2), (2, 3, 3), (1, 3, 2), (4, 4, 3)], every=2))
@pytest.mark.parametrize("level", thinned(LEVELS, every=2))
def test_members_that_displace_others_attain_the_pair(family, sample, others, members, level):
    records = np.array([[-1.0]] * others + [[1.0]] * members)
    laws = [fixed_size_law(family, one, sample, [LINE]) for one in (records, records[:others])]
    found = pair_of(group_leaf(family, sample, others + members, members, "add_remove"))
    assert both_orders(*laws, level, [LINE]) == pytest.approx(profile(found, level), abs=2 * QUADRATURE)


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
@pytest.mark.parametrize("adjacency", thinned(["add_remove", "replace_one", "zero_out"], every=2))
@pytest.mark.parametrize(("sample", "population"), thinned([(2, 5), (3, 5), (1, 4), (3, 4)], every=2))
def test_no_user_exceeds_the_pair_of_a_fixed_size(family, adjacency, sample, population):
    # Users of two members, that pull together, against each other or partly; data sets may be larger than declared, and users smaller.
    rng, axes = np.random.default_rng(7), [PLANE, PLANE]
    u = np.array([1.0, 0.0])
    users = [(u, u, -u, -u), (u, -u, -u, u), (u, 0.5 * u, 0 * u, -u), *(_records(rng, family, 4, 1.0) for _ in range(3))]
    move = 2.0 if adjacency == "replace_one" else 1.0
    found = group_leaf(family, sample, population, 2, adjacency, move)
    allowed = {level: bound(found, level) if adjacency != "add_remove" else profile(pair_of(found), level) for level in LEVELS}
    for number, user in enumerate(map(np.array, users)):
        size, members = population + number % 2, 1 + (number != 2)
        others = _records(rng, family, size - members, 1.0) if number > 2 else np.tile(-u, (size - members, 1))
        first = np.vstack([others, user[:members]])
        second = {
            "add_remove": others,
            "replace_one": np.vstack([others, user[2 : 2 + members]]),
            "zero_out": np.vstack([others, np.zeros((members, 2))]),
        }[adjacency]
        # A data set with fewer records than the sample is used whole.
        laws = [fixed_size_law(family, one, min(sample, len(one)), axes) for one in (first, second)]
        for level in LEVELS:
            assert both_orders(*laws, level, axes) <= allowed[level] + 1e-3


# -- the profile of replace_one ------------------------------------------------------------------------------------------------------

SHAPES = [
    ((0.6, 0.3, 0.1), (0.0, 1.0, 2.0)),
    ((0.99, 0.0098, 0.0002), (0.0, 0.5, 1.0)),
    ((0.1, 0.2, 0.7), (0.0, 0.3, 0.6)),
    ((0.5, 0.3, 0.15, 0.05), (0.0, 2.0, 4.0, 6.0)),
]


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
@pytest.mark.parametrize(("weights", "shifts"), thinned(SHAPES, every=2))
def test_the_profile_is_the_best_half_line_by_a_scan(family, weights, shifts):
    epsilons = np.array([0.0, 1e-4, 0.05, 0.2, 0.6, 1.0, 2.0])
    found = Displaced(family).calls(Mixture(weights, shifts), NULL, epsilons)
    truth = [scanned(family, weights, shifts, math.exp(epsilon))[0] for epsilon in epsilons]
    assert found.upper == pytest.approx(truth, abs=1e-6)
    assert bool((found.lower >= found.upper * (1 - 1e-10) - 1e-15).all())


def _exactly(family, weights, shifts, epsilon):
    """(3) of proofs/pairs.md to 40 digits: y_j by closed forms, the best t by bisection of the sum's slope."""
    with mpmath.workdps(40):
        p, s = [mpmath.mpf(w) for w in weights[1:]], [mpmath.mpf(shift) for shift in shifts[1:]]
        rest, level, g = 1 - sum(p), mpmath.mpf(epsilon), mpmath.exp(mpmath.mpf(epsilon))
        if family is GAUSSIAN:
            tail, ratio = (lambda x: mpmath.erfc(x / mpmath.sqrt(2)) / 2), (lambda x, d: mpmath.exp(d * x - d * d / 2))
            own = [level / d + d / 2 for d in s]
        else:
            tail = lambda x: mpmath.exp(-x) / 2 if x > 0 else 1 - mpmath.exp(x) / 2  # noqa: E731
            ratio = lambda x, d: mpmath.exp(abs(x) - abs(x - d))  # noqa: E731
            own = [(level + d) / 2 if level < d else mpmath.inf for d in s]
        low, high = mpmath.mpf(0), s[-1] + (60 if family is GAUSSIAN else 0)
        for _ in range(140):
            middle = (low + high) / 2
            rises = sum(w * max(ratio(middle, d) - g, 0) for w, d in zip(p, s, strict=True)) < (g - 1) * rest
            low, high = (middle, high) if rises else (low, middle)
        y = [max(low, one) for one in own]
        found = [w * (tail(one - d) - g * tail(one)) for w, d, one in zip(p, s, y, strict=True) if one < mpmath.inf]
        return sum(found) - (g - 1) * rest * tail(low)


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
@pytest.mark.parametrize(("weights", "shifts"), [*SHAPES, ((1.0 - 1e-7, 1e-7 - 1e-12, 1e-12), (0.0, 3.0, 6.0))])
@pytest.mark.parametrize("epsilon", thinned([1e-8, 1e-3, 0.1, 0.4, 1.1, 3.0, 11.0], every=4))
def test_the_exact_profile_lies_within_the_bracket(family, weights, shifts, epsilon):
    found = Displaced(family).calls(Mixture(weights, shifts), NULL, np.array([epsilon]))
    truth = _exactly(family, weights, shifts, epsilon)
    if float(epsilon) >= Displaced(family).largest_loss(Mixture(weights, shifts), NULL):
        truth = mpmath.mpf(0)  # from the largest loss on the best half-line is empty
    assert mpmath.mpf(float(found.lower[0])) <= truth <= mpmath.mpf(float(found.upper[0]))
    assert float(found.upper[0] - found.lower[0]) <= 1e-9 * float(truth) + 1e-290


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
@pytest.mark.parametrize("weight", thinned([0.1, 1e-7, 0.9], every=2))
def test_one_unit_has_the_mixture_in_its_worse_direction(family, weight):
    two, epsilons = Mixture((1.0 - weight, weight), (0.0, 1.2)), np.array([0.0, 1e-9, 1e-3, 0.1, 0.5, 1.0, 3.0])
    ours, plain = Displaced(family).calls(two, NULL, epsilons), family.calls(two, NULL, epsilons)
    for end in ("lower", "upper", "tail"):
        assert getattr(ours, end) == pytest.approx(getattr(plain, end), rel=1e-8, abs=1e-280)


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
@pytest.mark.parametrize(("weights", "shifts"), thinned(SHAPES, every=2))
def test_every_tangent_lies_below_the_profile(family, weights, shifts):
    points = np.linspace(0.0, 3.0, 61)
    found = Displaced(family).calls(Mixture(weights, shifts), NULL, points)
    lines = found.lower[:, None] - found.tail[:, None] * np.expm1(points[None, :] - points[:, None])
    assert bool((lines <= found.upper[None, :] * (1 + 1e-12) + found.doubt[:, None] * np.exp(3.0)).all())


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
@pytest.mark.parametrize("level", thinned([1.0, 1.05, 1.3, 2.0], every=2))
def test_a_query_of_that_sensitivity_attains_the_profile(family, level):
    # Three units out of seven, a sample of three: the query's values at samples with j of the unit's old or new records.
    weights, shifts = hypergeometric(7, 3, 3), (0.0, 1.0, 2.0, 3.0)
    h, t, y = scanned(family, weights, shifts, level)
    steps = np.diff([t if level > 1.0 else y[0], *y])
    assert -1e-9 <= steps.min() <= steps.max() <= 1.0
    old, new = [t - y_j + j for j, y_j in enumerate(y, 1)], [t - y_j for y_j in y]
    # So neighbouring samples' values differ by at most 1 for each replaced record.
    for (i, first), (j, second) in itertools.product(enumerate(old, 1), enumerate(new, 1)):
        assert abs(first - second) <= max(i, j) + 1e-9
    laws = [sum(w * noise_density(family, [c], [LINE]) for w, c in zip(weights, (0.0, *moved), strict=True)) for moved in (old, new)]
    assert divergence(*laws, level, [LINE]) == pytest.approx(h, abs=3 * QUADRATURE)
    assert bound(group_leaf(family, 3, 7, 3, "replace_one"), level) == pytest.approx(h, abs=1e-6)


def test_a_unit_against_equal_others_does_not_dominate_a_replaced_group():
    weights = hypergeometric(7, 3, 3)
    mixture = Mixture((1.0 - math.fsum(weights[1:]), *weights[1:]), (0.0, 1.0, 2.0, 3.0))
    assert bound(group_leaf(GAUSSIAN, 3, 7, 3, "replace_one"), 1.0) > 1.01 * float(GAUSSIAN.calls(mixture, NULL, np.zeros(1)).upper[0])


def test_two_releases_with_changing_worst_neighbours_stay_below_their_composition():
    weights = hypergeometric(7, 3, 3)
    event = Grouped(size=3, unit="user", event=Repeated(count=2, event=sampled(3, 7, 1.0)))
    answer = accountants.profile(event, "fft")
    for level in (1.2, 2.0):
        _, t, y = scanned(GAUSSIAN, weights, (0.0, 1.0, 2.0, 3.0), level)
        old, new = (0.0, *(t - y_j + j for j, y_j in enumerate(y, 1))), (0.0, *(t - y_j for y_j in y))
        first, second = (
            sum(w * noise_density(GAUSSIAN, [c], [PLANE]) for w, c in zip(weights, moved, strict=True)) for moved in (old, new)
        )
        for there, here in ((first, second), (second, first)):
            together = divergence(np.multiply.outer(first, there), np.multiply.outer(second, here), level, [PLANE, PLANE])
            assert together <= answer.delta(math.log(level)).upper + 1e-3


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
@pytest.mark.parametrize(
    ("distance", "order", "loose"),
    thinned([(0.5, 2.0, 1.06), (0.5, 5.0, 1.06), (40.0, 1.05, 1.06), (80.0, 1.2, 1.06), (40.0, 3.5, 2.0)], every=3),
)
def test_moments_bound_the_integral_of_the_profile(family, distance, order, loose):
    # 1 + p (p - 1) int (g^(p - 2) + g^(-p - 1)) h(g) dg, far beyond the exponents that floats hold.
    pair = Pair(Displaced(family), Mixture((0.9, 0.08, 0.02), (0.0, distance, 2.0 * distance)), NULL, worst_of_both=True)
    end = 2.0 * distance * (2.0 * distance * order + 12.0 if family is GAUSSIAN else 1.0)
    epsilons = np.linspace(0.0, end, 40_001)
    with np.errstate(divide="ignore"):
        terms = np.log(calls(pair, epsilons).lower) + np.logaddexp((order - 1.0) * epsilons, -order * epsilons)
    terms[0] -= math.log(2.0)  # the trapezoid rule, which is at or above a convex function's integral
    integral = special.logsumexp(terms) + math.log(order * (order - 1.0) * epsilons[1])
    truth = float(np.logaddexp(0.0, integral)) / (order - 1.0)
    assert truth * (1.0 - 1e-4) <= pair_renyi(pair, order) <= loose * truth


# -- the table, events, routes -------------------------------------------------------------------------------------------------------


def sampled(sample, population, std, adjacency="replace_one"):
    return FixedSizeSampled(sample_size=sample, population_size=population, event=gaussian(std, adjacency=adjacency))


def test_everybody_in_the_sample_is_a_whole_release_of_the_group():
    assert pair_of(group_leaf(GAUSSIAN, 5, 5, 3, "replace_one")).distance == 3.0
    assert pair_of(group_leaf(GAUSSIAN, 5, 5, 3, "zero_out")).distance == 3.0
    assert pair_of(group_leaf(GAUSSIAN, 5, 5, 3, "add_remove")).distance == 6.0


def test_a_group_of_one_is_a_unit():
    event = sampled(3, 20, 2.0)
    single, group = (accountants.profile(one).epsilon(1e-4) for one in (event, Grouped(size=1, unit="user", event=event)))
    assert single == group


@pytest.mark.parametrize(("adjacency", "moved"), [("replace_one", 3.0), ("zero_out", 3.0), ("add_remove", 6.0)])
def test_beyond_what_is_amplified_the_whole_release_is_the_bound(adjacency, moved):
    pair = pair_of(group_leaf(GAUSSIAN, 5, 50, 3, adjacency, 1e3))
    assert (pair.distance, pair.is_whole) == (1e3 * moved, adjacency != "add_remove")


def test_atoms_of_laplace_noise_are_on_the_grid():
    noise = laplace(0.25, adjacency="replace_one")
    event = FixedSizeSampled(sample_size=10, population_size=100, event=noise)
    found = accountants.profile(Grouped(size=2, unit="user", event=Repeated(count=5, event=event)), "fft").epsilon(1e-5)
    assert found.lower <= found.upper <= found.lower * (1 + 1e-6)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one", "zero_out"])
def test_routes_agree_and_larger_groups_cost_more(adjacency):
    def answers(size, count, names):
        event = Grouped(size=size, unit="user", event=Repeated(count=count, event=sampled(3, 200, 2.0, adjacency)))
        return [accountants.profile(event, name).epsilon(1e-5) for name in names]

    one, fft = answers(3, 1, ("single", "fft"))
    assert fft.lower <= one.lower <= one.upper <= fft.upper <= one.lower * (1 + 1e-5)
    auto, renyi = answers(3, 60, ("auto", "rdp"))
    assert auto.upper <= auto.lower * (1 + 1e-4)
    assert auto.upper <= renyi.upper <= 1.5 * auto.upper
    (smaller,) = answers(2, 60, ("auto",))
    assert smaller.upper < auto.lower


def test_a_group_of_whole_numbers_is_mixed_under_add_remove_only():
    def reason(adjacency):
        noise = DiscreteGaussian(scale=3.0, moves=1, adjacency=adjacency, unit="record")
        return unsupported_reason(Leaf(0.1, noise, "fixed_size", 2, sizes=Sizes(1, 10)))

    assert reason("add_remove") is None
    assert "groups with samples of a fixed size under replace_one" in (reason("replace_one") or "")


def test_too_large_groups_are_refused():
    assert "more than 1000 units" in (unsupported_reason(group_leaf(LAPLACE, 5, 9000, LARGEST_SAMPLED_GROUP + 1, "zero_out")) or "")


def test_only_groups_carry_sizes():
    (single,) = leaves(sampled(3, 20, 2.0))
    (group,) = leaves(Grouped(size=2, unit="user", event=sampled(3, 20, 2.0)))
    assert (single.sizes, group.sizes) == (None, Sizes(3, 20))
