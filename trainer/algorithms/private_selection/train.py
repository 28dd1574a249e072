r"""Training of a private selection's spec."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, final

from pydantic import Field, ValidationError

from zetadp import accountants
from zetadp.mechanisms import RandomOrigin
from zetadp.mechanisms.base import Extended, OpenProbability, PrivacyUnit, Value
from zetadp.mechanisms.declared.runs import AnyRuns
from zetadp.trainer.algorithms.private_selection.drawing import Drawn, drawn_in
from zetadp.trainer.algorithms.private_selection.selected import Best, best_of, delete
from zetadp.trainer.data import DataSetFacts, data_set_facts
from zetadp.trainer.durable import write_atomically
from zetadp.trainer.engine import MODEL, prepare_torch, self_test, versions, write_tensors
from zetadp.trainer.engine.noise.torch_source import GENERATOR
from zetadp.trainer.engine.requests import request_digest
from zetadp.trainer.errors import CheckpointRefused
from zetadp.trainer.specs.algorithms.private_selection import PrivateSelection
from zetadp.trainer.specs.algorithms.selection_plan import SelectionPlan
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.plan_base import PartName
from zetadp.trainer.specs.report import HeldOut, MetricName, Progress, RunReport, Selected, Stage, Started, TrainingEvent

RUNS, ENDED, RESULT = "runs", "selected.json", "artifacts/selection.json"
"""Under the run's folder: the runs while there are any; what remains of the selection once they are deleted; the result to be published."""

NO_MODEL = json.dumps({"format": "zetadp no model 1", "algorithm": PrivateSelection.algorithm_name()})


@final
class SelectionResult(Value):
    r"""What came out of a private selection.

    Attributes:
      selected: the best run's candidate; None if no model came out.
      metrics: of its model on the held-out records; empty if there is none.
      candidates: among which it was; ``runs``: the public law of the number of runs.
      epsilon: proven of the whole selection, at ``delta``.
      random_origin: ``user_seed``: epsilon is worth nothing against someone who knows the seed.
    """

    selected: PartName | None
    metrics: dict[MetricName, float]
    held_out: HeldOut
    candidates: Annotated[tuple[PartName, ...], Field(min_length=1)]
    runs: AnyRuns
    epsilon: Extended
    delta: OpenProbability
    unit: PrivacyUnit
    random_origin: RandomOrigin


@final
class Ended(Value):
    """The report of a selection whose runs may be deleted already; ``digest``: of spec, plan and data."""

    digest: str
    report: RunReport


def train(
    spec: PrivateSelection,
    plan: SelectionPlan,
    runtime: RuntimeSpec,
    workdir: Path,
    *,
    report: Callable[[TrainingEvent], None],
    should_stop: Callable[[], bool],
) -> RunReport:
    r"""Makes the runs that were drawn and keeps the best one's model. What it says on the way is the same whatever happens in them.

    Raises:
      InvalidParameter: plan and spec disagree, or the runtime doesn't suit it.
      CheckpointRefused: an earlier attempt left something else in the folder, or lost what it had drawn.
      RunsDontHold: a run's noise or samples aren't what is claimed.
      TrainingStopped: on ``should_stop``; what was drawn is kept, runs that ended too, and the one that ran is in its checkpoint.
    """
    facts = data_set_facts(spec.data)
    spec.check_plan(plan, facts)
    spec.check_runtime(runtime)
    hardware = self_test.described(prepare_torch(runtime))
    epsilon = accountants.profile(plan.event).epsilon_upper(plan.delta)
    digest = request_digest(spec, plan, facts)
    found = _ended_before(workdir, digest)
    drawn = drawn_in(workdir / RUNS, digest, spec.seed) if found is None else None
    report(Started(resumed_from_step=0))
    report(Stage(doing="the runs of a private selection: how many there are, and how they do, isn't shown"))
    if drawn is not None:
        candidates = drawn.candidates(plan.runs, len(plan.candidates))
        best = best_of(spec, plan, runtime, workdir / RUNS, candidates, should_stop)
        found = _report(spec, plan, facts, drawn, best, hardware)
        _write(spec, plan, workdir, best, found, epsilon)
        write_atomically(workdir / ENDED, Ended(digest=digest, report=found).model_dump_json().encode())
    assert found is not None
    delete(workdir / RUNS)
    report(Progress(step=plan.steps, steps=plan.steps, epsilon=epsilon, delta=plan.delta, seconds=0.0))
    return found


def _ended_before(workdir: Path, digest: str) -> RunReport | None:
    """What an earlier attempt reported that ended before its report was read; None if there was none."""
    path = workdir / ENDED
    if not path.exists():
        return None
    try:
        found = Ended.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise CheckpointRefused(ENDED, "it is damaged") from error
    if found.digest != digest:
        raise CheckpointRefused(ENDED, "it is of another spec, plan or data set")
    return found.report


def _write(spec: PrivateSelection, plan: SelectionPlan, workdir: Path, best: Best | None, found: RunReport, epsilon: float) -> None:
    """The model, or a file that says there is none, and the result."""
    if best is None:
        write_tensors(workdir / MODEL, {}, NO_MODEL)
    else:
        write_atomically(workdir / MODEL, best.model)
    result = SelectionResult(
        selected=None if found.selected is None else found.selected.candidate,
        metrics=dict(found.metrics or {}),
        held_out=found.held_out,
        candidates=tuple(candidate.name for candidate in spec.candidates),
        runs=plan.runs,
        epsilon=epsilon,
        delta=plan.delta,
        unit=plan.unit,
        random_origin=found.random_origin,
    )
    write_atomically(workdir / RESULT, result.model_dump_json(indent=1).encode())


def _report(spec: PrivateSelection, plan: SelectionPlan, facts: DataSetFacts, drawn: Drawn, best: Best | None, hardware: str) -> RunReport:
    """Public facts, and of the best run its metrics and its model's size: no time, no checkpoints, and no test of its own noise."""
    return RunReport(
        steps_released=plan.steps,
        event=plan.event,
        noise_std=plan.noise_std,
        random_origin=RandomOrigin.OPERATING_SYSTEM if spec.seed is None else RandomOrigin.USER_SEED,
        generator=GENERATOR,
        resumptions=drawn.resumptions,
        held_out=spec.held_out,
        metrics=None if best is None else best.report.metrics,
        test_records=facts.test_records,
        training_records=facts.training_records,
        training_units=plan.units,
        checkpoints_released=0,
        parameters=0 if best is None else best.report.parameters,
        versions=versions(),
        hardware=hardware,
        training_seconds=0.0,
        selected=Selected(candidate=None if best is None else plan.candidates[best.candidate].name),
    )
