r"""What really leaves each node in each round: the whole noise of the plan, its own every time, and nothing that isn't computed from it.

The clipped sums here are zeros, so what is delivered is the noise itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, final

import pytest
import torch
from torch import Tensor, nn

from zetadp.mechanisms import ComplexGaussian, Gaussian, NoiseSource, RandomStream, Sensitivity
from zetadp.trainer import ExecutionPlan, FederatedZetaDpSgd, RuntimeSpec, load_train
from zetadp.trainer.engine import Alone, ParameterLayout, PrivateLoop, SeededRandomness, Site, TrainingState
from zetadp.trainer.engine.noise.randomness import randomness_of
from zetadp.trainer.engine.noise.releasing import gradient
from zetadp.trainer.specs.execution_plan import AdaptiveClipping, Clipping, FlatClipping, PerLayerClipping
from zetadp.trainer.specs.sampling import FederatedSampling, PoissonSampling

SIZES, LOT, STD = (9, 8, 8), 4, 0.7
ADAPTIVE = AdaptiveClipping(initial_bound=0.5, quantile=0.7, learning_rate=0.2, count_share=0.1)
CPU = torch.device("cpu")


@final
@dataclass(frozen=True)
class Sum:
    total: Tensor
    within: int


@final
class Zeros:
    """Clipped sums that are 0, whoever is in the sample; ``within`` is chosen so that the count's coordinate is 0 too."""

    def __init__(self, coordinates: int) -> None:
        self._coordinates = coordinates
        self.sampled: list[Tensor] = []

    def sum(self, parameters: Mapping[str, Tensor], units: Tensor, bound: float) -> Sum:
        del parameters, bound
        self.sampled.append(units)
        return Sum(torch.zeros(self._coordinates), len(units))


def homes(sizes: tuple[int, ...]) -> tuple[Tensor, ...]:
    return torch.arange(sum(sizes)).split(sizes)


def _plan(
    clipping: Clipping, steps: int, kind: type[ComplexGaussian | Gaussian], lot: int, sizes: tuple[int, ...], is_declared: bool
) -> ExecutionPlan:
    sensitivity = Sensitivity(l2=clipping.sensitivity, adjacency="add_remove", unit="record")
    sampling = FederatedSampling(nodes=len(sizes), records=sum(sizes), expected_batch_size=lot, is_declared=is_declared)
    return ExecutionPlan(sampling=sampling, clipping=clipping, mechanism=kind(std=STD, sensitivity=sensitivity), steps=steps, delta=1e-5)


@final
@dataclass(frozen=True)
class Round:
    """What each node delivered, who was in its sample, and the bound before and after."""

    vectors: list[Tensor]
    samples: list[Tensor]
    bounds: tuple[float, float]


def _rounds(
    clipping: Clipping,
    steps: int,
    inputs: int,
    kind: type[ComplexGaussian | Gaussian] = ComplexGaussian,
    lot: int = LOT,
    sizes: tuple[int, ...] = SIZES,
    *,
    is_declared: bool = False,
) -> list[Round]:
    """Of a federation with a linear layer of ``inputs`` complex (or real) weights and a bias."""
    network = nn.Linear(inputs, 1, dtype=torch.complex64 if kind is ComplexGaussian else torch.float32)
    layout, delivered, rounds = ParameterLayout.of(network), list[Tensor](), list[Round]()
    zeros = Zeros(layout.coordinates)

    def deliver(_step: int, _node: int, vector: Tensor) -> Tensor:
        delivered.append(vector)
        return vector

    sites = [Site(units, SeededRandomness(node)) for node, units in enumerate(homes(sizes))]
    plan = _plan(clipping, steps, kind, lot, sizes, is_declared)
    loop = PrivateLoop(zeros, layout, plan, sites, lambda state, before, _gradient, _step: (before, state), Alone(), deliver)
    state = TrainingState(0, torch.zeros(layout.coordinates), {}, clipping.bound)
    for _ in range(steps):
        before, state = state, loop.step(state)
        rounds.append(Round(delivered[-len(sizes) :], zeros.sampled[-len(sizes) :], (before.bound, state.bound)))
    return rounds


def _check_std(noise: Tensor, std: float) -> None:
    """Six standard errors."""
    assert noise.double().square().mean().sqrt().item() == pytest.approx(std, rel=6.0 / math.sqrt(2.0 * noise.numel()))


def _check_independent(vectors: list[Tensor], std: float) -> None:
    """No two of them are correlated: six standard errors. Vectors of one noise would be, wholly."""
    for one, other in combinations(vectors, 2):
        assert abs((one.double() * other.double()).mean().item()) <= 6.0 * std**2 / math.sqrt(len(one))


@pytest.mark.parametrize("kind", [ComplexGaussian, Gaussian])
@pytest.mark.parametrize("clipping", [FlatClipping(bound=0.5), PerLayerClipping(bound=0.5), ADAPTIVE], ids=lambda clipping: clipping.kind)
def test_every_node_adds_the_whole_noise_of_its_own_in_every_round(clipping: Clipping, kind: type[ComplexGaussian | Gaussian]) -> None:
    rounds = _rounds(clipping, steps=2, inputs=3000, kind=kind)
    vectors = [vector for each in rounds for vector in each.vectors]
    assert len(vectors) == 2 * len(SIZES)
    for vector in vectors:
        # Real and imaginary parts take turns.
        _check_std(vector[:6000:2], STD)
        _check_std(vector[1:6000:2], STD)
    _check_independent([vector[:3000] for vector in vectors], STD)


def test_a_sample_of_nobody_is_released_with_the_whole_noise_too() -> None:
    # A node of eight samples nobody with probability (7 / 8)^8, a third.
    rounds = _rounds(FlatClipping(bound=0.5), steps=40, inputs=40, lot=1)
    empty = [vector for each in rounds for vector, sample in zip(each.vectors, each.samples, strict=True) if len(sample) == 0]
    assert len(empty) > 20
    _check_std(torch.cat(empty), STD)


def test_the_count_of_adaptive_clipping_has_the_whole_noise_at_every_node() -> None:
    rounds = _rounds(ADAPTIVE, steps=200, inputs=1)
    for node, size in enumerate(SIZES):
        # All of the sample lie within the bound: the count's coordinate is sqrt(s) * sampled, with noise.
        noise = torch.stack([each.vectors[node][-1] - math.sqrt(0.1) * len(each.samples[node]) for each in rounds])
        _check_std(noise, STD)
        assert max(len(each.samples[node]) for each in rounds) <= size


def test_the_next_bound_follows_from_what_was_delivered_alone() -> None:
    for each in _rounds(ADAPTIVE, steps=20, inputs=1):
        before, after = each.bounds
        mean = torch.stack(each.vectors).sum(dim=0) / len(SIZES)
        assert after == pytest.approx(gradient(ADAPTIVE, mean, LOT, before).next_bound, rel=1e-12)


def test_sums_of_large_lots_and_joint_vectors_are_released_in_double_precision() -> None:
    # From public numbers alone: the type of a vector must not tell how many were in its sample.
    def kinds(clipping: Clipping, lot: int, size: int) -> set[torch.dtype]:
        rounds = _rounds(clipping, steps=2, inputs=1, lot=lot, sizes=(size, size))
        return {vector.dtype for each in rounds for vector in each.vectors}

    flat = FlatClipping(bound=0.5)
    assert kinds(flat, 512, 512) == kinds(flat, 1, 5000) == {torch.float32}
    # All units may live at one of the two nodes.
    assert kinds(flat, 513, 513) == kinds(flat, 513, 5000) == kinds(ADAPTIVE, 1, 2) == {torch.float64}


def test_a_declared_number_bounds_no_sample_so_that_sums_are_wide() -> None:
    assert math.isinf(FederatedSampling(nodes=2, records=10, expected_batch_size=1, is_declared=True).largest_expected_batch)
    assert math.isinf(PoissonSampling(records=10, expected_batch_size=1, is_declared=True).largest_expected_batch)
    assert {vector.dtype for each in _rounds(FlatClipping(bound=0.5), 2, 1, is_declared=True) for vector in each.vectors} == {torch.float64}


def test_every_node_samples_its_own_units_with_the_probability_of_the_event() -> None:
    rounds, places = _rounds(FlatClipping(bound=0.5), steps=400, inputs=1), homes(SIZES)
    probability = LOT * len(SIZES) / sum(SIZES)
    for node, home in enumerate(places):
        sampled = torch.cat([each.samples[node] for each in rounds])
        assert set(sampled.tolist()) == set(home.tolist())
        share = torch.bincount(sampled, minlength=sum(SIZES))[home].double() / len(rounds)
        # Five standard errors.
        assert (share - probability).abs().max().item() <= 5.0 * math.sqrt(probability * (1.0 - probability) / len(rounds))


FEDERATION: dict[str, Any] = {
    "data": {"kind": "digits_phase_pairs", "split_seed": 0, "test_fraction": 0.2},
    "model": {"kind": "complex_mlp", "hidden": [16], "activation": "cardioid", "head": "magnitude"},
    "server": {"kind": "sgd", "learning_rate": 0.1},
    "privacy": {"adjacency": "add_remove", "unit": "record", "delta": 1e-4, "noise_multiplier": 2.0},
    "clipping_bound": 0.5,
    "expected_batch_size": 4,
    "steps": 2,
    "nodes": 3,
    "distribution_seed": 0,
}


@pytest.mark.parametrize("seed", [None, 4], ids=["fresh", "reproducible"])
def test_no_two_nodes_and_no_two_rounds_of_a_run_share_noise_or_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int | None
) -> None:
    noise: list[Tensor] = []
    original = ComplexGaussian.release

    def watched(self: ComplexGaussian, value: Tensor, source: NoiseSource[Tensor]) -> Tensor:
        noisy = original(self, value, source)
        noise.append(torch.view_as_real(noisy - value).reshape(-1))
        return noisy

    monkeypatch.setattr(ComplexGaussian, "release", watched)
    spec = FederatedZetaDpSgd.model_validate(FEDERATION | {"reproducible": seed is not None, "seed": seed})
    runtime = RuntimeSpec(device="cpu", threads=1, checkpoint_seconds=0.0)
    for attempt in ("a", "b") if seed is None else ("a",):
        load_train(spec)(spec, spec.plan(), runtime, tmp_path / attempt, report=lambda _event: None, should_stop=lambda: False)
    assert len(noise) == (6 if seed is not None else 12)
    for vector in noise:
        _check_std(vector, 1.0)
    _check_independent(noise, 1.0)


@final
class Rank:
    """Of a team of two, as far as randomness depends on it."""

    size = 2

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def sum(self, tensor: Tensor) -> Tensor:
        raise AssertionError(tensor)


@pytest.mark.parametrize("seed", [None, 4], ids=["fresh", "reproducible"])
def test_no_two_nodes_processes_steps_and_purposes_share_a_stream(seed: int | None) -> None:
    each = [randomness_of(seed, site, Rank(rank)) for site in range(3) for rank in range(2)]
    streams = [stream for one in each for step in (1, 2) for stream in (one.sampling(step), one.noise(step, torch.zeros(1)))]
    assert len({stream.uniform(1)[0] for stream in streams}) == 3 * 2 * 2 * 2


def test_no_key_of_a_reproducible_run_is_used_for_two_things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[tuple[int, str]] = []
    original = RandomStream.from_seed

    def watched(seed: int, purpose: str) -> RandomStream:
        keys.append((seed, purpose))
        return original(seed, purpose)

    spec = FederatedZetaDpSgd.model_validate(
        FEDERATION | {"reproducible": True, "seed": 0, "evaluation": {"kind": "private_accuracy", "noise_std": 3.0, "every_steps": 1}}
    )
    plan, runtime = spec.plan(), RuntimeSpec(device="cpu", threads=1)
    monkeypatch.setattr(RandomStream, "from_seed", watched)
    load_train(spec)(spec, plan, runtime, tmp_path, report=lambda _event: None, should_stop=lambda: False)
    # Initial weights; for each round three nodes' samples and noise, and an evaluation.
    assert len(keys) == len(set(keys)) == 1 + 2 * (3 * 2 + 1)
