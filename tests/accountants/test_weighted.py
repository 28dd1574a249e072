"""Random shares of a contribution against mpmath, dp-accounting, and sums of records whose every share is listed."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import mpmath
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting import dp_event as library
from dp_accounting.pld import PLDAccountant
from pydantic import TypeAdapter, ValidationError

from tests.accountants.events import gaussian
from zetadp.accountants import Composed, Event, Grouped, PoissonSampled, RandomlyWeighted, Release, Repeated, leaves, profile
from zetadp.accountants.calibration import NoiseScale, Target, solve
from zetadp.accountants.dominating import pair_of
from zetadp.accountants.dominating.weighted import MOST_SUMS, _sums
from zetadp.accountants.dp_accounting_events import from_dp_accounting, to_dp_accounting
from zetadp.accountants.filters.spends import rdp_cost
from zetadp.accountants.leaf import Weighting
from zetadp.accountants.routes.auto import AutoAccountant
from zetadp.mechanisms import Gaussian, InvalidParameter, Laplace, Sensitivity, UnsupportedEvent
from zetadp.mechanisms.declared import DiscreteGaussian, GdpGuarantee

EVENT = TypeAdapter(Event)
SHARES, PROBABILITIES = (0.25, 0.6, 1.0), (0.1, 0.03, 0.02)


def noise(kind="gaussian", scale=1.0, adjacency="add_remove"):
    norm = "l2" if kind == "gaussian" else "l1"
    bounds = {norm: 2.0, f"{norm}_contribution": 1.0} if adjacency == "replace_one" else {norm: 1.0}
    sensitivity = Sensitivity(adjacency=adjacency, unit="record", **bounds)
    one = Gaussian(std=scale, sensitivity=sensitivity) if kind == "gaussian" else Laplace(scale=scale, sensitivity=sensitivity)
    return Release(mechanism=one)


def weighted(event, shares=SHARES, probabilities=PROBABILITIES):
    return RandomlyWeighted(shares=shares, probabilities=probabilities, event=event)


def sums(shares, probabilities, size):
    """The exact law of the sum of so many records' shares."""
    chances = [Fraction(chance) for chance in probabilities]
    one = list(zip([Fraction(0), *map(Fraction, shares)], [1 - sum(chances), *chances], strict=True))
    found = {}
    for drawn in itertools.product(one, repeat=size):
        total = sum(share for share, _ in drawn)
        found[total] = found.get(total, 0) + math.prod(chance for _, chance in drawn)
    return found


def truth(kind, scale, law, epsilon, *, replaced):
    """delta of both orders, to 50 digits: the best event is a half-line, at the point where the ratio of densities is e^epsilon."""
    with mpmath.workdps(50):
        moves = [(mpmath.mpf(t.numerator) / t.denominator / scale, mpmath.mpf(p.numerator) / p.denominator) for t, p in law.items()]

        def tail(t):
            return mpmath.ncdf(-t) if kind == "gaussian" else mpmath.exp(-t) / 2 if t > 0 else 1 - mpmath.exp(t) / 2

        def density(t):
            return mpmath.npdf(t) if kind == "gaussian" else mpmath.exp(-abs(t)) / 2

        def sides(value):
            upper = [p * value(move) for move, p in moves]
            lower = [p * value(-move) for move, p in moves] if replaced else [value(mpmath.mpf(0))]
            return sum(upper), sum(lower)

        def loss(t):
            upper, lower = sides(lambda move: density(t - move))
            return mpmath.log(upper / lower)

        def beyond(level):
            low, high = mpmath.mpf(-60), mpmath.mpf(60)
            for _ in range(190):
                middle = (low + high) / 2
                low, high = (low, middle) if loss(middle) >= level else (middle, high)
            return sides(lambda move: tail(high - move))

        above, below = beyond(mpmath.mpf(epsilon)), beyond(-mpmath.mpf(epsilon))
        factor = mpmath.exp(epsilon)
        return max(above[0] - factor * above[1], (1 - below[1]) - factor * (1 - below[0]), mpmath.mpf(0))


def random_question(seed):
    draw = random.Random(seed)
    size = draw.choice([1, 1, 2, 3])
    shares = tuple(sorted({round(draw.uniform(0.05, 1.0), 3) for _ in range(draw.choice([1, 2, 3]))} | {1.0}))
    raw = [10.0 ** draw.uniform(-4.0, 0.0) for _ in shares]
    total = draw.choice([0.05, 0.5, 0.9]) / sum(raw)
    probabilities = tuple(total * one for one in raw)
    kind, adjacency = draw.choice(["gaussian", "laplace"]), draw.choice(["add_remove", "zero_out", "replace_one"])
    return kind, draw.choice([0.7, 1.5, 4.0]), adjacency, shares, probabilities, size, draw.choice([0.0, 0.1, 0.6, 1.4])


@pytest.mark.parametrize("seed", range(16))
def test_one_release_is_what_mpmath_integrates(seed):
    kind, scale, adjacency, shares, probabilities, size, epsilon = random_question(seed)
    event = weighted(noise(kind, scale, adjacency), shares, probabilities)
    event = event if size == 1 else Grouped(size=size, unit="user", event=event)
    exact = truth(kind, scale, sums(shares, probabilities, size), epsilon, replaced=adjacency == "replace_one")
    found = profile(event).delta(epsilon)
    log_exact = float(mpmath.log(exact)) if exact > 0 else -math.inf
    assert found.log_lower - 1e-12 <= log_exact <= found.log_upper + 1e-12  # the logarithm is itself rounded
    assert found.log_upper - log_exact <= 1e-6 or found.log_upper == log_exact


def test_a_composition_agrees_with_dp_accounting():
    event = Repeated(count=30, event=weighted(noise()))
    peer = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-3)
    peer.compose(to_dp_accounting(event))
    theirs = peer.get_epsilon(1e-6)
    for name in ("contour", "fft"):
        found = profile(event, name).epsilon(1e-6)
        assert found.lower <= theirs * (1.0 + 1e-5)  # theirs is an upper bound
        assert found.upper == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out", "replace_one"])
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_routes_agree_about_compositions_and_groups(kind, adjacency):
    each = weighted(noise(kind, 2.0, adjacency))
    for event in (Repeated(count=30, event=each), Composed(events=(Grouped(size=3, unit="user", event=Repeated(count=20, event=each)),))):
        fft, renyi, auto = (profile(event, name).epsilon(1e-6) for name in ("fft", "rdp", "auto"))
        assert fft.lower <= auto.upper <= renyi.upper
        assert auto.lower <= fft.upper <= auto.lower * (1.0 + 1e-4)


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out", "replace_one"])
def test_a_share_of_1_is_a_poisson_sample(adjacency):
    one = weighted(noise(adjacency=adjacency), (1.0,), (0.125,))
    sampled = PoissonSampled(probability=0.125, event=noise(adjacency=adjacency))
    for size in (1, 4):
        (found,), (expected,) = (leaves(event if size == 1 else Grouped(size=size, unit="user", event=event)) for event in (one, sampled))
        assert pair_of(found) == pair_of(expected)
    assert leaves(weighted(noise(adjacency=adjacency), (1.0,), (1.0,))) == leaves(noise(adjacency=adjacency))


def test_smaller_shares_and_rarer_ones_are_more_private():
    full = profile(weighted(noise())).epsilon(1e-6).lower
    assert profile(weighted(noise(), (0.2, 0.5, 0.9))).epsilon(1e-6).upper < full
    assert profile(weighted(noise(), SHARES, (0.1, 0.03, 0.01))).epsilon(1e-6).upper < full
    sampled = profile(PoissonSampled(probability=sum(PROBABILITIES), event=noise())).epsilon(1e-6)
    assert full < sampled.lower


def test_too_many_sums_of_shares_only_move_up():
    weighting, size = Weighting((0.1234, 0.3571, 0.77, 1.0), (0.2, 0.1, 0.05, 0.01)), 9
    found = _sums(weighting, size)
    exact = {Fraction(0): Fraction(1)}
    one = sums(*weighting, 1)
    for _ in range(size):
        added = {}
        for (a, p), (b, q) in itertools.product(exact.items(), one.items()):
            added[a + b] = added.get(a + b, Fraction(0)) + p * q
        exact = added
    assert len(exact) > MOST_SUMS >= len(found) - 1
    for level, _ in found:
        above = sum(Fraction(p) for share, p in found if share >= level)
        assert above >= sum(p for share, p in exact.items() if share >= Fraction(level))
    mean = sum(Fraction(share) * Fraction(p) for share, p in found)
    assert mean <= sum(share * p for share, p in exact.items()) * Fraction(11, 10)


def test_probabilities_that_sum_to_1_leave_the_first_what_the_others_leave():
    event = weighted(noise(), (0.5, 0.75, 1.0), (0.1, 0.2, 0.7))
    ((leaf, _),) = leaves(event).items()
    assert math.fsum(pair_of(leaf).upper.weights) == pytest.approx(1.0, abs=1e-15)
    assert pair_of(leaf).lower.shifts == (-0.5,)
    law = {Fraction(1, 2): Fraction(1, 10), Fraction(3, 4): Fraction(1, 5), Fraction(1): Fraction(7, 10)}
    exact = truth("gaussian", 1.0, law, 0.3, replaced=False)
    found = profile(event).delta(0.3)
    assert found.lower <= float(exact) * (1.0 + 1e-12)
    assert found.upper >= float(exact) * (1.0 - 1e-12)


def test_a_grids_upper_end_alone_is_hardly_above_the_bracket():
    found = profile(Repeated(count=20, event=weighted(noise())), "fft")
    for epsilon in (0.0, 0.3, 2.0):
        both = found.delta(epsilon)
        assert both.log_lower <= found.log_delta_upper(epsilon) <= both.log_upper + 1e-5
    assert found.log_delta_upper(math.inf) == -math.inf


def test_several_releases_of_the_same_shares_are_one():
    both = profile(weighted(Composed(events=(noise(scale=2.0), noise(scale=2.0))))).epsilon(1e-6)
    one = profile(weighted(noise(scale=math.sqrt(2.0)))).epsilon(1e-6)
    assert both.upper == pytest.approx(one.upper, rel=1e-9)


def test_it_is_read_and_written_as_json():
    event = Grouped(size=2, unit="user", event=weighted(noise()))
    assert EVENT.validate_json(EVENT.dump_json(event)) == event


@pytest.mark.parametrize(
    ("shares", "probabilities", "text"),
    [
        ((0.5, 0.5), (0.1, 0.1), "shares must be ascending"),
        ((1.0, 0.5), (0.1, 0.1), "shares must be ascending"),
        ((0.5, 1.0), (0.1,), "probabilities must be as many as shares, 2"),
        ((0.5, 1.0), (0.6, 0.6), "probabilities must be at most 1 in all"),
        ((0.5, 1.0), (1e-14, 1.0), "probabilities must be at most 1 in all"),
    ],
)
def test_shares_and_probabilities_that_say_nothing_are_refused(shares, probabilities, text):
    with pytest.raises(ValidationError, match=text):
        weighted(noise(), shares, probabilities)


def test_shares_above_1_are_refused():
    with pytest.raises(ValidationError, match="less than or equal to 1"):
        weighted(noise(), (0.5, 1.5), (0.1, 0.1))


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Release(mechanism=GdpGuarantee(mu=1.0, adjacency="add_remove", unit="record")), "noise that is added to what all records"),
        (Release(mechanism=DiscreteGaussian(scale=2.0, moves=1, adjacency="add_remove", unit="record")), "noise that is added"),
        (PoissonSampled(probability=0.1, event=gaussian(1.0)), "not sampled in another way"),
    ],
)
def test_what_has_no_shares_is_refused(event, text):
    with pytest.raises(InvalidParameter, match=text):
        leaves(weighted(event))


def test_under_replace_one_a_contribution_is_needed():
    with pytest.raises(UnsupportedEvent, match=r"sensitivity\.l2_contribution"):
        profile(weighted(gaussian(1.0, adjacency="replace_one")))


def test_a_large_group_is_answered_and_a_larger_one_refused():
    assert profile(Grouped(size=100, unit="user", event=weighted(noise(scale=20.0)))).epsilon(1e-6).upper < 10.0
    with pytest.raises(UnsupportedEvent, match="more than 1000 units"):
        profile(Grouped(size=1001, unit="user", event=weighted(noise())))


def test_noise_is_calibrated():
    found = solve(Repeated(count=50, event=weighted(noise())), NoiseScale(), Target(epsilon=1.0, delta=1e-6), AutoAccountant())
    assert profile(found.event).epsilon(1e-6).upper <= 1.0


def test_filters_charge_what_renyi_accounting_proves():
    event = Repeated(count=50, event=weighted(noise()))
    (charged,) = rdp_cost(event, (4.0,))
    assert float(charged) == pytest.approx(profile(event, "rdp").rdp(4.0), rel=1e-9)


def test_the_derivation_names_the_row():
    steps = profile(Repeated(count=5, event=weighted(noise()))).derivation()
    assert any(step.source == "proofs/pairs.md, row 11" for step in steps)


def test_dp_accountings_mixture_is_read_and_written_back():
    event = library.MixtureOfGaussiansDpEvent(3.0, [0.0, 2.0, 1.0, 2.0], [0.85, 0.05, 0.08, 0.02])
    found = from_dp_accounting(event, adjacency="add_remove", unit="record")
    assert (found.shares, found.event.mechanism.std) == ((0.5, 1.0), 1.5)
    assert found.probabilities == pytest.approx((0.08, 0.07))
    back = to_dp_accounting(found)
    assert isinstance(back, library.MixtureOfGaussiansDpEvent)
    assert [shift * 3.0 for shift in back.sensitivities] == pytest.approx([0.0, 1.0, 2.0])
    assert list(back.sampling_probs) == pytest.approx([0.85, 0.08, 0.07])


def test_under_replace_one_it_costs_more_than_either_order_of_dp_accountings_pair():
    event = library.MixtureOfGaussiansDpEvent(3.0, [0.0, 1.0, 2.0], [0.85, 0.08, 0.07])
    replaced, added = (profile(from_dp_accounting(event, adjacency=a, unit="record")).epsilon(1e-6) for a in ("replace_one", "add_remove"))
    assert replaced.lower > added.upper
