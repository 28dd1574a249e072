r"""A whole run: builds network, problem, randomness and state, and hands them to the one loop. What algorithms differ in is their sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

import accountants
from mechanisms.errors import InvalidParameter
from mechanisms.source import RandomOrigin, RandomStream
from trainer.audit import NoiseFindings, findings_of
from trainer.data import DataSet, DataSetFacts, data_set_facts
from trainer.data.splits import Keys, record_keys
from trainer.engine.canaries import Canaries, scores_of, with_canaries
from trainer.engine.checkpoint import Checkpoint, discard_unfinished, load_checkpoint, save_checkpoint, write_tensors
from trainer.engine.clipping import ClippedGradients
from trainer.engine.contributions import check_contributions
from trainer.engine.distributed import launch
from trainer.engine.environment import hardware, prepare_torch, versions
from trainer.engine.evaluation import HeldOutRecords
from trainer.engine.loop import PrivateLoop, Site, TrainingState, draws_masks
from trainer.engine.noise_watch import NoiseWatch
from trainer.engine.optimizers import initial_state, update
from trainer.engine.parameters import ParameterLayout, as_real
from trainer.engine.precision import compute_in
from trainer.engine.prefetch import NoiseAhead
from trainer.engine.problem import Problem
from trainer.engine.publisher import Evaluation, Follower, Publisher
from trainer.engine.randomness import randomness_of
from trainer.engine.requests import architecture, check_plan, request_digest
from trainer.engine.team import Team
from trainer.engine.torch_source import GENERATOR
from trainer.engine.units import members_of
from trainer.models import build, losses_for
from trainer.models.front import passed_through, split_front
from trainer.network_training import NetworkTraining, PrivateAccuracy, PublicHeldOut
from trainer.plan import ExecutionPlan
from trainer.report import MetricValues, RunReport, Started, TrainingEvent
from trainer.spec import RuntimeSpec

CHECKPOINT = "checkpoint.safetensors"
MODEL = "artifacts/model.safetensors"


Places = Callable[[int, Callable[[], Keys]], Sequence[Tensor]]
"""Number of units, and what gives their keys -> the units at each site."""


@final
@dataclass(frozen=True)
class Run:
    """One training, as its worker asked for it; ``report`` and ``should_stop`` as in ``Train``."""

    spec: NetworkTraining
    plan: ExecutionPlan
    runtime: RuntimeSpec
    workdir: Path
    places: Places
    report: Callable[[TrainingEvent], None]
    should_stop: Callable[[], bool]

    def __reduce__(self) -> tuple[type[Run], tuple[object, ...]]:
        # Sent to the other processes of a team: there nobody listens, and the first process decides when to stop.
        return Run, (self.spec, self.plan, self.runtime, self.workdir, self.places, _unheard, _never)


def _unheard(_event: TrainingEvent) -> None:
    return None


def _never() -> bool:
    return False


def run_training(run: Run) -> RunReport:
    """``train_network`` in as many processes as the runtime says. Raises as that does, and TeamFailed."""
    device = prepare_torch(run.runtime)
    run.workdir.mkdir(parents=True, exist_ok=True)
    report = launch(run.runtime.processes, device, run.workdir, train_network, run)
    assert report is not None  # this process is the team's first
    return report


def train_network(team: Team, run: Run) -> RunReport | None:
    r"""Runs the plan to its end, from the checkpoint where there is one, and writes the model.

    Returns:
      what was done; None in processes beside the first of a team.
    Raises:
      InvalidParameter: plan and spec disagree, the network can't be trained privately, or the device isn't there.
      CheckpointRefused: the checkpoint belongs to something else.
      TrainingDiverged: the parameters stopped being finite.
      TrainingAborted: from any other error in a step, which counts as executed.
      TrainingStopped: on ``should_stop``, with the state in the checkpoint.
    """
    spec, plan = run.spec, run.plan
    if spec.audit is not None and team.size > 1:
        raise InvalidParameter("runtime.processes", "1 for a run with canaries", team.size)
    facts = data_set_facts(spec.data)  # pyright: ignore[reportArgumentType] (Pydantic gives frozen models their hash at run time)
    check_plan(spec, plan, facts)
    prepared = Prepared.of(run, facts, prepare_torch(run.runtime), team)
    start = _starting_point(run, prepared, request_digest(spec, plan, facts), team)
    check_contributions(prepared.clipped, plan, start.state.bound)
    should_stop = _agreed(run.should_stop, team, prepared.device)
    publisher = _publisher(run, prepared, start, facts, should_stop) if team.rank == 0 else Follower(plan, should_stop)
    if team.rank == 0:
        run.report(Started(resumed_from_step=start.state.step))
    publisher.start(start.state)
    watch = NoiseWatch(plan.mechanism)
    with ExitStack() as stack:
        loop = PrivateLoop(
            clipped=prepared.clipped,
            layout=prepared.layout,
            plan=plan,
            sites=_drawing_ahead(prepared.sites, plan.steps, stack),
            optimizer=partial(_step, spec, plan.steps),
            team=team,
            draws_masks=draws_masks(prepared.problem),
            spectra=prepared.clipped.spectra,
            watch=watch,
            canaries=prepared.canaries,
        )
        stack.enter_context(publisher.kept_before_telling())
        final_state = loop.run(start.state, publisher.after_step)
    noise_test = watch.findings(team, prepared.device)
    if isinstance(publisher, Follower):
        return None
    # The last step is in the checkpoint by now: an attempt that is killed from here on writes this same model again, not another one.
    named = {name: as_real(value) for name, value in prepared.layout.unflatten(final_state.parameters).items()} | given(prepared.front)
    write_tensors(run.workdir / MODEL, named, architecture(spec, spec.model, facts))
    return _report(run, prepared, publisher, start, facts, final_state, noise_test)


def given(front: nn.Module) -> dict[str, Tensor]:
    """The frozen weights before everything that was trained, which the model file holds too: without them it is half a network."""
    return {name: as_real(value.detach()) for name, value in front.named_parameters()}


def _drawing_ahead(sites: Sequence[Site], steps: int, stack: ExitStack) -> Sequence[Site]:
    """One site's next noise is drawn beside its step. A federation's would be held for every node at once."""
    if len(sites) > 1:
        return sites
    return [Site(site.units, stack.enter_context(NoiseAhead(site.randomness, steps))) for site in sites]


def _step(
    spec: NetworkTraining, steps: int, state: dict[str, Tensor], parameters: Tensor, gradient: Tensor, step: int
) -> tuple[Tensor, dict[str, Tensor]]:
    return update(spec.descent, state, parameters, gradient, step, steps)


@final
@dataclass(frozen=True)
class Prepared:
    """What a run works with, in memory."""

    device: torch.device
    front: nn.Module
    problem: Problem
    layout: ParameterLayout
    clipped: ClippedGradients
    canaries: Canaries | None
    held_out: HeldOutRecords
    sites: tuple[Site, ...]
    origin: RandomOrigin

    @staticmethod
    def of(run: Run, facts: DataSetFacts, device: torch.device, team: Team) -> Prepared:
        """Reads the data, builds the network, and checks that it can be trained privately."""
        spec, data = run.spec, run.spec.data.read()
        # Initial weights are public and have a stream of their own.
        stream = _stream(spec, "model initialisation")
        front, network = split_front(build(spec.model, facts, stream).to(device))
        compute_in(run.runtime, network)
        members = None
        if spec.protects_users(facts):
            assert data.training_users is not None  # the facts name a user unit
            assert spec.records_per_user is not None  # checked by the spec
            members = members_of(data.training_users, spec.records_per_user).to(device)
        features, targets, test_features, test_targets = (
            torch.from_numpy(np.ascontiguousarray(array)).to(device)
            for array in (data.training_features, data.training_targets, data.test_features, data.test_targets)
        )
        features, test_features = passed_through(front, features), passed_through(front, test_features)
        problem = Problem(network, losses_for(facts), features, targets, members)
        places = run.places(problem.units, partial(_keys, data, data.training_users if spec.protects_users(facts) else None))
        first = problem.units
        if spec.audit is not None:
            problem = with_canaries(problem, spec.audit.canaries, run.plan.clipping.bound, facts.classes)
        lot = run.plan.sampling.expected_batch_size
        clipped = ClippedGradients(problem, run.plan.clipping, run.runtime.microbatch_size, run.plan.projection, lot)
        run.runtime.check_probe(keeps_its_bits=clipped.settle())
        canaries = None if spec.audit is None else Canaries(problem, clipped, first, facts.classes)
        layout = ParameterLayout.of(network)
        held_out = HeldOutRecords(network, layout, test_features, test_targets)
        if isinstance(spec.evaluation, PublicHeldOut):
            held_out.check_measurable()
        sites = tuple(Site(units.to(device), randomness_of(spec.seed, number, team)) for number, units in enumerate(places))
        return Prepared(device, front, problem, layout, clipped, canaries, held_out, sites, sites[0].randomness.origin)


def _keys(data: DataSet, users: Keys | None) -> Keys:
    """Of the units, in their order: that of the users' keys, or that of the records where these are the units."""
    return record_keys(data.training_features, data.training_targets) if users is None else np.unique(users)


def _stream(spec: NetworkTraining, purpose: str) -> RandomStream:
    return RandomStream.from_operating_system() if spec.seed is None else RandomStream.from_seed(spec.seed, purpose)


def _starting_point(run: Run, prepared: Prepared, digest: str, team: Team) -> Checkpoint:
    path = run.workdir / CHECKPOINT
    if team.rank == 0:
        discard_unfinished(path)
    if path.exists():
        earlier = load_checkpoint(path, digest, prepared.device)
        resumed = Checkpoint(earlier.state, earlier.resumptions + 1, earlier.written, earlier.seconds, earlier.evaluated)
        # At once, so that an attempt which dies before its own first checkpoint is counted too.
        _ = team.sum(torch.zeros(1, device=prepared.device))  # no process may read the file while it is written
        if team.rank == 0:
            save_checkpoint(path, resumed, digest)
        return resumed
    parameters = prepared.layout.flatten(dict(prepared.problem.network.named_parameters())).to(prepared.device)
    # Every process draws initial weights; all start from the first one's.
    parameters = team.sum(parameters if team.rank == 0 else torch.zeros_like(parameters))
    canaries = {} if prepared.canaries is None else prepared.canaries.begin(_stream(run.spec, "coins of the canaries"))
    state = TrainingState(0, parameters, initial_state(run.spec.descent, parameters), run.plan.clipping.bound, canaries)
    return Checkpoint(state, resumptions=0, written=0, seconds=0.0, evaluated=None)


def _agreed(should_stop: Callable[[], bool], team: Team, device: torch.device) -> Callable[[], bool]:
    """What the first process is asked, all processes hear: they stop after the same step."""
    if team.size == 1:
        return should_stop
    return lambda: bool(team.sum(torch.tensor([1.0 if team.rank == 0 and should_stop() else 0.0], device=device)).item())


def _publisher(run: Run, prepared: Prepared, start: Checkpoint, facts: DataSetFacts, should_stop: Callable[[], bool]) -> Publisher:
    digest = request_digest(run.spec, run.plan, facts)
    return Publisher(
        plan=run.plan,
        checkpoint_seconds=run.runtime.checkpoint_seconds,
        earlier=start,
        save=partial(save_checkpoint, run.workdir / CHECKPOINT, digest=digest),
        evaluation=_evaluation(run, prepared, facts),
        report=run.report,
        should_stop=should_stop,
    )


def _evaluation(run: Run, prepared: Prepared, facts: DataSetFacts) -> Evaluation:
    spec, planned = run.spec, run.plan.evaluation
    match spec.evaluation:
        case PublicHeldOut():
            return Evaluation("public", partial(prepared.held_out.metrics, classifies=facts.task == "classification"))
        case PrivateAccuracy():
            assert planned is not None  # check_plan compared plan and spec

            def release(state: TrainingState) -> MetricValues:
                return prepared.held_out.noisy_accuracy(state, planned, _stream(spec, f"evaluation after step {state.step}"))

            return Evaluation("private", release)
        case _:
            return Evaluation("none", _unasked)


def _unasked(_state: TrainingState) -> MetricValues:
    raise AssertionError("nothing about held-out records leaves this run")


def _report(
    run: Run,
    prepared: Prepared,
    publisher: Publisher,
    start: Checkpoint,
    facts: DataSetFacts,
    state: TrainingState,
    noise_test: NoiseFindings,
) -> RunReport:
    plan = run.plan
    audit = None if prepared.canaries is None else findings_of(scores_of(state.canaries), accountants.profile(plan.event), plan.delta)
    metrics = publisher.final_metrics(state)
    return RunReport(
        steps_released=state.step,
        event=plan.event_after(state.step),
        noise_std=plan.noise_std,
        random_origin=prepared.origin,
        generator=GENERATOR,
        resumptions=start.resumptions,
        held_out=publisher.held_out,
        metrics=metrics,
        test_records=facts.test_records,
        training_records=facts.training_records,
        training_units=plan.units,
        checkpoints_released=publisher.checkpoints,
        parameters=prepared.layout.real_parameters,
        versions=versions(),
        hardware=hardware(prepared.device),
        training_seconds=publisher.seconds,
        noise_test=noise_test,
        audit=audit,
    )
