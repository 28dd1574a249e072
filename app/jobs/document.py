r"""What is stored of a job when it is submitted: what was asked, and the plan that follows from it. It never changes afterwards."""

from __future__ import annotations

from typing import Annotated, final

from pydantic import Field, StringConstraints

from mechanisms.base import Value
from trainer import AnyTrainingSpec, ExecutionPlan, RuntimeSpec

LabelName = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
LabelValue = Annotated[str, StringConstraints(strict=True, max_length=255)]
Labels = Annotated[dict[LabelName, LabelValue], Field(max_length=32)]


@final
class JobDocument(Value):
    """The spec as sent, the settings of the run, the calibrated plan, and the user's labels."""

    spec: AnyTrainingSpec
    runtime: RuntimeSpec
    plan: ExecutionPlan
    labels: Labels

    def training_request(self) -> str:
        """What the training child reads: everything but the labels, which are no business of its."""
        return self.model_dump_json(include={"spec", "runtime", "plan"})
