r"""Who is in a step's sample: exactly what each sampling's accounting takes for granted, and tests that reject other draws."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.engine import Alone, FreshRandomness, Randomness, SeededRandomness
from zetadp.trainer.engine.gradients import sampling
from zetadp.trainer.engine.gradients.sampling import SiteSampler, uniform_integers, uniform_subset
from zetadp.trainer.engine.membership import groups_of
from zetadp.trainer.engine.team.interface import Team
from zetadp.trainer.specs.sampling import (
    CyclicAllocation,
    CyclicPoissonSampling,
    FixedSizeSampling,
    RandomAllocation,
    Sampling,
    TruncatedPoissonSampling,
)

SEED = 17
LIKELY = 1e-4
"""A fixed seed's p-value is above this; draws that are 30 % off have one far below it."""


def _drawn(
    kind: Sampling, steps: int, groups: Tensor | None = None, randomness: Randomness | None = None, team: Team | None = None
) -> list[NDArray[np.int64]]:
    randomness = randomness or SeededRandomness(SEED)
    sampler = SiteSampler(kind, randomness, team or Alone(), groups)
    units = torch.arange(kind.records)
    return [sampler.sample(step, units, randomness.sampling(step)).numpy() for step in range(1, steps + 1)]


# A sample of a fixed size


def check_every_subset_is_equally_likely(samples: Sequence[NDArray[np.int64]], of: int, size: int) -> None:
    counts = Counter(tuple(sample.tolist()) for sample in samples)
    subsets = list(combinations(range(of), size))
    assert set(counts) <= set(subsets)
    assert stats.chisquare([counts[subset] for subset in subsets]).pvalue > LIKELY


@pytest.mark.parametrize("size", [2, 4])
def test_every_subset_of_the_size_is_equally_likely(size: int) -> None:
    kind = FixedSizeSampling(records=6, expected_batch_size=size)
    check_every_subset_is_equally_likely(_drawn(kind, 3000), 6, size)


def test_samples_that_prefer_somebody_by_thirty_per_cent_are_rejected() -> None:
    draw = np.random.default_rng(1)
    weights = np.array([1.3, 1.0, 1.0, 1.0, 1.0, 1.0])
    samples = [np.sort(draw.choice(6, 2, replace=False, p=weights / weights.sum())) for _ in range(3000)]
    with pytest.raises(AssertionError):
        check_every_subset_is_equally_likely(samples, 6, 2)


def test_successive_samples_are_independent() -> None:
    samples = _drawn(FixedSizeSampling(records=40, expected_batch_size=10), 2000)
    shared = np.mean([len(np.intersect1d(one, other)) for one, other in pairwise(samples)])
    # Hypergeometric, of variance 10 (1/4) (3/4) (30/39).
    assert shared == pytest.approx(2.5, abs=5.0 * math.sqrt(1.45 / 2000))


def test_a_subset_as_large_as_the_whole_is_the_whole() -> None:
    stream = RandomStream.from_seed(1, "whole")
    assert uniform_subset(5, 5, stream).tolist() == uniform_subset(9, 5, stream).tolist() == [0, 1, 2, 3, 4]


class _Words:
    """A stream of given words."""

    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def fill(self, target: NDArray[np.uint64]) -> None:
        target[:] = self._words[: len(target)]
        del self._words[: len(target)]


def test_words_that_would_favour_small_numbers_are_drawn_again() -> None:
    # 2^64 = 1 mod 3 and 5: the last word alone would give 0 once too often.
    for below in (3, 5):
        stream = _Words(2**64 - 1, 7, 2**64 - 1, 2**64 - 2)
        assert uniform_integers(2, below, stream).tolist() == [(2**64 - 2) % below, 7 % below]  # type: ignore[arg-type]


def test_words_that_repeat_a_number_are_skipped_in_the_order_of_the_draw() -> None:
    stream = _Words(5, 5, 9, 5, 0, 1)
    assert uniform_subset(3, 10, stream).tolist() == [0, 5, 9]  # type: ignore[arg-type]


# A Poisson sample that is cut


def check_cut_samples(samples: Sequence[NDArray[np.int64]], of: int, probability: float, most: int) -> None:
    """Sizes are min(Bin, most), and of each size every subset is equally likely."""
    law = stats.binom(of, probability)
    expected = [law.pmf(size) for size in range(most)] + [law.sf(most - 1)]
    sizes = [len(sample) for sample in samples]
    assert max(sizes) <= most
    assert stats.chisquare([sizes.count(size) for size in range(most + 1)], np.array(expected) * len(sizes)).pvalue > LIKELY
    counts = Counter(tuple(sample.tolist()) for sample in samples if len(sample) == most)
    assert stats.chisquare([counts[subset] for subset in combinations(range(of), most)]).pvalue > LIKELY


TRUNCATED = TruncatedPoissonSampling(records=6, expected_batch_size=3, largest_batch=3, population_size=7)


def test_a_cut_sample_is_a_uniform_part_of_a_poisson_sample() -> None:
    check_cut_samples(_drawn(TRUNCATED, 3000), 6, 0.5, 3)


def test_keeping_the_first_units_of_a_large_sample_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def first(size: int, of: int, _stream: RandomStream) -> NDArray[np.int64]:
        return np.arange(min(size, of))

    monkeypatch.setattr(sampling, "uniform_subset", first)
    with pytest.raises(AssertionError):
        check_cut_samples(_drawn(TRUNCATED, 3000), 6, 0.5, 3)


def test_a_probability_that_is_thirty_per_cent_off_is_rejected() -> None:
    with pytest.raises(AssertionError):
        check_cut_samples(_drawn(TRUNCATED, 3000), 6, 0.5 / 1.3, 3)


# Random allocation


ALLOCATED = RandomAllocation(records=403, expected_batch_size=100)
EPOCHS = 60


def check_allocations(samples: Sequence[NDArray[np.int64]], units: int, epoch: int) -> None:
    """In each epoch each unit is in one step, uniformly, independently of other units and of other epochs."""
    each: list[NDArray[np.int64]] = []
    for first in range(0, len(samples), epoch):
        parts = samples[first : first + epoch]
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(units))
        place = np.empty(units, np.int64)
        for step, part in enumerate(parts):
            place[part] = step
        each.append(place)
    places = np.array(each)
    assert stats.chisquare(np.bincount(places.reshape(-1), minlength=epoch)).pvalue > LIKELY
    for shifted in (np.roll(places, 1, 0), np.roll(places, 1, 1)):
        table = np.zeros((epoch, epoch))
        np.add.at(table, (places.reshape(-1), shifted.reshape(-1)), 1)
        assert stats.chisquare(table.reshape(-1)).pvalue > LIKELY
    sizes = np.array([len(sample) for sample in samples])
    # Batches of one size would be another sampling, with another price.
    assert sizes.var() == pytest.approx(units / epoch * (1.0 - 1.0 / epoch), rel=0.5)


def test_every_unit_is_in_one_uniform_step_of_each_epoch() -> None:
    assert ALLOCATED.epoch == 4
    check_allocations(_drawn(ALLOCATED, 4 * EPOCHS), 403, 4)


def _shuffled(units: int, steps: int, stream: RandomStream) -> NDArray[np.int64]:
    order = np.argsort(stream.uniform(units), kind="stable")
    return np.argsort(order, kind="stable") * steps // units


def _the_same(units: int, steps: int, _stream: RandomStream) -> NDArray[np.int64]:
    return np.random.default_rng(3).integers(steps, size=units)


def _uneven(units: int, steps: int, stream: RandomStream) -> NDArray[np.int64]:
    return np.minimum((stream.uniform(units) * steps * 1.3).astype(np.int64), steps - 1)


@pytest.mark.parametrize("broken", [_shuffled, _the_same, _uneven])
def test_other_allocations_are_rejected(broken: Callable[..., NDArray[np.int64]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "uniform_integers", broken)
    with pytest.raises(AssertionError):
        check_allocations(_drawn(ALLOCATED, 4 * EPOCHS), 403, 4)


def test_the_rest_of_an_epoch_is_lost_to_an_attempt_that_did_not_begin_it() -> None:
    resumed = SiteSampler(ALLOCATED, FreshRandomness(), Alone())
    assert [resumed.is_lost(step) for step in (1, 2, 4, 5, 6)] == [False, True, True, False, True]
    _ = resumed.sample(5, torch.arange(403), RandomStream.from_operating_system())
    assert not resumed.is_lost(6)
    assert not SiteSampler(ALLOCATED, SeededRandomness(1), Alone()).is_lost(2)


# Cyclic Poisson sampling


CYCLIC = CyclicPoissonSampling(records=300, expected_batch_size=25, groups=3, seed=5)
KEYS = np.random.default_rng(0).integers(-(2**62), 2**62, 300)


def check_turns(samples: Sequence[NDArray[np.int64]], groups: NDArray[np.int64], probability: float) -> None:
    for step, sample in enumerate(samples, 1):
        assert set(groups[sample].tolist()) <= {step % 3}
    turns = len(samples) // 3
    counts = np.bincount(np.concatenate(samples), minlength=len(groups))
    assert stats.binomtest(int(counts.sum()), turns * len(groups), probability).pvalue > LIKELY
    # Independent of one another, turn by turn and unit by unit.
    assert counts.var() == pytest.approx(turns * probability * (1.0 - probability), rel=0.5)
    sizes = np.array([len(sample) for sample in samples])
    assert sizes.var() == pytest.approx(len(groups) / 3 * probability * (1.0 - probability), rel=0.5)


def test_a_unit_is_sampled_in_its_groups_turns_alone() -> None:
    groups = groups_of(CYCLIC, lambda: KEYS)
    assert groups is not None
    check_turns(_drawn(CYCLIC, 240, groups), groups.numpy(), CYCLIC.probability)
    with pytest.raises(AssertionError):
        check_turns(_drawn(CYCLIC, 240, groups), groups.numpy(), CYCLIC.probability / 1.3)
    with pytest.raises(AssertionError):
        check_turns(_drawn(CYCLIC, 240, (groups + 1) % 3), groups.numpy(), CYCLIC.probability)


# Allocation in turns


IN_TURNS = CyclicAllocation(records=403, expected_batch_size=33, groups=3, seed=5)
GROUPS = torch.arange(403) % 3


def check_allocated_turns(samples: Sequence[NDArray[np.int64]], groups: NDArray[np.int64], turns: int) -> None:
    """In its group's turns alone, and among those of an epoch as in any random allocation."""
    for step, sample in enumerate(samples, 1):
        assert set(groups[sample].tolist()) <= {step % 3}
    cycles = [np.sort(np.concatenate(samples[first : first + 3])) for first in range(0, len(samples), 3)]
    check_allocations(cycles, len(groups), turns)


def test_every_unit_is_in_one_uniform_turn_of_its_group_in_each_epoch() -> None:
    assert (IN_TURNS.turns, IN_TURNS.epoch, IN_TURNS.probability) == (4, 12, 0.25)
    assert [IN_TURNS.place(step) for step in (1, 3, 4, 12, 13)] == [(0, 0), (0, 0), (0, 1), (0, 3), (1, 0)]
    samples = _drawn(IN_TURNS, 12 * EPOCHS, GROUPS)
    check_allocated_turns(samples, GROUPS.numpy(), 4)
    with pytest.raises(AssertionError):
        check_allocated_turns(samples, (GROUPS + 1).numpy() % 3, 4)
    # An epoch that begins elsewhere would have some in two of its turns.
    with pytest.raises(AssertionError):
        check_allocated_turns(samples[3:-9], GROUPS.numpy(), 4)


@pytest.mark.parametrize("broken", [_shuffled, _the_same, _uneven])
def test_other_allocations_of_turns_are_rejected(broken: Callable[..., NDArray[np.int64]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "uniform_integers", broken)
    with pytest.raises(AssertionError):
        check_allocated_turns(_drawn(IN_TURNS, 12 * EPOCHS, GROUPS), GROUPS.numpy(), 4)


def test_the_rest_of_an_epoch_of_turns_is_lost_to_an_attempt_that_did_not_begin_it() -> None:
    resumed = SiteSampler(IN_TURNS, FreshRandomness(), Alone(), GROUPS)
    # Also a group's first turn in the epoch: with the old draws nobody knows who had their turn, with new ones they aren't the epoch's.
    assert [resumed.is_lost(step) for step in (1, 2, 12, 13, 14)] == [False, True, True, False, True]
    _ = resumed.sample(13, torch.arange(403), RandomStream.from_operating_system())
    assert not resumed.is_lost(24)
    assert resumed.is_lost(26)
    assert not SiteSampler(IN_TURNS, SeededRandomness(1), Alone(), GROUPS).is_lost(2)


def test_one_unit_more_moves_nobody_to_another_group() -> None:
    one, other = (groups_of(CYCLIC, lambda keys=keys: keys) for keys in (KEYS, KEYS[1:]))
    assert one is not None
    assert other is not None
    assert torch.equal(one[1:], other)
    assert torch.bincount(one).tolist() == pytest.approx([100, 100, 100], abs=30)


# Several processes


class _Member:
    """A process of a team of two, in turn: the first one's words reach the second."""

    told: Tensor

    def __init__(self, rank: int) -> None:
        self.rank, self.size = rank, 2

    def sum(self, tensor: Tensor) -> Tensor:
        if self.rank == 0:
            _Member.told = tensor.clone()
        return _Member.told + tensor * 0.0

    def share(self, _path: object) -> None:
        return None


@pytest.mark.parametrize("kind", [FixedSizeSampling(records=30, expected_batch_size=7), TRUNCATED])
def test_processes_share_one_sample(kind: Sampling) -> None:
    for step in range(1, 6):
        parts: list[NDArray[np.int64]] = []
        for rank in (0, 1):
            member = _Member(rank)
            randomness = SeededRandomness(SEED + rank)
            units = torch.arange(kind.records)
            parts.append(SiteSampler(kind, randomness, member).sample(step, units, randomness.sampling(step)).numpy())  # type: ignore[arg-type]
        both = np.concatenate(parts)
        assert len(np.unique(both)) == len(both)
        assert len(both) == 7 if isinstance(kind, FixedSizeSampling) else len(both) <= 3
        assert abs(len(parts[0]) - len(parts[1])) <= 1
