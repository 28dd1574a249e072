r"""What the REST interface tells of jobs. Domain types appear as they are; only transport fields are added."""

from __future__ import annotations

from datetime import datetime
from typing import final

from pydantic import Field

from app.jobs.calculation import CalculationKind, CalculationResult
from app.jobs.document import Labels
from app.jobs.events import Artifact, JobState
from mechanisms.base import Extended, Value
from trainer import AnyTrainingSpec, RuntimeSpec
from trainer.report import Metrics


@final
class JobSubmission(Value):
    """A training job: what to train and what to guarantee, how to run it, and labels to find it by."""

    spec: AnyTrainingSpec
    runtime: RuntimeSpec = RuntimeSpec()
    labels: Labels = Field(default_factory=dict)


@final
class JobProgress(Value):
    """``step`` of ``steps`` are done and have cost at most ``epsilon`` at ``delta``."""

    step: int
    steps: int
    epsilon: Extended
    delta: float


@final
class JobLinks(Value):
    """Where the rest is."""

    self: str
    events: str
    cancel: str
    artifacts: str
    certificate: str | None


@final
class Job(Value):
    r"""A job: a training, or a calculation (whose ``algorithm``, ``spec`` and ``runtime`` are null).

    Attributes:
      calculation: what kind of calculation it is; null for a training.
      attempt: how often a worker has taken it up; 0 before the first.
      progress: as last told by training; null before its first step.
      metrics: as last measured on the held-out records, each by name, and whether those are public or noise covers them; null before.
      failure: why it failed; null otherwise.
      certificate: id of its certificate; null until a training succeeded.
      result: what the calculation came to; null until it succeeded, and always in lists: they would be long.
    """

    id: str
    state: JobState
    algorithm: str | None
    spec: AnyTrainingSpec | None
    runtime: RuntimeSpec | None
    calculation: CalculationKind | None
    labels: Labels
    created: datetime
    started: datetime | None
    finished: datetime | None
    attempt: int
    progress: JobProgress | None
    metrics: Metrics | None
    failure: str | None
    certificate: str | None
    result: CalculationResult | None
    links: JobLinks


@final
class JobPage(Value):
    """Jobs, newest first; ``next`` is the cursor of the following page, null on the last."""

    jobs: tuple[Job, ...]
    next: str | None


@final
class ArtifactList(Value):
    """The files of a job; empty until it succeeded."""

    artifacts: tuple[Artifact, ...]
