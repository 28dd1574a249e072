"""Moment functions of single releases, their decay and their errors, against 40 digits; each bound where it would break."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

import mpmath
import numpy as np
import pytest

from tests.accountants.engines import engine
from tests.accountants.references import ExactMoment, group, poisson, replaced, reverse
from tests.selection import thinned
from zetadp.accountants.densities import LAPLACE, loops, transforms
from zetadp.accountants.densities.heights import sum_on_line
from zetadp.accountants.densities.loops import Ratio, Spaced
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.densities.moments import laplace as laplace_transforms
from zetadp.accountants.densities.moments.laplace import MixedLaplace, WholeLaplace
from zetadp.accountants.densities.nodes import UNIT, Nodes
from zetadp.accountants.densities.transforms import MixedGaussian, TransformUnavailable

__all__ = ["engine"]
NULL = Mixture((1.0,), (0.0,))
ULP = 2.0 * UNIT


def gaussian(pair, count=100, improbable=60.0):
    return MixedGaussian(pair.upper, pair.lower, count, improbable)


PAIRS = {
    "remove": poisson(0.01, 1.0),
    "add": reverse(poisson(0.3, 0.7)),
    "sparse": poisson(1e-6, 2.0),
    "little noise": poisson(0.05, 1.8),
    "dense": poisson(0.9, 0.05),
    "replaced": replaced(0.1, 0.8),
    "group": group(0.02, 0.5, 4),
    "group added": reverse(group(0.2, 0.3, 3)),
}


# -- log of a mixture (R2) -----------------------------------------------------------------------------------------------------------


def two(weight, shift):
    return Mixture((1.0 - weight, weight), (0.0, shift))


@pytest.mark.parametrize(
    ("mixture", "x", "y"),
    [
        (two(0.01, 1.0), 0.7, 0.4),
        (two(1e-50, 3.0), 1.5, 0.3),
        (two(1e-50, 3.0), 90.0, 0.3),
        (two(0.2, 1.0), 400.0, 1.2),
        (two(0.2, 1.0), -400.0, 1.2),
        (two(1.0 - 1e-6, 2.0), -30.0, 0.2),
        (two(1.0 - 1e-13, 2.0), -40.0, 0.2),
        (two(0.3, 80.0), 40.0 + 1e-9, 0.01),
        (two(0.3, 1.0), 0.5, 0.0),
        (group(0.1, 0.2, 40).upper, 5.0, 0.1),
        (group(1e-9, 0.7, 3).upper, 2.0, 0.5),
        (reverse(poisson(1e-12, 5.0)).lower, -7.0, 0.25),
        (Mixture((1.0,), (3.0,)), 0.5, 0.7),
    ],
    ids=str,
)
def test_error_of_a_log_mixture_is_within_its_bound(mixture, x, y):
    # Against the standard normal law the loss is log A, or minus that the other way. A node whose weight is above -1 is kept.
    ratio, other, at = Ratio(mixture), Ratio(NULL), Spaced(x, 1.0, 1)
    is_upper = mixture.shifts[0] >= 0.0
    got = loops.line_nodes(ratio, other, at, y, 0.0, -1.0) if is_upper else loops.line_nodes(other, ratio, at, y, 0.0, -1.0)
    with mpmath.workdps(120):
        truth = exact_log(mixture, mpmath.mpc(x, y))
        error = abs(mpmath.mpc(complex(got.loss[0])) * (1 if is_upper else -1) - truth)
        assert error <= float(got.loss_error[0]) <= 1e-12 * max(1.0, abs(x)) * max(1.0, mixture.shifts[-1] ** 2) / least_weight(mixture)
        if y == 0.0:
            found = [float(ratio.log(np.array([x]))[0]), ratio.log_at(x)]
            assert max(abs(one - truth.real) for one in found) <= ratio.log_error(x - 1.0, x + 1.0)


def exact_log(mixture, z):
    base = min(range(len(mixture.shifts)), key=lambda j: abs(mixture.shifts[j]))
    weights = [mpmath.mpf(w) for w in mixture.weights]
    weights[base] = 1 - mpmath.fsum(weights[:base] + weights[base + 1 :])
    return mpmath.log(mpmath.fsum(w * mpmath.exp(a * z - mpmath.mpf(a) ** 2 / 2) for w, a in zip(weights, mixture.shifts, strict=True)))


def least_weight(mixture):
    """What A falls to where the base's weight is nearly all that is left."""
    return 1.0 - math.fsum(w for w, a in zip(mixture.weights, mixture.shifts, strict=True) if a != 0.0) if 0.0 in mixture.shifts else 1.0


def test_sparse_mixtures_keep_their_relative_accuracy():
    got = loops.line_nodes(Ratio(two(1e-50, 3.0)), Ratio(NULL), Spaced(1.0, 1.5, 3), 0.3, 0.0, -1.0)
    assert np.all(got.loss_error < 3e-14 * np.abs(got.loss))


# -- sums over nodes (R3) ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "number"), [(1e-3, 100), (0.7, 4000), (30.0, 200)])
@pytest.mark.parametrize("name", ["remove", "add", "sparse"])
def test_sums_at_many_heights_are_exact_but_for_their_stated_rounding(name, step, number):
    pair = PAIRS[name]
    nodes = gaussian(pair)._line_nodes(2.0, 1e-12)
    nothing = np.zeros(nodes.loss.size)
    nodes = Nodes(nodes.log_weight, nodes.loss, nothing, nothing, 0.0)
    line = sum_on_line(nodes, 2.0, step, number)
    with mpmath.workdps(30):
        for k in (0, 1, number // 3, number - 1):
            s = mpmath.mpc(2.0, mpmath.mpf(step) * k)
            terms = zip(nodes.log_weight.tolist(), nodes.loss.tolist(), strict=True)
            truth = mpmath.fsum(mpmath.exp(w) * mpmath.expm1(s * mpmath.mpc(loss)) for w, loss in terms)
            assert abs(truth - mpmath.mpc(complex(line.minus_one[k]))) <= float(line.error[k])


def test_rounding_of_a_sparse_release_stays_far_below_its_moment():
    line = gaussian(PAIRS["sparse"], count=10**6).line(1.0, 0.1, 4, 1e-18)
    assert line.error[1] < 1e-7 * abs(line.minus_one[1])


# -- moments, decay, lines -----------------------------------------------------------------------------------------------------------

TILTS = [0.03, 1.0, 12.0]
TILTED = thinned([(name, tilt) for tilt in TILTS for name in PAIRS], every=3)
"""By default each pair at one of the tilts: their truths take long to integrate."""


@cache
def exact(name, tilt):
    return ExactMoment(PAIRS[name].upper, PAIRS[name].lower, tilt)


@pytest.mark.parametrize(("name", "tilt"), thinned(TILTED, every=4))
def test_moment_bound_is_above_the_truth_and_close(name, tilt):
    bound = float(gaussian(PAIRS[name]).log_moment_upper(np.array([tilt, 2.0 * tilt]))[0])
    truth = float(mpmath.log1p(exact(name, tilt).minus_one(0).real))
    assert truth <= bound <= truth + 2e-5


@pytest.mark.parametrize(("name", "tilt"), thinned(TILTED, every=4))
def test_decay_bound_holds_at_every_greater_height(name, tilt):
    heights = np.array([0.3, 6.0, 120.0])
    bounds = np.minimum(*(gaussian(PAIRS[name]).log_decay(tilt, heights, shifts) for shifts in (1, 2)))
    for height, bound in zip(heights.tolist(), bounds.tolist(), strict=True):
        for factor in (1.0, 1.3, 6.0):
            assert float(mpmath.log(abs(1 + exact(name, tilt).minus_one(height * factor)))) <= bound


def test_decay_bound_is_of_use():
    """Of 1e4 releases nothing is left at a height that a contour reaches."""
    decay = gaussian(PAIRS["remove"], count=10_000).log_decay(1.0, np.array([5.0]))
    moment = gaussian(PAIRS["remove"], count=10_000).log_moment_upper(np.array([1.0]))
    assert 1e4 * float(decay[0]) < 1e4 * float(moment[0]) - 5.0


@pytest.mark.parametrize(("name", "tilt"), thinned(TILTED, every=4))
def test_line_is_within_its_error(name, tilt):
    line = gaussian(PAIRS[name]).line(tilt, 1.3, 200, 1e-10)
    for k in (0, 1, 10, 199):
        assert abs(exact(name, tilt).minus_one(mpmath.mpf(1.3) * k) - mpmath.mpc(complex(line.minus_one[k]))) <= float(line.error[k])


@pytest.mark.parametrize("name", PAIRS)
def test_coarse_quadrature_is_seen_and_within_its_bound(name):
    pair = PAIRS[name]
    coarse, fine = (gaussian(pair).line(1.5, 0.9, 50, tolerance) for tolerance in (1e-2, 1e-13))
    difference = np.abs(coarse.minus_one - fine.minus_one)
    assert float(difference.max()) > 1e-9
    assert np.all(difference <= coarse.error + fine.error)
    assert float(fine.error.max()) < 1e-10 * float(1.0 + abs(fine.minus_one[0]))


# -- the range of x (T1, Q3) ---------------------------------------------------------------------------------------------------------

SPARSE_AND_LARGE = poisson(1e-3, 0.05)


def cut_transform(tilt):
    transform = gaussian(SPARSE_AND_LARGE, improbable=45.0)
    transform.settle(tilt, 1.3 * tilt)
    assert transform.ends[0] < math.inf
    return transform


def test_what_is_left_out_is_bounded():
    transform = cut_transform(6000.0)
    with mpmath.workdps(30):
        upper = SPARSE_AND_LARGE.upper
        lost = mpmath.fsum(w * mpmath.ncdf(mpmath.mpf(a) - transform.ends[0]) for w, a in zip(upper.weights, upper.shifts, strict=True))
    assert 0.0 < lost <= math.exp(transform.log_left_out) < math.exp(-45.0)


@pytest.mark.parametrize("tilt", thinned([6000.0, 3000.0], every=2))
def test_bounds_of_a_cut_range_are_those_of_the_restricted_law(tilt):
    transform = cut_transform(tilt)
    moment = ExactMoment(SPARSE_AND_LARGE.upper, SPARSE_AND_LARGE.lower, tilt, transform.ends[0])
    truth = float(mpmath.log1p(moment.minus_one(0).real))
    assert truth <= float(transform.log_moment_upper(np.array([tilt]))[0]) <= truth + 2e-5
    line = transform.line(tilt, 70.0, 60, 1e-10)
    for k in (0, 1, 17, 59):
        assert abs(moment.minus_one(70 * k) - mpmath.mpc(complex(line.minus_one[k]))) <= float(line.error[k])
    bounds = transform.log_decay(tilt, np.array([200.0, 2000.0]))
    for height, bound in ((200.0, bounds[0]), (350.0, bounds[0]), (2000.0, bounds[1])):
        assert float(mpmath.log(abs(1 + moment.minus_one(height)))) <= bound


def test_a_cut_where_the_integrand_is_largest_is_bounded_as_well(monkeypatch):
    """Never chosen, but nothing in the bounds depends on the choice: here the cut's own terms are most of the error."""
    monkeypatch.setattr(transforms, "_DEEP", -1e3)
    pair, tilt = poisson(0.1, 0.5), 40.0
    transform = gaussian(pair, improbable=2.0)
    transform.settle(tilt, 1.3 * tilt)
    assert transform.ends[0] == pytest.approx(2.5)
    moment = ExactMoment(pair.upper, pair.lower, tilt, transform.ends[0])
    assert float(mpmath.log1p(moment.minus_one(0).real)) <= float(transform.log_moment_upper(np.array([tilt]))[0])
    line = transform.line(tilt, 0.4, 60, 1e-10)
    errors = [abs(moment.minus_one(mpmath.mpf(0.4) * k) - mpmath.mpc(complex(line.minus_one[k]))) for k in (0, 1, 17, 59)]
    assert all(error <= float(line.error[k]) for error, k in zip(errors, (0, 1, 17, 59), strict=True))
    assert max(errors) > 1e-6
    for height, bound in zip((0.5, 5.0), transform.log_decay(tilt, np.array([0.5, 5.0])), strict=True):
        assert float(mpmath.log(abs(1 + moment.minus_one(1.1 * height)))) <= bound


def test_a_range_that_a_search_had_to_cut_is_whole_where_a_contour_needs_less():
    transform = gaussian(poisson(3e-5, 1.0), count=10**6)
    transform.look_ahead(30.0)
    assert transform.ends[0] < math.inf
    transform.settle(5.0, 10.0)
    assert transform.ends == (math.inf,)
    assert transform.log_left_out == -math.inf


def test_without_the_cut_impossible_outcomes_rule():
    """At tilt 6000 outcomes of probability e^-40000 outweigh all others."""
    whole = gaussian(SPARSE_AND_LARGE, improbable=1e6)
    assert float(whole.log_moment_upper(np.array([6000.0]))[0]) > 100.0
    assert float(cut_transform(6000.0).log_moment_upper(np.array([6000.0]))[0]) < 1.0


# -- Laplace -------------------------------------------------------------------------------------------------------------------------


def exact_density(mixture, x):
    """Of Laplace noise; the weight at 0 stands for 1 minus the others."""
    others = [(w, a) for w, a in zip(mixture.weights, mixture.shifts, strict=True) if a != 0.0]
    rest = (1 - mpmath.fsum(w for w, _ in others)) * mpmath.exp(-abs(x)) if 0.0 in mixture.shifts else 0
    return (rest + mpmath.fsum(w * mpmath.exp(-abs(x - mpmath.mpf(a))) for w, a in others)) / 2


def exact_laplace(pair, s):
    """E_P[e^{sL}] - 1."""

    def integrand(x):
        p, q = exact_density(pair.upper, x), exact_density(pair.lower, x)
        return p * mpmath.expm1(s * mpmath.log(p / q))

    edges = [mpmath.mpf(a) for a in sorted({*pair.upper.shifts, *pair.lower.shifts})]
    turned = [s * mpmath.log(exact_density(pair.upper, x) / exact_density(pair.lower, x)) for x in edges]
    counts = [2 + int((abs(after - before) + b - a) / 4) for (before, after), (a, b) in zip(pairwise(turned), pairwise(edges), strict=True)]
    panels = [x for n, (a, b) in zip(counts, pairwise(edges), strict=True) for x in mpmath.linspace(a, b, n)[:-1]]
    return integrand(edges[0]) + integrand(edges[-1]) + mpmath.quad(integrand, [*panels, edges[-1]])


LAPLACE_PAIRS = {
    "remove": poisson(0.2, 1.0, LAPLACE),
    "add": reverse(poisson(0.05, 2.0, LAPLACE)),
    "weak": poisson(0.5, 0.01, LAPLACE),
    "strong": poisson(0.01, 9.0, LAPLACE),
}


@pytest.mark.parametrize("name", thinned(LAPLACE_PAIRS, every=4))
def test_sampled_laplace_is_within_its_error(name):
    pair = LAPLACE_PAIRS[name]
    transform = MixedLaplace(pair.upper, pair.lower, 10)
    line = transform.line(1.5, 2.0, 20, 1e-11)
    bound = float(transform.log_moment_upper(np.array([1.5]))[0])
    with mpmath.workdps(20):
        for k in (0, 1, 19):
            truth = exact_laplace(pair, mpmath.mpc(1.5, 2.0 * k))
            assert abs(truth - mpmath.mpc(complex(line.minus_one[k]))) <= float(line.error[k]) <= 1e-8
            assert float(mpmath.log(abs(1 + truth))) <= bound <= float(transform.log_decay(1.5, np.array([1.0]))[0]) + 1e-15


def test_few_points_on_a_panel_are_seen_and_bounded(monkeypatch):
    pair = LAPLACE_PAIRS["remove"]
    fine = MixedLaplace(pair.upper, pair.lower, 10).line(1.5, 2.0, 8, 1e-11)
    positions, weights = np.polynomial.legendre.leggauss(2)
    for name, value in (("_POINTS", 2), ("_POSITIONS", positions), ("_WEIGHTS", weights)):
        monkeypatch.setattr(laplace_transforms, name, value)
    coarse = MixedLaplace(pair.upper, pair.lower, 10).line(1.5, 2.0, 8, 1.0)
    difference = np.abs(fine.minus_one - coarse.minus_one)
    assert np.all(difference <= coarse.error + fine.error)
    assert np.any(difference > 10.0 * fine.error)


@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 4.0])
def test_whole_laplace_is_within_its_error(epsilon):
    pair = poisson(0.5, epsilon, LAPLACE)
    transform = WholeLaplace(epsilon, 10)
    line = transform.line(0.8, 3.0, 20, 1e-11)
    bounds = transform.log_decay(0.8, 3.0 * np.arange(20.0))
    with mpmath.workdps(30):
        e = mpmath.mpf(epsilon)
        assert pair.upper.shifts[1] == epsilon
        for k in (0, 1, 19):
            s = mpmath.mpc(0.8, 3.0 * k)
            truth = ((s + 1) * mpmath.exp(s * e) + s * mpmath.exp(-(s + 1) * e)) / (2 * s + 1)
            assert abs(truth - 1 - mpmath.mpc(complex(line.minus_one[k]))) <= float(line.error[k]) <= 1e-10
            assert mpmath.log(abs(truth)) <= bounds[k]


def test_laplace_decay_bounds_hold_for_every_greater_height_and_stop_falling():
    transform = WholeLaplace(1.0, 1)
    bounds = transform.log_decay(2.0, np.array([1.0, 10.0, 1e6]))
    assert bounds[0] > bounds[1] > bounds[2] > 0.5
    s = 2.0 + 1j * np.linspace(10.0, 200.0, 20_000)
    assert np.log(np.abs(1.0 + transform._minus_one(s))).max() <= bounds[1]


# -- what is declined ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [1e-13, 2e3])
def test_shifts_out_of_range_are_declined(shift):
    with pytest.raises(TransformUnavailable, match="noise by"):
        gaussian(poisson(0.1, shift))


def test_pairs_across_0_are_declined():
    with pytest.raises(TransformUnavailable, match="opposite sides of 0"):
        MixedGaussian(Mixture((0.5, 0.5), (-1.0, 1.0)), Mixture((1.0,), (-1.0,)), 1, 50.0)


def test_moments_beyond_a_float_are_declined():
    with pytest.raises(TransformUnavailable, match="float"):
        WholeLaplace(10.0, 1).line(50.0, 1.0, 4, 1e-9)
    with pytest.raises(TransformUnavailable, match="float"):
        gaussian(poisson(0.5, 3.0), improbable=1e4).line(20.0, 1.0, 4, 1e-9)


def test_largest_loss_is_rounded_up():
    pair = reverse(poisson(0.37, 1.0))
    with mpmath.workdps(30):
        assert gaussian(pair).largest_loss >= -mpmath.log1p(-mpmath.mpf(0.37))
    assert gaussian(poisson(0.37, 1.0)).largest_loss == math.inf
    assert MixedLaplace(pair.upper, pair.lower, 1).largest_loss >= -math.log(0.63 + 0.37 * math.exp(-1.0))
