r"""THE LIFECYCLE of a run, once for all algorithms: check, prepare, resume, publish, step, write the model, report.

An algorithm defines what it prepares, what one step is, and what the run ends with.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, final

import torch
from torch import Tensor

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomOrigin
from zetadp.trainer.data import DataSetFacts, data_set_facts
from zetadp.trainer.engine import self_test
from zetadp.trainer.engine.checkpoint import Checkpoint, discard_unfinished, load_checkpoint, save_checkpoint, state_digest, write_tensors
from zetadp.trainer.engine.environment import prepare_torch, versions
from zetadp.trainer.engine.loop import TrainingState
from zetadp.trainer.engine.noise.run_key import run_key
from zetadp.trainer.engine.publisher import Evaluation, Follower, Publisher
from zetadp.trainer.engine.requests import request_digest
from zetadp.trainer.engine.team.distributed import launch
from zetadp.trainer.engine.team.interface import Alone, Team
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.specs.algorithms.federation import SignedProposal, SiteRecord
from zetadp.trainer.specs.base import RuntimeSpec, TrainingSpec
from zetadp.trainer.specs.findings.attacks import AttackFindings
from zetadp.trainer.specs.findings.runs import CanaryFindings, NoiseFindings, SampleFindings
from zetadp.trainer.specs.plan_base import Plan
from zetadp.trainer.specs.report import RunReport, Started, TrainingEvent
from zetadp.trainer.team_place import TeamPlace

CHECKPOINT = "checkpoint.safetensors"
MODEL = "artifacts/model.safetensors"


@final
@dataclass(frozen=True)
class Setting:
    r"""The circumstances of a run, in one of its processes.

    Attributes:
      digest: of spec, plan and data; every file of the run is bound to it.
      resumed_from: the step of the checkpoint that the run continues from; None for a new run.
      report, should_stop: as in ``Train``; all processes of a team get the same answer.
    """

    facts: DataSetFacts
    runtime: RuntimeSpec
    workdir: Path
    device: torch.device
    team: Team
    digest: str
    resumed_from: int | None
    report: Callable[[TrainingEvent], None]
    should_stop: Callable[[], bool]


class Model(NamedTuple):
    r"""The contents of the model file.

    Attributes:
      tensors: by name.
      architecture: what a reader needs to build the network again, as JSON.
    """

    tensors: dict[str, Tensor]
    architecture: str


@final
@dataclass(frozen=True)
class Ending:
    r"""The parts of the report that only the algorithm knows; see ``RunReport``."""

    origin: RandomOrigin
    generator: str
    parameters: int
    noise_test: NoiseFindings | None = None
    sample_test: SampleFindings | None = None
    audit: CanaryFindings | None = None
    attacks: AttackFindings | None = None
    sites: tuple[SiteRecord, ...] = ()
    proposal: SignedProposal | None = None


class PreparedRun(ABC):
    """An algorithm with its data and networks in memory."""

    @property
    @abstractmethod
    def evaluation(self) -> Evaluation:
        """How a state does on held-out records."""

    @abstractmethod
    def initial_state(self) -> TrainingState:
        """The state before the first step, used if there is no checkpoint to continue from."""

    def begin(self, start: TrainingState) -> None:
        r"""Called before anything is published: releases what the steps will see, or loads what an earlier attempt released.

        Args:
          start: the state that the run begins or continues with; if it continues, the resumption is already counted on disk.
        Raises:
          InvalidParameter: the steps would release more than the plan says.
        """
        del start

    def working(self) -> AbstractContextManager[object]:
        """A context that lasts as long as the steps do."""
        return nullcontext()

    @abstractmethod
    def step(self, state: TrainingState) -> TrainingState:
        r"""The state after one more step; its parameters might not be finite.

        Raises:
          TrainingStopped: a stop was requested in the middle of it; everything is as if the step had never begun.
        """

    @abstractmethod
    def model(self, state: TrainingState) -> Model:
        """The model of the last state."""

    @abstractmethod
    def finish(self, state: TrainingState) -> Ending:
        """Runs after the model is written, in every process of a team: attacks, last releases, and the findings."""


class Algorithm(Protocol):
    """The input of ``run``: a spec, the plan to run it by, and how to prepare it. It is sent to every process of a team."""

    @property
    def spec(self) -> TrainingSpec: ...

    @property
    def plan(self) -> Plan: ...

    @property
    def steps_release(self) -> bool:
        """Whether a step that ends in an error may have released something: then it counts as executed and isn't run again."""
        ...

    def prepare(self, setting: Setting) -> PreparedRun:
        r"""Reads the data and builds the networks, and releases nothing.

        Raises:
          InvalidParameter: they can't be trained as the plan says.
        """
        ...


@final
@dataclass(frozen=True)
class RunOptions:
    """The worker's settings besides the algorithm; ``report`` and ``should_stop`` as in ``Train``."""

    runtime: RuntimeSpec
    workdir: Path
    report: Callable[[TrainingEvent], None]
    should_stop: Callable[[], bool]

    def __reduce__(self) -> tuple[type[RunOptions], tuple[object, ...]]:
        # Sent to the other processes of a team: nobody reads reports there, and the first process decides when to stop.
        return RunOptions, (self.runtime, self.workdir, _no_report, _no_stop)


def _no_report(_event: TrainingEvent) -> None:
    return None


def _no_stop() -> bool:
    return False


def run(
    algorithm: Algorithm,
    runtime: RuntimeSpec,
    workdir: Path,
    *,
    report: Callable[[TrainingEvent], None],
    should_stop: Callable[[], bool],
) -> RunReport:
    r"""Runs the plan to its end, from the checkpoint if there is one, and writes the model.

    Raises:
      InvalidParameter: plan and spec disagree, the data or the network can't be trained this way, the runtime doesn't suit the algorithm,
        or the device doesn't exist.
      CheckpointRefused: the checkpoint, or what an earlier attempt released, is damaged or belongs to something else.
      TrainingDiverged: the parameters stopped being finite.
      TrainingAborted: another error occurred in a step that may have released something; the step counts as executed.
      TrainingStopped: on ``should_stop``, with the state in the checkpoint.
      TeamFailed, TeamLost, MemberDone: as ``launch`` says.
    """
    facts = _checked_facts(algorithm, runtime)
    device = prepare_torch(runtime, TeamPlace.told().share(runtime.processes))
    workdir.mkdir(parents=True, exist_ok=True)
    options = RunOptions(runtime, workdir, report, should_stop)
    outcome = launch(runtime.processes, device, workdir, _run_in_team, algorithm, facts, options)
    assert outcome is not None  # this process is the team's first
    return outcome


@final
@dataclass(frozen=True)
class Attempt:
    r"""One process's part of a run that has begun, or continues from its checkpoint.

    Attributes:
      start: the state that it begins with, and what earlier attempts did.
      publisher: what it tells, and keeps first.
    """

    algorithm: Algorithm
    setting: Setting
    prepared: PreparedRun
    start: Checkpoint
    publisher: Publisher | Follower

    def report(self, state: TrainingState) -> RunReport | None:
        """Writes the model of the last state; the report in the team's first process, None in the others."""
        setting, plan, publisher = self.setting, self.algorithm.plan, self.publisher
        if isinstance(publisher, Follower):
            self.prepared.finish(state)
            return None
        # The last step is in the checkpoint by now: if this attempt is killed from here on, the next one writes the same model again.
        write_tensors(setting.workdir / MODEL, *self.prepared.model(state))
        metrics = publisher.final_metrics(state)
        ending = self.prepared.finish(state)
        return RunReport(
            steps_released=state.step,
            event=plan.event_after(state.step),
            noise_std=plan.noise_std,
            random_origin=ending.origin,
            generator=ending.generator,
            resumptions=self.start.resumptions,
            held_out=publisher.held_out,
            metrics=metrics,
            test_records=setting.facts.test_records,
            training_records=setting.facts.training_records,
            training_units=plan.units,
            checkpoints_released=publisher.checkpoints,
            parameters=ending.parameters,
            versions=versions(),
            hardware=self_test.described(setting.device),
            training_seconds=publisher.seconds,
            noise_test=ending.noise_test,
            sample_test=ending.sample_test,
            audit=ending.audit,
            attacks=ending.attacks,
            sites=ending.sites,
            proposal=ending.proposal,
        )


def begin(algorithm: Algorithm, options: RunOptions, executed: int) -> Attempt:
    r"""A run in this process alone, whose steps the caller takes.

    Args:
      executed: steps that earlier attempts began, whatever became of them: they count, and the next one has the number after.
    Raises:
      (all): as ``run``.
    """
    return _begun(Alone(), algorithm, _checked_facts(algorithm, options.runtime), options, executed)


def _begun(team: Team, algorithm: Algorithm, facts: DataSetFacts, options: RunOptions, executed: int = 0) -> Attempt:
    setting, earlier = _setting(team, algorithm, facts, options)
    if earlier is not None and earlier.state.step < executed:
        earlier = replace(earlier, state=replace(earlier.state, step=executed))
    if earlier is not None and (key := run_key()) is not None:
        key.continues_from(state_digest(earlier.state))
    prepared = algorithm.prepare(setting)
    start = _starting_point(setting, prepared, earlier)
    prepared.begin(start.state)
    if (key := run_key()) is not None:
        key.begins(start.state.step, continues=earlier is not None)
    publisher = _publisher(algorithm.plan, setting, prepared, start) if team.rank == 0 else Follower(algorithm.plan, setting.should_stop)
    setting.report(Started(resumed_from_step=start.state.step))
    publisher.start(start.state)
    return Attempt(algorithm, setting, prepared, start, publisher)


def _run_in_team(team: Team, algorithm: Algorithm, facts: DataSetFacts, options: RunOptions) -> RunReport | None:
    """One process's part of the run; returns the report in the first process, None in the others."""
    attempt = _begun(team, algorithm, facts, options)
    prepared, publisher = attempt.prepared, attempt.publisher
    with prepared.working(), publisher.kept_before_telling() if algorithm.steps_release else nullcontext():
        state = _trained(algorithm.plan, prepared, attempt.start.state, publisher)
    return attempt.report(state)


def _checked_facts(algorithm: Algorithm, runtime: RuntimeSpec) -> DataSetFacts:
    """Of the data, which plan and spec agree on."""
    facts = data_set_facts(algorithm.spec.data)
    algorithm.spec.check_plan(algorithm.plan, facts)
    algorithm.spec.check_runtime(runtime)
    return facts


def _setting(team: Team, algorithm: Algorithm, facts: DataSetFacts, options: RunOptions) -> tuple[Setting, Checkpoint | None]:
    """This process's setting, and the checkpoint to continue from, if there is one."""
    share = 1 if team.size == 1 else TeamPlace.told().share(team.size)
    device, path = prepare_torch(options.runtime, share), options.workdir / CHECKPOINT
    _ = self_test.described(device)  # refuses an accelerator that fails its self-test, before anything is read
    digest = request_digest(algorithm.spec, algorithm.plan, facts)
    _check_same(team, digest, device)
    if team.rank == 0:
        discard_unfinished(path)
    team.share(path)
    earlier = load_checkpoint(path, digest, device) if path.exists() else None
    setting = Setting(
        facts=facts,
        runtime=options.runtime,
        workdir=options.workdir,
        device=device,
        team=team,
        digest=digest,
        resumed_from=None if earlier is None else earlier.state.step,
        report=options.report,
        should_stop=_agreed(options.should_stop, team, device),
    )
    return setting, earlier


def _check_same(team: Team, digest: str, device: torch.device) -> None:
    """Raises InvalidParameter if this process has other data, or other software, than the team's first."""
    if team.size == 1:
        return
    own = hashlib.sha256(json.dumps([digest, versions()]).encode()).digest()
    told = torch.tensor(list(own if team.rank == 0 else bytes(len(own))), dtype=torch.float32, device=device)
    found = bytes(team.sum(told).to(torch.uint8).tolist())
    differing = team.sum(torch.tensor([float(found != own)], device=device))
    if differing.item() > 0.0:
        raise InvalidParameter("data", "the same data and the same software on every machine that shares the training", "others")


def _agreed(should_stop: Callable[[], bool], team: Team, device: torch.device) -> Callable[[], bool]:
    """All processes get the first one's answer, so that they stop after the same step."""
    if team.size == 1:
        return should_stop
    return lambda: bool(team.sum(torch.tensor([1.0 if team.rank == 0 and should_stop() else 0.0], device=device)).item())


def _starting_point(setting: Setting, prepared: PreparedRun, earlier: Checkpoint | None) -> Checkpoint:
    if earlier is None:
        return Checkpoint(prepared.initial_state(), resumptions=0, written=0, seconds=0.0, evaluated=None)
    resumed = replace(earlier, resumptions=earlier.resumptions + 1)
    # Written immediately, so that an attempt which dies before its own first checkpoint is counted too.
    _ = setting.team.sum(torch.zeros(1, device=setting.device))  # no process may read the file while it is written
    if setting.team.rank == 0:
        _save(setting, resumed)
    return resumed


def _publisher(plan: Plan, setting: Setting, prepared: PreparedRun, start: Checkpoint) -> Publisher:
    return Publisher(
        plan=plan,
        checkpoint_seconds=setting.runtime.checkpoint_seconds,
        earlier=start,
        save=partial(_save, setting),
        evaluation=prepared.evaluation,
        report=setting.report,
        should_stop=setting.should_stop,
        # Other processes end where this one does; with a run's key every release is written down, and is of a step that counts.
        looks_later=setting.device.type == "cuda" and setting.team.size == 1 and run_key() is None,
    )


def _save(setting: Setting, checkpoint: Checkpoint) -> None:
    # First what was released: a step in a checkpoint isn't run again, so nobody could write it down later.
    if (key := run_key()) is not None:
        key.keep()
    save_checkpoint(setting.workdir / CHECKPOINT, checkpoint, setting.digest)


def _trained(plan: Plan, prepared: PreparedRun, state: TrainingState, publisher: Publisher | Follower) -> TrainingState:
    """From ``state`` to the plan's last step."""
    while state.step < plan.steps:
        try:
            following = prepared.step(state)
        except TrainingStopped:
            publisher.keep(state)
            raise
        state = following
        if (key := run_key()) is not None:
            key.reached = state.step
        publisher.after_step(state)
    return state
