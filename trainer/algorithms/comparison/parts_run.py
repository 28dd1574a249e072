r"""A whole comparison: every training in a separate process, one after the other; then the table and the plots."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.algorithms.comparison.part import PartOutcome, outcome, run_part
from zetadp.trainer.algorithms.comparison.plots import plots
from zetadp.trainer.algorithms.comparison.results import as_csv, result_of
from zetadp.trainer.durable import write_atomically
from zetadp.trainer.engine import MODEL, EpsilonSpent
from zetadp.trainer.errors import PartFailed, TrainingStopped
from zetadp.trainer.request import TrainingRequest
from zetadp.trainer.specs.algorithms.comparison import Comparison, PlannedRun
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.findings.runs import joined, joined_samples
from zetadp.trainer.specs.plans import ComparedPlan, ComparisonPlan, PartPlan
from zetadp.trainer.specs.report import Metrics, Progress, RunReport, Started, TrainingEvent

PARTS_FOLDER, ARTIFACTS = "parts", "artifacts"


def run_parts(
    spec: Comparison,
    plan: ComparisonPlan,
    runtime: RuntimeSpec,
    workdir: Path,
    *,
    report: Callable[[TrainingEvent], None],
    should_stop: Callable[[], bool],
) -> RunReport:
    r"""Runs every part that hasn't ended, and writes ``comparison.json``, ``.csv`` and ``.svg`` and every run's model.

    Raises:
      InvalidParameter: plan and spec disagree.
      PartFailed: a part couldn't continue.
      TrainingStopped: on ``should_stop``; parts that ended are kept, the one that ran is in its checkpoint.
    """
    runs = spec.runs()
    if [part.name for part in plan.parts] != [run.name for run in runs]:
        raise InvalidParameter("plan.parts", f"the spec's runs {[run.name for run in runs]}", [part.name for part in plan.parts])
    for run in runs:
        if runtime.processes != 1 and run.spec.runs_alone is not None:
            # Otherwise this part might be refused only after hours of other parts.
            raise InvalidParameter("runtime.processes", f"1 for {run.spec.algorithm} (part {run.name})", runtime.processes)
    parts = [Part(run, compared, runtime, workdir / PARTS_FOLDER / run.name) for run, compared in zip(runs, plan.parts, strict=True)]
    report(Started(resumed_from_step=sum(part.plan.steps for part in parts if outcome(part.folder, part.request) is not None)))
    spent, outcomes, before = EpsilonSpent(plan), list[PartOutcome](), 0
    for part in parts:
        follower = Follower(plan, spent, before, part.plan.steps, sum(found.report.training_seconds for found in outcomes), report)
        outcomes.append(part.run(follower, should_stop))
        before += part.plan.steps
        follower.ended(outcomes[-1])
    for name, content in _files(spec, plan, outcomes).items():
        write_atomically(workdir / ARTIFACTS / name, content)
    for part in parts:
        shutil.copyfile(part.folder / MODEL, workdir / ARTIFACTS / f"{part.name}.model.safetensors")
    return _report(spec, plan, outcomes)


@final
@dataclass(frozen=True)
class Part:
    """One run, its accounted cost, and the folder that it works in."""

    planned: PlannedRun
    compared: ComparedPlan
    runtime: RuntimeSpec
    folder: Path

    @property
    def name(self) -> str:
        """Of the run."""
        return self.planned.name

    @property
    def plan(self) -> PartPlan:
        """What is accounted for it."""
        return self.compared.plan

    @property
    def request(self) -> TrainingRequest:
        """What its process reads."""
        return TrainingRequest(spec=self.planned.spec, runtime=self.runtime, plan=self.compared.plan)

    def run(self, follower: Follower, should_stop: Callable[[], bool]) -> PartOutcome:
        """What it did, now or at an earlier attempt. Raises PartFailed, TrainingStopped."""
        if (earlier := outcome(self.folder, self.request)) is not None:
            return earlier
        try:
            stopped_after = run_part(self.name, self.folder, self.request, follower.hear, should_stop)
        except PartFailed as failed:
            executed = None if failed.executed is None else follower.before + max(1, failed.executed)
            raise PartFailed(failed.name, failed.reason, executed) from failed
        if stopped_after is not None:
            # Some release everything before their first step: it counts as done as soon as the part is begun.
            raise TrainingStopped(follower.before + max(1, stopped_after))
        found = outcome(self.folder, self.request)
        assert found is not None  # it ended well, and has just written both
        return found


@final
class Follower:
    r"""Reports one part's progress as events of the whole job.

    Args:
      before: steps of the parts before it; ``steps``: its own steps; ``seconds``: training time before it.
    """

    def __init__(
        self, plan: ComparisonPlan, spent: EpsilonSpent, before: int, steps: int, seconds: float, report: Callable[[TrainingEvent], None]
    ) -> None:
        self.before = before
        self._plan = plan
        self._steps = steps
        self._seconds = seconds
        self._report = report
        # What the parts cost up to the end of this one: an upper bound on what they cost at any step of it.
        self._epsilon = spent.after(before + steps)

    def hear(self, event: TrainingEvent) -> None:
        """An event of the part's process."""
        if isinstance(event, Progress):
            self._progress(event.step, event.seconds)

    def ended(self, found: PartOutcome) -> None:
        """The part is done."""
        self._progress(self._steps, found.report.training_seconds)
        held_out, metrics = found.report.held_out, found.report.metrics
        if metrics is not None and (held_out == "public" or held_out == "private"):  # noqa: PLR1714 (narrows the type)
            self._report(Metrics(step=self.before + self._steps, held_out=held_out, metrics=metrics))

    def _progress(self, step: int, seconds: float) -> None:
        self._report(
            Progress(
                step=self.before + step,
                steps=self._plan.steps,
                epsilon=self._epsilon,
                delta=self._plan.delta,
                seconds=round(self._seconds + seconds, 1),
            )
        )


def _files(spec: Comparison, plan: ComparisonPlan, outcomes: Sequence[PartOutcome]) -> dict[str, bytes]:
    result = result_of(spec, plan, outcomes)
    return {
        "comparison.json": result.model_dump_json(indent=1).encode(),
        "comparison.csv": as_csv(result).encode(),
        "comparison.svg": plots(result),
    }


def _report(spec: Comparison, plan: ComparisonPlan, outcomes: Sequence[PartOutcome]) -> RunReport:
    reports = [found.report for found in outcomes]
    first = reports[0]
    return RunReport(
        steps_released=sum(report.steps_released for report in reports),
        event=plan.event_after(sum(report.steps_released for report in reports)),
        noise_std=plan.noise_std,
        random_origin=first.random_origin,
        generator="; ".join(dict.fromkeys(report.generator for report in reports)),
        resumptions=sum(report.resumptions for report in reports),
        held_out=spec.held_out,
        metrics=first.metrics,
        test_records=first.test_records,
        training_records=first.training_records,
        training_units=plan.units,
        checkpoints_released=sum(report.checkpoints_released for report in reports),
        parameters=sum(report.parameters for report in reports),
        versions=first.versions,
        hardware=first.hardware,
        training_seconds=round(sum(report.training_seconds for report in reports), 1),
        noise_test=joined(report.noise_test for report in reports),
        sample_test=joined_samples(report.sample_test for report in reports),
    )
