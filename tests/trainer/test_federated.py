r"""A federation: who lives where, what a round makes of nodes that fail, and a per-patient run on made-up MRI."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.selection import thinned
from zetadp.accountants.events import neighbourhood
from zetadp.mechanisms import Adjacency, ComplexGaussian, Sensitivity
from zetadp.trainer import ExecutionPlan, FederatedZetaDpSgd, RuntimeSpec, load_train
from zetadp.trainer.engine import (
    Alone,
    ClippedGradients,
    ClippedSum,
    ParameterLayout,
    PrivateLoop,
    Problem,
    SeededRandomness,
    Site,
    TrainingState,
)
from zetadp.trainer.engine import network_run as training
from zetadp.trainer.engine.gradients.clipping import CLIP_MARGIN
from zetadp.trainer.specs.execution_plan import AdaptiveClipping, Clipping, FlatClipping
from zetadp.trainer.specs.report import RunReport
from zetadp.trainer.specs.sampling import FederatedSampling

NODES, UNITS, LOT = 3, 30, 5
ADAPTIVE = AdaptiveClipping(initial_bound=0.5, quantile=0.7, learning_rate=0.2, count_share=0.1)

Deliver = Callable[[int, int, Tensor], Tensor | None]


def _problem() -> Problem:
    generator = torch.Generator().manual_seed(2)
    network = nn.Linear(4, 3)
    features, targets = torch.randn(UNITS, 4, generator=generator), torch.randint(3, (UNITS,), generator=generator)
    return Problem(network, lambda scores, labels: nn.functional.cross_entropy(scores, labels, reduction="none"), features, targets, None)


def _round(deliver: Deliver, clipping: Clipping | None = None) -> tuple[TrainingState, TrainingState, Tensor]:
    """State before and after one round of gradient descent with rate 1, and the gradient."""
    clipping = FlatClipping(bound=0.5) if clipping is None else clipping
    sensitivity = Sensitivity(l2=clipping.sensitivity, adjacency=Adjacency.ADD_REMOVE, unit="record")
    plan = ExecutionPlan(
        sampling=FederatedSampling(nodes=NODES, records=UNITS, expected_batch_size=LOT),
        clipping=clipping,
        mechanism=ComplexGaussian(std=0.3, sensitivity=sensitivity),
        steps=1,
        delta=1e-5,
    )
    problem, moved = _problem(), list[Tensor]()
    layout = ParameterLayout.of(problem.network)

    def descend(state: dict[str, Tensor], parameters: Tensor, gradient: Tensor, _step: int) -> tuple[Tensor, dict[str, Tensor]]:
        moved.append(gradient)
        return parameters - gradient, state

    sites = [Site(units, SeededRandomness(node)) for node, units in enumerate(torch.arange(UNITS).split(UNITS // NODES))]
    loop = PrivateLoop(ClippedGradients(problem, clipping, 16), layout, plan, sites, descend, Alone(), deliver)
    before = TrainingState(0, torch.zeros(layout.coordinates), {}, clipping.bound)
    after = loop.step(before)
    return before, after, moved[0]


@pytest.mark.parametrize("failing", [(1,), (0, 2)], ids=str)
@pytest.mark.parametrize("what", thinned(["nothing", "NaN", "infinity"], every=2))
def test_a_node_that_fails_counts_as_zero_and_the_divisor_stays_the_number_of_nodes(what: str, failing: tuple[int, ...]) -> None:
    arrived: dict[int, Tensor] = {}

    def deliver(_step: int, node: int, vector: Tensor) -> Tensor | None:
        if node not in failing:
            arrived[node] = vector
            return vector
        broken = vector.clone()
        broken[0] = torch.nan if what == "NaN" else torch.inf
        return None if what == "nothing" else broken

    _, after, gradient = _round(deliver)
    expected = sum(arrived.values()) / NODES / LOT
    assert isinstance(expected, Tensor)
    assert torch.allclose(gradient, expected, rtol=1e-6)
    assert after.step == 1


def test_a_round_in_which_nobody_answers_is_charged_and_changes_nothing() -> None:
    before, after, gradient = _round(lambda _step, _node, _vector: None)
    assert not gradient.any()
    assert torch.equal(after.parameters, before.parameters)
    assert after.step == 1


def test_an_adaptive_bound_takes_silence_for_one_half() -> None:
    _, after, _ = _round(lambda _step, _node, _vector: None, ADAPTIVE)
    # f = 1/2 where nothing arrives: 0.5 exp(-0.2 (0.5 - 0.7)).
    assert after.bound == pytest.approx(0.5 * 1.0408107741923882, rel=1e-12)


def test_the_plan_must_be_for_these_nodes() -> None:
    plan = _spec().plan()
    problem = _problem()
    sites = [Site(torch.arange(UNITS), SeededRandomness(0))]
    layout = ParameterLayout.of(problem.network)
    loop = PrivateLoop(ClippedGradients(problem, plan.clipping, 4), layout, plan, sites, lambda s, p, g, _: (p - g, s), Alone())
    with pytest.raises(ValueError, match=r"plan\.sampling\.nodes must be 1, the number of sites, got 3"):
        loop.check_sites()


PATIENTS, SLICES, BOUND = 12, 2, 0.1


def _spec(**changes: Any) -> FederatedZetaDpSgd:
    document: dict[str, Any] = {
        "data": {"kind": "mri_phantoms", "patients": PATIENTS, "test_patients": 3, "slices": SLICES, "resolution": 8, "seed": 1},
        "model": {
            "kind": "sequential",
            "numbers": "complex",
            "layers": [
                {"kind": "convolution", "outputs": 4, "kernel": 3, "padding": 1},
                {"kind": "group_norm", "groups": 2},
                {"kind": "activation", "name": "conj_mish"},
                {"kind": "average_pool", "kernel": 4, "stride": 4},
                {"kind": "flatten"},
                {"kind": "linear", "outputs": 4},
            ],
            "head": "magnitude",
        },
        "server": {"kind": "nadam", "learning_rate": 0.01, "schedule": {"kind": "steps", "after": [2]}},
        "privacy": {"adjacency": "add_remove", "unit": "patient", "delta": 1e-3, "noise_multiplier": 1.0},
        "clipping_bound": BOUND,
        "expected_batch_size": 3,
        "steps": 4,
        "nodes": 3,
        "distribution_seed": 0,
        "records_per_user": 4 * SLICES,
        "reproducible": True,
        "seed": 4,
    }
    return FederatedZetaDpSgd.model_validate(document | changes)


def _train(spec: FederatedZetaDpSgd, workdir: Path) -> RunReport:
    runtime = RuntimeSpec(device="cpu", threads=1)
    return load_train(spec)(spec, spec.plan(), runtime, workdir, report=lambda _event: None, should_stop=lambda: False)


def test_a_patients_slices_are_clipped_together_at_one_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A patient more or less in a node's sample moves that node's sum by at most the bound; slices by themselves would by eight times it.
    sampled: list[set[int]] = []
    moves: list[float] = []
    original = ClippedGradients.sum

    def watched(self: ClippedGradients, parameters: Mapping[str, Tensor], units: Tensor, bound: float) -> ClippedSum:
        clipped = original(self, parameters, units, bound)
        sampled.append(set(units.tolist()))
        for left_out in range(len(units)):
            fewer = torch.cat((units[:left_out], units[left_out + 1 :]))
            moves.append((clipped.total - original(self, parameters, fewer, bound).total).double().norm().item())
        return clipped

    # Which adds up units that live nowhere.
    monkeypatch.setattr(training, "check_contributions", lambda *_: None)
    monkeypatch.setattr(ClippedGradients, "sum", watched)
    report = _train(_spec(), tmp_path)
    assert (report.training_records, report.training_units) == (PATIENTS * 4 * SLICES, PATIENTS)
    assert neighbourhood(report.event) == ("add_remove", "patient")
    assert (1.0 - 1.25 * CLIP_MARGIN) * BOUND < max(moves) <= BOUND
    homes = [set().union(*sampled[node::3]) for node in range(3)]
    assert all(patient < PATIENTS for home in homes for patient in home)
    assert not homes[0] & homes[1]
    assert not (homes[0] | homes[1]) & homes[2]


def test_a_federated_run_repeats_to_the_bit_where_it_is_reproducible(tmp_path: Path) -> None:
    for name in ("a", "b"):
        _train(_spec(), tmp_path / name)
    first, second = ((tmp_path / name / "artifacts" / "model.safetensors").read_bytes() for name in ("a", "b"))
    assert first == second


def test_fewer_records_of_each_patient_are_another_run(tmp_path: Path) -> None:
    for records in (1, 8):
        _train(_spec(records_per_user=records), tmp_path / str(records))
    first, second = ((tmp_path / name / "artifacts" / "model.safetensors").read_bytes() for name in ("1", "8"))
    assert first != second
