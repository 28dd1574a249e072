"""Random allocation: its pair against small data sets and simulation, its curve against closed forms and integrals, and its doors."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from scipy import integrate, special

from tests.accountants.events import gaussian, laplace
from tests.accountants.test_dominating import both_orders, noise_density
from tests.mechanisms.local import local_gaussian
from tests.selection import thinned
from zetadp.accountants import Composed, Event, Grouped, PoissonSampled, RandomlyAllocated, Release, Repeated, Shuffled, accountant, profile
from zetadp.accountants.allocation.curve import AllocationCurve, curve_of
from zetadp.accountants.allocation.groups import lower_parts, squared_moves
from zetadp.accountants.allocation.summand import ETA, Summand
from zetadp.accountants.densities import GAUSSIAN, LAPLACE
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.dominating import pair_of
from zetadp.accountants.dp_accounting_events import to_dp_accounting
from zetadp.accountants.events import leaves
from zetadp.accountants.grids.hockey_stick import calls
from zetadp.accountants.grids.layers import Plan
from zetadp.accountants.grids.layout import Estimates
from zetadp.accountants.pairs import Pair
from zetadp.mechanisms import InvalidParameter, UnsupportedEvent
from zetadp.mechanisms.declared import DiscreteGaussianSum

SUM_OF_WHOLE_NUMBERS = DiscreteGaussianSum(scale=3.0, honest=3, moves=1, adjacency="replace_one", unit="record")

EVENT = TypeAdapter(Event)
EPSILONS = np.array([0.0, 0.1, 0.5, 1.0, 2.0])


def allocated(steps, event, count=1):
    return Repeated(count=count, event=RandomlyAllocated(steps=steps, event=event))


def one_call(level, m):
    """E[(X - level)_+] for the lognormal ratio X of a Gaussian pair, in closed form."""
    if level <= 0.0:
        return 1.0 - level
    d = -math.log(level) / m + 0.5 * m
    return float(special.ndtr(d) - level * special.ndtr(d - m))


def two_calls(gamma, m):
    """E[((X_1 + X_2) / 2 - gamma)_+] by an integral over the first."""

    def inner(z):
        return math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) * 0.5 * one_call(2.0 * gamma - math.exp(m * z - 0.5 * m * m), m)

    kink = (math.log(2.0 * gamma) + 0.5 * m * m) / m
    return sum(integrate.quad(inner, a, b, epsabs=1e-15, epsrel=1e-11, limit=400)[0] for a, b in ((-12.0, kink), (kink, 12.0)))


# -- the curve -----------------------------------------------------------------------------------------------------------------------


def test_one_step_is_the_whole_release():
    curve = AllocationCurve(GAUSSIAN, 1.0, 1)
    truth = calls(Pair(GAUSSIAN, Mixture((1.0,), (1.0,)), Mixture((1.0,), (0.0,))), EPSILONS).upper
    for found in (curve.forward(EPSILONS), curve.backward(EPSILONS)):
        assert np.all((found.lower <= truth) & (truth <= found.upper))
        # Backwards at 2 the sum has 0.14 of the way to its end left, and the grid little room.
        assert np.all(found.upper <= found.lower * (1.0 + np.where(EPSILONS < 2.0, 2e-5, 2e-4)))


def test_two_steps_are_an_integral_over_one_of_them():
    curve = AllocationCurve(GAUSSIAN, 1.0, 2)
    gammas = np.exp(EPSILONS)
    forward = np.array([two_calls(g, 1.0) for g in gammas])
    backward = np.array([1.0 - g + g * two_calls(1.0 / g, 1.0) for g in gammas])
    for found, truth in ((curve.forward(EPSILONS), forward), (curve.backward(EPSILONS), backward)):
        assert np.all((found.lower <= truth * (1.0 + 1e-9)) & (truth <= found.upper * (1.0 + 1e-9)))
        assert np.all(found.upper <= found.lower * (1.0 + 1e-4))


@pytest.mark.parametrize(("m", "steps", "epsilons"), thinned([(1.5, 12, (0.0, 0.2, 0.5)), (0.5, 40, (0.0, 0.05, 0.1))], every=2))
def test_simulated_sums_are_in_the_bracket(m, steps, epsilons):
    rng = np.random.default_rng(5)
    mean = np.mean([np.exp(m * rng.standard_normal(400_000) - 0.5 * m * m) for _ in range(steps)], axis=0)
    epsilons = np.array(epsilons)
    curve = curve_of(GAUSSIAN, m, steps)
    for found, sample in (
        (curve.forward(epsilons), np.maximum(mean[:, None] - np.exp(epsilons), 0.0)),
        (curve.backward(epsilons), np.maximum(1.0 - mean[:, None] * np.exp(epsilons), 0.0)),
    ):
        error = 5.0 * sample.std(axis=0) / math.sqrt(len(mean))
        assert np.all(found.lower - error <= sample.mean(axis=0))
        assert np.all(sample.mean(axis=0) <= found.upper + error)
        assert np.all(error < 0.05 * found.upper)


@pytest.mark.parametrize(("family", "m", "steps"), thinned([(GAUSSIAN, 1.0, 20), (LAPLACE, 1.0, 2), (LAPLACE, 1.0, 30)], every=3), ids=str)
def test_the_curve_is_a_curve_of_a_pair(family, m, steps):
    curve = curve_of(family, m, steps)
    epsilons = np.linspace(0.0, 2.0, 200)
    gammas = np.exp(epsilons)
    for found in (curve.forward(epsilons), curve.backward(epsilons)):
        assert np.all(found.lower <= found.upper)
        assert np.all(np.diff(found.lower) <= 1e-9)
        # Each tangent, with its doubt, stays below every upper bound.
        turned = 1.0 - gammas[None, :] / gammas[:, None]
        lines = found.lower[:, None] + found.tail[:, None] * turned - found.doubt[:, None] * np.abs(turned)
        assert np.all(lines <= found.upper[None, :])
    # (1): one order at 1/gamma is the other at gamma, and both are 1 - 1 + the same at 0.
    both = curve.forward(np.zeros(1)), curve.backward(np.zeros(1))
    assert both[0].lower[0] <= both[1].upper[0]
    assert both[1].lower[0] <= both[0].upper[0]


def test_more_steps_and_more_noise_are_more_private():
    known = [curve_of(GAUSSIAN, m, steps).forward(np.array([0.3])) for m, steps in ((1.0, 10), (1.0, 20), (0.5, 20))]
    assert known[0].lower[0] > known[1].upper[0] > known[1].lower[0] > known[2].upper[0]


def test_nearly_equal_distances_share_a_curve():
    assert curve_of(GAUSSIAN, 1.0, 10) is curve_of(GAUSSIAN, 1.0 + 1e-14, 10)
    assert curve_of(GAUSSIAN, 1.0, 10) is not curve_of(GAUSSIAN, 1.0 + 1e-9, 10)


def test_far_beyond_the_curve_its_last_bounds_hold():
    curve = curve_of(GAUSSIAN, 1.0, 10)
    for found in (curve.forward(np.array([50.0, 1e30])), curve.backward(np.array([50.0, 1e30]))):
        assert np.all(found.lower == 0.0)
        assert np.all((found.upper >= 0.0) & (found.upper < 1e-15))


def test_all_indices_of_a_window_at_once_are_those_one_at_a_time():
    pair = Pair(Summand(GAUSSIAN, 1.1), Mixture((1.0,), (1.0,)), Mixture((1.0,), (0.0,)))
    estimates, saddle = Estimates.for_epsilon(((pair, 15),), 5.0 * ETA)
    layer = Plan(((pair, 15),), estimates, saddle).layer(1e-2 * ETA, both=True)
    for law in (layer.upper, layer.lower):
        tails, window = law.tails(), law.window
        chosen = np.linspace(0, window.last - window.first, 25).astype(int)
        ones = np.array([math.exp(law.log_delta(window.first + int(k))) for k in chosen])
        assert tails.deltas[chosen] == pytest.approx(ones, rel=1e-7)
        # The mass beyond an index is how much the law's curve falls to the next one, over their distance.
        falls = -np.diff(tails.deltas) / law.step
        inside = tails.masses[:-1] > 1e-3
        assert np.all(np.abs(falls - tails.masses[:-1])[inside] <= 1e-4 * tails.masses[:-1][inside])
        assert np.all(tails.doubts[:-1][inside] <= 1e-4 * tails.masses[:-1][inside])


# -- the pair ------------------------------------------------------------------------------------------------------------------------

AXIS = np.arange(-11.0, 11.0, 0.05) + 0.025


def allocation_law(family, records, steps):
    """Density of the noisy sums of all steps; numbers, each of which is in one step."""
    law = 0.0
    for places in itertools.product(range(steps), repeat=len(records)):
        sums = np.bincount(places, weights=records, minlength=steps)
        law = law + noise_density(family, sums, [AXIS] * steps) / steps ** len(records)
    return law


@pytest.mark.parametrize("family", thinned([GAUSSIAN, LAPLACE], every=2), ids=repr)
@pytest.mark.parametrize("level", thinned([1.0, 1.3, 2.0], every=3))
def test_the_pair_is_attained_and_no_data_set_does_worse(family, level):
    axes, curve = [AXIS] * 2, curve_of(family, 1.0, 2)
    epsilon = np.array([math.log(level)])
    bounds = curve.forward(epsilon), curve.backward(epsilon)
    allowed = max(found.upper[0] for found in bounds)
    alone = both_orders(allocation_law(family, [1.0], 2), allocation_law(family, [], 2), level, axes)
    assert alone == pytest.approx(allowed, abs=2e-3)
    for others in ([1.0], [-1.0, 1.0], [0.3, -0.7]):
        for own in (1.0, -0.6):
            laws = allocation_law(family, [*others, own], 2), allocation_law(family, others, 2)
            assert both_orders(*laws, level, axes) <= allowed + 2e-3


# -- groups --------------------------------------------------------------------------------------------------------------------------


def grouped(size, steps, event, count=1):
    return Grouped(size=size, unit="user", event=allocated(steps, event, count))


@pytest.mark.parametrize(("size", "steps"), [(2, 2), (3, 4), (4, 3), (5, 2)])
def test_weights_of_a_groups_moves_are_those_of_all_its_allocations(size, steps):
    places = itertools.product(range(steps), repeat=size)
    squares = [int(np.square(np.bincount(one, minlength=steps)).sum()) for one in places]
    found = squared_moves(size, steps)
    for square in range(size * size + 1):
        # Of large ones some count as the next larger one.
        beyond = sum(weight for one, weight in found.items() if one >= square)
        assert beyond >= sum(one >= square for one in squares) / len(squares) * (1.0 - 1e-15)
    assert sum(found.values()) == pytest.approx(1.0, rel=1e-14)
    assert found[size * size] == pytest.approx(steps ** (1.0 - size), rel=1e-15)


@pytest.mark.parametrize("family", thinned(["gaussian", "laplace"], every=2))
@pytest.mark.parametrize("level", thinned([1.0, 1.5, 4.0], every=3))
def test_no_group_of_a_small_data_set_exceeds_the_bound_and_a_sum_reaches_the_lower_end(family, level):
    density, event = (GAUSSIAN, gaussian(1.0)) if family == "gaussian" else (LAPLACE, laplace(1.0))
    found, axes = profile(grouped(2, 2, event)).delta(math.log(level)), [AXIS] * 2
    attained = both_orders(allocation_law(density, [1.0, 1.0], 2), allocation_law(density, [], 2), level, axes)
    assert found.lower <= attained + 2e-3
    for others in ([], [-1.0], [0.5, -1.0]):
        for own in ([1.0, 1.0], [1.0, -1.0], [0.4, -1.0], [1.0]):
            laws = allocation_law(density, [*others, *own], 2), allocation_law(density, others, 2)
            assert both_orders(*laws, level, axes) <= found.upper + 2e-3


@pytest.mark.parametrize(("size", "steps", "std"), thinned([(2, 5, 1.5), (3, 13, 3.0)], every=2))
def test_simulated_groups_are_in_the_bracket(size, steps, std):
    rng, m = np.random.default_rng(8), 1.0 / std
    noise = rng.standard_normal((100_000, steps))
    ratios = np.zeros(len(noise))
    for chosen in itertools.product(range(steps), repeat=size):
        moves = m * np.bincount(chosen, minlength=steps)
        ratios += np.exp(noise @ moves - 0.5 * float(moves @ moves)) / steps**size
    whole = profile(grouped(size, 1, gaussian(std)))
    for epsilon in (0.0, 0.3, 0.8):
        found, level = profile(grouped(size, steps, gaussian(std))).delta(epsilon), math.exp(epsilon)
        samples = np.maximum(ratios - level, 0.0), np.maximum(1.0 - level * ratios, 0.0)
        truth = max(sample.mean() for sample in samples)
        error = 5.0 * max(sample.std() for sample in samples) / math.sqrt(len(noise))
        assert found.lower - error <= truth <= found.upper + error
        assert error < 0.1 * found.upper < 0.1 * whole.delta(epsilon).lower


@pytest.mark.slow
def test_a_groups_bracket_holds_one_record_and_is_far_below_a_whole_release():
    one, found = (profile(event).epsilon(1e-5) for event in (allocated(100, gaussian(2.0), 10), grouped(3, 100, gaussian(2.0), 10)))
    total = profile(Repeated(count=10, event=gaussian(2.0 * math.sqrt(100.0) / 3.0))).epsilon(1e-5)
    assert one.upper < total.lower * (1.0 - 1e-9) < found.lower * (1.0 + 1e-9) <= found.upper < 1.5 * found.lower
    assert found.upper < 0.1 * profile(grouped(3, 1, gaussian(2.0), 10)).epsilon(1e-5).lower


def test_a_groups_lower_ends_are_found_once(monkeypatch):
    asked = []
    monkeypatch.setattr(accountant, "lower_parts", lambda parts: asked.append(parts) or lower_parts(parts))
    profile(grouped(2, 2, gaussian(8.0), 2)).epsilon(1e-5)
    assert len(asked) == 1


def test_groups_compose_with_other_releases_and_with_shuffled_batches():
    parts = allocated(10, gaussian(2.0, adjacency="zero_out")), Shuffled(steps=10, event=gaussian(4.0, adjacency="zero_out"))
    found = profile(Grouped(size=2, unit="user", event=Composed(events=parts))).epsilon(1e-5)
    alone = profile(Grouped(size=2, unit="user", event=parts[0])).epsilon(1e-5)
    assert alone.upper < found.upper
    assert 0.0 < found.lower < found.upper


# -- epochs --------------------------------------------------------------------------------------------------------------------------


def test_epochs_compose():
    rng, m, steps = np.random.default_rng(6), 1.0, 10
    ratios = [np.mean(np.exp(m * rng.standard_normal((steps, 1_000_000)) - 0.5 * m * m), axis=0) for _ in range(2)]
    sample = np.maximum(ratios[0] * ratios[1] - math.exp(0.4), 0.0)
    found = profile(allocated(steps, gaussian(1.0), 2)).delta(0.4)
    error = 5.0 * sample.std() / 1000.0
    assert found.lower <= found.upper <= found.lower * (1.0 + 1e-4)
    assert found.lower - error <= sample.mean() <= found.upper + error
    assert error < 0.02 * found.upper


@pytest.mark.parametrize(("count", "route"), thinned([(1, "single"), (3, "fft")], every=2))
def test_epsilon_is_narrow_and_below_that_of_poisson_samples(count, route):
    bound = profile(allocated(20, gaussian(1.0), count)).epsilon(1e-5)
    poisson = profile(Repeated(count=20 * count, event=PoissonSampled(probability=0.05, event=gaussian(1.0)))).epsilon(1e-5)
    assert bound.route == route
    assert bound.upper - bound.lower <= 1e-5 * bound.upper
    assert bound.upper < poisson.lower  # seen for these numbers; no law


@pytest.mark.slow
def test_epochs_are_narrow_from_the_bulk_to_single_large_ratios():
    found = profile(allocated(200, gaussian(1.0), 5))
    for delta in (1e-4, 1e-8, 1e-12):
        bound = found.epsilon(delta)
        assert bound.upper - bound.lower <= 1e-5 * bound.upper


def test_it_composes_with_other_releases():
    event = Composed(events=(allocated(20, gaussian(1.0), 2), gaussian(5.0)))
    bound = profile(event).epsilon(1e-5)
    assert profile(allocated(20, gaussian(1.0), 2)).epsilon(1e-5).upper < bound.upper
    assert bound.upper - bound.lower <= 1e-5 * bound.upper
    assert profile(event, accountant="rdp").epsilon(1e-5).upper >= bound.lower


# -- doors ---------------------------------------------------------------------------------------------------------------------------


def test_it_is_read_and_written_as_json():
    event = allocated(20, gaussian(1.0), 2)
    assert EVENT.validate_json(EVENT.dump_json(event)) == event


def test_one_step_and_local_releases_are_whole():
    assert list(leaves(RandomlyAllocated(steps=1, event=gaussian()))) == list(leaves(gaussian()))
    local = Release(mechanism=local_gaussian(3))
    assert list(leaves(RandomlyAllocated(steps=9, event=local))) == list(leaves(local))


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            Grouped(size=2, unit="person", event=allocated(10, Release(mechanism=SUM_OF_WHOLE_NUMBERS))),
            "groups in random allocations under replace_one",
        ),
        (Grouped(size=21, unit="person", event=allocated(10, gaussian(1.0))), "groups of more than 20 with random allocation"),
    ],
    ids=["sum of whole numbers", "group"],
)
def test_what_is_not_proved_is_refused_with_the_reason(event, text):
    with pytest.raises(UnsupportedEvent, match=text):
        profile(event)


@pytest.mark.parametrize("steps", [0, 10**6 + 1, 2.5])
def test_numbers_of_steps_out_of_range_are_refused(steps):
    with pytest.raises(ValidationError):
        RandomlyAllocated(steps=steps, event=gaussian())


def test_only_a_single_release_is_allocated():
    with pytest.raises(InvalidParameter, match=r"randomly_allocated\.event"):
        leaves(allocated(10, PoissonSampled(probability=0.5, event=gaussian())))


def test_too_little_noise_is_refused_by_the_curve_and_answered_by_another_route():
    with pytest.raises(UnsupportedEvent, match="noise is too small"):
        curve_of(GAUSSIAN, 12.0, 10)
    assert profile(allocated(10, gaussian(1.0 / 12.0))).epsilon(1e-5).route.startswith("rdp")


def test_dp_accounting_has_no_such_event():
    with pytest.raises(InvalidParameter, match="a random allocation"):
        to_dp_accounting(allocated(10, gaussian()))


def test_laplace_noise_is_answered():
    bound = profile(allocated(30, laplace(1.0), 2)).epsilon(1e-4)
    assert 0.0 < bound.lower <= bound.upper <= 2.0 * pair_of(next(iter(leaves(laplace(1.0))))).distance
    assert bound.upper - bound.lower <= 1e-2 * bound.upper
