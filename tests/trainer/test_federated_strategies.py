r"""Correlated noise in a federation: every node has its own strategy, a lost release begins that node anew, and no unit moves more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors import safe_open
from torch import Tensor, nn

from tests.selection import thinned
from tests.trainer.encodings import Encodings, encoded
from zetadp import accountants
from zetadp.accountants.events import PoissonSampled, Release, Repeated
from zetadp.mechanisms import Adjacency, ComplexGaussian, Gaussian, Sensitivity
from zetadp.mechanisms.declared.correlated import Buffer
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer import ExecutionPlan, FederatedZetaDpSgd, RuntimeSpec, load_train
from zetadp.trainer.engine import Alone, ParameterLayout, PrivateLoop, SeededRandomness, Site, TrainingState
from zetadp.trainer.engine.gradients.sampling import SiteSampler
from zetadp.trainer.engine.noise.bands import BandedSums
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.specs.execution_plan import FlatClipping
from zetadp.trainer.specs.report import CheckpointWritten, RunReport, TrainingEvent
from zetadp.trainer.specs.sampling import FederatedCyclicSampling, FederatedSampling
from zetadp.trainer.specs.strategy import (
    BandedInverseStrategy,
    BandedNoise,
    BandedStrategy,
    BufferedNoise,
    BufferedStrategy,
    LambdaNoise,
    Strategy,
)

NODES, GROUPS, STEPS, BOUND, STD = 3, 3, 9, 0.5, 0.4
UNITS, EACH = 36, 12
STRATEGIES: dict[str, Strategy] = {
    "bands": BandedNoise(bands=3).planned(STEPS, GROUPS),
    "buffer": BufferedNoise(buffers=(Buffer(weight=0.5, decay=0.6),)).planned(STEPS, GROUPS),
    "lambda": LambdaNoise(decay=0.6).planned(STEPS, GROUPS),
}
WITNESS = EACH * NODES
"""The number of a unit that one of two neighbours lacks; it is at node 1."""
LOST: dict[str, frozenset[tuple[int, int]]] = {
    "none": frozenset(),
    "some": frozenset({(2, 1), (4, 0), (4, 1), (4, 2), (7, 1), (8, 1)}),
    "all": frozenset((step, node) for step in range(1, STEPS + 1) for node in range(NODES)),
}
"""(Step, node) of releases that don't arrive."""


def _column(strategy: Strategy) -> list[float]:
    if isinstance(strategy, BandedStrategy):
        return [*strategy.coefficients, *[0.0] * (STEPS - strategy.bands)]
    if isinstance(strategy, BandedInverseStrategy):
        return [strategy.weight * strategy.coefficients[0] ** lag for lag in range(STEPS)]
    (one,) = strategy.buffers
    return [strategy.weight * value for value in (1.0, *(one.weight * one.decay**lag for lag in range(STEPS - 1)))]


@dataclass(frozen=True)
class _Sum:
    total: Tensor
    within: int


class _Member:
    """A process of a team of two: the first one's vectors, in their order, reach the second."""

    def __init__(self, rank: int, told: list[Tensor]) -> None:
        self.rank, self.size, self._told = rank, 2, told

    def sum(self, tensor: Tensor) -> Tensor:
        if self.rank == 0:
            self._told.append(tensor.clone())
            return tensor
        return self._told.pop(0)


@dataclass
class _Federation:
    """Sums of fixed vectors at three nodes, everybody sampled in each of its group's turns, and everything that was seen of them."""

    strategy: Strategy
    lost: frozenset[tuple[int, int]] = LOST["none"]
    broken: float | None = None
    with_witness: bool = False
    is_complex: bool = True
    team: Any = field(default_factory=Alone)
    sums: list[Tensor] = field(default_factory=list)
    rows: list[Tensor] = field(default_factory=list)
    noise: list[Tensor] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)

    def sum(self, _parameters: Mapping[str, Tensor], units: Tensor, _bound: float) -> _Sum:
        own = torch.randn(WITNESS + 1, 15, generator=torch.Generator().manual_seed(1))
        own = own / own.norm(dim=1, keepdim=True) * BOUND * 0.9999
        self.sums.append(own[units].sum(0))
        return _Sum(own[units].sum(0), len(units))

    def takes_parts_of(self, _vector: Tensor, _place: int = 0) -> bool:
        return False

    def see(self, vector: Tensor, released: Tensor, _place: int = 0) -> None:
        self.rows.append(vector.clone())
        self.noise.append(released - vector)

    def deliver(self, step: int, node: int, vector: Tensor) -> Tensor | None:
        if (step, node) not in self.lost:
            return vector
        return None if self.broken is None else torch.full_like(vector, self.broken)

    def run(self) -> TrainingState:
        sampling = FederatedCyclicSampling(nodes=NODES, records=UNITS, expected_batch_size=UNITS // NODES // GROUPS, groups=GROUPS, seed=0)
        assert sampling.probability == 1.0
        mechanism = (ComplexGaussian if self.is_complex else Gaussian)(
            std=STD, sensitivity=Sensitivity(l2=BOUND, adjacency="add_remove", unit="record")
        )
        clipping = FlatClipping(bound=BOUND)
        plan = ExecutionPlan(sampling=sampling, clipping=clipping, mechanism=mechanism, steps=STEPS, delta=1e-5, strategy=self.strategy)
        layout = ParameterLayout.of(nn.Linear(4, 3))

        def descend(state: dict[str, Tensor], parameters: Tensor, gradient: Tensor, _step: int) -> tuple[Tensor, dict[str, Tensor]]:
            self.gradients.append(gradient)
            return parameters - gradient, state

        groups, sites = torch.cat((torch.arange(WITNESS) % GROUPS, torch.tensor([1]))), list[Site]()
        for node, units in enumerate(torch.arange(WITNESS).split(EACH)):
            more = [WITNESS] if self.with_witness and node == 1 else []
            sites.append(Site(torch.cat((units, torch.tensor(more, dtype=torch.int64))), SeededRandomness(node), groups))
        loop = PrivateLoop(self, layout, plan, sites, descend, self.team, self.deliver, watch=self)  # type: ignore[arg-type]
        state = TrainingState(0, torch.zeros(layout.coordinates), {}, BOUND)
        for _ in range(STEPS):
            state = loop.step(state)
        return state

    def of(self, what: list[Tensor], node: int) -> np.ndarray[Any, Any]:
        """(steps, numbers) of what this node summed, released or drew."""
        return torch.stack(what[node::NODES]).double().numpy()


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize(("lost", "broken"), [("none", None), ("some", None), ("some", math.nan), ("some", math.inf), ("all", None)])
def test_every_nodes_gradients_follow_from_its_own_releases_and_begin_anew_after_a_lost_one(
    name: str, lost: str, broken: float | None
) -> None:
    run = _Federation(STRATEGIES[name], LOST[lost], broken)
    assert run.run().step == STEPS
    column = _column(run.strategy)
    matrix = sum(value * np.eye(STEPS, k=-lag) for lag, value in enumerate(column))
    total = np.zeros((STEPS, 15))
    for node in range(NODES):
        sums, rows, noise = (run.of(what, node) for what in (run.sums, run.rows, run.noise))
        ends = sorted(step for step, place in run.lost if place == node)
        # An attempt of the node: from behind a lost release up to the next one.
        for first, end in zip([0, *ends], [*ends, STEPS], strict=True):
            if first == end:
                continue  # the last release was lost
            part = matrix[: end - first, : end - first]
            assert np.allclose(rows[first:end], part @ sums[first:end], rtol=0.0, atol=1e-5)
            total[first:end] += sums[first:end] + np.linalg.solve(part, noise[first:end])
            if end in ends:
                total[end - 1] -= sums[end - 1] + np.linalg.solve(part, noise[first:end])[-1]
    found = torch.stack(run.gradients).double().numpy() * (UNITS // GROUPS)
    assert np.allclose(found, total, rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("lost", LOST)
def test_all_processes_of_a_team_take_the_same_gradients_from_what_the_first_one_releases(name: str, lost: str) -> None:
    told: list[Tensor] = []
    first, second = (_Federation(STRATEGIES[name], LOST[lost], team=_Member(rank, told)) for rank in (0, 1))
    states = first.run(), second.run()
    assert (len(first.rows), len(second.rows), len(told)) == (NODES * STEPS, 0, 0)
    assert torch.equal(states[0].parameters, states[1].parameters)
    assert states[0].parameters.any() == (lost != "all")


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("is_complex", [True, False], ids=["complex", "real"])
def test_a_unit_moves_its_own_nodes_releases_alone_and_by_its_sensitivity_at_most(name: str, lost: str, is_complex: bool) -> None:
    with_it, without = (_Federation(STRATEGIES[name], LOST[lost], None, there, is_complex) for there in (True, False))
    with_it.run()
    without.run()
    for node in (0, 2):
        assert np.array_equal(with_it.of(with_it.rows, node), without.of(without.rows, node))
    moves = np.linalg.norm(with_it.of(with_it.rows, 1) - without.of(without.rows, 1), axis=1)
    # Its group's turns are steps 1, 4 and 7.
    turns = [slice(0, 3), slice(3, 6), slice(6, 9)] if isinstance(with_it.strategy, BandedStrategy) else [slice(0, STEPS)]
    together = [float(np.linalg.norm(moves[turn])) for turn in turns]
    assert max(together) <= BOUND
    # Less where releases are lost in every one of its turns.
    assert (max(together) > 0.99 * BOUND) == (lost == "none")


# What is accounted for


def _spec(**changes: Any) -> FederatedZetaDpSgd:
    document = FederatedZetaDpSgd.example().model_dump(mode="json") | {
        "sampling": {"kind": "cyclic_poisson", "groups": 3, "seed": 2},
        "noise": {"kind": "banded", "bands": 3},
        "expected_batch_size": 20,
        "steps": 10,
        "reproducible": True,
        "seed": 4,
    }
    return FederatedZetaDpSgd.model_validate(document | changes)


def test_the_event_is_that_of_one_nodes_unit_in_the_group_with_the_most_turns() -> None:
    plan = _spec().plan()
    release = Release(mechanism=plan.mechanism)
    assert plan.sampling == FederatedCyclicSampling(nodes=4, records=710, expected_batch_size=20, groups=3, seed=2)
    assert plan.event == Repeated(count=4, event=PoissonSampled(probability=20 * 12 / 710, event=release))
    assert plan.event_after(3) == Repeated(count=1, event=PoissonSampled(probability=20 * 12 / 710, event=release))
    found = accountants.profile(plan.event).epsilon(plan.delta).upper
    assert 7.9 < found <= 8.0
    assert _spec(noise={"kind": "independent"}).plan().event == plan.event


@pytest.mark.parametrize(
    ("noise", "kind"),
    [
        ({"kind": "lambda_cgd", "decay": 0.5}, BandedInverseStrategy),
        ({"kind": "buffered", "buffers": [{"weight": 0.5, "decay": 0.4}]}, BufferedStrategy),
    ],
)
def test_noise_that_reaches_back_to_the_beginning_is_one_release_of_the_whole_run(noise: dict[str, Any], kind: type[Strategy]) -> None:
    plan = _spec(noise=noise).plan()
    assert plan.event == Release(mechanism=plan.mechanism)
    assert isinstance(plan.strategy, kind)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"sampling": {"kind": "poisson"}}, "noise must be independent with poisson samples"),
        ({"noise": {"kind": "banded", "bands": 4}}, "groups must be >= 4, the noise's bands, got 3"),
    ],
)
def test_noise_that_does_not_fit_the_samples_is_refused_with_the_request(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidParameter, match=told):
        _spec(**changes).check_request()
    _spec(noise={"kind": "independent"}).check_request()


def test_replaced_units_and_samples_beyond_a_groups_share_are_refused() -> None:
    sampling = FederatedCyclicSampling(nodes=4, records=710, expected_batch_size=20, groups=3, seed=2)
    replaced = Sensitivity(l2=2.0, l2_contribution=1.0, adjacency=Adjacency.REPLACE_ONE, unit="record")
    with pytest.raises(InvalidParameter, match="another one under replace_one"):
        sampling.event(Release(mechanism=Gaussian(std=1.0, sensitivity=replaced)), 10)
    with pytest.raises(ValidationError, match="<= 59, one group's share at one of 4 nodes with 710 units, got 60"):
        _spec(expected_batch_size=60).plan()
    plan = _spec().plan()
    with pytest.raises(ValidationError, match="cyclic_poisson or cyclic_allocation with at least 3 groups, got 'federated_poisson'"):
        ExecutionPlan.model_validate(dict(plan) | {"sampling": FederatedSampling(nodes=4, records=710, expected_batch_size=20)})


def test_marks_are_refused_and_canaries_take_turns_at_the_first_node(tmp_path: Path) -> None:
    marked = _spec(audit={"kind": "marks", "canaries": 100})
    for check in (marked.check_request, marked.plan):
        with pytest.raises(InvalidParameter, match="audit must be canaries with correlated noise, got 'marks'"):
            check()
    spec = _spec(audit={"kind": "canaries", "canaries": 100})
    report = _train(spec, tmp_path)
    assert report.audit is not None
    assert (report.audit.status, report.audit.canaries) == ("consistent", 100)
    assert report.sample_test is not None
    assert report.sample_test.status == "consistent"


SITES = {
    "nodes": 2,
    "declared_units": 700,
    "federation": {
        "name": "two",
        "coordinator": "a" * 64,
        "sites": [{"name": name, "key": key * 64} for name, key in (("north", "b"), ("south", "c"))],
    },
}


@pytest.mark.parametrize("where", ["flower", "nvflare", "secure"])
def test_sites_and_secure_sums_have_independent_noise_and_poisson_samples(where: str) -> None:
    secure = {"aggregation": {"kind": "secure", "dropouts": 1, "colluding": 1}}
    changes, told = (secure, "with secure aggregation") if where == "secure" else (SITES | {"transport": where}, "where nodes are sites")
    with pytest.raises(ValidationError, match=f"sampling must be poisson {told}, got 'cyclic_poisson'"):
        _spec(**changes)
    with pytest.raises(ValidationError, match=f"noise must be independent {told}, got 'banded'"):
        _spec(**changes, sampling={"kind": "poisson"})
    rest = changes | {"sampling": {"kind": "poisson"}, "noise": {"kind": "independent"}}
    with pytest.raises(ValidationError, match=f"clipping must be flat without a schedule, or per_layer, {told}.*, got 'scheduled'"):
        _spec(**rest, clipping={"kind": "flat", "schedule": {"kind": "cosine"}})
    _spec(**rest)


# Whole runs

RUNTIME = RuntimeSpec(device="cpu", threads=1, checkpoint_seconds=0.0)


def _train(spec: FederatedZetaDpSgd, folder: Path, stop: int | None = None) -> RunReport:
    events: list[TrainingEvent] = []

    def stops() -> bool:
        return stop is not None and any(isinstance(event, CheckpointWritten) and event.step >= stop - 1 for event in events)

    return load_train(spec)(spec, spec.plan(), RUNTIME, folder, report=events.append, should_stop=stops)


@pytest.mark.parametrize("noise", thinned([{"kind": "banded", "bands": 3}, {"kind": "lambda_cgd", "decay": 0.5}], every=2))
def test_a_run_is_sampled_charged_and_tested_as_planned(noise: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[int, set[int]]] = []
    original = SiteSampler.sample

    def sample(sampler: SiteSampler, step: int, units: Tensor, stream: RandomStream) -> Tensor:
        found = original(sampler, step, units, stream)
        drawn.append((step, set(found.tolist())))
        return found

    monkeypatch.setattr(SiteSampler, "sample", sample)
    spec = _spec(noise=noise)
    report = _train(spec, tmp_path)
    assert report.event == spec.plan().event
    assert report.noise_test is not None
    assert (report.noise_test.status, report.noise_test.numbers > 0) == ("consistent", True)
    assert report.sample_test is not None
    assert (report.sample_test.status, report.sample_test.samples) == ("consistent", 40)
    homes: dict[int, set[tuple[int, int]]] = {}
    for number, (step, units) in enumerate(drawn):
        for unit in units:
            homes.setdefault(unit, set()).add((number % 4, step % 3))
    assert len(homes) > 400
    # Each unit is always at the same node, in the same group's turns.
    assert {len(home) for home in homes.values()} == {1}
    assert len({next(iter(home)) for home in homes.values()}) == 12


def test_a_resumed_run_begins_anew_at_every_node_and_a_checkpoint_holds_no_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Encodings(monkeypatch)
    spec = _spec()
    with pytest.raises(TrainingStopped):
        _train(spec, tmp_path, 5)
    report = _train(spec, tmp_path)
    assert (report.steps_released, report.resumptions) == (10, 1)
    plan = spec.plan()
    assert isinstance(plan.strategy, BandedStrategy)
    assert isinstance(plan.mechanism, ComplexGaussian)
    assert seen.steps == [step for step in range(1, 11) for _ in range(4)]
    for node in range(4):
        fresh = BandedSums(plan.strategy, plan.mechanism, len(seen.totals[0]))
        for step, total, row in list(zip(seen.steps, seen.totals, seen.rows, strict=True))[node::4][5:8]:
            assert torch.equal(encoded(fresh, step, total), row)
    with safe_open(tmp_path / "checkpoint.safetensors", framework="pt") as file:
        names = {name.split(".")[0] for name in file.keys()}  # noqa: SIM118 (not a mapping)
    assert names == {"parameters", "optimizer"}


def test_adjacency_zero_out_has_the_same_event() -> None:
    target = _spec().privacy.model_dump(mode="json") | {"adjacency": Adjacency.ZERO_OUT.value}
    plan = _spec(privacy=target).plan()
    assert isinstance(plan.event, Repeated)
    assert plan.event.count == 4
