r"""Training of a zeta-DP-SGD spec: builds network, randomness and state, and hands them to the one loop."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import final

import torch
from torch import Tensor
from torch.func import functional_call  # pyright: ignore[reportPrivateImportUsage]

from mechanisms.errors import InvalidParameter
from mechanisms.source import RandomStream
from trainer import engine
from trainer.data import DataSetFacts, data_set_facts
from trainer.engine import Checkpoint, ParameterLayout, PrivateLoop, Problem, Publisher, TrainingState
from trainer.models import ComplexMlpNetwork, build
from trainer.plan import ExecutionPlan
from trainer.report import RunReport, Started, TrainingEvent
from trainer.spec import RuntimeSpec
from trainer.zeta_dp_sgd.spec import ZetaDpSgd

CHECKPOINT = "checkpoint.safetensors"
MODEL = "artifacts/model.safetensors"


def train(
    spec: ZetaDpSgd,
    plan: ExecutionPlan,
    runtime: RuntimeSpec,
    workdir: Path,
    *,
    report: Callable[[TrainingEvent], None],
    should_stop: Callable[[], bool],
) -> RunReport:
    r"""Runs ``plan`` to its end, from the checkpoint in ``workdir`` where there is one, and writes ``artifacts/model.safetensors`` there.

    Args:
      plan: as calibrated when the job was submitted; training runs from exactly it.
      report: receives every event as it happens.
      should_stop: asked after every step.
    Raises:
      InvalidParameter: plan and spec disagree, or the device isn't there.
      CheckpointRefused: the checkpoint belongs to something else.
      TrainingDiverged: the parameters stopped being finite.
      TrainingStopped: on ``should_stop``, with the state in the checkpoint.
    """
    facts = data_set_facts(spec.data)
    _check_plan(spec, plan, facts)
    device = engine.prepare_torch(runtime)
    run = _Run.prepare(spec, facts, device)
    path, digest = workdir / CHECKPOINT, _digest(spec, plan, facts)
    start = _starting_point(spec, run, path, digest, device)
    report(Started(resumed_from_step=start.state.step))
    publisher = Publisher(
        plan=plan,
        checkpoint_seconds=runtime.checkpoint_seconds,
        earlier=start,
        save=partial(engine.save_checkpoint, path, digest=digest),
        test_accuracy=run.test_accuracy,
        report=report,
        should_stop=should_stop,
    )
    publisher.stop_before_first_step(start.state)
    randomness = engine.FreshRandomness() if spec.seed is None else engine.SeededRandomness(spec.seed)
    optimizer = partial(engine.update, spec.optimizer)
    loop = PrivateLoop(run.problem, plan, randomness, optimizer, runtime.microbatch_size)
    final_state = loop.run(start.state, publisher.after_step)
    # The last step is in the checkpoint by now: an attempt that is killed from here on writes this same model again, not another one.
    engine.write_tensors(workdir / MODEL, run.named_tensors(final_state), _architecture(spec, facts))
    return RunReport(
        steps_released=final_state.step,
        event=plan.event_after(final_state.step),
        noise_std=plan.mechanism.noise_scale,
        random_origin=randomness.origin,
        resumptions=start.resumptions,
        test_accuracy=run.test_accuracy(final_state),
        test_records=facts.test_records,
        training_records=facts.training_records,
        parameters=run.problem.layout.real_parameters,
        versions=engine.versions(),
        hardware=engine.hardware(device),
        training_seconds=publisher.seconds,
    )


@final
@dataclass(frozen=True)
class _Run:
    network: ComplexMlpNetwork
    problem: Problem
    test_features: Tensor
    test_labels: Tensor

    @staticmethod
    def prepare(spec: ZetaDpSgd, facts: DataSetFacts, device: torch.device) -> _Run:
        # Initial weights are public and have a stream of their own.
        purpose = "model initialisation"
        stream = RandomStream.from_operating_system() if spec.seed is None else RandomStream.from_seed(spec.seed, purpose)
        network = build(spec.model, facts.features, facts.classes, stream).to(device)
        data = spec.data.read()
        features, labels, test_features, test_labels = (
            torch.from_numpy(array).to(device)
            for array in (data.training_features, data.training_labels, data.test_features, data.test_labels)
        )

        def loss(parameters: dict[str, Tensor], record: Tensor, label: Tensor) -> Tensor:
            return torch.nn.functional.cross_entropy(functional_call(network, parameters, (record,)), label)

        return _Run(network, Problem(loss, ParameterLayout.of(network), features, labels), test_features, test_labels)

    def named_tensors(self, state: TrainingState) -> dict[str, Tensor]:
        """Parameters as real pairs (last axis: real, imaginary): every reader of safetensors knows float32, few know complex64."""
        named = self.problem.layout.unflatten(state.parameters)
        return {name: torch.view_as_real(value) if value.is_complex() else value for name, value in named.items()}

    def test_accuracy(self, state: TrainingState) -> float:
        """On the held-out records, which the guarantee doesn't cover."""
        with torch.no_grad():
            scores = functional_call(self.network, self.problem.layout.unflatten(state.parameters), (self.test_features,))
        return (scores.argmax(dim=1) == self.test_labels).double().mean().item()


def _starting_point(spec: ZetaDpSgd, run: _Run, path: Path, digest: str, device: torch.device) -> Checkpoint:
    if not path.exists():
        parameters = run.problem.layout.flatten(dict(run.network.named_parameters()), torch.complex64)
        return Checkpoint(TrainingState(0, parameters, engine.initial_state(spec.optimizer, parameters)), resumptions=0, seconds=0.0)
    earlier = engine.load_checkpoint(path, digest, device)
    resumed = Checkpoint(earlier.state, earlier.resumptions + 1, earlier.seconds)
    # At once, so that an attempt which dies before its own first checkpoint is counted too.
    engine.save_checkpoint(path, resumed, digest)
    return resumed


def _check_plan(spec: ZetaDpSgd, plan: ExecutionPlan, facts: DataSetFacts) -> None:
    """The plan comes calibrated from the submission: what it shares with the spec must be equal, or its event would be of another run."""
    mechanism = plan.mechanism
    multiplier = spec.privacy.noise_multiplier
    # Noise calibrated to an epsilon isn't calibrated again here: whatever it is, the event names it.
    noise_scale = mechanism.noise_scale if multiplier is None else multiplier * spec.clipping_bound
    for name, expected, got in (
        ("plan.sampling.records", facts.training_records, plan.sampling.records),
        ("plan.sampling.expected_batch_size", spec.expected_batch_size, plan.sampling.expected_batch_size),
        ("plan.clipping.bound", spec.clipping_bound, plan.clipping.bound),
        ("plan.steps", spec.steps, plan.steps),
        ("plan.delta", spec.privacy.delta, plan.delta),
        ("plan.mechanism.kind", "complex_gaussian", mechanism.kind),
        ("plan.mechanism.sensitivity.adjacency", spec.privacy.adjacency, mechanism.sensitivity.adjacency),
        ("plan.mechanism.sensitivity.unit", facts.unit, mechanism.sensitivity.unit),
        ("plan.mechanism.noise_scale", noise_scale, mechanism.noise_scale),
    ):
        if got != expected:
            raise InvalidParameter(name, f"{expected!r}, as the spec says", got)
    for name in ("l1", "l2_real", "l2_imag"):
        # Clipping bounds real and imaginary parts only together: a bound on one of them would claim what nobody enforced.
        if (got := getattr(mechanism.sensitivity, name)) is not None:
            raise InvalidParameter(f"plan.mechanism.sensitivity.{name}", "absent (clipping enforces l2 alone)", got)


def _digest(spec: ZetaDpSgd, plan: ExecutionPlan, facts: DataSetFacts) -> str:
    whole = {"spec": spec.model_dump(mode="json"), "plan": plan.model_dump(mode="json"), "data": facts.sha256}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def _architecture(spec: ZetaDpSgd, facts: DataSetFacts) -> str:
    """What a reader needs to build the network again."""
    return json.dumps(
        {
            "format": "zetadp model 1",
            "algorithm": spec.algorithm,
            "model": spec.model.model_dump(mode="json"),
            "features": facts.features,
            "classes": facts.classes,
            "layout": "float32; the last axis is (real, imaginary)",
            "formula": "z -> W z + b in each layer, the activation between layers, the head after the last",
        },
        sort_keys=True,
    )
