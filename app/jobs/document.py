r"""The stored document of a job: the request and what follows from it. It never changes after submission."""

from __future__ import annotations

from typing import Annotated, Any, final

from pydantic import Discriminator, Field, StringConstraints, Tag, TypeAdapter

from zetadp.app.jobs.calculation import CalculationDocument
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
    """The part of a stored training that lists show; reading the plan as well, which checks its event, takes much longer."""

    spec: AnyTrainingSpec
    runtime: RuntimeSpec


def _kind(document: Any) -> str:
    # The first jobs were stored when all were trainings, and nothing in them says so.
    return "calculation" if isinstance(document, CalculationDocument) or "calculation" in document else "training"


JobDocument = Annotated[
    Annotated[TrainingDocument, Tag("training")] | Annotated[CalculationDocument, Tag("calculation")], Discriminator(_kind)
]
JOB_DOCUMENT: TypeAdapter[JobDocument] = TypeAdapter(JobDocument)
