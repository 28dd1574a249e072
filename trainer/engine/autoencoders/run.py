r"""A whole run of an autoencoder's training: what its methods share. They differ in the step, and in what is released before the first."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import torch

from mechanisms.errors import InvalidParameter
from mechanisms.sampling.source import RandomOrigin, RandomStream
from trainer.autoencoder import AutoencoderDescent, AutoencoderSpec
from trainer.data import DataSetFacts, data_set_facts
from trainer.engine.autoencoders.descent import NO_BOUND
from trainer.engine.autoencoders.network import Autoencoder, initial_parameters
from trainer.engine.autoencoders.rows import TrainingRows
from trainer.engine.autoencoders.scores import HeldOutRows
from trainer.engine.checkpoint import Checkpoint, discard_unfinished, load_checkpoint, save_checkpoint, write_tensors
from trainer.engine.environment import hardware, prepare_torch, versions
from trainer.engine.loop import TrainingState
from trainer.engine.noise_watch import NoiseWatch
from trainer.engine.optimizers import initial_state
from trainer.engine.publisher import Evaluation, Publisher
from trainer.engine.requests import request_digest
from trainer.engine.team import Alone
from trainer.engine.training import CHECKPOINT, MODEL
from trainer.plan import ExecutionPlan
from trainer.plans import AnyPlan
from trainer.report import MetricValues, RunReport, Started, TrainingEvent
from trainer.spec import RuntimeSpec


@final
@dataclass(frozen=True)
class AutoencoderRun:
    """One training, as its worker asked for it; ``report`` and ``should_stop`` as in ``Train``."""

    spec: AutoencoderSpec
    plan: AnyPlan
    runtime: RuntimeSpec
    workdir: Path
    report: Callable[[TrainingEvent], None]
    should_stop: Callable[[], bool]


@final
@dataclass(frozen=True)
class Prepared:
    r"""What a method's first act finds.

    Attributes:
      rows: the private training rows, as they are.
      digest: of spec, plan and data: what a released file is bound to.
      resumed: whether the run continues from a checkpoint: an earlier attempt released what training sees.
      runtime: what it runs with.
    """

    facts: DataSetFacts
    device: torch.device
    network: Autoencoder
    rows: TrainingRows
    digest: str
    resumed: bool
    runtime: RuntimeSpec


class Descent(NamedTuple):
    r"""What a method's first act gives.

    Attributes:
      step: the state after one more step.
      origin: of the noise and samples.
      generator: how they were computed from their keys, in words.
      watch: has seen, or will see, the noise of this attempt; None where it isn't added to numbers.
    """

    step: Callable[[TrainingState], TrainingState]
    origin: RandomOrigin
    generator: str
    watch: NoiseWatch | None = None


def run_autoencoder(run: AutoencoderRun, begin: Callable[[Prepared], Descent]) -> RunReport:
    r"""Runs the plan to its end, from the checkpoint where there is one, and writes the model.

    Args:
      begin: called once in every attempt, before anything is published: releases what training is to see, or finds what an earlier
        attempt released.
    Raises:
      InvalidParameter: plan and spec disagree, several processes were asked for, or the device isn't there.
      CheckpointRefused: the checkpoint belongs to something else.
      TrainingDiverged: the parameters stopped being finite.
      TrainingAborted: from any other error in a step, which counts as executed.
      TrainingStopped: on ``should_stop``, with the state in the checkpoint.
    """
    spec, plan = run.spec, run.plan
    facts = data_set_facts(spec.data)  # pyright: ignore[reportArgumentType] (Pydantic gives frozen models their hash at run time)
    if plan != (expected := spec.replanned(facts, plan)):
        raise InvalidParameter("plan", f"the one that the spec comes to, {expected.model_dump_json()}", plan.model_dump_json())
    if run.runtime.processes != 1:
        raise InvalidParameter("runtime.processes", "1 for an autoencoder, which is too small to share", run.runtime.processes)
    if run.runtime.precision != "float32":
        raise InvalidParameter("runtime.precision", "'float32' for an autoencoder", run.runtime.precision)
    device = prepare_torch(run.runtime)
    digest, network = request_digest(spec, plan, facts), Autoencoder.of(spec.shape(facts), device)
    start = _starting_point(run, network, digest)
    data = spec.data.read()
    rows = TrainingRows.of(spec, facts, data, device)
    held_out = HeldOutRows(network, torch.from_numpy(np.ascontiguousarray(data.test_features)).to(device))
    descent = begin(Prepared(facts, device, network, rows, digest, resumed=start.resumptions > 0, runtime=run.runtime))
    publisher = _publisher(run, start, held_out, digest)
    run.report(Started(resumed_from_step=start.state.step))
    publisher.start(start.state)
    state = start.state
    with publisher.kept_before_telling():
        while state.step < plan.steps:
            state = descent.step(state)
            publisher.after_step(state)
    # The last step is in the checkpoint by now: an attempt that is killed from here on writes this same model again, not another one.
    write_tensors(run.workdir / MODEL, network.split(state.parameters), _architecture(spec, facts))
    return RunReport(
        steps_released=state.step,
        event=plan.event_after(state.step),
        noise_std=plan.noise_std,
        random_origin=descent.origin,
        generator=descent.generator,
        resumptions=start.resumptions,
        held_out=publisher.held_out,
        metrics=publisher.final_metrics(state),
        test_records=facts.test_records,
        training_records=facts.training_records,
        training_units=plan.units,
        checkpoints_released=publisher.checkpoints,
        parameters=network.shape.coordinates,
        versions=versions(),
        hardware=hardware(device),
        training_seconds=publisher.seconds,
        noise_test=None if descent.watch is None else descent.watch.findings(Alone(), device),
    )


def stream_of(spec: AutoencoderSpec, purpose: str) -> RandomStream:
    """A stream of one purpose: from the seed where the run is reproducible, else from the operating system."""
    return RandomStream.from_operating_system() if spec.seed is None else RandomStream.from_seed(spec.seed, purpose)


def _starting_point(run: AutoencoderRun, network: Autoencoder, digest: str) -> Checkpoint:
    run.workdir.mkdir(parents=True, exist_ok=True)
    path = run.workdir / CHECKPOINT
    discard_unfinished(path)
    if path.exists():
        earlier = load_checkpoint(path, digest, network.masks.device)
        resumed = Checkpoint(earlier.state, earlier.resumptions + 1, earlier.written, earlier.seconds, None)
        save_checkpoint(path, resumed, digest)  # so that an attempt which dies before its own first checkpoint is counted too
        return resumed
    return Checkpoint(_initial_state(run.spec, run.plan, network), resumptions=0, written=0, seconds=0.0, evaluated=None)


def _initial_state(spec: AutoencoderSpec, plan: AnyPlan, network: Autoencoder) -> TrainingState:
    device = network.masks.device
    if not isinstance(spec, AutoencoderDescent):
        # Nothing descends from anywhere: the method's own step says what the weights are.
        return TrainingState(0, torch.zeros(network.shape.coordinates, device=device), {}, NO_BOUND)
    parameters = initial_parameters(spec, network.shape, stream_of(spec, "model initialisation")).to(device)
    bound = plan.clipping.bound if isinstance(plan, ExecutionPlan) else NO_BOUND
    return TrainingState(0, parameters, initial_state(spec.optimizer, parameters), bound)


def _publisher(run: AutoencoderRun, start: Checkpoint, held_out: HeldOutRows, digest: str) -> Publisher:
    def measure(state: TrainingState) -> MetricValues:
        return held_out.metrics(state.parameters, state.step)

    return Publisher(
        plan=run.plan,
        checkpoint_seconds=run.runtime.checkpoint_seconds,
        earlier=start,
        save=partial(save_checkpoint, run.workdir / CHECKPOINT, digest=digest),
        evaluation=Evaluation(run.spec.held_out, measure),
        report=run.report,
        should_stop=run.should_stop,
    )


def _architecture(spec: AutoencoderSpec, facts: DataSetFacts) -> str:
    """What a reader of the model file needs to build the network again, as JSON."""
    return json.dumps(
        {
            "format": "zetadp model 2",
            "algorithm": spec.algorithm_name(),
            "model": {"kind": "distributed_autoencoder", **spec.shape(facts).model_dump(mode="json")},
            "shape": list(facts.shape),
            "is_complex": facts.is_complex,
            "task": facts.task,
            "classes": facts.classes,
            "layout": "float32; encoders (m, features, hidden), decoder (m, hidden, features); "
            "output sigmoid(sigmoid(x encoders[j]) decoder[j]) for a row x of encoder j",
        },
        sort_keys=True,
    )
