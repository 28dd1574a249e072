"""The contour route's answers for events of every kind against truths computed apart from it; laws, refusals, and anything at all."""

from __future__ import annotations

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest

from tests.accountants.events import WORK_SET, complex_gaussian, fixed_size, gaussian, laplace, replace_one_gaussian, training
from tests.accountants.references import (
    convolved_delta,
    gaussian_delta,
    group,
    log_delta,
    one_sided_log_delta,
    poisson,
    replaced,
    reverse,
    whole,
)
from tests.selection import chosen, thinned
from zetadp.accountants import Composed, FixedSizeSampled, PoissonSampled, Repeated, accountant_named
from zetadp.accountants.densities import LAPLACE
from zetadp.accountants.densities.moments.laplace import MixedLaplace
from zetadp.accountants.dominating import pair_of
from zetadp.accountants.events import Grouped, leaves
from zetadp.accountants.routes.contour.contour import ContourAccountant
from zetadp.mechanisms import UnsupportedEvent
from zetadp.mechanisms.errors import InvalidParameter

SETTLED = 1e-12
"""Relative accuracy of the references in 64 bits."""


def profile(event):
    return ContourAccountant().profile(event)


# -- brackets of events --------------------------------------------------------------------------------------------------------------


def composition(event):
    return [(pair_of(leaf), count) for leaf, count in leaves(event).items()]


def holds(event, target, width=1e-6):
    """Whether both ends of epsilon are on their sides of the target, and of delta around the truth, all within the width."""
    parts, target = composition(event), float(target)
    bound = profile(event).epsilon_at_log_delta(target)
    assert bound.upper - bound.lower <= width * bound.upper
    slack = SETTLED * max(1.0, -target)
    assert log_delta(parts, bound.upper) <= target + slack
    assert log_delta(parts, bound.lower) >= target - slack
    middle = 0.5 * (bound.lower + bound.upper)
    found, truth = profile(event).delta(middle), log_delta(parts, middle)
    assert found.log_lower - slack <= truth <= found.log_upper + slack
    assert found.log_upper - found.log_lower <= 20.0 * width * max(1.0, -target)


@pytest.mark.parametrize(("probability", "std", "count", "delta", "epsilon"), WORK_SET)
def test_work_set(probability, std, count, delta, epsilon):
    bound = profile(training(probability, std, count)).epsilon(delta)
    assert bound.upper == pytest.approx(epsilon, abs=6e-7)
    assert bound.upper - bound.lower <= 1e-6 * bound.upper


@pytest.mark.parametrize("target", thinned([math.log(1e-30), math.log(1e-300), -1000.0], every=2))
@pytest.mark.parametrize("event", [training(0.01, 1.0, 10_000), training(0.2, 3.0, 200)], ids=["long", "short"])
def test_tiny_deltas_keep_their_relative_accuracy(event, target):
    holds(event, target)


EVENTS = {
    "mixture of all kinds": Composed(
        events=(
            training(0.02, 1.5, 300),
            gaussian(3.0),
            complex_gaussian(4.0, 0.3),
            laplace(5.0),
            Repeated(count=3, event=PoissonSampled(probability=0.1, event=laplace(2.0))),
        )
    ),
    "two rates": Composed(events=(training(0.02, 1.5, 300), training(0.3, 6.0, 50))),
    "group": Grouped(size=3, unit="patient", event=training(0.01, 2.0, 500)),
    "large group": Grouped(size=20, unit="patient", event=training(0.2, 40.0, 100)),
    "replaced": Repeated(count=400, event=PoissonSampled(probability=0.02, event=replace_one_gaussian(1.2))),
    "fixed size": fixed_size(10, 1000, 2.0, 700),
    "nearly whole": training(1.0 - 1e-9, 20.0, 30),
}


HELD = ("mixture of all kinds", "large group", "replaced")
"""By default: of each way to make a pair the one whose truth is the easiest to compute."""


@pytest.mark.parametrize("delta", chosen([1e-3, 1e-8], [1e-8]))
@pytest.mark.parametrize("event", chosen(EVENTS.values(), [EVENTS[name] for name in HELD]), ids=EVENTS)
def test_events_of_every_kind(event, delta):
    holds(event, math.log(delta))


@pytest.mark.parametrize("std", [0.05, 1.0, 30.0])
def test_whole_gaussian_releases_by_their_closed_form(std):
    event = Composed(events=(Repeated(count=7, event=gaussian(std)), gaussian(2.0 * std)))
    with mpmath.workdps(30):
        mu = mpmath.sqrt(mpmath.mpf(7) + mpmath.mpf(1) / 4) / std
        for epsilon in (0.0, 0.3, float(mu * mu)):
            truth, found = mpmath.log(gaussian_delta(mu, epsilon)), profile(event).delta(epsilon)
            assert found.log_lower <= truth <= found.log_upper <= found.log_lower + 1e-5


@pytest.mark.parametrize(
    ("pair", "event"),
    thinned(
        [
            (whole(0.7, LAPLACE), laplace(1.0 / 0.7)),
            (poisson(0.3, 2.0, LAPLACE), PoissonSampled(probability=0.3, event=laplace(0.5))),
            (poisson(0.2, 0.5), PoissonSampled(probability=0.2, event=gaussian(2.0))),
        ],
        every=2,
    ),
    ids=["laplace", "sampled laplace", "sampled gaussian"],
)
@pytest.mark.parametrize("epsilon", chosen([0.2, 1.5, 8.0], [1.5]))
def test_one_release_with_a_whole_gaussian_by_an_integral_over_outcomes(pair, event, epsilon):
    found = profile(Composed(events=(event, gaussian(1.0)))).delta(epsilon)
    with mpmath.workdps(20):
        truth = mpmath.log(max(convolved_delta(pair, 1.0, epsilon), convolved_delta(reverse(pair), 1.0, epsilon)))
    assert found.log_lower <= truth <= found.log_upper <= found.log_lower + 1e-5


def test_the_added_record_can_tell_more_than_the_removed_one():
    event = Composed(events=(training(0.3, 1.0, 5), laplace(0.5), gaussian(4.0)))
    epsilon, parts = 1.0, composition(event)
    removed = one_sided_log_delta(parts, epsilon)
    added = one_sided_log_delta([(reverse(pair), count) for pair, count in parts], epsilon)
    assert added > removed + 0.01
    found = profile(event).delta(epsilon)
    assert found.log_lower <= added <= found.log_upper <= found.log_lower + 1e-6


# -- laws ----------------------------------------------------------------------------------------------------------------------------

LAWFUL = [training(0.01, 1.0, 1000), training(0.5, 10.0, 20), EVENTS["mixture of all kinds"], EVENTS["replaced"]]


@pytest.mark.parametrize("event", LAWFUL, ids=range(len(LAWFUL)))
def test_epsilon_and_delta_undo_each_other(event):
    for delta in (1e-2, 1e-6, 1e-12):
        bound = profile(event).epsilon(delta)
        assert profile(event).delta(bound.upper).log_lower <= math.log(delta)
        assert profile(event).delta(bound.lower).log_upper >= math.log(delta)


@pytest.mark.parametrize("event", LAWFUL, ids=range(len(LAWFUL)))
def test_delta_falls_with_epsilon(event):
    found = [profile(event).delta(epsilon) for epsilon in (0.0, 0.1, 0.4, 1.0, 2.0)]
    assert all(later.log_lower <= earlier.log_upper and later.log_upper < earlier.log_upper for earlier, later in pairwise(found))


@pytest.mark.parametrize(("probability", "std"), thinned([(0.001, 0.8), (0.03, 2.0), (0.4, 12.0)], every=2))
def test_twice_the_steps_never_lower_epsilon(probability, std):
    bounds = [profile(training(probability, std, 100 * 2**k)).epsilon(1e-6) for k in range(8)]
    assert all(fewer.lower <= more.upper for fewer, more in pairwise(bounds))
    assert bounds[-1].lower > bounds[0].upper


def test_epsilon_is_0_exactly_where_delta_at_0_is_met():
    event = training(0.01, 5.0, 100)
    at_0 = profile(event).delta(0.0)
    assert profile(event).epsilon(at_0.upper * (1.0 + 1e-6)).upper == 0.0
    assert profile(event).epsilon(at_0.lower * (1.0 - 1e-4)).lower > 0.0


@pytest.mark.parametrize("delta", chosen([1.0 - 1e-9, 0.5], [0.5]))
def test_deltas_near_1(delta):
    assert profile(training(0.01, 1.0, 1000)).epsilon(delta).upper == 0.0
    bound = profile(training(0.5, 0.5, 1000)).epsilon(delta)
    parts = [(poisson(0.5, 2.0), 1000)]
    assert log_delta(parts, bound.upper) <= math.log(delta)
    assert bound.lower == 0.0 or log_delta(parts, bound.lower) >= math.log(delta)


def test_questions_in_any_order_have_the_same_answer():
    event = EVENTS["two rates"]
    asked = profile(event)
    many = [asked.epsilon(delta) for delta in (1e-3, 1e-14, 1e-5, 1e-30, 1e-3)]
    for delta, bound in zip((1e-3, 1e-14, 1e-5, 1e-30, 1e-3), many, strict=True):
        alone = profile(event).epsilon(delta)
        assert max(bound.lower, alone.lower) <= min(bound.upper, alone.upper)


def test_infinite_epsilon_has_delta_0():
    assert profile(training(0.01, 1.0, 10)).delta(math.inf).upper == 0.0


@pytest.mark.parametrize("log_delta_", [0.0, math.nan, -math.inf])
def test_deltas_out_of_range_are_refused(log_delta_):
    with pytest.raises(InvalidParameter, match="finite and < 0"):
        profile(training(0.01, 1.0, 10)).epsilon_at_log_delta(log_delta_)


# -- many sampled Laplace releases -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replacing", [False, True], ids=["added", "replaced"])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("tilt", [0.3, 4.0])
def test_the_moments_of_sampled_laplace_noise_stay_below_their_bound(replacing, size, tilt):
    pair = replaced(0.05, 1.4) if replacing else group(0.05, 1.4, size)
    transform = MixedLaplace(pair.upper, pair.lower, 100)
    heights = np.geomspace(0.5, 200.0, 15)
    bounds = transform.log_decay(tilt, heights)
    moduli = np.log(np.abs(1.0 + transform.line(tilt, 0.1, 4000, 1e-12).minus_one))
    for height, bound in zip(heights, bounds, strict=True):
        assert moduli[math.ceil(height / 0.1) :].max() <= bound
    assert bounds[-1] < moduli[0] - 1e-3


@pytest.mark.parametrize("replacing", [False, True], ids=["added", "replaced"])
def test_the_moments_of_tiny_laplace_losses_stay_below_their_bound(replacing):
    # Losses of 1e-7 of rare samples: tilts and heights are as large as they are small.
    pair = replaced(1e-7, 1.4) if replacing else group(1e-7, 1.4, 3)
    transform = MixedLaplace(pair.upper, pair.lower, 10**6)
    tilt, heights = 3.0 / transform.scale, np.geomspace(3.0, 300.0, 15) / transform.scale
    step = 0.2 / transform.scale
    bounds = transform.log_decay(tilt, heights)
    moduli = np.log(np.abs(1.0 + transform.line(tilt, step, 3000, 1e-12).minus_one))
    for height, bound in zip(heights, bounds, strict=True):
        assert moduli[math.ceil(height / step) :].max() <= bound
    assert bounds[-1] < moduli[0] - 1e-3


@pytest.mark.parametrize(
    ("probability", "scale", "count", "delta", "size"),
    thinned([(5.5e-6, 10.4, 462_322, 5e-15, 7), (1.5e-6, 3.3, 66_350, 1.6e-10, 5), (3.9e-6, 0.18, 645_668, 1e-100, 1)], every=3),
)
def test_rare_laplace_samples_have_narrow_brackets_within_a_grids(probability, scale, count, delta, size):
    event = Repeated(count=count, event=PoissonSampled(probability=probability, event=laplace(scale)))
    event = Grouped(size=size, unit="user", event=event) if size > 1 else event
    bound, grid = profile(event).epsilon(delta), accountant_named("fft").profile(event).epsilon(delta)
    assert grid.lower <= bound.upper
    assert bound.lower <= grid.upper
    assert bound.upper - bound.lower <= 1e-7 * bound.upper


@pytest.mark.parametrize(
    ("probability", "scale", "count", "delta"), [(0.2, 2.0, 500, 1e-6), (0.01, 0.5, 3000, 1e-20), (0.5, 0.3, 60, 1e-4)]
)
def test_many_sampled_laplace_releases_agree_with_a_grid(probability, scale, count, delta):
    event = Repeated(count=count, event=PoissonSampled(probability=probability, event=laplace(scale)))
    bound, grid = profile(event).epsilon(delta), accountant_named("fft").profile(event).epsilon(delta)
    assert bound.lower <= grid.upper
    assert grid.lower <= bound.upper
    assert bound.upper - bound.lower <= 1e-7 * bound.upper


# -- what it declines ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Composed(events=(training(1e-6, 1.0, 2), training(1e-6, 0.5, 2))), "decay|never happen"),
        (Repeated(count=100, event=PoissonSampled(probability=0.01, event=gaussian(1e-4))), "noise by"),
    ],
    ids=["sparse samples of two kinds", "little noise"],
)
def test_questions_without_a_proved_bracket_are_declined(event, reason):
    with pytest.raises(UnsupportedEvent, match=reason):
        profile(event).epsilon(1e-7)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Repeated(count=29, event=laplace(3.0)), "atoms"),
        (Repeated(count=29, event=PoissonSampled(probability=0.1, event=laplace(3.0))), "atoms"),
        (
            Repeated(
                count=10,
                event=FixedSizeSampled(sample_size=5, population_size=50, event=gaussian(1.0, adjacency="replace_one")),
            ),
            "direction may change",
        ),
        (Repeated(count=100, event=training(1e-7, 1.0, 10**12)), "releases"),
    ],
    ids=["laplace", "sampled laplace", "worst of both", "too many"],
)
def test_events_are_declined_with_a_reason(event, reason):
    assert reason in (ContourAccountant().unsupported(event) or "")
    with pytest.raises(UnsupportedEvent, match=reason):
        profile(event)


# -- anything -----------------------------------------------------------------------------------------------------------------------


def random_events(seed, number):
    rng = np.random.default_rng(seed)
    for _ in range(number):
        probability, std = min(10.0 ** rng.uniform(-6.0, 0.05), 1.0), 10.0 ** rng.uniform(math.log10(0.3), math.log10(50.0))
        yield rng, training(float(probability), float(std), int(10.0 ** rng.uniform(0.0, 6.0)))


EXTREMES = [
    training(1.0 - 1e-15, 1.0, 10**6),
    training(1e-12, 0.3, 10**12),
    training(1e-6, 1e9, 10**6),
    training(0.5, 1e-2, 10),
    Composed(events=(training(0.9999999, 8.0, 10**10), gaussian(1e-6))),
    Composed(events=(laplace(1e-6), training(0.3, 1.0, 10**5))),
    Composed(events=(PoissonSampled(probability=0.3, event=laplace(1e-3)), gaussian(0.7))),
    Grouped(size=5, unit="patient", event=training(0.9, 1.0, 10)),
]


def is_answered_or_declined(event, delta, epsilon):
    """Floating point warnings are errors here: a number that isn't one never comes about."""
    answered = 0
    for ask in (
        lambda: profile(event).epsilon(delta),
        lambda: profile(event).delta(epsilon),
        lambda: profile(event).epsilon_at_log_delta(-40.0 * math.log1p(1.0 / delta)),
    ):
        try:
            bound = ask()
        except UnsupportedEvent:
            continue
        ends = (bound.lower, bound.upper)
        assert 0.0 <= ends[0] <= ends[1]
        answered += 1
    return answered


@pytest.mark.parametrize("events", chosen([3, 100], [3]))
def test_random_questions_are_answered_or_declined(events):
    answered = 0
    for rng, event in random_events(7, events):
        answered += is_answered_or_declined(event, float(10.0 ** rng.uniform(-15.0, -3.0)), float(10.0 ** rng.uniform(-5.0, 3.0)))
    assert answered > 2 * events


@pytest.mark.parametrize("delta", chosen([1.0 - 1e-9, 1e-9, 1e-290], [1e-290]))
@pytest.mark.parametrize("event", chosen(EXTREMES, [EXTREMES[0], EXTREMES[4], EXTREMES[7]]), ids=range(len(EXTREMES)))
def test_extreme_questions_are_answered_or_declined(event, delta):
    for epsilon in (0.0, 1e-3, 50.0):
        is_answered_or_declined(event, delta, epsilon)


@pytest.mark.parametrize("count", [10**11, 10**12])
def test_where_delta_at_zero_suffices_one_direction_is_enough(count):
    # The direction of bounded losses has no answer at a tilt of 10^6: epsilon was [0, .16].
    found = profile(training(1e-12, 1.0, count))
    assert found.epsilon(1e-6).upper == 0.0
    # A sum of so many small losses is normal: delta(0) = P(0 < L) - Q(0 < L), of variance T q^2 (e - 1).
    zero, later = found.delta(0.0), found.delta(3e-8)
    truth = math.log(1e-12 * math.sqrt(count * math.expm1(1.0)) / math.sqrt(2.0 * math.pi))
    assert zero.log_lower <= truth + 1e-5
    assert truth - 1e-5 <= zero.log_upper
    assert zero.log_upper - zero.log_lower < 1e-4
    assert later.log_upper <= zero.log_upper + 1e-9
