r"""The table of a comparison: one row per run, as JSON and CSV, and the runs of one setting grouped."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from typing import Annotated, final

from pydantic import Field

from zetadp import accountants
from zetadp.accountants.events import neighbourhood
from zetadp.mechanisms import RandomOrigin
from zetadp.mechanisms.base import Adjacency, Extended, NonNegative, OpenProbability, PrivacyUnit, Value, is_absent
from zetadp.trainer.algorithms.comparison.part import PartOutcome
from zetadp.trainer.specs.algorithms.comparison import Comparison, PlannedRun
from zetadp.trainer.specs.findings.attacks import AttackFigure
from zetadp.trainer.specs.plans import ComparisonPlan, PartName, PartPlan
from zetadp.trainer.specs.report import HeldOut, MetricName


@final
class RunResult(Value):
    r"""One training.

    Attributes:
      name: the run's name; ``part``: the name of its part.
      epsilon_by_itself: proven of this run alone, upper end, at ``delta``; infinite without a guarantee. Anyone who sees the comparison
        sees all its runs, which cost more together.
      adjacency: the neighbours that the guarantee is about; None without a guarantee.
      target_epsilon: the epsilon that its noise was calibrated to; None if the noise was given otherwise.
      metrics: of its model on the held-out records; empty if nothing was measured.
      attacks: the findings of attacks on its sent features, for obfuscation; empty if there were none. Not in the CSV.
      seconds: training time over all attempts.
      peak_mebibytes: largest resident memory of its process, libraries included.
    """

    name: PartName
    part: PartName
    algorithm: str
    repetition: Annotated[int, Field(ge=1)]
    epsilon_by_itself: Extended
    delta: OpenProbability
    adjacency: Adjacency | None
    target_epsilon: float | None
    metrics: dict[MetricName, float]
    # Left out of JSON where empty: most comparisons have none.
    attacks: Annotated[tuple[AttackFigure, ...], Field(exclude_if=is_absent)] = ()
    steps: int
    parameters: int
    noise_std: NonNegative
    seconds: NonNegative
    peak_mebibytes: NonNegative


@final
class ComparisonResult(Value):
    r"""All trainings of a comparison.

    Attributes:
      epsilon: proven of all runs together, at ``delta``: what the comparison costs.
      random_origin: ``user_seed``: every epsilon here is worth nothing against someone who knows the seed.
      held_out: what the metrics are about.
    """

    epsilon: Extended
    delta: OpenProbability
    unit: PrivacyUnit
    random_origin: RandomOrigin
    held_out: HeldOut
    runs: tuple[RunResult, ...]


@final
class Group(Value):
    """The repetitions of one part at one budget: means, and standard deviations (0 for a single run)."""

    part: PartName
    algorithm: str
    epsilon: Extended
    metrics: dict[MetricName, tuple[float, float]]
    seconds: tuple[float, float]
    peak_mebibytes: tuple[float, float]


def result_of(spec: Comparison, plan: ComparisonPlan, outcomes: Sequence[PartOutcome]) -> ComparisonResult:
    """The table; ``outcomes`` in the order of the spec's runs."""
    proven: dict[str, float] = {}
    rows: list[RunResult] = []
    for run, compared, found in zip(spec.runs(), plan.parts, outcomes, strict=True):
        key = compared.plan.model_dump_json()
        if key not in proven:
            proven[key] = accountants.profile(compared.plan.event).epsilon_upper(compared.plan.delta)
        rows.append(_row(run, compared.plan, found, proven[key]))
    whole = accountants.profile(plan.event).epsilon_upper(plan.delta)
    return ComparisonResult(
        epsilon=whole,
        delta=plan.delta,
        unit=plan.unit,
        random_origin=RandomOrigin.OPERATING_SYSTEM if spec.seed is None else RandomOrigin.USER_SEED,
        held_out=spec.held_out,
        runs=tuple(rows),
    )


def _row(run: PlannedRun, plan: PartPlan, found: PartOutcome, epsilon: float) -> RunResult:
    neighbours = neighbourhood(plan.event)
    report = found.report
    return RunResult(
        name=run.name,
        part=run.part,
        algorithm=run.spec.algorithm,
        repetition=run.repetition,
        epsilon_by_itself=epsilon,
        delta=plan.delta,
        adjacency=None if neighbours is None else neighbours[0],
        target_epsilon=run.epsilon,
        metrics=dict(report.metrics or {}),
        attacks=() if report.attacks is None else report.attacks.figures,
        steps=report.steps_released,
        parameters=report.parameters,
        noise_std=report.noise_std,
        seconds=report.training_seconds,
        peak_mebibytes=found.measured.peak_mebibytes,
    )


def groups(result: ComparisonResult) -> tuple[Group, ...]:
    """The repetitions grouped together, in the order of the runs."""
    found: dict[tuple[str, float], list[RunResult]] = {}
    for run in result.runs:
        found.setdefault((run.part, run.epsilon_by_itself), []).append(run)
    return tuple(
        Group(
            part=part,
            algorithm=runs[0].algorithm,
            epsilon=epsilon,
            metrics={name: _spread([run.metrics[name] for run in runs]) for name in runs[0].metrics},
            seconds=_spread([run.seconds for run in runs]),
            peak_mebibytes=_spread([run.peak_mebibytes for run in runs]),
        )
        for (part, epsilon), runs in found.items()
    )


def as_csv(result: ComparisonResult) -> str:
    """One line per run, one column per metric; epsilon is ``inf`` without a guarantee. What applies to all runs is in every line."""
    metrics: list[MetricName] = list(dict.fromkeys(name for run in result.runs for name in run.metrics))
    fields = [name for name in RunResult.model_fields if name not in {"metrics", "attacks"}]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    whole = {"epsilon_of_all_runs": result.epsilon, "random_origin": result.random_origin.value}
    writer.writerow([*fields, *whole, *metrics])
    for run in result.runs:
        row = [getattr(run, name) for name in fields]
        writer.writerow(
            ["" if value is None else value for value in (*row, *whole.values())] + [run.metrics.get(name, "") for name in metrics]
        )
    return text.getvalue()


def _spread(values: Sequence[float]) -> tuple[float, float]:
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
