"""Poisson samples that are cut to a largest size, by every route and every door."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event as library
from dp_accounting.pld import PLDAccountant
from pydantic import TypeAdapter, ValidationError

from tests.accountants.events import gaussian, laplace, replace_one_gaussian
from tests.selection import thinned
from zetadp.accountants import (
    Composed,
    Event,
    FixedSizeSampled,
    Grouped,
    PoissonSampled,
    Repeated,
    TruncatedPoissonSampled,
    profile,
)
from zetadp.accountants.calibration import SamplingProbability, Target, solve
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.densities.moments.either import Either
from zetadp.accountants.densities.transforms import MixedGaussian
from zetadp.accountants.dominating import pair_of
from zetadp.accountants.dp_accounting_events import from_dp_accounting, to_dp_accounting
from zetadp.accountants.events import leaves
from zetadp.accountants.routes.auto import AutoAccountant
from zetadp.mechanisms import InvalidParameter
from zetadp.mechanisms.base import Adjacency

EVENT = TypeAdapter(Event)


def cut(probability, most, population, event, count=1):
    return Repeated(
        count=count,
        event=TruncatedPoissonSampled(probability=probability, largest_batch=most, population_size=population, event=event),
    )


def log_truth(event, epsilon):
    """How many of the releases are crowded is binomial, and public: a sum over that number, of compositions of two kinds of samples.

    In both kinds the order in which a record is removed has the larger delta.
    """
    ((leaf, count),) = leaves(event).items()
    share, std = mpmath.mpf(pair_of(leaf).crowded.probability), leaf.mechanism.std
    total = mpmath.mpf(0)
    for k in range(count + 1):
        kinds = [(count - k, gaussian(std)), (k, gaussian(0.5 * std))]
        parts = [Repeated(count=n, event=PoissonSampled(probability=leaf.probability, event=noise)) for n, noise in kinds if n]
        delta = mpmath.exp(profile(Composed(events=tuple(parts))).delta(epsilon).log_upper)
        total += mpmath.binomial(count, k) * share**k * (1 - share) ** (count - k) * delta
    return float(mpmath.log(total))


CUT = cut(0.2, 60, 200, gaussian(1.5), 12)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
def test_the_bracket_holds_the_sum_over_the_number_of_crowded_releases(epsilon):
    event = cut(0.2, 50, 200, gaussian(1.5), 12)
    truth = log_truth(event, epsilon)
    for route in ("contour", "fft"):
        found = profile(event, accountant=route).delta(epsilon)
        assert found.log_lower - 1e-5 <= truth <= found.log_upper + 1e-5
        assert found.log_upper - found.log_lower <= 1e-5
    assert profile(event, accountant="rdp").delta(epsilon).log_upper >= truth
    plain = profile(Repeated(count=12, event=PoissonSampled(probability=0.2, event=gaussian(1.5)))).delta(epsilon)
    assert truth > plain.log_upper + 1e-4  # cutting isn't free


@pytest.mark.parametrize(
    ("noise", "adjacency"), [(gaussian(1.5, adjacency="zero_out"), "zero_out"), (replace_one_gaussian(1.5), "replace_one")]
)
def test_where_others_displace_a_record_in_the_worse_direction_the_grid_answers(noise, adjacency):
    event = cut(0.2, 60, 200, noise, 12)
    bound = profile(event).epsilon(1e-5)
    assert bound.route == "fft"
    assert 0.0 < bound.upper - bound.lower <= 1e-5 * bound.upper
    plain = profile(Repeated(count=12, event=PoissonSampled(probability=0.2, event=noise))).epsilon(1e-5)
    fixed = profile(Repeated(count=12, event=FixedSizeSampled(sample_size=40, population_size=200, event=noise))).epsilon(1e-5)
    assert plain.upper < bound.lower < fixed.upper, adjacency


def test_one_release_is_the_mixture_of_both_curves():
    event = cut(0.2, 60, 200, gaussian(1.5))
    ((leaf, _),) = leaves(event).items()
    share = pair_of(leaf).crowded.probability
    plain = PoissonSampled(probability=0.2, event=gaussian(1.5))
    fixed = FixedSizeSampled(sample_size=40, population_size=200, event=gaussian(1.5))
    for epsilon in (0.0, 0.3, 1.5):
        parts = [profile(one, accountant="single").delta(epsilon).upper for one in (plain, fixed)]
        found = profile(event, accountant="single").delta(epsilon)
        # Each of the two takes the larger of its own two orders.
        assert found.lower <= (1.0 - share) * parts[0] + share * parts[1]
        assert found.upper == pytest.approx((1.0 - share) * parts[0] + share * parts[1], rel=1e-9)


def test_larger_batches_and_smaller_data_sets_are_more_private():
    def epsilon(most, population):
        return profile(cut(0.2, most, population, gaussian(1.5), 12)).epsilon(1e-5)

    assert epsilon(70, 200).upper < epsilon(60, 200).lower < epsilon(60, 220).lower


def test_large_trainings_with_rare_cuts_are_answered_by_the_contour():
    event = cut(5.18e5 / 2e9, 525_000, 2 * 10**9, gaussian(0.614), 350_000)
    bound = profile(event).epsilon(1.1e-10)
    assert bound.route == "contour"
    assert bound.upper - bound.lower <= 1e-6 * bound.upper


def test_laplace_noise_is_cut_as_well():
    bound = profile(cut(0.2, 60, 200, laplace(2.0), 12)).epsilon(1e-5)
    assert bound.upper - bound.lower <= 1e-4 * bound.upper


# -- the moment function of either ---------------------------------------------------------------------------------------------------


def two_transforms(count=100):
    null = Mixture((1.0,), (0.0,))
    return [MixedGaussian(Mixture((0.9, 0.1), (0.0, shift)), null, count, 60.0) for shift in (0.5, 1.0)]


@pytest.mark.parametrize("share", thinned([1e-20, 1e-6, 0.3, 1.0 - 1e-9], every=2))
@pytest.mark.parametrize("tilt", thinned([1e-3, 1.0, 12.0], every=2))
def test_bounds_of_the_mixed_moment_are_above_it_and_near(share, tilt):
    often, rarely = two_transforms()
    found = Either(often, rarely, share)
    tilts = np.array([tilt])
    with mpmath.workdps(40):
        a, b = (mpmath.mpf(float(one.log_moment_upper(tilts)[0])) for one in (often, rarely))
        s = mpmath.mpf(share)
        truth = mpmath.log((1 - s) * mpmath.exp(a) + s * mpmath.exp(b))
        value = mpmath.mpf(float(found.log_moment_upper(tilts)[0]))
        assert 0 <= value - truth <= 1e-13 * (abs(a) + abs(b))
        values = [mpmath.mpf(one.cumulants(tilt)[0]) for one in (often, rarely)]
        truth = mpmath.log((1 - s) * mpmath.exp(values[0]) + s * mpmath.exp(values[1]))
    assert found.cumulants(tilt)[0] == pytest.approx(float(truth), rel=1e-9)


def test_values_on_the_line_are_the_mixture_within_its_error():
    often, rarely = two_transforms()
    lines = [one.line(3.0, 0.2, 50, 1e-12) for one in (often, rarely)]
    found = Either(often, rarely, 0.25).line(3.0, 0.2, 50, 1e-12)
    mixed = 0.75 * lines[0].minus_one + 0.25 * lines[1].minus_one
    assert np.all(np.abs(found.minus_one - mixed) <= 1e-15 * np.abs(mixed))
    assert np.all(found.error >= 0.75 * lines[0].error + 0.25 * lines[1].error)


# -- doors ---------------------------------------------------------------------------------------------------------------------------


def test_it_is_read_and_written_as_json():
    assert EVENT.validate_json(EVENT.dump_json(CUT)) == CUT


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"probability": 1.0}, "fixed_size_sampled"),
        ({"probability": 0.0}, "greater than or equal"),
        ({"largest_batch": 0}, "greater than or equal to 1"),
        ({"population_size": 0.5}, "valid integer"),
    ],
)
def test_numbers_out_of_range_are_refused(change, text):
    given = {"probability": 0.2, "largest_batch": 60, "population_size": 200, "event": gaussian()}
    with pytest.raises((ValidationError, InvalidParameter), match=text):
        TruncatedPoissonSampled(**(given | change))


def test_two_kinds_of_sampling_are_refused():
    with pytest.raises(InvalidParameter, match=r"truncated_poisson_sampled\.event"):
        leaves(cut(0.2, 60, 200, PoissonSampled(probability=0.5, event=gaussian())))


@pytest.mark.parametrize(("others", "most"), thinned([(4, 2), (3, 3), (5, 1), (2, 6)], every=2))
@pytest.mark.parametrize("epsilon", thinned([0.0, 0.4, 1.5], every=2))
def test_groups_are_bounded_and_attack_less_than_the_bound(others, most, epsilon):
    # The unit's two records pull one way, all others the other way: D' has the unit.
    q, std, size = 0.4, 1.5, 2
    law = {True: {}, False: {}}
    for common in range(others + 1):
        weight = math.comb(others, common) * q**common * (1 - q) ** (others - common)
        law[False][-min(common, most)] = law[False].get(-min(common, most), 0.0) + weight
        for joined in range(size + 1):
            drawn = min(most, common + joined)
            for kept in range(max(0, drawn - common), min(joined, drawn) + 1):
                chance = math.comb(joined, kept) * math.comb(common, drawn - kept) / math.comb(common + joined, drawn)
                chance *= weight * math.comb(size, joined) * q**joined * (1 - q) ** (size - joined)
                law[True][2 * kept - drawn] = law[True].get(2 * kept - drawn, 0.0) + chance
    x = np.linspace(-25.0, 25.0, 40_001)
    with_unit, without = (sum(p * np.exp(-0.5 * ((x - v) / std) ** 2) for v, p in one.items()) for one in (law[True], law[False]))
    step = (x[1] - x[0]) / (std * math.sqrt(2.0 * math.pi))
    attacks = [step * float(np.maximum(a - math.exp(epsilon) * b, 0.0).sum()) for a, b in ((with_unit, without), (without, with_unit))]
    event = Grouped(size=size, unit="user", event=cut(q, most, others + size, gaussian(std)))
    bound = profile(event).delta(epsilon)
    assert max(attacks) <= bound.upper * (1.0 + 1e-6)
    if most >= others + size:
        plain = Grouped(size=size, unit="user", event=PoissonSampled(probability=q, event=gaussian(std)))
        assert bound.upper == profile(plain).delta(epsilon).upper


def test_a_group_of_a_cut_sample_is_nearly_that_of_a_poisson_sample_where_cuts_are_rare():
    plain = profile(Grouped(size=3, unit="user", event=Repeated(count=50, event=PoissonSampled(probability=0.01, event=gaussian(1.0)))))
    rare = profile(Grouped(size=3, unit="user", event=cut(0.01, 200, 10_000, gaussian(1.0), 50)))
    often = profile(Grouped(size=3, unit="user", event=cut(0.01, 100, 10_000, gaussian(1.0), 50)))
    one = profile(cut(0.01, 100, 10_000, gaussian(1.0), 50))
    assert rare.epsilon(1e-6).upper == pytest.approx(plain.epsilon(1e-6).upper, rel=1e-6)
    assert often.epsilon(1e-6).lower > plain.epsilon(1e-6).upper
    assert often.epsilon(1e-6).lower > one.epsilon(1e-6).upper


def cut_law(unit, others, q, most):
    """Probabilities of the sums of a Poisson sample, cut to ``most``: numbers, of the unit and of the others."""
    records, law = [*unit, *others], {}
    for drawn in itertools.product((False, True), repeat=len(records)):
        sample = [value for value, joins in zip(records, drawn, strict=True) if joins]
        weight = q ** len(sample) * (1 - q) ** (len(records) - len(sample))
        parts = list(itertools.combinations(sample, min(most, len(sample))))
        for part in parts:
            law[sum(part)] = law.get(sum(part), 0.0) + weight / len(parts)
    return law


@pytest.mark.parametrize("most", thinned([1, 2, 3, 5], every=2))
@pytest.mark.parametrize("others", [(0.0, 0.0, 0.0), (-1.0, -1.0, -1.0), (-1.0, 1.0, 1.0)], ids=str)
def test_a_replaced_group_is_bounded_and_attacks_less_than_the_bound(others, most):
    q, std, x = 0.4, 1.5, np.linspace(-25.0, 25.0, 20_001)
    step = (x[1] - x[0]) / (std * math.sqrt(2.0 * math.pi))
    event = Grouped(size=2, unit="user", event=cut(q, most, 5, replace_one_gaussian(std)))
    plain = profile(Grouped(size=2, unit="user", event=PoissonSampled(probability=q, event=replace_one_gaussian(std))))
    for unit, other in (((1.0, 1.0), (-1.0, -1.0)), ((1.0, -1.0), (0.0, 1.0))):
        first, second = (
            sum(p * np.exp(-0.5 * ((x - v) / std) ** 2) for v, p in cut_law(one, others, q, most).items()) for one in (unit, other)
        )
        for epsilon in (0.0, 0.4, 1.5):
            bound = profile(event).delta(epsilon)
            for a, b in ((first, second), (second, first)):
                assert step * float(np.maximum(a - math.exp(epsilon) * b, 0.0).sum()) <= bound.upper * (1.0 + 1e-6)
            assert bound.lower >= plain.delta(epsilon).lower * (1.0 - 1e-9)
            if most == 5:  # room for all
                assert bound.upper == plain.delta(epsilon).upper


def test_routes_agree_about_a_replaced_group_whose_samples_are_cut():
    event = Grouped(size=3, unit="user", event=cut(0.01, 100, 10_000, replace_one_gaussian(2.0), 50))
    contour, fft = (profile(event, name).epsilon(1e-6) for name in ("contour", "fft"))
    assert fft.lower <= contour.upper
    assert contour.lower <= fft.upper <= contour.lower * (1.0 + 1e-4)


ZEROED = gaussian(1.5, adjacency="zero_out")


@pytest.mark.parametrize("most", [1, 2, 3, 5])
@pytest.mark.parametrize("others", [(-1.0, -1.0, -1.0), (-1.0, 1.0, 1.0), (0.3, -0.8, 0.0)], ids=str)
def test_a_zeroed_group_is_bounded_and_attacks_less_than_the_bound(others, most):
    q, x = 0.4, np.linspace(-25.0, 25.0, 20_001)
    step = (x[1] - x[0]) / (1.5 * math.sqrt(2.0 * math.pi))
    event = Grouped(size=2, unit="user", event=cut(q, most, 5, ZEROED))
    plain = profile(Grouped(size=2, unit="user", event=PoissonSampled(probability=q, event=ZEROED)))
    # Nulls take places of the sample, or there are none.
    for unit, nulls in (((1.0, 1.0), (0.0, 0.0)), ((1.0, 1.0), ()), ((1.0, -0.5), (0.0, 0.0))):
        first, second = (
            sum(p * np.exp(-0.5 * ((x - v) / 1.5) ** 2) for v, p in cut_law(one, others, q, most).items()) for one in (unit, nulls)
        )
        for epsilon in (0.0, 0.4, 1.5):
            bound = profile(event).delta(epsilon)
            for a, b in ((first, second), (second, first)):
                assert step * float(np.maximum(a - math.exp(epsilon) * b, 0.0).sum()) <= bound.upper * (1.0 + 1e-6)
            assert bound.lower >= plain.delta(epsilon).lower * (1.0 - 1e-9)
            if most == 5:  # room for all
                assert bound.upper == plain.delta(epsilon).upper


def test_a_zeroed_groups_pair_is_what_mpmath_integrates():
    q, size, most, population, std, epsilon = 0.1, 3, 4, 20, 2.0, 0.5
    event = Grouped(size=size, unit="user", event=cut(q, most, population, gaussian(std, adjacency="zero_out")))
    with mpmath.workdps(30):
        joins, others = mpmath.mpf(q), population - size
        weights = [mpmath.binomial(size, j) * joins**j * (1 - joins) ** (size - j) for j in range(size + 1)]
        rest = [mpmath.binomial(others, n) * joins**n * (1 - joins) ** (others - n) for n in range(others + 1)]
        crowded = sum(rest[most - size + 1 :])

        def both_orders(up, down):
            """With P's copies at j up and Q's at j down: their ratio never falls, so that the best events are half-lines."""

            def tail(t, move):
                return sum(w * mpmath.ncdf(move * j / std - t) for j, w in enumerate(weights))

            def excess(t, log_level):
                ratio = (sum(w * mpmath.npdf(t - move * j / std) for j, w in enumerate(weights)) for move in (up, down))
                return mpmath.log(next(ratio) / next(ratio)) - log_level

            def level_at(log_level):
                low, high = mpmath.mpf(-20), mpmath.mpf(20)
                for _ in range(80):
                    middle = (low + high) / 2
                    low, high = (low, middle) if excess(middle, log_level) > 0 else (middle, high)
                return low

            ahead, behind, level = level_at(epsilon), level_at(-epsilon), mpmath.exp(epsilon)
            return tail(ahead, up) - level * tail(ahead, down), 1 - tail(behind, down) - level * (1 - tail(behind, up))

        pairs = zip(both_orders(1, 0), both_orders(2, -1), strict=True)
        truth = float(max((1 - crowded) * plain + crowded * displaced for plain, displaced in pairs))
    found = profile(event).delta(epsilon)
    assert truth <= found.upper <= truth * (1.0 + 1e-8)
    assert found.lower <= truth * (1.0 + 2e-9)  # the probability of a cut is rounded up by 1e-9 in both ends


def test_routes_agree_about_a_zeroed_group_whose_samples_are_cut():
    event = Grouped(size=3, unit="user", event=cut(0.01, 100, 10_000, gaussian(2.0, adjacency="zero_out"), 50))
    contour, fft, renyi = (profile(event, name).epsilon(1e-6) for name in ("contour", "fft", "rdp"))
    assert fft.lower <= contour.upper <= renyi.upper
    assert contour.lower <= fft.upper <= contour.lower * (1.0 + 1e-4)


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT])
def test_dp_accounting_has_the_same_event(adjacency):
    event = library.SelfComposedDpEvent(library.TruncatedSubsampledGaussianDpEvent(200, 0.2, 60, 1.5), 12)
    found = from_dp_accounting(event, adjacency=adjacency, unit="record")
    assert to_dp_accounting(found) == event
    ours = cut(0.2, 60, 200, gaussian(1.5, adjacency=adjacency), 12)
    assert [(pair_of(leaf), count) for leaf, count in leaves(found).items()] == [
        (pair_of(leaf), count) for leaf, count in leaves(ours).items()
    ]


def test_a_sample_of_everybody_has_a_fixed_size_or_is_whole():
    def read(*numbers):
        return from_dp_accounting(library.TruncatedSubsampledGaussianDpEvent(*numbers), adjacency=Adjacency.ADD_REMOVE, unit="record")

    fixed = read(200, 1.0, 60, 1.5)
    assert (fixed.kind, fixed.sample_size, fixed.population_size) == ("fixed_size_sampled", 60, 200)
    assert read(50, 1.0, 60, 1.5).kind == "release"


@pytest.mark.parametrize("most", thinned([70, 90], every=2))
def test_the_peers_upper_bound_is_near_ours(most):
    # Its pair for a crowded release is another one: where samples are rarely cut that hardly matters.
    event = library.SelfComposedDpEvent(library.TruncatedSubsampledGaussianDpEvent(200, 0.2, most, 1.5), 12)
    peer = PLDAccountant().compose(event).get_epsilon(1e-3)
    ours = profile(from_dp_accounting(event, adjacency=Adjacency.ADD_REMOVE, unit="record")).epsilon(1e-3)
    assert ours.upper == pytest.approx(peer, rel=0.05 if most == 70 else 1e-3)


def test_the_sampling_probability_is_calibrated():
    found = solve(CUT, SamplingProbability(), Target(epsilon=2.0, delta=1e-5), AutoAccountant())
    assert profile(found.event).epsilon(1e-5).upper <= 2.0
    assert 0.05 < found.value < 0.2


def test_it_composes_with_other_releases():
    event = Composed(events=(CUT, gaussian(4.0), PoissonSampled(probability=0.1, event=gaussian(2.0))))
    bound = profile(event).epsilon(1e-5)
    assert profile(CUT).epsilon(1e-5).upper < bound.upper
    assert bound.upper - bound.lower <= 1e-6 * bound.upper
    assert math.isfinite(profile(event, accountant="rdp").epsilon(1e-5).upper)
