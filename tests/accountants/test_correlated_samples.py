"""Samples of turns in correlated noise: against likelihood ratios of whole matrices, row by row, which know nothing of turns or columns."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import PLDAccountant
from pydantic import TypeAdapter, ValidationError

from tests.accountants.events import gaussian
from zetadp.accountants import Composed, Event, Grouped, PoissonSampled, RandomlyAllocated, Release, Repeated, Shuffled, leaves, profile
from zetadp.accountants.calibration import NoiseScale, calibrate_scale
from zetadp.accountants.dp_accounting_events import to_dp_accounting
from zetadp.app.calculators.caveats import caveats_of
from zetadp.mechanisms import Gaussian, Sensitivity
from zetadp.mechanisms.declared import Buffer, CorrelatedNoise
from zetadp.mechanisms.errors import InvalidParameter, UnsupportedEvent

ADAPTER: TypeAdapter[Event] = TypeAdapter(Event)
DRAWS = 400_000
EPSILONS = (0.0, 0.3, 1.0)


def noise(coefficients=(0.8, -0.5, 0.4), steps=9, separation=3, participations=3, std=1.0, adjacency="add_remove", **fields):
    limits = {"min_separation": separation, "max_participations": participations}
    return CorrelatedNoise(std=std, l2=1.0, steps=steps, coefficients=coefficients, adjacency=adjacency, unit="record", **limits, **fields)


def poisson(one, probability=0.3):
    return PoissonSampled(probability=probability, event=Release(mechanism=one))


def allocated(one, steps, drawn="each_epoch"):
    return RandomlyAllocated(steps=steps, event=Release(mechanism=one), drawn=drawn)


def plain(distance, adjacency="add_remove"):
    return Release(mechanism=Gaussian(std=1.0, sensitivity=Sensitivity(l2=distance, adjacency=adjacency, unit="record")))


def columns(one):
    """C as a matrix, over std."""
    c = one.coefficients
    return np.array([[c[i - j] if 0 <= i - j < len(c) else 0.0 for j in range(one.steps)] for i in range(one.steps)]) / one.std


def deltas(moves, weights, epsilons=EPSILONS, seed=7):
    """For each epsilon ((delta, its error) of normal noise moved by each of the moves against unmoved noise, and of the other order)."""
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(weights), size=DRAWS, p=weights)
    found = []
    for shift in (moves[chosen], 0.0):
        outputs = shift + rng.standard_normal((DRAWS, moves.shape[1]))
        ratio = np.exp(outputs @ moves.T - 0.5 * np.sum(moves**2, axis=1)) @ weights
        found.append(ratio if found else 1.0 / ratio)
    answers = []
    for epsilon in epsilons:
        lost = [np.maximum(1.0 - math.exp(epsilon) * one, 0.0) for one in found]
        answers.append([(one.mean(), 5.0 * one.std() / math.sqrt(DRAWS) + 1e-12) for one in lost])
    return answers


def assert_attained(event, moves, weights):
    """The event's delta is the larger one of both orders."""
    for epsilon, (removed, added) in zip(EPSILONS, deltas(moves, np.array(weights)), strict=True):
        bound, (truth, error) = profile(event).delta(epsilon), max(removed, added)
        assert bound.lower - error <= truth <= bound.upper + error
        assert bound.upper - bound.lower <= 1e-3 * bound.upper


def patterns(turns, probability):
    """(who takes part in which of the turns, how probably) for independent coins."""
    coins = list(itertools.product((0, 1), repeat=turns))
    return np.array(coins), np.array([math.prod(probability if one else 1.0 - probability for one in coin) for coin in coins])


@pytest.mark.parametrize("steps", [9, 7])
def test_coins_at_each_turn_lose_what_the_rows_of_the_matrix_say(steps):
    one = noise(steps=steps)
    coins, weights = patterns(3, 0.3)
    assert_attained(poisson(one), coins @ columns(one)[:, [0, 3, 6]].T, weights)


def test_epochs_of_turns_lose_what_the_rows_of_the_matrix_say():
    one = noise(steps=12, participations=4, std=0.8)
    places = list(itertools.product((0, 1), (2, 3)))
    moves = np.array([columns(one)[:, [3 * first, 3 * second]].sum(axis=1) for first, second in places])
    assert_attained(allocated(one, 2), moves, [0.25] * 4)


def test_moves_that_follow_from_what_was_released_lose_the_same():
    """A record whose contribution turns by all rows so far: the ratio's law is that of one that never turns."""
    one, rng, probability = noise(participations=3), np.random.default_rng(3), 0.3
    c, ratios = np.array(one.coefficients), []
    for is_there in (True, False):
        log_ratio, rows = np.zeros(DRAWS), np.zeros((DRAWS, 2))
        for _ in range(3):
            angle = 5.0 * rows.sum(axis=1)
            moved = c[None, :, None] * np.stack((np.cos(angle), np.sin(angle)), axis=1)[:, None, :]
            block = rng.standard_normal(moved.shape) + moved * (rng.random(DRAWS) < (probability if is_there else 0.0))[:, None, None]
            own = np.exp(np.sum(block * moved, axis=(1, 2)) - 0.5 * np.sum(moved**2, axis=(1, 2)))
            log_ratio += np.log1p(probability * (own - 1.0))
            rows = rows + block.sum(axis=1)
        ratios.append(-log_ratio if is_there else log_ratio)
    for epsilon in EPSILONS:
        lost = [np.maximum(-np.expm1(epsilon + one), 0.0) for one in ratios]
        truth, bound = max(one.mean() for one in lost), profile(poisson(one)).delta(epsilon)
        error = 5.0 * max(one.std() for one in lost) / math.sqrt(DRAWS)
        assert bound.lower - error <= truth <= bound.upper + error


@pytest.mark.parametrize(
    ("bins", "steps", "coefficients"), [(7, 21, (0.8, 0.5, 0.4)), (6, 15, (0.8, 0.5)), (5, 12, (0.9, -0.6)), (4, 8, (1.0,))]
)
def test_bins_lie_between_orthogonal_moves_and_bins_that_are_a_band_apart(bins, steps, coefficients):
    one = noise(coefficients, steps, bins, steps, std=1.5)
    matrix, weights = columns(one), np.full(bins, 1.0 / bins)
    same = np.array([matrix[:, j::bins].sum(axis=1) for j in range(bins)])
    own = np.zeros((bins, bins))
    np.fill_diagonal(own, np.linalg.norm(same, axis=1))
    event = allocated(one, bins, "once")
    for moves in (same, own):
        for epsilon, both in zip(EPSILONS, deltas(moves, weights), strict=True):
            bound, (truth, error) = profile(event).delta(epsilon), max(both)
            assert truth <= bound.upper + error
            # All bins have as many rows as the last one at least.
            assert moves is same or truth >= bound.lower - error


def test_bins_are_bounded_by_the_norms_of_the_first_and_of_the_last_one():
    one, norm = noise((0.8, 0.5, 0.4), 20, 7, 9), math.sqrt(1.05)
    found = profile(allocated(one, 7, "once"))
    # Bin 0's three columns are whole; of bin 6's steps 6, 13 and 20 there is no last one.
    above, below = 3 * norm**2, 2 * norm**2
    for epsilon in EPSILONS:
        bound = found.delta(epsilon)
        upper = profile(RandomlyAllocated(steps=2, event=plain(math.sqrt(above)))).delta(epsilon).upper
        lower = profile(RandomlyAllocated(steps=7, event=plain(math.sqrt(below)))).delta(epsilon).lower
        assert bound.upper == pytest.approx(upper, rel=1e-6)
        assert bound.lower == pytest.approx(lower, rel=1e-6)


def test_each_turn_is_a_gaussian_release_at_the_norm_of_its_column():
    one = noise(steps=1000, separation=10, participations=40, std=2.0)
    norm = math.sqrt(0.64 + 0.25 + 0.16) / 2.0
    for event, twin in [
        (poisson(one, 0.01), Repeated(count=40, event=PoissonSampled(probability=0.01, event=plain(norm)))),
        (allocated(one, 8), Repeated(count=5, event=RandomlyAllocated(steps=8, event=plain(norm)))),
    ]:
        found, expected = profile(event).epsilon(1e-5), profile(twin).epsilon(1e-5)
        assert (found.lower, found.upper) == pytest.approx((expected.lower, expected.upper), rel=2e-6)


def test_no_more_turns_count_than_there_is_room_for():
    assert sum(leaves(poisson(noise(steps=20, participations=50))).values()) == 7
    assert sum(leaves(poisson(noise(steps=20, participations=5))).values()) == 5


def test_an_epoch_that_ends_within_a_band_has_a_lower_end_of_its_own():
    cut, whole = (profile(allocated(noise(steps=steps, participations=4), 2)).epsilon(1e-5) for steps in (10, 12))
    assert cut.upper == pytest.approx(whole.upper, rel=1e-6)
    assert 0.8 * whole.lower < cut.lower < whole.lower


def test_zero_out_costs_the_same_and_replace_one_a_whole_release_of_each_epoch():
    one, other = (profile(allocated(noise(adjacency=name), 3)).epsilon(1e-5) for name in ("add_remove", "zero_out"))
    assert one == other
    replaced = profile(allocated(noise(adjacency="replace_one"), 3)).epsilon(1e-5)
    assert replaced.upper == pytest.approx(profile(plain(math.sqrt(1.05))).epsilon(1e-5).upper, rel=1e-9)
    assert one.lower <= replaced.lower * (1 + 1e-6)
    with pytest.raises(UnsupportedEvent, match="nothing says what one unit alone contributes"):
        profile(poisson(noise(adjacency="replace_one")))
    bins = profile(allocated(noise(adjacency="replace_one"), 3, "once")).epsilon(1e-5)
    assert bins.upper == pytest.approx(profile(plain(math.sqrt(3.15))).epsilon(1e-5).upper, rel=1e-9)


def test_sampling_of_everything_is_the_whole_release():
    whole = profile(Release(mechanism=noise())).epsilon(1e-5)
    assert profile(poisson(noise(), 1.0)).epsilon(1e-5) == whole
    assert profile(allocated(noise(), 1)).epsilon(1e-5) == whole
    assert profile(allocated(noise(), 3, "once")).epsilon(1e-5).upper == pytest.approx(whole.upper, rel=1e-9)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Grouped(size=2, unit="user", event=poisson(noise())), "grouped.size must be 1 around samples of correlated_noise"),
        (Grouped(size=2, unit="user", event=allocated(noise(), 3)), "grouped.size must be 1 around samples of correlated_noise"),
        (allocated(noise(), 2), "randomly_allocated.steps must be a divisor of the 3 turns of a unit"),
        (PoissonSampled(probability=0.1, event=Repeated(count=2, event=Release(mechanism=noise()))), "a single release, or several"),
    ],
)
def test_turns_that_are_no_releases_of_their_own_are_refused_by_field(event, text):
    with pytest.raises(InvalidParameter, match=text):
        leaves(event)


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (noise((1.0,), buffers=(Buffer(weight=0.3, decay=0.5),)), "with a BLT a unit's turns share rows"),
        (noise((1.0,), inverse_coefficients=(0.5,)), "with the inverse of a band a unit's turns share rows"),
        (noise((1.0, 0.5, 0.25, 0.1)), "with more of them a unit's turns share rows"),
    ],
)
def test_samples_of_what_is_no_band_are_refused_with_the_reason(one, text):
    for event in (
        poisson(one),
        allocated(one, 3),
        allocated(one, 3, "once"),
        poisson(CorrelatedNoise.model_validate(dict(one) | {"max_participations": 1})),
    ):
        with pytest.raises(UnsupportedEvent, match=text):
            profile(event)


def test_other_samples_of_a_band_are_refused():
    with pytest.raises(UnsupportedEvent, match="shuffled samples of correlated_noise aren't proved here"):
        profile(Shuffled(steps=3, event=Release(mechanism=noise(adjacency="zero_out"))))


def test_bins_are_those_of_the_noises_separation():
    with pytest.raises(ValidationError, match="steps must be the noise's min_separation, 3"):
        allocated(noise(), 4, "once")
    with pytest.raises(ValidationError, match="drawn must be each_epoch, but for a release of correlated_noise"):
        RandomlyAllocated(steps=4, event=gaussian(), drawn="once")


def test_json_names_the_draw_only_where_it_is_made_once():
    for event in (allocated(noise(), 3), allocated(noise(), 3, "once")):
        text = event.model_dump_json()
        assert ('"drawn":"once"' in text) == (event.drawn == "once") == ("drawn" in text)
        assert ADAPTER.validate_json(text) == event


def test_it_composes_and_is_calibrated():
    event = Composed(events=(allocated(noise(), 3, "once"), poisson(noise()), Release(mechanism=noise())))
    alone, both = (profile(one).epsilon(1e-5) for one in (event.events[0], event))
    assert alone.lower < both.lower <= both.upper
    assert alone.upper < both.upper
    factor = calibrate_scale(event, epsilon=1.0, delta=1e-5)
    assert profile(NoiseScale().applied(event, factor)).epsilon(1e-5).upper <= 1.0


def test_turns_are_written_for_dp_accounting_as_samples_of_their_own():
    event = poisson(noise(steps=7), 0.3)
    written = to_dp_accounting(event)
    library = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-4).compose(written)
    assert library.get_epsilon(1e-3) == pytest.approx(profile(event).epsilon(1e-3).upper, rel=1e-3)


def test_conditions_say_how_often_is_drawn():
    each, once = (caveats_of(allocated(noise(), 3, drawn)) for drawn in ("each_epoch", "once"))
    assert "every record draws one of 3 turns in every epoch, uniformly, by itself and in secret, even if it lacks some of them" in each
    assert "every record's bin is drawn uniformly, independently of all others, once for the whole run and in secret" in once
    for found in (each, once, caveats_of(poisson(noise()))):
        assert "every record keeps the stated effect, number and separation of steps" in found
        assert "what is declared, unchecked, holds for all neighbours and earlier releases" in found


@pytest.mark.parametrize("event", [poisson(noise()), allocated(noise(), 3), allocated(noise(steps=10), 3, "once")])
def test_a_derivation_names_the_proof(event):
    assert any("proofs/correlated.md" in str(step.source) for step in profile(event).derivation())
