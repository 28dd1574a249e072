r"""The stored document of a job: what was asked, which never changes, and the plan that follows from it, which is added once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, final

from pydantic import Discriminator, Field, StringConstraints, Tag, TypeAdapter

from zetadp.app.jobs.calculation import CalculationDocument
from zetadp.app.tables.job_states import JobState
from zetadp.mechanisms.base import Value
from zetadp.trainer import AnyPlan, AnyTrainingSpec, RuntimeSpec

LabelName = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
LabelValue = Annotated[str, StringConstraints(strict=True, max_length=255)]
Labels = Annotated[dict[LabelName, LabelValue], Field(max_length=32)]


@final
class TrainingDocument(Value):
    """The spec as sent, the settings of the run, and the calibrated plan."""

    spec: AnyTrainingSpec
    runtime: RuntimeSpec
    plan: AnyPlan

    def child_request(self) -> str:
        """What the training child reads."""
        return self.model_dump_json()


@final
class TrainingAsked(Value):
    """A training without its plan: all that is stored until it is prepared, and all that lists show.

    Reading the plan as well, which checks its event, takes much longer.
    """

    spec: AnyTrainingSpec
    runtime: RuntimeSpec


def _kind(document: Any) -> str:
    # The first jobs were stored when all were trainings, and nothing in them says so.
    return "calculation" if isinstance(document, CalculationDocument) or "calculation" in document else "training"


JobDocument = Annotated[
    Annotated[TrainingDocument, Tag("training")] | Annotated[CalculationDocument, Tag("calculation")], Discriminator(_kind)
]
JOB_DOCUMENT: TypeAdapter[JobDocument] = TypeAdapter(JobDocument)
"""Of a job that is prepared; ``asked_training`` reads any."""


def asked_training(stored: Mapping[str, object]) -> TrainingAsked | None:
    """What was asked of a training, with or without a plan; None for a calculation, which may be long and is left unread."""
    if "calculation" in stored:
        return None
    return TrainingAsked.model_validate({name: stored[name] for name in TrainingAsked.model_fields})


def is_prepared(stored: Mapping[str, object]) -> bool:
    """Whether a worker could run it: a training needs its plan, a calculation nothing more."""
    return "plan" in stored or "calculation" in stored


def planned_units(stored: Mapping[str, Any]) -> int | None:
    """The number of units of privacy in its plan, without reading all of that; None where there is no plan."""
    plan = stored.get("plan")
    while plan is not None and "parts" in plan:  # of a comparison, whose parts all have the same units
        plan = plan["parts"][0]["plan"]
    if plan is not None and "candidates" in plan:  # of a private selection, and so have these
        plan = plan["candidates"][0]["plan"]
    if plan is None:
        return None
    return plan["sampling"]["records"] if "sampling" in plan else plan["units"] if "units" in plan else plan["records"]


def waiting_state(stored: Mapping[str, object]) -> JobState:
    """The state in which a job with this document waits for a worker."""
    return JobState.QUEUED if is_prepared(stored) else JobState.PREPARING
