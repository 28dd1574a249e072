"""Dominating pairs against what sampling really does: small data sets whose every sample is listed, and sums of their records."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import special

from tests.accountants.events import fixed_size
from tests.selection import thinned
from zetadp import accountants
from zetadp.accountants.densities import GAUSSIAN, LAPLACE
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.dominating import LARGEST_SAMPLED_GROUP, pair_of, unsupported_reason
from zetadp.accountants.leaf import Leaf, Truncation
from zetadp.accountants.pairs import Pair
from zetadp.mechanisms import ComplexGaussian, Gaussian, Laplace, Sensitivity, UnsupportedEvent

STEP = 0.0125
LINE = np.arange(-40.0, 40.0, STEP) + STEP / 2
PLANE = np.arange(-14.0, 14.0, 0.07)
LEVELS = [1.0, 1.3, 2.0, 5.0]
QUADRATURE = 1e-4
"""The midpoint rule's error at the kinks of (p - g q)_+ on these grids."""

FAMILIES = [GAUSSIAN, LAPLACE]
NULL = Mixture((1.0,), (0.0,))


class _Spherical:
    """A mechanism of another kind of noise, as far as a leaf needs one."""

    kind = "spherical"
    CAN_BE_SAMPLED = True

    def privacy_loss(self):
        return None


def leaf(family, probability=1.0, scheme="poisson", group=1, adjacency="add_remove", move=1.0, contribution=None, truncation=None):
    """A release of noise of scale 1 whose move has length ``move`` in the noise's own norm."""
    norm = "l1" if family is LAPLACE else "l2"
    bounds = {norm: move} | ({} if contribution is None else {f"{norm}_contribution": contribution})
    sensitivity = Sensitivity(adjacency=adjacency, unit="record", **bounds)
    noise = Laplace(scale=1.0, sensitivity=sensitivity) if family is LAPLACE else Gaussian(std=1.0, sensitivity=sensitivity)
    return Leaf(probability, noise, scheme, group, None if truncation is None else Truncation(*truncation))


# -- what sampling does --------------------------------------------------------------------------------------------------------------


def poisson_law(family, records, probability, axes):
    """Density of the noisy sum over a Poisson sample; records of shape (n, dimension)."""
    law = 0.0
    for chosen in itertools.product((0, 1), repeat=len(records)):
        weight = math.prod(probability if c else 1 - probability for c in chosen)
        law = law + weight * noise_density(family, np.array(chosen) @ records, axes)
    return law


def fixed_size_law(family, records, size, axes):
    samples = list(itertools.combinations(range(len(records)), size))
    return sum(noise_density(family, records[list(sample)].sum(axis=0), axes) for sample in samples) / len(samples)


def truncated_law(family, records, probability, most, axes):
    """Density of the noisy sum over a Poisson sample of which at most ``most`` records are used, uniformly."""
    law = 0.0
    for chosen in itertools.product((0, 1), repeat=len(records)):
        weight = math.prod(probability if c else 1 - probability for c in chosen)
        sample = records[np.array(chosen, dtype=bool)]
        law = law + weight * (
            fixed_size_law(family, sample, most, axes) if len(sample) > most else noise_density(family, sample.sum(axis=0), axes)
        )
    return law


def noise_density(family, centre, axes):
    one = (lambda x: np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi)) if family is GAUSSIAN else (lambda x: 0.5 * np.exp(-np.abs(x)))
    factors = [one(axis - c) for axis, c in zip(axes, centre, strict=True)]
    return factors[0] if len(factors) == 1 else np.multiply.outer(*factors)


def divergence(first, second, level, axes):
    cell = math.prod(axis[1] - axis[0] for axis in axes)
    return float(np.maximum(first - level * second, 0.0).sum() * cell)


def both_orders(first, second, level, axes):
    return max(divergence(first, second, level, axes), divergence(second, first, level, axes))


def profile(pair: Pair, level):
    if pair.crowded is not None:
        share = pair.crowded.probability
        return (1.0 - share) * profile(pair.uncrowded, level) + share * profile(pair.crowded.pair, level)
    return _whole_profile(pair, level)


def _whole_profile(pair: Pair, level):
    """The larger of both orders of a pair, by the distribution functions beyond the level's threshold (no grid)."""
    return max(_one_sided(pair, level), 1.0 - level + level * _one_sided(pair, 1.0 / level))


def _one_sided(pair: Pair, level):
    # The ratio never decreases, so a half-line is the best event: found by a fine scan.
    scan = np.linspace(-30.0, 30.0, 24_001)
    return float(np.max(_tails(pair.family, pair.upper, scan) - level * _tails(pair.family, pair.lower, scan)))


def _tails(family, mixture, t):
    def tail(x):
        return special.ndtr(-x) if family is GAUSSIAN else np.where(x > 0, 0.5 * np.exp(-np.abs(x)), 1 - 0.5 * np.exp(-np.abs(x)))

    return sum(weight * tail(t - shift) for weight, shift in zip(mixture.weights, mixture.shifts, strict=True))


# -- attained worst cases, one a row -------------------------------------------------------------------------------------------------

U = np.array([[1.0]])
ZERO = np.zeros((2, 1))


def _rows(family):
    def poisson(probability, first, second):
        return [poisson_law(family, np.array(r, dtype=float)[:, None], probability, [LINE]) for r in (first, second)]

    def fixed(size, first, second):
        return [fixed_size_law(family, np.array(r, dtype=float)[:, None], size, [LINE]) for r in (first, second)]

    return {
        "whole": (leaf(family), *poisson(1.0, [0, 1], [0])),
        "whole group": (leaf(family, group=3), *poisson(1.0, [1, 1, 1], [0])),
        "whole replaced": (leaf(family, adjacency="replace_one", move=2.0), *poisson(1.0, [1], [-1])),
        "poisson": (leaf(family, 0.3), *poisson(0.3, [0, 1], [0])),
        "poisson zeroed": (leaf(family, 0.3, adjacency="zero_out"), *poisson(0.3, [0, 1], [0, 0])),
        "poisson group": (leaf(family, 0.3, group=3), *poisson(0.3, [0, 1, 1, 1], [0])),
        "poisson replaced": (
            leaf(family, 0.3, adjacency="replace_one", move=2.0, contribution=1.0),
            *poisson(0.3, [0, 1], [0, -1]),
        ),
        "poisson group replaced": (
            leaf(family, 0.3, group=3, adjacency="replace_one", move=2.0, contribution=1.0),
            *poisson(0.3, [0, 1, 1, 1], [0, -1, -1, -1]),
        ),
        "fixed size": (leaf(family, 0.5, "fixed_size"), *fixed(2, [-1, -1, -1, 1], [-1, -1, -1])),
        "fixed size of all": (leaf(family, 1.0, "fixed_size"), *fixed(1, [1], [-1])),
        "fixed size replaced": (leaf(family, 0.5, "fixed_size", adjacency="replace_one"), *fixed(2, [0, 0, 0, 1], [0, 0, 0, 0])),
        "fixed size of all zeroed": (leaf(family, 1.0, "fixed_size", adjacency="zero_out"), *fixed(2, [1, 1], [1, 0])),
    }


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
@pytest.mark.parametrize("row", thinned(_rows(GAUSSIAN), every=4))
@pytest.mark.parametrize("level", LEVELS)
def test_the_pair_is_attained_by_a_data_set(family, row, level):
    found, first, second = _rows(family)[row]
    assert both_orders(first, second, level, [LINE]) == pytest.approx(profile(pair_of(found), level), abs=QUADRATURE)


# -- no data set does worse ----------------------------------------------------------------------------------------------------------


def _records(rng, family, number, longest):
    """Random plane vectors, of the full length and shorter ones, in the family's norm."""
    records = rng.normal(size=(number, 2))
    length = np.abs(records).sum(axis=1) if family is LAPLACE else np.linalg.norm(records, axis=1)
    return records / length[:, None] * longest * rng.choice([1.0, 1.0, rng.uniform()], size=(number, 1))


def _neighbours(rng, family, contribution, adjacency):
    """Four records, and the same without the last one, with another in its place, or with nothing."""
    records = _records(rng, family, 4, contribution)
    changed = {
        "add_remove": records[:-1],
        "replace_one": np.vstack([records[:-1], _records(rng, family, 1, contribution)]),
        "zero_out": np.vstack([records[:-1], np.zeros((1, 2))]),
    }
    return records, changed[adjacency]


def _worst_found(family, found, laws):
    """The largest excess of random data sets' divergence over the pair's, over all levels."""
    allowed = {level: profile(pair_of(found), level) for level in LEVELS}
    axes = [PLANE, PLANE]
    return max(both_orders(first, second, level, axes) - allowed[level] for first, second in laws for level in LEVELS)


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_no_user_with_several_records_exceeds_the_group_pair(family):
    rng, axes = np.random.default_rng(1), [PLANE, PLANE]

    def laws():
        for _ in range(6):
            others, own = _records(rng, family, 1, 3.0), _records(rng, family, 3, 1.5)
            yield poisson_law(family, np.vstack([others, own]), 0.4, axes), poisson_law(family, others, 0.4, axes)

    assert _worst_found(family, leaf(family, 0.4, group=3, move=1.5), laws()) <= 1e-3


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_no_replaced_record_exceeds_the_antipodal_pair(family):
    rng, axes = np.random.default_rng(2), [PLANE, PLANE]

    def laws():
        for _ in range(10):
            others, pair = _records(rng, family, 1, 3.0), _records(rng, family, 2, 1.5)
            yield tuple(poisson_law(family, np.vstack([others, one[None]]), 0.4, axes) for one in pair)

    found = leaf(family, 0.4, adjacency="replace_one", move=3.0, contribution=1.5)
    assert _worst_found(family, found, laws()) <= 1e-3


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_no_replaced_user_with_several_records_exceeds_the_antipodal_group_pair(family):
    # Members that pull together, against each other, and partly: all 16 subsets of one other record and three members, on both sides.
    rng, axes = np.random.default_rng(6), [PLANE, PLANE]
    u = np.array([1.5, 0.0])
    adversarial = [(u, u, u, -u, -u, -u), (u, u, -u, -u, -u, u), (u, 0.5 * u, 0 * u, 0 * u, -u, -u), (u, u, u, -u, -u, 0 * u)]

    def laws():
        for users in [*map(np.array, adversarial), *(_records(rng, family, 6, 1.5) for _ in range(5))]:
            others = _records(rng, family, 1, 3.0)
            yield tuple(poisson_law(family, np.vstack([others, one]), 0.4, axes) for one in (users[:3], users[3:]))

    found = leaf(family, 0.4, group=3, adjacency="replace_one", move=3.0, contribution=1.5)
    assert _worst_found(family, found, laws()) <= 1e-3


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
@pytest.mark.parametrize("adjacency", thinned(["add_remove", "replace_one", "zero_out"], every=2))
def test_no_data_set_exceeds_the_fixed_size_pair(family, adjacency):
    rng, axes = np.random.default_rng(3), [PLANE, PLANE]
    contribution = 1.5

    def laws():
        for _ in range(8):
            records, changed = _neighbours(rng, family, contribution, adjacency)
            yield fixed_size_law(family, records, 2, axes), fixed_size_law(family, changed, 2, axes)

    move = 2.0 * contribution if adjacency == "replace_one" else contribution
    assert _worst_found(family, leaf(family, 0.5, "fixed_size", adjacency=adjacency, move=move), laws()) <= 1e-3


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
@pytest.mark.parametrize("adjacency", thinned(["add_remove", "replace_one", "zero_out"], every=2))
@pytest.mark.parametrize("most", thinned([1, 2, 3], every=2))
def test_no_data_set_exceeds_the_pair_of_a_sample_that_is_cut(family, adjacency, most):
    rng, axes = np.random.default_rng(4), [PLANE, PLANE]
    contribution = 1.5

    def laws():
        for _ in range(4):
            records, changed = _neighbours(rng, family, contribution, adjacency)
            yield tuple(truncated_law(family, one, 0.6, most, axes) for one in (records, changed))

    bounds = {"move": 2.0 * contribution, "contribution": contribution} if adjacency == "replace_one" else {"move": contribution}
    found = leaf(family, 0.6, "truncated_poisson", adjacency=adjacency, truncation=(most, 4), **bounds)
    assert _worst_found(family, found, laws()) <= 1e-3


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_a_poisson_sample_that_is_cut_is_less_private_than_one_that_is_not(family):
    # Nine records pull one way and the tenth the other, which displaces one of them in a sample of at most two.
    first, second = (truncated_law(family, np.array([[-1.0]] * 9 + [[1.0]] * n), 0.3, 2, [LINE]) for n in (1, 0))
    reached = both_orders(first, second, 1.3, [LINE])
    assert profile(pair_of(leaf(family, 0.3)), 1.3) < reached - 10.0 * QUADRATURE
    assert reached <= profile(pair_of(leaf(family, 0.3, "truncated_poisson", truncation=(2, 10))), 1.3)


def test_a_sample_that_is_never_cut_is_a_poisson_sample_and_one_that_always_is_has_a_fixed_size():
    assert pair_of(leaf(GAUSSIAN, 0.3, "truncated_poisson", truncation=(10, 10))) == pair_of(leaf(GAUSSIAN, 0.3))
    assert pair_of(leaf(GAUSSIAN, 0.3, "truncated_poisson", truncation=(2, 100))) == pair_of(leaf(GAUSSIAN, 0.3, "fixed_size"))


def test_zeroing_a_record_of_a_fixed_size_sample_is_worse_than_the_whole_move():
    # The case against a shift of m only: the others at -1, the unit at 1 or 0.
    records = np.array([[-1.0], [-1.0], [-1.0], [1.0]])
    first, second = (
        fixed_size_law(GAUSSIAN, records, 1, [LINE]),
        fixed_size_law(GAUSSIAN, records * [[1], [1], [1], [0]], 1, [LINE]),
    )
    single = Pair(GAUSSIAN, Mixture((0.75, 0.25), (0.0, 1.0)), NULL, worst_of_both=True)
    found = both_orders(first, second, 1.3, [LINE])
    assert found > profile(single, 1.3) + 10 * QUADRATURE
    assert found <= profile(pair_of(leaf(GAUSSIAN, 0.25, "fixed_size", adjacency="zero_out")), 1.3) + QUADRATURE


def test_the_difference_alone_does_not_bound_a_replaced_record_of_a_poisson_sample():
    # Two records near each other and far from nothing: the pair (0.6, 0.4) at (0, m) is exceeded, hence the contribution is asked for.
    first, second = (poisson_law(GAUSSIAN, np.array([[10.0 + x]]), 0.4, [LINE]) for x in (0.0, 1.0))
    naive = Pair(GAUSSIAN, Mixture((0.6, 0.4), (0.0, 1.0)), NULL, worst_of_both=True)
    assert both_orders(first, second, 2.0, [LINE]) > profile(naive, 2.0) + 10 * QUADRATURE


# -- against the peer ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("probability", "size", "std"), thinned([(0.2, 4, 3.0), (0.01, 1, 1.0)], every=2))
def test_groups_agree_with_dp_accountings_mixture_of_gaussians(probability, size, std):
    from dp_accounting.pld import privacy_loss_distribution as library

    weights = [math.comb(size, j) * probability**j * (1 - probability) ** (size - j) for j in range(size + 1)]
    peer = library.from_mixture_gaussian_mechanism(std, list(range(size + 1)), weights, value_discretization_interval=1e-3)
    found = pair_of(leaf(GAUSSIAN, probability, group=size, move=1.0 / std))
    for epsilon in (0.1, 0.5, 1.0):
        assert peer.get_delta_for_epsilon(epsilon) == pytest.approx(profile(found, math.exp(epsilon)), rel=1e-3, abs=1e-7)


@pytest.mark.parametrize("epsilon", thinned([1.0, 0.1, 3.0], every=3))
@pytest.mark.parametrize(("probability", "std"), thinned([(0.01, 1.0), (0.3, 0.7), (1.0, 2.0)], every=2))
def test_replaced_records_agree_with_dp_accountings_replace_one(probability, std, epsilon):
    from dp_accounting.pld import privacy_loss_distribution as library
    from dp_accounting.privacy_accountant import NeighboringRelation

    peer = library.from_gaussian_mechanism(
        std, sampling_prob=probability, neighboring_relation=NeighboringRelation.REPLACE_ONE, value_discretization_interval=1e-4
    )
    c = 1.0 / std
    found = pair_of(leaf(GAUSSIAN, probability, adjacency="replace_one", move=2 * c, contribution=c))
    assert peer.get_delta_for_epsilon(epsilon) == pytest.approx(profile(found, math.exp(epsilon)), rel=1e-3, abs=1e-7)


# -- the table, refusals, rounding ---------------------------------------------------------------------------------------------------


def test_complex_noise_uses_its_own_length_and_drops_the_parts_bounds_for_contributions():
    sensitivity = Sensitivity(l2=2.0, l2_real=0.1, l2_contribution=1.0, adjacency="replace_one", unit="record")
    noise = ComplexGaussian(std=1.0, correlation=0.5, sensitivity=sensitivity)
    pair = pair_of(Leaf(0.25, noise))
    assert pair.upper.shifts[1] == pytest.approx(math.sqrt(2.0), rel=1e-15)
    assert pair.symmetric


@pytest.mark.parametrize(
    ("found", "text"),
    thinned(
        [
            (leaf(GAUSSIAN, 0.1, adjacency="replace_one"), "needs sensitivity.l2_contribution, a bound on what one unit alone adds"),
            (leaf(LAPLACE, 0.1, adjacency="replace_one"), "needs sensitivity.l1_contribution"),
            (leaf(GAUSSIAN, 0.1, group=2, adjacency="replace_one"), "needs sensitivity.l2_contribution"),
            (leaf(GAUSSIAN, 0.1, "random_allocation", group=21), "groups of more than 20 with random allocation"),
            (leaf(GAUSSIAN, 0.1, group=LARGEST_SAMPLED_GROUP + 1), "more than 1000 units"),
            (Leaf(0.1, _Spherical()), "spherical noise is neither Gaussian nor Laplace"),
        ],
        every=2,
    ),
)
def test_what_is_not_proved_is_refused_with_the_reason(found, text):
    assert text in (unsupported_reason(found) or "")
    with pytest.raises(UnsupportedEvent, match=r"dominating pair can't bound this event"):
        pair_of(found)


@pytest.mark.parametrize(
    ("sample", "std", "count", "delta", "per_component", "over_both"),
    [
        (5, 0.61, 4000, 1e-5, (82.14, 82.18), (261.7, 261.8)),
        (63, 5.0, 1587, 5e-4, (3.569, 3.577), (5.795, 5.803)),
        (9, 1.0, 556, 1e-5, (9.888, 9.891), (29.58, 29.58)),
        (1, 1.1, 10_000, 1e-5, (3.501, 3.551), (14.51, 14.56)),
    ],
)
def test_fixed_size_samples_cost_what_the_errata_found(sample, std, count, delta, per_component, over_both):
    # Errata Z12 and Z14, columns C and D (a total deviation sigma is sigma / sqrt(2) per component); printed to four digits.
    for deviation, (low, high) in ((std, per_component), (std / math.sqrt(2.0), over_both)):
        bound = accountants.profile(fixed_size(sample, 1000, deviation, count)).epsilon(delta)
        assert low * (1 - 5e-4) <= bound.lower <= bound.upper <= high * (1 + 5e-4)
