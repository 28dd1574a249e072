r"""Tries settings of a training on public data, in this process, and says what a private selection among them would cost instead.

Nothing here is private: whoever sees a result sees something about the data that it was measured on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final, final

from pydantic import Field, TypeAdapter, ValidationError

from zetadp.accountants import profile
from zetadp.mechanisms.base import Count, Extended, OpenProbability, PrivacyUnit, Value, is_absent
from zetadp.mechanisms.declared.runs import AnyRuns, GeometricRuns
from zetadp.mechanisms.errors import InvalidParameter, PrivacyError
from zetadp.trainer import load_train
from zetadp.trainer.data import DataSetFacts, DataSpec
from zetadp.trainer.errors import TrainingAborted
from zetadp.trainer.specs.algorithms.private_selection import AnyCandidateSpec, Candidate, PrivateSelection
from zetadp.trainer.specs.algorithms.selection_plan import MOST_CANDIDATES
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.report import MetricName, RunReport

SPEC: TypeAdapter[AnyCandidateSpec] = TypeAdapter(AnyCandidateSpec)

PUBLIC: Final = {"kind": "public_held_out"}

Settings = Mapping[str, object]
"""Values by their paths in the body of a job, such as ``spec.steps``."""

BETTER: tuple[tuple[MetricName, int], ...] = (("accuracy", 1), ("ssim", 1), ("nmse", -1))
"""By which of its metrics a result is judged, the first that was measured, and whether more or less of it is better."""


@final
class Tried(Value):
    r"""What one choice of settings reached on public data.

    Attributes:
      settings: by their paths in a job's body.
      metrics: means over the runs, on the held-out records of the public data.
      failed: why a run has none.
    """

    settings: dict[str, Any]
    metrics: dict[MetricName, float]
    failed: str | None = Field(default=None, exclude_if=is_absent)


@final
class SelectionCost(Value):
    r"""What the same choice costs if it is made on the private data, by a private selection.

    Attributes:
      runs: the law of the number of runs.
      epsilon_of_one_run: of the candidate with the least noise, at ``delta``; ``epsilon``: of the selection.
    """

    candidates: Count
    runs: AnyRuns
    delta: OpenProbability
    unit: PrivacyUnit
    epsilon_of_one_run: Extended
    epsilon: Extended


@final
class Tuned(Value):
    r"""All that was tried.

    Attributes:
      public_data: the data that were treated as public.
      best: the best settings; None if all failed.
      changes: the same for ``zetadp submit --recipe NAME``, each after ``--set``.
      selection: its cost; ``no_selection``: why there is none.
    """

    public_data: DataSpec
    tried: Annotated[tuple[Tried, ...], Field(min_length=1)]
    best: dict[str, Any] | None
    changes: tuple[str, ...]
    selection: SelectionCost | None
    no_selection: str | None = Field(default=None, exclude_if=is_absent)


def grid(values: Mapping[str, Sequence[object]]) -> tuple[Settings, ...]:
    """Every combination, the last setting varying first. Raises InvalidParameter if there are more than a selection may have."""
    found = tuple(dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values()))
    if len(found) > MOST_CANDIDATES:
        raise InvalidParameter("--try", f"values with at most {MOST_CANDIDATES} combinations", len(found))
    return found


def tried_on(
    public: DataSpec, spec: AnyCandidateSpec, settings: Settings, repetitions: int, runtime: RuntimeSpec, begun: Callable[[], None]
) -> Tried:
    r"""Trains as the spec says, but on public data and measured there, with randomness of its own each time.

    Its noise is what the spec asks for on data of that size. A training that fails is a result.
    """
    document = spec.model_dump(mode="json", exclude_none=True)
    document |= {"data": public.model_dump(mode="json", exclude_none=True), "evaluation": PUBLIC}
    found: list[RunReport] = []
    try:
        here = SPEC.validate_python(document)
        plan = here.plan()
        for _ in range(repetitions):
            begun()
            with TemporaryDirectory(prefix="zetadp-tune-") as folder:
                found.append(load_train(here)(here, plan, runtime, Path(folder), report=_unheard, should_stop=_never))
    except (PrivacyError, ValidationError, TrainingAborted) as failure:
        reason = failure.errors(include_url=False)[0]["msg"] if isinstance(failure, ValidationError) else str(failure)
        return Tried(settings=dict(settings), metrics={}, failed=" ".join(reason.split()))
    return Tried(settings=dict(settings), metrics=_means([report.metrics or {} for report in found]))


def _means(metrics: Sequence[Mapping[MetricName, float]]) -> dict[MetricName, float]:
    return {name: sum(one[name] for one in metrics) / len(metrics) for name in metrics[0]}


def _unheard(_event: object) -> None:
    """The results say how each went."""


def _never() -> bool:
    return False


def score(tried: Tried) -> float | None:
    """By which the best one is found: more is better. None where nothing was measured."""
    return next((sign * tried.metrics[name] for name, sign in BETTER if name in tried.metrics), None)


def best_of(tried: Sequence[Tried]) -> Tried | None:
    """The best, of equal ones the first; None if all failed."""
    scored = [(found, one) for one in tried if (found := score(one)) is not None]
    return max(scored, key=lambda pair: pair[0])[1] if scored else None


def selection_cost(specs: Sequence[AnyCandidateSpec], facts: DataSetFacts, mean: float) -> SelectionCost:
    r"""What a private selection of a geometric number of runs costs, for private data of these sizes.

    Args:
      specs: the candidates, on the private data.
      mean: of the number of runs, at least 1.
    Raises:
      InvalidParameter, ValidationError: the candidates have no event in common, or nothing scores them.
      CalibrationFailed: as ``plan_for``.
    """
    candidates = tuple(Candidate(name=f"candidate-{number}", spec=spec) for number, spec in enumerate(specs, 1))
    plan = PrivateSelection(data=specs[0].data, candidates=candidates, runs=GeometricRuns(mean=mean)).plan_for(facts)
    return SelectionCost(
        candidates=len(candidates),
        runs=plan.runs,
        delta=plan.delta,
        unit=plan.unit,
        epsilon_of_one_run=profile(plan.one_run.event).epsilon_upper(plan.delta),
        epsilon=profile(plan.event).epsilon_upper(plan.delta),
    )
