r"""Ordinary training of a network, with the checkpoints, events and report of every other training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call  # pyright: ignore[reportPrivateImportUsage]

from mechanisms.errors import InvalidParameter
from mechanisms.sampling.source import RandomOrigin, RandomStream
from trainer.data import DataSetFacts, data_set_facts
from trainer.engine import (
    CHECKPOINT,
    MODEL,
    Checkpoint,
    Evaluation,
    HeldOutRecords,
    ParameterLayout,
    Problem,
    Publisher,
    TrainingState,
    hardware,
    initial_state,
    load_checkpoint,
    members_of,
    prepare_torch,
    save_checkpoint,
    update,
    versions,
    write_tensors,
)
from trainer.engine.checkpoint import discard_unfinished
from trainer.engine.parameters import as_real
from trainer.engine.precision import compute_in
from trainer.engine.requests import architecture, request_digest
from trainer.engine.training import given
from trainer.engine.units import seed_of
from trainer.models import build, losses_for
from trainer.models.front import passed_through, split_front
from trainer.network_training import PublicHeldOut
from trainer.non_private.spec import NonPrivateTraining
from trainer.plans import UnprotectedPlan
from trainer.report import MetricValues, RunReport, Started, TrainingEvent
from trainer.spec import RuntimeSpec

NO_BOUND = 1.0
"""What a checkpoint says of the clipping bound: nothing is clipped."""

GENERATOR = "batches from AES-256 in counter mode; no noise"


def train(
    spec: NonPrivateTraining,
    plan: UnprotectedPlan,
    runtime: RuntimeSpec,
    workdir: Path,
    *,
    report: Callable[[TrainingEvent], None],
    should_stop: Callable[[], bool],
) -> RunReport:
    r"""Runs ``plan`` to its end, from the checkpoint where there is one, and writes the model.

    Raises:
      InvalidParameter: plan and spec disagree, several processes were asked for, or the device isn't there.
      CheckpointRefused: the checkpoint belongs to something else.
      TrainingDiverged: the parameters stopped being finite.
      TrainingStopped: on ``should_stop``, with the state in the checkpoint.
    """
    facts = data_set_facts(spec.data)  # pyright: ignore[reportArgumentType] (Pydantic gives frozen models their hash at run time)
    if plan != spec.plan_for(facts):
        raise InvalidParameter("plan", "the one that the spec comes to", plan.kind)
    if runtime.processes != 1:
        raise InvalidParameter("runtime.processes", "1 for training without privacy", runtime.processes)
    device = prepare_torch(runtime)
    prepared = Prepared.of(spec, runtime, facts, device)
    digest, path = request_digest(spec, plan, facts), workdir / CHECKPOINT
    start = _starting_point(path, digest, spec, prepared)
    publisher = Publisher(
        plan=plan,
        checkpoint_seconds=runtime.checkpoint_seconds,
        earlier=start,
        save=partial(save_checkpoint, path, digest=digest),
        evaluation=Evaluation(spec.held_out, partial(_measured, prepared, facts)),
        report=report,
        should_stop=should_stop,
    )
    report(Started(resumed_from_step=start.state.step))
    publisher.start(start.state)
    state = _trained(spec, prepared, start.state, publisher.after_step)
    named = {name: as_real(value) for name, value in prepared.layout.unflatten(state.parameters).items()} | given(prepared.front)
    write_tensors(workdir / MODEL, named, architecture(spec, spec.model, facts))
    return RunReport(
        steps_released=state.step,
        event=plan.event,
        noise_std=plan.noise_std,
        random_origin=RandomOrigin.OPERATING_SYSTEM if spec.seed is None else RandomOrigin.USER_SEED,
        generator=GENERATOR,
        resumptions=start.resumptions,
        held_out=publisher.held_out,
        metrics=publisher.final_metrics(state),
        test_records=facts.test_records,
        training_records=facts.training_records,
        training_units=plan.units,
        checkpoints_released=publisher.checkpoints,
        parameters=prepared.layout.real_parameters,
        versions=versions(),
        hardware=hardware(device),
        training_seconds=publisher.seconds,
    )


@final
@dataclass(frozen=True)
class Prepared:
    """What a run works with, in memory; ``rows``: the records that are used, (records,), int64."""

    front: nn.Module
    problem: Problem
    rows: Tensor
    layout: ParameterLayout
    held_out: HeldOutRecords

    @staticmethod
    def of(spec: NonPrivateTraining, runtime: RuntimeSpec, facts: DataSetFacts, device: torch.device) -> Prepared:
        """Reads the data and builds the network."""
        data = spec.data.read()
        front, network = split_front(build(spec.model, facts, _stream(spec, "model initialisation")).to(device))
        compute_in(runtime, network)
        features, targets, test_features, test_targets = (
            torch.from_numpy(np.ascontiguousarray(array)).to(device)
            for array in (data.training_features, data.training_targets, data.test_features, data.test_targets)
        )
        rows = torch.arange(len(features))
        if spec.records_per_user is not None:
            assert data.training_users is not None  # the plan found a user unit
            members = members_of(data.training_users, spec.records_per_user)
            rows = members[members >= 0].sort().values
        problem = Problem(network, losses_for(facts), passed_through(front, features), targets, members=None)
        layout = ParameterLayout.of(network)
        held_out = HeldOutRecords(network, layout, passed_through(front, test_features), test_targets)
        if isinstance(spec.evaluation, PublicHeldOut):
            held_out.check_measurable()
        return Prepared(front, problem, rows.to(device), layout, held_out)


def _stream(spec: NonPrivateTraining, purpose: str) -> RandomStream:
    return RandomStream.from_operating_system() if spec.seed is None else RandomStream.from_seed(spec.seed, purpose)


def _starting_point(path: Path, digest: str, spec: NonPrivateTraining, prepared: Prepared) -> Checkpoint:
    discard_unfinished(path)
    device = prepared.problem.features.device
    if path.exists():
        earlier = load_checkpoint(path, digest, device)
        resumed = Checkpoint(earlier.state, earlier.resumptions + 1, earlier.written, earlier.seconds, None)
        save_checkpoint(path, resumed, digest)  # so that an attempt which dies before its own first checkpoint is counted too
        return resumed
    parameters = prepared.layout.flatten(dict(prepared.problem.network.named_parameters())).to(device)
    state = TrainingState(0, parameters, initial_state(spec.optimizer, parameters), NO_BOUND)
    return Checkpoint(state, resumptions=0, written=0, seconds=0.0, evaluated=None)


def _measured(prepared: Prepared, facts: DataSetFacts, state: TrainingState) -> MetricValues:
    return prepared.held_out.metrics(state, classifies=facts.task == "classification")


def _trained(
    spec: NonPrivateTraining, prepared: Prepared, state: TrainingState, after_step: Callable[[TrainingState], None]
) -> TrainingState:
    """From ``state`` to the last step."""
    records = len(prepared.rows)
    size = min(spec.batch_size, records)
    in_epoch = records // size
    order, ordered = prepared.rows, -1
    while state.step < spec.steps:
        epoch, place = divmod(state.step, in_epoch)
        if epoch != ordered:
            # What doesn't fill a batch is left out, another part of the records in every epoch.
            keys = _stream(spec, f"epoch {epoch}").uniform(records)
            order, ordered = prepared.rows[torch.from_numpy(np.argsort(keys, kind="stable")).to(prepared.rows.device)], epoch
        if spec.seed is not None:
            torch.manual_seed(seed_of(spec.seed, f"masks of step {state.step + 1}"))  # of dropout
        gradient = _gradient(prepared, state.parameters, order[place * size : (place + 1) * size])
        step = state.step + 1
        moved, optimizer_state = update(spec.optimizer, state.optimizer, state.parameters, gradient, step, spec.steps)
        state = TrainingState(step, moved, optimizer_state, NO_BOUND)
        after_step(state)
    return state


def _gradient(prepared: Prepared, parameters: Tensor, rows: Tensor) -> Tensor:
    """Of the mean loss over some rows, (coordinates,)."""
    problem = prepared.problem
    leaf = parameters.detach().requires_grad_()
    outputs = functional_call(problem.network, prepared.layout.unflatten(leaf), (problem.features.index_select(0, rows),))
    loss = problem.losses(outputs, problem.targets.index_select(0, rows)).mean()
    return torch.autograd.grad(loss, leaf)[0]
