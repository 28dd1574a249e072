"""Lattice laws and their composition against closed forms, direct integrals, and cases that would break each bound."""

from __future__ import annotations

import dataclasses
import math

import mpmath
import numpy as np
import pytest
from scipy import optimize

from tests.accountants.events import WORK_SET, fixed_size, gaussian, laplace, replace_one_gaussian, training
from tests.selection import chosen, thinned
from zetadp.accountants import Composed, FixedSizeSampled, Grouped, PoissonSampled, Repeated, leaves, profile
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities import GAUSSIAN, LAPLACE, RESPONSE
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.grids.convolution import Composition, Window
from zetadp.accountants.grids.grid import Lattice
from zetadp.accountants.grids.hockey_stick import calls, puts, reverse
from zetadp.accountants.grids.layers import Plan
from zetadp.accountants.grids.layout import Estimates
from zetadp.accountants.largest_loss import largest_loss
from zetadp.accountants.pairs import Pair
from zetadp.accountants.routes.fft.fft import FftAccountant, epsilon_lower, epsilon_upper, fft_profile, log_delta_bound
from zetadp.mechanisms.errors import NumericalFloor, UnsupportedEvent
from zetadp.mechanisms.numerics.gdp import gdp_log_delta

FFT = FftAccountant()
NULL = Mixture((1.0,), (0.0,))


def two(q, distance):
    return Mixture((1.0 - q, q), (0.0, distance))


def sampled(q, distance=1.0, family=GAUSSIAN, worst=False):
    return Pair(family, two(q, distance), NULL, worst)


def width(bound):
    return (bound.upper - bound.lower) / bound.upper


def hockey_stick(law, epsilons):
    losses = law.start + law.step * law.index
    return np.array([math.fsum(law.masses * np.maximum(-np.expm1(np.minimum(e - losses, 50.0)), 0.0)) for e in epsilons]) + law.infinity


def true_curve(pair, epsilons):
    """(lower, upper) ends of H_{e^eps}(P || Q) at any real epsilons."""
    below = epsilons < 0.0
    low, high = np.empty_like(epsilons), np.empty_like(epsilons)
    answer, under = calls(pair, epsilons[~below]), puts(pair, epsilons[below])
    low[~below], high[~below] = answer.lower, answer.upper
    low[below], high[below] = under.lower - np.expm1(epsilons[below]), under.upper - np.expm1(epsilons[below])
    return low, high


LATTICES = [
    # pair, first node, step, last index: regular, ending at, and ending beyond the losses; atoms on the lattice and between nodes
    pytest.param(Pair(GAUSSIAN, Mixture((1.0,), (1.3,)), NULL), -12.0, 0.01, 2600, id="whole"),
    pytest.param(sampled(0.01), math.log1p(-0.01), 0.001, 5000, id="from the smallest loss"),
    pytest.param(sampled(0.01), -0.0123, 0.003, 3000, id="from before it, coarse"),
    pytest.param(reverse(sampled(0.01)), -5.0, 0.001, 5013, id="to beyond the largest loss"),
    pytest.param(sampled(0.1, worst=True), -4.0, 0.01, 800, id="kink at 0"),
    pytest.param(Pair(GAUSSIAN, two(0.2, 1.0), Mixture((0.2, 0.8), (-1.0, 0.0))), -5.0, 0.01, 1000, id="two against two"),
    pytest.param(Pair(LAPLACE, Mixture((1.0,), (0.5,)), NULL), -0.5, 0.5 / 64, 130, id="atoms at nodes"),
    pytest.param(Pair(LAPLACE, Mixture((1.0,), (0.5,)), NULL), -0.51, 0.011, 110, id="atoms between nodes"),
    pytest.param(sampled(0.1, 0.5, LAPLACE, worst=True), -0.08, 0.001, 160, id="atoms and kink"),
    pytest.param(Pair(LAPLACE, Mixture((1.0,), (0.01,)), NULL), -0.01 - 2e-13, 0.02 / 95, 97, id="0 in the middle of a cell"),
    pytest.param(sampled(0.5, 50.0), -0.8, 0.17, 12000, id="a hole"),
]


@pytest.mark.parametrize(("pair", "start", "step", "count"), thinned(LATTICES, every=6))
def test_lattice_laws_enclose_the_curve_between_nodes_too(pair, start, step, count):
    lattice = Lattice(pair, start, step, np.arange(count + 1))
    epsilons = np.sort(
        np.concatenate((np.linspace(start, -start, 301) * 0.999, np.linspace(0.0, min(start + step * count, 600.0), 201) * 0.95))
    )
    low, high = true_curve(pair, epsilons)
    slack = 1e-14 * (1.0 + np.abs(np.expm1(np.minimum(epsilons, 0.0))))
    assert np.all(hockey_stick(lattice.upper(), epsilons) >= low - slack)
    assert np.all(hockey_stick(lattice.lower(), epsilons) <= high + slack)


@pytest.mark.parametrize(("pair", "start", "step", "count"), thinned(LATTICES, every=4))
def test_lower_law_is_not_empty(pair, start, step, count):
    assert 0.49 < Lattice(pair, start, step, np.arange(count + 1)).lower().masses.sum() < 1.0 + 1e-9


def test_lattice_laws_enclose_the_curve_at_random():
    random = np.random.default_rng(7)
    for _ in range(40):
        q, distance = 10.0 ** random.uniform(-4.0, -0.1), 10.0 ** random.uniform(-1.0, 0.7)
        pair = sampled(q, distance, random.choice([GAUSSIAN, LAPLACE]), bool(random.integers(2)))
        pair = reverse(pair) if random.integers(2) else pair
        scale = q * min(distance, 1.0)
        step = scale * 10.0 ** random.uniform(-2.5, 0.0)
        start, top = -scale * random.uniform(0.5, 8.0), scale * random.uniform(1.0, 30.0)
        steps = np.unique(np.cumsum(2 ** np.minimum(np.arange(math.ceil(top / step) + 20) // 200, 4)))
        index = np.concatenate((np.arange(math.ceil(-start / step) + 1), math.ceil(-start / step) + steps))
        lattice = Lattice(pair, start, step, index)
        epsilons = np.linspace(start, top, 400)
        low, high = true_curve(pair, epsilons)
        assert np.all(hockey_stick(lattice.upper(), epsilons) >= low - 1e-15)
        assert np.all(hockey_stick(lattice.lower(), epsilons) <= high + 1e-15)


@pytest.mark.parametrize(("q", "multiplier", "count", "delta", "exact"), thinned(WORK_SET, every=4))
def test_bracket_holds_the_work_set(q, multiplier, count, delta, exact):
    bound = FFT.profile(training(q, multiplier, count)).epsilon(delta)
    # The references have six decimals.
    assert bound.lower <= exact + 6e-7
    assert exact - 6e-7 <= bound.upper
    assert width(bound) <= 3e-5


@pytest.mark.parametrize(
    ("delta", "exact"),
    # middles of the contour route's brackets, which are at most 5e-8 wide
    thinned([(1e-10, 9.3161385), (1e-12, 10.3466898), (1e-13, 10.8330999), (1e-14, 11.3035588), (1e-18, 13.0597848)], every=2),
)
def test_bracket_holds_at_small_delta(delta, exact):
    bound = FFT.profile(training(0.01, 1.0, 10_000)).epsilon(delta)
    assert bound.lower <= exact + 1e-7
    assert exact - 1e-7 <= bound.upper
    assert width(bound) <= 1e-6


@pytest.mark.parametrize(
    ("mu", "count", "delta"),
    thinned([(0.5, 4, 1e-6), (0.3, 10, 1e-30), (0.1, 100, 1e-10), (3.0, 3, 1e-12), (0.01, 10_000, 1e-5), (1.0, 2, 1e-200)], every=2),
)
def test_gaussian_releases_kept_apart_compose_to_the_closed_form(mu, count, delta):
    """The accountant would merge them into one release; here each is discretised."""
    parts = leaves(Repeated(count=count, event=FixedSizeSampled(sample_size=1, population_size=1, event=gaussian(1.0 / mu))))
    profile = fft_profile(parts)
    profile._sides = [((Pair(GAUSSIAN, Mixture((1.0,), (mu,)), NULL), count),)]
    bound = profile.epsilon(delta)
    total = mu * math.sqrt(count)
    exact = optimize.brentq(lambda e: gdp_log_delta(total, e) - math.log(delta), 0.0, 300.0, xtol=1e-13)
    assert bound.lower <= exact * (1.0 + 1e-12)
    assert exact * (1.0 - 1e-12) <= bound.upper
    assert width(bound) <= 1e-6


@mpmath.workdps(25)
def exact_two_sampled(q, epsilon, direction):
    """delta of two sampled Gaussian releases (multiplier 1) as a double integral, the inner one in closed form."""
    q = mpmath.mpf(q)

    def loss(x):
        return mpmath.log(1 - q + q * mpmath.exp(x - mpmath.mpf(1) / 2))

    def one(e):
        # Of (mixture, normal), or of (normal, mixture).
        if direction == "forward":
            inside = (mpmath.exp(e) - 1 + q) / q
            if inside <= 0:
                return 1 - mpmath.exp(e)
            x = mpmath.log(inside) + mpmath.mpf(1) / 2
            return (1 - q) * mpmath.ncdf(-x) + q * mpmath.ncdf(1 - x) - mpmath.exp(e) * mpmath.ncdf(-x)
        inside = (mpmath.exp(-e) - 1 + q) / q
        if inside <= 0:
            return mpmath.mpf(0)
        x = mpmath.log(inside) + mpmath.mpf(1) / 2
        return mpmath.ncdf(x) - mpmath.exp(e) * ((1 - q) * mpmath.ncdf(x) + q * mpmath.ncdf(x - 1))

    if direction == "forward":
        return mpmath.quad(lambda x: ((1 - q) * mpmath.npdf(x) + q * mpmath.npdf(x - 1)) * one(epsilon - loss(x)), range(-14, 17, 1))
    return mpmath.quad(lambda x: mpmath.npdf(x) * one(epsilon + loss(x)), range(-14, 17, 1))


@pytest.mark.parametrize(("q", "epsilon"), chosen([(0.1, 1.0), (0.01, 0.5), (0.5, 3.0)], [(0.1, 1.0)]))
def test_two_releases_against_a_direct_integral(q, epsilon):
    exact = mpmath.log(max(exact_two_sampled(q, mpmath.mpf(epsilon), way) for way in ("forward", "reverse")))
    bound = FFT.profile(training(q, 1.0, 2)).delta(epsilon)
    assert bound.log_lower <= exact <= bound.log_upper
    assert bound.log_upper - bound.log_lower <= 2e-5


EVERY_KIND = {
    "few": training(0.1, 1.0, 3),
    "sparse": training(1e-7, 1.0, 50),
    "sampled laplace": Repeated(count=10, event=PoissonSampled(probability=0.1, event=laplace(2.0))),
    "sampled laplace beside another": Composed(
        events=(Repeated(count=9, event=laplace(9.7)), PoissonSampled(probability=0.3, event=laplace(1.0)), gaussian(2.0))
    ),
    "worst of both": fixed_size(100, 1000, 1.0, 10, adjacency="replace_one"),
    "replace one": Repeated(count=20, event=PoissonSampled(probability=0.2, event=replace_one_gaussian(1.0))),
    "group": Repeated(count=10, event=Grouped(size=3, unit="user", event=PoissonSampled(probability=0.1, event=gaussian(1.0)))),
    "far apart": training(0.5, 0.02, 3),
    "hardly anything": training(0.5, 1e4, 3),
}


@pytest.mark.parametrize("name", thinned(EVERY_KIND, every=3))
def test_every_kind_of_event_has_a_narrow_bracket(name):
    bound = FFT.profile(EVERY_KIND[name]).epsilon(1e-6)
    assert bound.lower <= bound.upper
    assert bound.upper == 0.0 or width(bound) <= 1e-6


@pytest.mark.parametrize("name", chosen(EVERY_KIND, ["few", "sampled laplace beside another", "replace one"]))
def test_epsilon_and_delta_agree(name):
    profile = FFT.profile(EVERY_KIND[name])
    bound = profile.epsilon(1e-6)
    assert profile.delta(bound.upper).log_lower <= math.log(1e-6)
    if bound.lower > 0.0:
        assert profile.delta(bound.lower).log_upper >= math.log(1e-6) * (1.0 + 1e-12)


def test_order_of_questions_changes_no_bracket_beyond_its_width():
    event = training(0.1, 1.0, 5)
    first, second = FFT.profile(event), FFT.profile(event)
    second.epsilon(1e-3)
    second.delta(1.0)
    a, b = first.epsilon(1e-7), second.epsilon(1e-7)
    assert a.lower <= b.upper
    assert b.lower <= a.upper


def test_delta_beyond_the_floor_is_refused():
    with pytest.raises(NumericalFloor):
        FFT.profile(training(0.1, 1.0, 3)).epsilon(1e-300)


# What each term of the composition's bound is for.


def composed(pair, start, step, count, releases, window):
    lattice = Lattice(pair, start, step, np.arange(count + 1))
    upper = Composition(((lattice.upper(), releases),), window, upper=True)
    # Its losses have no least one, so that none decides alone: a law below has nothing at infinity.
    return upper, Composition(((dataclasses.replace(lattice.lower(), infinity=0.0), releases),), window, upper=False)


def test_rounding_alone_would_exclude_the_truth():
    """With next to no tilt the sum at delta = 1e-18 is rounding; the bracket knows it, the bare sum doesn't."""
    mu, releases = 0.1, 100
    step, count = 0.005, 400
    start = -1.0
    first = math.floor((9.0 - releases * start) / step)
    window = Window(0.05, first, first + 10, 2**15, 2**13, -3.0, 3.0)
    upper, lower = composed(Pair(GAUSSIAN, Mixture((1.0,), (mu,)), NULL), start, step, count, releases, window)
    exact = gdp_log_delta(mu * math.sqrt(releases), upper.loss(first))
    assert lower.log_delta(first) <= exact <= upper.log_delta(first)
    upper._noise = lower._noise = 0.0
    bare = (lower.log_delta(first), upper.log_delta(first))
    assert not bare[0] - 0.5 <= exact <= bare[1] + 0.5


def test_wrapping_around_alone_would_exclude_the_truth():
    """A period that is shorter than the composed law adds its far side to the sum."""
    pair, releases, step = Pair(GAUSSIAN, Mixture((1.0,), (0.5,)), NULL), 4, 0.01
    first = math.floor((4.0 + releases * 6.0) / step)
    window = Window(4.0, first, first + 10, 256, 240, -3.0, 3.0)
    upper, lower = composed(pair, -6.0, step, 1200, releases, window)
    exact = gdp_log_delta(1.0, upper.loss(first))
    assert lower.log_delta(first) <= exact <= upper.log_delta(first)
    lower.__dict__["aliases"] = 0.0
    assert lower.log_delta(first) > exact


def test_truncation_alone_would_exclude_the_truth():
    """Losses beyond the last node are infinite in the upper law, and the last node's in the lower law."""
    pair, releases, step = Pair(GAUSSIAN, Mixture((1.0,), (0.5,)), NULL), 4, 0.01
    first = math.floor((4.0 + releases * 6.0) / step)
    window = Window(4.0, first, first + 10, 4096, 2000, -3.0, 3.0)
    upper, lower = composed(pair, -6.0, step, 680, releases, window)
    exact = gdp_log_delta(1.0, upper.loss(first))
    assert lower.log_delta(first) <= exact <= upper.log_delta(first)
    upper.infinity = 0.0
    assert upper.log_delta(first) < exact


def test_mass_at_infinity_below_is_only_for_losses_that_decide_alone():
    pair, releases, step = Pair(GAUSSIAN, Mixture((1.0,), (0.5,)), NULL), 4, 0.01
    first = math.floor((4.0 + releases * 6.0) / step)
    lattice = Lattice(pair, -6.0, step, np.arange(681))
    kept = Composition(((lattice.lower(), releases),), Window(4.0, first, first + 10, 4096, 2000, -3.0, 3.0), upper=False)
    assert kept.log_delta(first) > gdp_log_delta(1.0, kept.loss(first))
    # The route leaves it out: these losses have no least one.
    plan = Plan(((pair, releases),), *Estimates.for_epsilon(((pair, releases),), 4.0))
    assert plan.layer(plan.step(), both=True).lower._log_least_infinity == -math.inf


def test_kernel_cut_short_is_made_up_for():
    pair, releases, step = Pair(GAUSSIAN, Mixture((1.0,), (0.5,)), NULL), 4, 0.01
    first = math.floor((4.0 + releases * 6.0) / step)
    long, short = (Window(1.0, first, first + 10, 8192, reach, -3.0, 3.0) for reach in (4000, 40))
    upper, _ = composed(pair, -6.0, step, 1200, releases, short)
    whole, _ = composed(pair, -6.0, step, 1200, releases, long)
    assert upper.log_delta(first) >= whole.log_delta(first) - 1e-12
    upper.__dict__["_rest"] = 0.0
    assert upper.log_delta(first) < whole.log_delta(first)


def test_upper_ends_fall_and_lower_ends_stay_below_them_over_a_window():
    pair, releases, step = sampled(0.1), 10, 0.002
    start = math.log1p(-0.1)
    first = math.floor((2.0 - releases * start) / step)
    window = Window(3.0, first, first + 500, 2**15, 8000, -3.0, 3.0)
    upper, lower = composed(pair, start, step, 4000, releases, window)
    for epsilon in np.linspace(upper.loss(first) + step, upper.loss(first + 499), 37):
        low, high = log_delta_bound(lower, epsilon), log_delta_bound(upper, epsilon)
        assert low <= high <= low + 1e-3
        assert epsilon_lower(lower, high) <= epsilon + 1e-9
        assert epsilon_upper(upper, low) >= epsilon - 1e-9


def test_rounding_unit_is_that_of_doubles():
    assert np.finfo(float).eps == 2.0 * UNIT


def test_calls_are_fields_of_one_shape():
    answer = calls(sampled(0.1), np.linspace(0.0, 1.0, 5))
    assert {getattr(answer, one.name).shape for one in dataclasses.fields(answer)} == {(5,)}


@pytest.mark.parametrize(
    "event",
    thinned([training(1e-9, 1e-3, 10**12), fixed_size(1, 100, 1000.0 * math.sqrt(0.5), 10**12)], every=2),
    ids=["sparse", "fixed"],
)
def test_a_delta_next_to_one_after_a_trillion_steps_has_a_bracket(event):
    # The Renyi tilt for delta = 0.999 puts all losses of one release on one side of 0, to the precision of its grid: fft steps back.
    with pytest.raises(UnsupportedEvent, match="one side of 0"):
        FFT.profile(event).epsilon(0.999)
    bound = profile(event).epsilon(0.999)
    assert 0.0 <= bound.lower <= bound.upper < math.inf


@pytest.mark.parametrize("tilt", thinned([1.0, 100.0, 380.0, 800.0, 3000.0, 1e6], every=2))
def test_a_tilt_whose_kernel_leaves_the_range_of_floats_never_says_that_nothing_is_left(tilt):
    # Two randomized responses of loss 1: delta(t) = p^2 (1 - e^(t - 2)) for 0 <= t <= 2. The kernel's first value is about e^(-tilt / 4).
    pair, likely = Pair(RESPONSE, Mixture((1.0,), (1.0,)), NULL), 1.0 / (1.0 + math.exp(-1.0))
    upper, lower = composed(pair, -1.0, 0.25, 9, 2, Window(tilt, 8, 17, 32, 12, -1.0, 1.0))
    for index in range(8, 16):
        exact = 2.0 * math.log(likely) + math.log(-math.expm1(0.25 * index - 4.0))
        assert lower.log_delta(index) - 1e-12 <= exact <= upper.log_delta(index) + 1e-12


def test_beyond_the_largest_loss_later_questions_are_answered_by_earlier_laws():
    """No lower end is to be had there: composing a law for each question took seconds, and a trade-off curve asks dozens."""
    found = FftAccountant().profile(laplace(1.0))
    first = found.delta(1.5)
    before = found.delta(0.5)
    assert first.log_lower == -math.inf
    for epsilon in (1.5, 2.0, 40.0, 1e6):
        later = found.delta(epsilon)
        assert later.log_lower == -math.inf
        assert later.log_upper <= first.log_upper
    assert found.delta(0.5) == before
    assert before.log_lower <= math.log(-math.expm1(-0.25)) <= before.log_upper


def test_a_largest_loss_allows_for_a_weight_that_is_one_minus_the_others():
    # 1e-4 left of 1 is known to 1e-12 of itself only.
    weights = (0.3, 0.6999, 1.0 - math.fsum((0.3, 0.6999)))
    pair = Pair(GAUSSIAN, Mixture((1.0,), (0.0,)), Mixture(weights, (-2.0, -1.0, 0.0)))
    with mpmath.workdps(40):
        exact = -mpmath.log(1 - mpmath.mpf(0.3) - mpmath.mpf(0.6999))
        assert exact <= largest_loss(pair) <= exact + 1e-11


@pytest.mark.parametrize(("q", "count"), [(0.75, 3), (1e-3, 50)])
def test_delta_is_zero_from_the_largest_loss_of_the_bounded_direction_on(q, count) -> None:
    pair = reverse(sampled(q))
    profile_ = fft_profile({})
    profile_._sides, profile_._largest = [((pair, count),)], [count * largest_loss(pair)]
    assert profile_._largest[0] == pytest.approx(-count * math.log1p(-q), rel=1e-14)
    assert largest_loss(reverse(pair)) == math.inf
    assert float(calls(pair, np.array([0.999999 * largest_loss(pair)])).lower[0]) >= 0.0
    assert float(calls(pair, np.array([largest_loss(pair)])).upper[0]) == pytest.approx(0.0, abs=1e-12)
    assert profile_._log_delta(profile_._largest[0]) == (-math.inf, -math.inf)
