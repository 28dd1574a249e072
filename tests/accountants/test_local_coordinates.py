"""Local Laplace releases of many coordinates: as many releases of one, which is exact; what is a sample, and what else stays whole."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import pytest

from tests.accountants.laplace_truth import product_delta, record, repeated_laplace_delta
from tests.accountants.two_point_truth import laplace_delta
from tests.mechanisms.local import duchi, local_gaussian, local_laplace
from tests.selection import chosen, thinned
from zetadp.accountants import (
    Composed,
    FixedSizeSampled,
    Grouped,
    Leaf,
    PoissonSampled,
    Release,
    Repeated,
    accountant_named,
    calibrate_scale,
    leaves,
    profile,
    releases,
)
from zetadp.accountants.calibration.scaling import scaled
from zetadp.accountants.dominating import pair_of
from zetadp.accountants.events import LARGEST_COUNT
from zetadp.accountants.filters import Filter, PureBudget
from zetadp.accountants.filters.spends import pure_cost, zcdp_cost
from zetadp.accountants.routes.rdp.rdp import leaf_steps
from zetadp.mechanisms import Adjacency, SpofCoefficients

ROWS = [1, 10, 31, 50]


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(24):
        yield


def spof(dimension, epsilon):
    return Release(mechanism=SpofCoefficients.for_epsilon(dimension, 0.0, 2.5, epsilon, "record"))


def rows(count, event):
    return Grouped(size=count, unit="user", event=event)


@pytest.mark.parametrize("make", [record, lambda e, n: spof(n, e)], ids=["local_laplace", "spof"])
def test_a_record_of_n_coordinates_is_n_leaves_of_one(make):
    event = make(1.0, 14)
    ((leaf, count),) = leaves(event).items()
    assert (leaf.mechanism.dimension, leaf.probability, leaf.group, count) == (1, 1.0, 1, 14)
    assert pair_of(leaf).distance == pytest.approx(1.0 / 14.0, rel=1e-15)
    assert leaf.mechanism.noise_scale == event.mechanism.noise_scale
    assert list(releases(event).items()) == [(Leaf(1.0, event.mechanism), 1)]


def test_users_rounds_and_coordinates_multiply():
    event = rows(5, Repeated(count=3, event=record(1.0, 14)))
    assert list(leaves(event).values()) == [5 * 3 * 14]
    assert list(releases(event).values()) == [5 * 3]


def test_coordinates_of_equal_noise_are_counted_together_whatever_record_they_are_of():
    event = Composed(events=(record(1.0, 14), record(2.0, 28), record(1.0, 7)))
    assert list(leaves(event).values()) == [14 + 28, 7]


PRODUCTS = [(epsilon, dimension, share) for share in (0.0, 0.3, 0.9) for epsilon, dimension in ((0.5, 2), (3.0, 2), (1.0, 3))]


# Three coordinates' exact product takes seconds, least where little of it is left.
@pytest.mark.parametrize(("epsilon", "dimension", "share"), chosen(PRODUCTS, [one for one in PRODUCTS if one[1] == 2 or one[2] == 0.9]))
def test_delta_is_that_of_the_product_of_coordinates(epsilon, dimension, share):
    t = share * epsilon
    bound = profile(record(epsilon, dimension)).delta(t)
    exact = mpmath.log(product_delta([epsilon / dimension] * dimension)(mpmath.mpf(t)))
    assert bound.log_lower <= exact <= bound.log_upper
    assert bound.log_upper - bound.log_lower < 1e-11


def test_fourteen_coordinates_hide_as_much_as_their_exact_sum_says():
    bound = profile(record(1.0, 14)).epsilon(1e-5)
    assert repeated_laplace_delta(1.0 / 14.0, 14, bound.upper) <= 1e-5
    assert repeated_laplace_delta(1.0 / 14.0, 14, bound.lower) > 1e-5
    assert bound.upper - bound.lower <= 1e-12


@pytest.mark.parametrize("moves", [(0.4, 0.4, 0.4), (0.4, 0.4), (0.4, 0.2), (0.2, 0.2, 0.2), (0.4,)])
@pytest.mark.parametrize("t", chosen([0.0, 0.15, 0.5], [0.5]))
def test_no_two_records_of_the_box_are_easier_to_tell_apart(moves, t):
    """In either order: the pair of smaller moves is symmetric, too."""
    claimed = profile(Release(mechanism=local_laplace(3, scale=2.5))).delta(t)
    assert product_delta(list(moves))(mpmath.mpf(t)) <= claimed.upper


def test_the_product_is_never_above_one_coordinate_that_moves_by_all_of_it():
    for t in (0.0, 0.2, 0.6, 0.9):
        assert profile(record(1.0, 14)).delta(t).upper < laplace_delta(1.0)(mpmath.mpf(t))


@pytest.mark.parametrize(("count", "epsilon"), list(zip(ROWS, [0.8818065932654563, 3.5167078, 6.8542192, 9.1615559], strict=True)), ids=str)
def test_figures_of_records_of_fourteen_numbers_at_epsilon_one(count, epsilon):
    """One coordinate moved by all fourteen had 0.99998, 9.98996, 27.2168 and 39.5788."""
    bound = profile(rows(count, record(1.0, 14))).epsilon(1e-5)
    assert bound.lower <= epsilon * (1.0 + 2e-7)
    assert bound.upper == pytest.approx(epsilon, rel=1e-6)
    renyi = accountant_named("rdp").profile(rows(count, record(1.0, 14))).epsilon(1e-5).upper
    assert bound.upper <= renyi <= 1.25 * bound.upper


def test_more_rows_more_coordinates_and_less_noise_cost_more():
    by_rows = [profile(rows(k, record(1.0, 14))).epsilon(1e-5).upper for k in (1, 2, 3, 4, 10, 31)]
    assert all(fewer < more for fewer, more in itertools.pairwise(by_rows))
    by_dimension = [profile(Release(mechanism=local_laplace(n, scale=10.0))).epsilon(1e-5).upper for n in (1, 2, 3, 14, 47, 48, 100)]
    assert all(fewer < more for fewer, more in itertools.pairwise(by_dimension))
    by_noise = [profile(scaled(record(1.0, 14), factor)).epsilon(1e-5).upper for factor in (4.0, 1.0, 0.5, 0.1)]
    assert all(more < less for more, less in itertools.pairwise(by_noise))


@pytest.mark.parametrize("dimension", thinned([1, 2, 14, 49, 500], every=3))
@pytest.mark.parametrize("delta", thinned([1e-5, 1e-50, 1e-250], every=2))
@pytest.mark.parametrize("count", [1, 7])
def test_epsilon_never_exceeds_the_pure_epsilon_and_reaches_it(dimension, delta, count):
    event = rows(count, record(0.7, dimension)) if count > 1 else record(0.7, dimension)
    bound = profile(event).epsilon(delta)
    assert bound.upper <= 0.7 * count * (1.0 + 1e-13)
    if delta < 2.0 ** (-dimension * count) * 1e-9:
        assert bound.lower >= 0.7 * count * (1.0 - 1e-8)


@pytest.mark.parametrize("dimension", [1, 3, 14, 49, 1000])
def test_pure_costs_are_exactly_those_of_whole_records(dimension):
    event = spof(dimension, 0.25)
    assert pure_cost(event) == Fraction(event.mechanism.privacy_loss().epsilon) <= Fraction(1, 4)
    state = Filter.opened(PureBudget(epsilon=1.0), Adjacency.REPLACE_ONE, "record")
    for _ in range(4):
        state = state.spend(event)
    assert not state.admits(spof(1, 1e-10))


def test_other_budgets_take_what_the_coordinates_cost():
    assert zcdp_cost(record(1.0, 14)) == pytest.approx(0.5 / 14.0, rel=1e-14)


def test_the_parts_never_promise_less_than_the_whole_epsilon():
    for dimension in (3, 7, 14, 49, 1000):
        event = record(0.1, dimension)
        ((leaf, count),) = leaves(event).items()
        assert count * Fraction(leaf.mechanism.privacy_loss().epsilon) >= Fraction(event.mechanism.sensitivity.l1) / Fraction(
            event.mechanism.scale
        )


def test_a_larger_stated_sensitivity_is_spread_over_the_coordinates():
    stated = Release(mechanism=local_laplace(14, scale=14.0, l1=28.0))
    assert profile(stated).epsilon(1e-5) == profile(record(2.0, 14)).epsilon(1e-5)


def test_a_sample_shows_a_record_as_a_whole():
    sampled = PoissonSampled(probability=0.5, event=record(1.0, 14))
    assert leaves(sampled) == releases(sampled) == {Leaf(0.5, record(1.0, 14).mechanism): 1}
    assert pair_of(next(iter(leaves(sampled)))).distance == 1.0
    fixed = FixedSizeSampled(sample_size=10, population_size=100, event=record(1.0, 14))
    assert leaves(fixed) == releases(fixed)
    assert profile(sampled).delta(1.0 - 1e-9).lower > 0.0


@pytest.mark.parametrize(
    "everyone",
    [
        PoissonSampled(probability=1.0, event=record(1.0, 14)),
        FixedSizeSampled(sample_size=9, population_size=9, event=record(1.0, 14)),
    ],
    ids=lambda event: event.kind,
)
def test_a_sample_of_everyone_is_the_whole(everyone):
    assert profile(everyone).epsilon(1e-5) == profile(record(1.0, 14)).epsilon(1e-5)
    assert profile(rows(3, everyone)).epsilon(1e-5) == profile(rows(3, record(1.0, 14))).epsilon(1e-5)


@pytest.mark.parametrize("mechanism", [duchi(14, 1.0), duchi(3, 1.0), local_gaussian(14)], ids=lambda m: m.kind)
def test_releases_whose_coordinates_are_one_leaf_stay_so(mechanism):
    assert list(leaves(rows(4, Release(mechanism=mechanism))).items()) == [(Leaf(1.0, mechanism), 4)]


def test_more_coordinates_than_can_be_counted_stay_a_record():
    event = Repeated(count=10**12, event=record(1.0, 10**4))
    assert list(leaves(event).items()) == [(Leaf(1.0, record(1.0, 10**4).mechanism), 10**12)]
    fits = Repeated(count=10**11, event=record(1.0, 10**4))
    assert list(leaves(fits).values()) == [LARGEST_COUNT]
    both = Composed(events=(fits, Repeated(count=1, event=record(2.0, 2 * 10**4))))
    assert sorted(leaves(both).values()) == [1, LARGEST_COUNT]


@pytest.mark.parametrize(("dimension", "count"), [(10**5, 1), (14, 1000), (784, 60)])
def test_long_records_and_many_rows_are_answered(dimension, count):
    event = Repeated(count=count, event=record(1.0, dimension))
    bound = profile(event).epsilon(1e-5)
    # The central limit: mu^2 is the sum of the variances of the losses, about e^2 each.
    mu = math.sqrt(count / dimension)
    exact = mpmath.findroot(lambda t: mpmath.ncdf(mu / 2 - t / mu) - mpmath.exp(t) * mpmath.ncdf(-mu / 2 - t / mu) - 1e-5, bound.upper)
    assert bound.upper == pytest.approx(float(exact), rel=0.02)
    assert bound.upper - bound.lower <= 1e-5 * bound.upper


@pytest.mark.parametrize("count", [1, 10, 50])
def test_calibrated_noise_for_a_users_rows_meets_its_target_and_less_would_not(count):
    factor = calibrate_scale(rows(count, record(1.0, 14)), epsilon=2.0, delta=1e-5)
    assert profile(scaled(rows(count, record(1.0, 14)), factor)).epsilon(1e-5).upper <= 2.0
    assert profile(scaled(rows(count, record(1.0, 14)), factor * (1.0 - 1e-6))).epsilon(1e-5).lower > 2.0
    assert factor < 0.5 * count + 0.5


def test_at_a_delta_next_to_nothing_calibration_gives_the_pure_scale():
    factor = calibrate_scale(record(1.0, 14), epsilon=0.25, delta=1e-250)
    assert factor == pytest.approx(4.0, rel=3e-7)
    assert pure_cost(scaled(record(1.0, 14), factor)) <= Fraction(1, 4) * (1 + Fraction(1, 10**12))


def test_derivations_say_that_coordinates_are_counted():
    whole = {step.formula for step in leaf_steps(leaves(record(1.0, 14))) if step.symbol == "T"}
    assert whole == {"times released: every coordinate of every record separately"}
    assert profile(record(1.0, 14)).derivation()[-1].source == "accountants/proofs/lattice.md"
    sampled = leaf_steps(leaves(PoissonSampled(probability=0.5, event=record(1.0, 14))))
    assert [step.formula for step in sampled if step.symbol == "T"] == ["times released"]
