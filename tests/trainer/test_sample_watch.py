r"""The test of a run's own samples: bounds that hold by enumeration, right samples that pass, and every broken kind that is found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations, product

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.selection import thinned
from tests.trainer.test_adversaries_training import SAMPLERS
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.engine import Alone, SeededRandomness
from zetadp.trainer.engine.gradients import sample_watch, sampling
from zetadp.trainer.engine.gradients.sample_law import coincidences_log_tail, count_log_tail, squares_log_tail
from zetadp.trainer.engine.gradients.sample_watch import SampleWatch
from zetadp.trainer.engine.gradients.sampling import SiteSampler
from zetadp.trainer.engine.team.interface import Team
from zetadp.trainer.specs.sampling import (
    CyclicAllocation,
    CyclicPoissonSampling,
    FederatedCyclicSampling,
    FixedSizeSampling,
    PoissonSampling,
    RandomAllocation,
    Sampling,
    TruncatedPoissonSampling,
)

CPU = torch.device("cpu")
UNITS = 300
POISSON = PoissonSampling(records=UNITS, expected_batch_size=30)
FIXED = FixedSizeSampling(records=UNITS, expected_batch_size=30)
CUT = TruncatedPoissonSampling(records=UNITS, expected_batch_size=30, largest_batch=40, population_size=UNITS + 1)
ALLOCATED = RandomAllocation(records=UNITS, expected_batch_size=30)
CYCLIC = CyclicPoissonSampling(records=UNITS, expected_batch_size=20, groups=3, seed=1)
IN_TURNS = CyclicAllocation(records=UNITS, expected_batch_size=20, groups=3, seed=1)
AT_A_NODE = FederatedCyclicSampling(nodes=4, records=4 * UNITS, expected_batch_size=20, groups=3, seed=1)
"""Of four nodes the one that is looked at has ``UNITS``."""
EVERY: dict[str, Sampling] = {
    "poisson": POISSON,
    "fixed size": FIXED,
    "cut": CUT,
    "allocation": ALLOCATED,
    "allocation in turns": IN_TURNS,
    "cyclic": CYCLIC,
    "a node's cycle": AT_A_NODE,
}


def watched(kind: Sampling, seed: int, *, steps: int = 60, first: int = 1, team: Team | None = None) -> SampleWatch:
    """What a run's watch has seen of samples with this seed, from its step ``first`` on."""
    watch, randomness, team = SampleWatch(kind, UNITS), SeededRandomness(seed), team or Alone()
    sampler, units = SiteSampler(kind, randomness, team, torch.arange(UNITS) % 3), torch.arange(UNITS)
    for step in range(first, steps + 1):
        sample = sampler.sample(step, units, randomness.sampling(step))
        watch.see(0, step, sampler.whole(sample), partial(sampler.among, step, units))
    return watch


# Bounds


def tails(law: Mapping[float, float], bound: Callable[[float], float], *, upwards_only: bool) -> None:
    """No value is more probable on its side than the bound says; the farthest ones aren't bounded by 1."""
    mean = sum(value * probability for value, probability in law.items())
    for value in law:
        side = [one for one in law if (one >= value if value > mean else one <= value)]
        found = math.exp(bound(value))
        if value > mean or not upwards_only:
            assert sum(law[one] for one in side) <= found * (1.0 + 1e-9)
    assert math.exp(bound(max(law))) < 0.5


def law_of(statistic: Callable[[tuple[int, ...]], float], trials: int, counts: int, probability: float) -> dict[float, float]:
    found: dict[float, float] = {}
    for values in product(range(trials + 1), repeat=counts):
        weight = math.prod(math.comb(trials, c) * probability**c * (1.0 - probability) ** (trials - c) for c in values)
        key = round(statistic(values), 9)
        found[key] = found.get(key, 0.0) + weight
    return found


@pytest.mark.parametrize("probability", thinned([0.1, 0.3, 0.8], every=3))
def test_bounds_hold_for_independent_counts(probability: float) -> None:
    single = law_of(lambda values: float(values[0]), 9, 1, probability)
    tails(single, lambda k: count_log_tail(round(k), 9, probability), upwards_only=False)
    squares = law_of(lambda values: sum((c - 4 * probability) ** 2 for c in values), 4, 4, probability)
    tails(squares, lambda s: squares_log_tail(s, {4: 4}, probability), upwards_only=False)
    both = law_of(lambda values: float(sum(c * (c - 1) for c in values)), 4, 4, probability)
    tails(both, lambda s: coincidences_log_tail(s, {4: 4}, probability), upwards_only=True)


def coincidences(samples: tuple[tuple[int, ...], ...]) -> float:
    counts = np.bincount([unit for sample in samples for unit in sample], minlength=4)
    return float((counts * (counts - 1)).sum())


@pytest.mark.parametrize("most", [2, None], ids=["cut", "fixed size"])
def test_bounds_hold_for_samples_whose_units_depend_on_each_other(most: int | None) -> None:
    """Of 4 units, 4 steps: 2 of them, or a Poisson sample of probability 0.4 of which at most 2 are used."""
    subsets = [subset for size in range(3) for subset in combinations(range(4), size)]
    if most is None:
        weights, probability = {subset: 1.0 / 6.0 for subset in subsets if len(subset) == 2}, 0.5
    else:
        probability = 0.4
        sizes = [math.comb(4, size) * 0.4**size * 0.6 ** (4 - size) for size in range(5)]
        sizes = [*sizes[:2], sum(sizes[2:])]
        weights = {subset: sizes[len(subset)] / math.comb(4, len(subset)) for subset in subsets}
    law: dict[float, float] = {}
    for samples in product(weights, repeat=4):
        key = coincidences(samples)
        law[key] = law.get(key, 0.0) + math.prod(weights[one] for one in samples)
    tails(law, lambda s: coincidences_log_tail(s, {4: 4}, probability), upwards_only=True)


# Verdicts


@pytest.mark.parametrize("name", thinned(EVERY, every=2))
def test_right_samples_pass_with_every_seed(name: str) -> None:
    for seed in range(20):
        found = watched(EVERY[name], seed).findings(Alone(), CPU)
        assert (found.status, found.samples) == ("consistent", 60)


@pytest.mark.parametrize("name", thinned(EVERY, every=3))
def test_right_samples_fail_no_more_often_than_is_computed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_watch, "ERROR", 0.2)
    failed = sum(not watched(EVERY[name], seed, steps=20).is_as_planned for seed in range(100))
    # Binomial: above 0.2 of 100 by more than four deviations once in 30000.
    assert failed <= 36


@pytest.mark.parametrize("broken", SAMPLERS)
def test_samples_that_are_not_poissons_are_found(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(5):
        monkeypatch.setattr(sampling, "poisson_sample", SAMPLERS[broken]())
        assert not watched(POISSON, seed).is_as_planned


@pytest.mark.parametrize("broken", ["fixed size", "one batch", "1.5 times too many"])
def test_groups_whose_samples_are_not_poissons_are_found(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(5):
        monkeypatch.setattr(sampling, "poisson_sample", SAMPLERS[broken]())
        assert not watched(CYCLIC, seed, steps=180).is_as_planned


@pytest.mark.parametrize("kind", [CYCLIC, IN_TURNS, AT_A_NODE])
@pytest.mark.parametrize("at", [1, 5, 20])
def test_one_unit_of_another_group_is_found(at: int, kind: Sampling) -> None:
    """In one step of sixty: its sensitivity would be of turns that it hasn't got."""
    for taken in (False, True):
        watch, randomness = SampleWatch(kind, UNITS), SeededRandomness(1)
        sampler, units = SiteSampler(kind, randomness, Alone(), torch.arange(UNITS) % 3), torch.arange(UNITS)
        for step in range(1, 61):
            sample = sampler.sample(step, units, randomness.sampling(step))
            if taken and step == at:
                # In another one's place: the sample's size says nothing.
                sample = torch.cat((sample[:-1], (sample[-1:] + 1) % UNITS)).sort()[0]
            watch.see(0, step, sample, partial(sampler.among, step, units))
        assert watch.is_as_planned != taken


def test_groups_that_share_a_unit_are_found() -> None:
    for shared in (False, True):
        watch, randomness = SampleWatch(CYCLIC, UNITS), SeededRandomness(1)
        sampler, units = SiteSampler(CYCLIC, randomness, Alone(), torch.arange(UNITS) % 3), torch.arange(UNITS)
        for step in range(1, 31):
            among = sampler.among(step, units)
            assert among is not None
            known = torch.cat((units[:1], among)).unique() if shared else among
            watch.see(0, step, sampler.sample(step, units, randomness.sampling(step)), lambda known=known: known)
        assert watch.is_as_planned != shared


def first(size: int, of: int, _stream: RandomStream) -> NDArray[np.int64]:
    return np.arange(min(size, of))


def nearby(size: int, of: int, stream: RandomStream) -> NDArray[np.int64]:
    """Always some of one half."""
    return np.sort(np.argsort(stream.uniform(of // 2))[:size])


def one_too_few(size: int, of: int, stream: RandomStream) -> NDArray[np.int64]:
    return np.sort(np.argsort(stream.uniform(of))[: size - 1])


@pytest.mark.parametrize("broken", [first, nearby, one_too_few])
def test_other_samples_of_a_fixed_size_are_found(broken: Callable[..., NDArray[np.int64]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "uniform_subset", broken)
    assert not watched(FIXED, 1).is_as_planned


@pytest.mark.parametrize("broken", ["one batch", "twice", "1.5 times too many"])
def test_other_cut_samples_are_found(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "poisson_sample", SAMPLERS[broken]())
    assert not watched(CUT, 1, steps=120).is_as_planned


def test_samples_that_are_not_cut_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "uniform_subset", lambda _size, of, _stream: np.arange(of))
    assert not watched(CUT, 1, steps=400).is_as_planned


def _the_same(units: int, steps: int, _stream: RandomStream) -> NDArray[np.int64]:
    return np.arange(units) % steps


def _shuffled(units: int, steps: int, stream: RandomStream) -> NDArray[np.int64]:
    return np.argsort(np.argsort(stream.uniform(units))) * steps // units


@pytest.mark.parametrize("broken", [_the_same, _shuffled])
def test_other_allocations_are_found(broken: Callable[..., NDArray[np.int64]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "uniform_integers", broken)
    assert not watched(ALLOCATED, 1, steps=300).is_as_planned


@pytest.mark.parametrize(
    "changed",
    [
        lambda sample: sample[1:],
        lambda sample: torch.cat((sample[:1], sample)),
        lambda sample: torch.cat((sample, torch.arange(UNITS))).unique(),
    ],
    ids=["left out", "twice", "in two steps"],
)
def test_units_that_are_not_in_one_step_of_an_epoch_are_found(changed: Callable[[Tensor], Tensor]) -> None:
    watch, randomness = SampleWatch(ALLOCATED, UNITS), SeededRandomness(1)
    sampler, units = SiteSampler(ALLOCATED, randomness, Alone()), torch.arange(UNITS)
    for step in range(1, 11):
        sample = sampler.sample(step, units, randomness.sampling(step))
        watch.see(0, step, changed(sample) if step == 5 else sample, partial(sampler.among, step, units))
    assert not watch.is_as_planned


@pytest.mark.parametrize("kept", [lambda sample: sample[1:], lambda sample: torch.cat((sample, sample + 3)).unique()])
@pytest.mark.parametrize("at", [2, 7, 15])
def test_units_that_are_not_in_one_turn_of_an_epoch_are_found(at: int, kept: Callable[[Tensor], Tensor]) -> None:
    watch, randomness = SampleWatch(IN_TURNS, UNITS), SeededRandomness(1)
    sampler, units = SiteSampler(IN_TURNS, randomness, Alone(), torch.arange(UNITS) % 3), torch.arange(UNITS)
    for step in range(1, IN_TURNS.epoch + 1):
        sample = sampler.sample(step, units, randomness.sampling(step))
        changed = kept(sample)
        watch.see(0, step, changed[changed < UNITS] if step == at else sample, partial(sampler.among, step, units))
    assert not watch.is_as_planned


def test_an_attempt_that_begins_in_the_middle_of_an_epoch_is_no_violation() -> None:
    assert watched(ALLOCATED, 1, first=4).is_as_planned
    # Nor is one that ends in it, and has seen no first step of an epoch.
    assert watched(ALLOCATED, 1, first=4, steps=8).is_as_planned
    assert watched(IN_TURNS, 1, first=2, steps=40).is_as_planned


@pytest.mark.parametrize("kind", [PoissonSampling, FixedSizeSampling, RandomAllocation])
def test_samples_of_everybody_and_nodes_without_anybody_are_no_violation(kind: Callable[..., Sampling]) -> None:
    for units in (0, 5):
        watch, everybody = SampleWatch(kind(records=5, expected_batch_size=5), units), torch.arange(units)
        for step in range(1, 50):
            watch.see(0, step, everybody, lambda everybody=everybody: everybody)
        assert watch.is_as_planned


class _OfTwo:
    """One of two processes, both of which are in the same state."""

    size = 2

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def share(self, _path: object) -> None:
        return None


def test_processes_look_at_their_own_samples_and_the_first_at_common_ones() -> None:
    for kind, of_second in ((POISSON, 60), (ALLOCATED, 60), (CYCLIC, 60), (IN_TURNS, 60), (FIXED, 0), (CUT, 0)):
        for rank, samples in ((0, 60), (1, of_second)):
            found = watched(kind, 1, team=_OfTwo(rank)).findings(Alone(), CPU)
            assert (found.status, found.samples) == ("consistent" if samples else "not run", samples)


@pytest.mark.parametrize("kind", [FIXED, CUT], ids=["fixed size", "cut"])
def test_broken_samples_that_processes_share_are_found(kind: Sampling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "uniform_subset", first)
    monkeypatch.setattr(sampling, "poisson_sample", SAMPLERS["one batch"]())
    assert not watched(kind, 1, steps=120, team=_OfTwo(0)).is_as_planned


def test_processes_share_the_probability_of_a_false_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    # A sample that fails for one process at the whole probability, and not at its half: of two processes each has half of it.
    watch = watched(POISSON, 1)
    watch._add()
    least = min(found for draws in watch._draws.values() for found in draws.log_tails(is_cut=False))
    monkeypatch.setattr(sample_watch, "ERROR", 1.5 * sample_watch.TAILS * math.exp(least))
    assert watch.findings(Alone(), CPU).status == "violated"
    assert watch.findings(_OfTwo(0), CPU).status == "consistent"


@pytest.mark.parametrize(("together", "waiting"), [(1, 2**16), (64, 2**16), (64, 100)])
def test_samples_that_wait_are_counted_as_if_they_had_been_looked_at_at_once(
    together: int, waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for limits in ((1, 2**16), (together, waiting)):
        for name, limit in zip(("TOGETHER", "WAITING"), limits, strict=True):
            monkeypatch.setattr(sample_watch, name, limit)
        watch = watched(POISSON, 1, steps=130)
        assert sum(len(sample) for _, _, sample in watch._waiting) <= waiting
        watch._add()
        found.append(watch._draws)
    assert found[0] == found[1]


def test_units_in_several_blocks_are_as_many_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_watch, "BLOCK", 64)
    assert all(watched(kind, seed, steps=100).is_as_planned for kind in EVERY.values() for seed in range(3))
    monkeypatch.setattr(sampling, "poisson_sample", SAMPLERS["one batch"]())
    assert not watched(POISSON, 1).is_as_planned
