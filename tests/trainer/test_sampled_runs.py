r"""Runs with every sampling of a plan: what the loop drew is what the event says, through interruptions too, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors import safe_open
from torch import Tensor

from tests.selection import thinned
from tests.trainer.encodings import Encodings, encoded
from zetadp.accountants import profile
from zetadp.accountants.events import (
    Event,
    FixedSizeSampled,
    PoissonSampled,
    RandomlyAllocated,
    Release,
    Repeated,
    TruncatedPoissonSampled,
)
from zetadp.mechanisms import ComplexGaussian, Gaussian, Sensitivity
from zetadp.mechanisms.base import Adjacency
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer import FederatedZetaDpSgd, RuntimeSpec, ZetaDpSgd, load_train
from zetadp.trainer.data import data_set_facts
from zetadp.trainer.engine import load_checkpoint
from zetadp.trainer.engine.gradients.sampling import SiteSampler
from zetadp.trainer.engine.noise.bands import BandedSums
from zetadp.trainer.engine.noise.inverse_bands import InverseBandedSums
from zetadp.trainer.engine.requests import request_digest
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.specs.report import CheckpointWritten, TrainingEvent
from zetadp.trainer.specs.sampling import (
    CyclicAllocation,
    CyclicPoissonSampling,
    FixedSizeSampling,
    RandomAllocation,
    Sampling,
    TruncatedPoissonSampling,
)
from zetadp.trainer.specs.strategy import BandedInverseStrategy, BandedStrategy

RUNTIME = RuntimeSpec(microbatch_size=16, checkpoint_seconds=0.0, threads=1)
UNITS = 710
SAMPLERS: dict[str, dict[str, Any]] = {
    "truncated": {"kind": "truncated_poisson", "largest_batch": 120},
    "fixed size": {"kind": "fixed_size"},
    "allocation": {"kind": "random_allocation"},
    "cyclic": {"kind": "cyclic_poisson", "groups": 3, "seed": 2},
    "allocation in turns": {"kind": "cyclic_allocation", "groups": 3, "seed": 2},
}
BANDED = {"kind": "banded", "bands": 3}
INVERSE = {"kind": "banded_inverse", "bands": 3}
STEPS, LOT = 12, 100
"""An epoch of random allocation has seven steps, so that the last one isn't finished."""


def _spec(spec_json: dict[str, Any], name: str, **changes: Any) -> ZetaDpSgd:
    return ZetaDpSgd.model_validate(spec_json | {"sampling": SAMPLERS[name], "expected_batch_size": LOT, "steps": STEPS} | changes)


def _expected(name: str, release: Release) -> Event:
    match name:
        case "truncated":
            sampled: Event = TruncatedPoissonSampled(probability=LOT / UNITS, largest_batch=120, population_size=UNITS + 1, event=release)
        case "fixed size":
            sampled = FixedSizeSampled(sample_size=LOT, population_size=UNITS, event=release)
        case "allocation" | "allocation in turns":
            return Repeated(count=2, event=RandomlyAllocated(steps=7 if name == "allocation" else 2, event=release))
        case _:
            return Repeated(count=4, event=PoissonSampled(probability=3 * LOT / UNITS, event=release))
    return Repeated(count=STEPS, event=sampled)


@dataclass
class _Seen:
    """What the loop drew, step by step."""

    samples: list[list[int]] = field(default_factory=list)

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        original = SiteSampler.sample

        def sample(sampler: SiteSampler, step: int, units: Tensor, stream: RandomStream) -> Tensor:
            drawn = original(sampler, step, units, stream)
            assert torch.equal(units, torch.arange(UNITS))
            self.samples.append(drawn.tolist())
            return drawn

        patch.setattr(SiteSampler, "sample", sample)


def _turns(samples: list[list[int]]) -> list[int]:
    """How many samples each unit was in."""
    return [sum(unit in sample for sample in map(set, samples)) for unit in range(UNITS)]


@pytest.mark.parametrize("name", thinned(SAMPLERS, every=2))
def test_the_loop_draws_what_the_event_says(name: str, spec_json: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, seen = _spec(spec_json, name), _Seen()
    seen.watch(monkeypatch)
    plan = spec.plan()
    report = load_train(spec)(spec, plan, RUNTIME, tmp_path, report=lambda _event: None, should_stop=lambda: False)
    assert plan.event == report.event == _expected(name, Release(mechanism=plan.mechanism))
    assert len(seen.samples) == STEPS
    sizes, turns = list(map(len, seen.samples)), _turns(seen.samples)
    match name:
        case "truncated":
            assert max(sizes) <= 120
            assert len(set(sizes)) > 1
        case "fixed size":
            assert set(sizes) == {LOT}
        case "allocation":
            assert sorted(unit for sample in seen.samples[:7] for unit in sample) == list(range(UNITS))
            assert max(_turns(seen.samples[7:])) == 1
        case "allocation in turns":
            for first in (0, 6):
                assert sorted(unit for sample in seen.samples[first : first + 6] for unit in sample) == list(range(UNITS))
        case _:
            assert max(turns) == 4
            assert max(_turns(seen.samples[:3])) == 1


@pytest.mark.parametrize("declared", [None, 700])
def test_groups_that_take_part_as_a_whole_are_a_minimum_separation_without_amplification(
    declared: int | None, spec_json: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lot, seen = (declared or UNITS) // 10, _Seen()
    cyclic = {"kind": "cyclic_poisson", "groups": 10, "seed": 2}
    spec = _spec(spec_json, "cyclic", sampling=cyclic, expected_batch_size=lot, declared_units=declared, steps=25)
    seen.watch(monkeypatch)
    plan = spec.plan()
    report = load_train(spec)(spec, plan, RUNTIME, tmp_path, report=lambda _event: None, should_stop=lambda: False)
    release = Release(mechanism=plan.mechanism)
    assert report.event == plan.event == Repeated(count=3, event=PoissonSampled(probability=1.0, event=release))
    # Nothing is left to chance: every unit is in each of its group's turns, also in the next passes, and in no other step.
    first = [set(sample) for sample in seen.samples[:10]]
    assert sorted(unit for sample in first for unit in sample) == list(range(UNITS))
    assert [set(sample) for sample in seen.samples] == [first[step % 10] for step in range(25)]
    # The price of three whole releases, the most that a unit is in.
    multiplier = plan.mechanism.noise_scale / plan.clipping.bound
    assert profile(report.event).gdp_mu == pytest.approx(math.sqrt(3.0) / multiplier, rel=1e-12)
    assert [one.status for one in (report.noise_test, report.sample_test) if one is not None] == ["consistent", "consistent"]


@pytest.mark.parametrize("name", SAMPLERS)
def test_users_are_sampled_as_units(name: str, spec_json: dict[str, Any]) -> None:
    layers = [{"kind": "flatten"}, {"kind": "linear", "outputs": 4}]
    changes: dict[str, Any] = {
        "data": {"kind": "mri_phantoms", "patients": 40, "test_patients": 2, "slices": 1, "seed": 0},
        "privacy": {"adjacency": "add_remove", "unit": "patient", "delta": 1e-3, "noise_multiplier": 4.0},
        "model": {"kind": "sequential", "numbers": "complex", "layers": layers, "head": "magnitude"},
        "records_per_user": 3,
    }
    plan = _spec(spec_json, name, expected_batch_size=10, **changes).plan()
    assert (plan.sampling.records, plan.unit, plan.mechanism.sensitivity.l2) == (40, "patient", plan.clipping.bound)


def _stops_after(events: list[TrainingEvent], step: int) -> bool:
    return any(isinstance(event, CheckpointWritten) and event.step >= step - 1 for event in events)


def _run_in_two(spec: ZetaDpSgd, folder: Path, stop: int) -> Tensor:
    """Stops after ``stop`` steps, and resumes; the parameters where it stopped."""
    events: list[TrainingEvent] = []
    train, plan = load_train(spec), spec.plan()
    with pytest.raises(TrainingStopped):
        train(spec, plan, RUNTIME, folder, report=events.append, should_stop=lambda: _stops_after(events, stop))
    digest = request_digest(spec, plan, data_set_facts(spec.data))
    stopped = load_checkpoint(folder / "checkpoint.safetensors", digest, torch.device("cpu")).state
    assert stopped.step == stop
    _ = train(spec, plan, RUNTIME, folder, report=lambda _event: None, should_stop=lambda: False)
    return stopped.parameters


@pytest.mark.parametrize("name", thinned(SAMPLERS, every=3))
def test_a_resumed_run_with_a_seed_is_the_uninterrupted_one(name: str, spec_json: dict[str, Any], tmp_path: Path) -> None:
    spec, model = _spec(spec_json, name), "artifacts/model.safetensors"
    load_train(spec)(spec, spec.plan(), RUNTIME, tmp_path / "whole", report=lambda _event: None, should_stop=lambda: False)
    _run_in_two(spec, tmp_path / "two", 5)
    assert (tmp_path / "whole" / model).read_bytes() == (tmp_path / "two" / model).read_bytes()


def test_a_resumed_run_releases_nothing_more_in_the_epoch_that_it_interrupted(
    spec_json: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody knows any more who took part in the first three steps: in a new allocation somebody would take part twice.
    spec = _spec(spec_json | {"reproducible": False, "seed": None}, "allocation", steps=7)
    seen = _Seen()
    seen.watch(monkeypatch)
    stopped = _run_in_two(spec, tmp_path, 3)
    digest = request_digest(spec, spec.plan(), data_set_facts(spec.data))
    last = load_checkpoint(tmp_path / "checkpoint.safetensors", digest, torch.device("cpu")).state
    assert len(seen.samples) == 3
    assert last.step == 7
    assert torch.equal(last.parameters, stopped)


# Banded noise


@pytest.mark.parametrize("numbers", thinned(["complex", "real_pairs"], every=2))
def test_noise_is_added_to_weighted_sums_of_the_last_steps(
    numbers: str, spec_json: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = "magnitude" if numbers == "complex" else "none"
    model = {"kind": "sequential", "numbers": numbers, "layers": [{"kind": "linear", "outputs": 10}], "head": head}
    spec, seen = _spec(spec_json, "cyclic", noise=BANDED, model=model), Encodings(monkeypatch)
    released: list[Tensor] = []
    kind = type(spec.plan().mechanism)
    original = kind.release

    def release(mechanism: Any, value: Tensor, source: Any) -> Tensor:
        released.append((torch.view_as_real(value) if value.is_complex() else value).reshape(-1).clone())
        return original(mechanism, value, source)

    monkeypatch.setattr(kind, "release", release)
    report = load_train(spec)(spec, spec.plan(), RUNTIME, tmp_path, report=lambda _event: None, should_stop=lambda: False)
    strategy = spec.plan().strategy
    assert strategy is not None
    assert seen.steps == list(range(1, STEPS + 1))
    for step, value in enumerate(released):
        weighted = sum(
            coefficient * seen.totals[step - lag].double() for lag, coefficient in enumerate(strategy.coefficients) if lag <= step
        )
        assert torch.allclose(value[: len(seen.rows[step])], seen.rows[step], rtol=0.0, atol=0.0)
        assert torch.allclose(seen.rows[step], torch.as_tensor(weighted), atol=1e-6)
    assert report.noise_test is not None
    assert report.noise_test.status == "consistent"
    assert report.event == _expected("cyclic", Release(mechanism=spec.plan().mechanism))


def test_a_resumed_run_begins_an_empty_band_and_a_checkpoint_holds_no_sum(
    spec_json: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, seen = _spec(spec_json, "cyclic", noise=BANDED), Encodings(monkeypatch)
    _run_in_two(spec, tmp_path, 5)
    assert seen.steps == list(range(1, STEPS + 1))
    plan = spec.plan()
    assert plan.strategy is not None
    assert isinstance(plan.mechanism, ComplexGaussian)
    empty = BandedSums(plan.strategy, plan.mechanism, len(seen.totals[0]))
    assert [torch.equal(encoded(empty, step, seen.totals[step - 1]), seen.rows[step - 1]) for step in (6, 7, 8)] == [True] * 3
    with safe_open(tmp_path / "checkpoint.safetensors", framework="pt") as file:
        names = {name.split(".")[0] for name in file.keys()}  # noqa: SIM118 (not a mapping)
    assert names == {"parameters", "optimizer"}


def test_banded_noise_with_one_turn_of_each_epoch_is_charged_and_tested_as_it_is_drawn(spec_json: dict[str, Any], tmp_path: Path) -> None:
    spec = _spec(spec_json, "allocation in turns", noise=BANDED, expected_batch_size=40, steps=30)
    plan = spec.plan()
    report = load_train(spec)(spec, plan, RUNTIME, tmp_path, report=lambda _event: None, should_stop=lambda: False)
    assert report.event == plan.event == Repeated(count=2, event=RandomlyAllocated(steps=5, event=Release(mechanism=plan.mechanism)))
    assert [one.status for one in (report.noise_test, report.sample_test) if one is not None] == ["consistent", "consistent"]


def test_a_resumed_run_in_turns_releases_nothing_more_in_its_epoch_and_begins_an_empty_band(
    spec_json: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = _spec(spec_json | {"reproducible": False, "seed": None}, "allocation in turns", noise=BANDED)
    seen = Encodings(monkeypatch)
    _run_in_two(spec, tmp_path, 2)
    # Epochs of six steps: the third group had no turn in the first one, and has none in what is left of it.
    assert seen.steps == [1, 2, *range(7, STEPS + 1)]
    strategy, mechanism = spec.plan().strategy, spec.plan().mechanism
    assert isinstance(strategy, BandedStrategy)
    assert isinstance(mechanism, ComplexGaussian)
    empty = BandedSums(strategy, mechanism, len(seen.totals[0]))
    assert [torch.equal(encoded(empty, step, seen.totals[step - 5]), seen.rows[step - 5]) for step in (7, 8, 9)] == [True] * 3


def test_a_resumed_run_begins_a_banded_inverse_anew_and_a_checkpoint_holds_no_sum(
    spec_json: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, seen = _spec(spec_json, "cyclic", noise=INVERSE), Encodings(monkeypatch, InverseBandedSums)
    _run_in_two(spec, tmp_path, 5)
    assert seen.steps == list(range(1, STEPS + 1))
    plan = spec.plan()
    assert isinstance(plan.strategy, BandedInverseStrategy)
    assert isinstance(plan.mechanism, ComplexGaussian)
    first, second = (InverseBandedSums(plan.strategy, plan.mechanism, len(seen.totals[0]), STEPS) for _ in range(2))
    assert [torch.equal(encoded(first, step, seen.totals[step - 1]), seen.rows[step - 1]) for step in range(1, 6)] == [True] * 5
    assert [torch.equal(encoded(second, step, seen.totals[step - 1]), seen.rows[step - 1]) for step in range(6, 13)] == [True] * 7
    with safe_open(tmp_path / "checkpoint.safetensors", framework="pt") as file:
        names = {name.split(".")[0] for name in file.keys()}  # noqa: SIM118 (not a mapping)
    assert names == {"parameters", "optimizer"}


BUFFERED = {"kind": "buffered", "buffers": [{"weight": 0.8, "decay": 0.8}]}


@pytest.mark.parametrize("noise", [BANDED, BUFFERED, INVERSE], ids=["banded", "buffered", "inverse"])
def test_correlated_noise_that_is_too_large_for_the_network_is_refused_before_anything_begins(
    noise: dict[str, Any], spec_json: dict[str, Any], tmp_path: Path
) -> None:
    spec, events = _spec(spec_json, "cyclic", noise=noise, privacy=spec_json["privacy"] | {"noise_multiplier": 1e8}), list[TrainingEvent]()
    with pytest.raises(InvalidParameter, match="noise must be such that sensitivity / scale >="):
        load_train(spec)(spec, spec.plan(), RUNTIME, tmp_path, report=events.append, should_stop=lambda: False)
    assert (events, list(tmp_path.glob("*.safetensors"))) == ([], [])


# What is refused


@pytest.mark.parametrize("name", ["truncated", "fixed size"])
def test_a_declared_number_of_units_is_refused_where_the_price_depends_on_the_true_one(name: str, spec_json: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match=r"declared_units must be absent with .* needs the counted number, got 1000"):
        _spec(spec_json, name, declared_units=1000).plan()


@pytest.mark.parametrize("name", ["allocation", "cyclic"])
def test_a_declared_number_of_units_serves_where_any_does(name: str, spec_json: dict[str, Any]) -> None:
    sampling = _spec(spec_json, name, declared_units=1000).plan().sampling
    assert (sampling.is_declared, sampling.records, sampling.largest_expected_batch) == (True, 1000, float("inf"))


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != "cyclic"])
def test_a_federation_takes_poisson_samples_alone(name: str, spec_json: dict[str, Any]) -> None:
    document = {key: value for key, value in spec_json.items() if key != "optimizer"} | {"algorithm": "federated_zeta_dp_sgd"}
    document |= {"nodes": 2, "distribution_seed": 1, "server": {"kind": "sgd", "learning_rate": 0.1}, "sampling": SAMPLERS[name]}
    with pytest.raises(InvalidParameter, match="sampling must be poisson or cyclic_poisson in a federation"):
        FederatedZetaDpSgd.model_validate(document).plan()
    with pytest.raises(InvalidParameter, match="sampling must be poisson or cyclic_poisson in a federation"):
        FederatedZetaDpSgd.model_validate(document).check_request()


def test_canaries_are_refused_where_they_would_crowd_the_sample(spec_json: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match="audit must be absent with truncated_poisson samples"):
        _spec(spec_json, "truncated", audit={"kind": "canaries", "canaries": 100}).plan()


@pytest.mark.parametrize(
    ("name", "changes", "told"),
    [
        ("truncated", {"sampling": {"kind": "truncated_poisson", "largest_batch": 99}}, "largest_batch must be >= the 100 units expected"),
        ("truncated", {"expected_batch_size": 710, "sampling": {"kind": "truncated_poisson", "largest_batch": 710}}, "below the 710"),
        ("fixed size", {"expected_batch_size": UNITS + 1}, "<= the 710 training records, got 711"),
        ("cyclic", {"sampling": {"kind": "cyclic_poisson", "groups": 8, "seed": 2}}, "<= 88, one group's share of 710 units, got 100"),
    ],
)  # fmt: skip
def test_a_lot_that_the_sampling_cannot_hold_is_refused(name: str, changes: dict[str, Any], told: str, spec_json: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=told):
        _spec(spec_json, name, **changes).plan()


def _release(adjacency: Adjacency) -> Release:
    contribution = 1.0 if adjacency is Adjacency.REPLACE_ONE else None
    sensitivity = Sensitivity(l2=2.0 if contribution else 1.0, l2_contribution=contribution, adjacency=adjacency, unit="record")
    return Release(mechanism=Gaussian(std=2.0, sensitivity=sensitivity))


@pytest.mark.parametrize(
    ("kind", "adjacency"),
    [
        (TruncatedPoissonSampling(records=10, expected_batch_size=2, largest_batch=4, population_size=10), Adjacency.ADD_REMOVE),
        (RandomAllocation(records=10, expected_batch_size=2), Adjacency.REPLACE_ONE),
        (CyclicPoissonSampling(records=10, expected_batch_size=2, groups=2, seed=0), Adjacency.REPLACE_ONE),
        (CyclicAllocation(records=10, expected_batch_size=2, groups=2, seed=0), Adjacency.REPLACE_ONE),
    ],
)
def test_neighbours_for_whom_nothing_is_proved_have_no_event(kind: Sampling, adjacency: Adjacency) -> None:
    with pytest.raises(InvalidParameter):
        kind.event(_release(adjacency), 4)


def test_a_sample_of_a_fixed_size_is_charged_for_whom_it_displaces(spec_json: dict[str, Any]) -> None:
    kind = FixedSizeSampling(records=100, expected_batch_size=10)
    assert kind.event(_release(Adjacency.ADD_REMOVE), 3) == Repeated(
        count=3, event=FixedSizeSampled(sample_size=10, population_size=100, event=_release(Adjacency.ADD_REMOVE))
    )
    assert json.loads(_spec(spec_json, "fixed size").plan().model_dump_json())["sampling"]["kind"] == "fixed_size"
