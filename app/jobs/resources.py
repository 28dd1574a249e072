r"""What the REST interface shows of jobs. Domain types appear as they are; only transport fields are added."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self, final

from pydantic import AwareDatetime, Field, Strict, model_validator

from zetadp.app.calculators.schemas import example
from zetadp.app.jobs.calculation import CalculationKind, CalculationResult
from zetadp.app.jobs.document import Labels
from zetadp.app.jobs.events import Artifact, JobEventRecord
from zetadp.app.jobs.needs import Resources
from zetadp.app.jobs.webhooks.secrets import WebhookSecret
from zetadp.app.ledgers.rules import Purpose
from zetadp.app.tables.job_states import JobState
from zetadp.mechanisms.base import Extended, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import AnyTrainingSpec, RuntimeSpec
from zetadp.trainer.specs.algorithms.zeta_dp_sgd import ZetaDpSgd
from zetadp.trainer.specs.report import Metrics

HIGHEST_PRIORITY = 100
LONGEST_TIMEOUT = 365 * 86_400.0


@final
class Webhook(Value):
    r"""An address that gets a signed POST for every change of a job's state, repeated until it is accepted.

    Attributes:
      url: https, to a host on the internet; other hosts if the service's operator allows them.
      secret: of Standard Webhooks, whose libraries verify what is sent: ``whsec_`` and the base64 of 24 to 64 random bytes. It is never
        shown again.
    """

    url: Annotated[str, Field(max_length=2000, pattern=r"^https?://[\x21-\x7e]+$")]
    secret: WebhookSecret


@final
class LabelsChange(Value):
    """All of a job's labels: labels that aren't given are removed."""

    model_config = example({"labels": {"purpose": "pilot"}})

    labels: Labels


@final
class JobSubmission(Value):
    r"""A training job: what to train and what to guarantee, how and where to run it, and labels to find it by.

    Attributes:
      resources: the machines that it needs.
      priority: jobs with a higher priority start first; at the same priority, tenants take turns, and of one tenant's jobs the oldest is
        next.
      timeout_seconds: the job fails once workers have worked on it longer, over all attempts; what it released stays in its checkpoint.
      webhook: an address to notify of every change of its state.
      ledger: the budget that its whole plan is reserved from before it is queued, or else the job fails; when it ends it settles what it
        released. If retried it is charged again, to whoever retries. Without a ledger no budget is kept. Where its rules ask for a second
        key, the job is paused once it has been prepared, and goes on by itself when its reservation is approved.
      purpose: what it is for, in the ledger's history; one of the purposes that the ledger's rules name, if they do.
    """

    model_config = example({"spec": ZetaDpSgd.example().model_dump(mode="json", exclude_none=True), "labels": {"purpose": "pilot"}})

    spec: AnyTrainingSpec
    runtime: RuntimeSpec = RuntimeSpec()
    resources: Resources = Resources()
    labels: Labels = Field(default_factory=dict)
    priority: Annotated[int, Strict(), Field(ge=0, le=HIGHEST_PRIORITY)] = 0
    timeout_seconds: Annotated[float, Field(gt=0.0, le=LONGEST_TIMEOUT, allow_inf_nan=False)] | None = None
    webhook: Webhook | None = None
    ledger: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    purpose: Purpose | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.purpose is not None and self.ledger is None:
            raise InvalidParameter("purpose", "absent without a ledger, whose history names it", self.purpose)
        return self


@final
class JobProgress(Value):
    """``step`` of ``steps`` are done and have cost at most ``epsilon`` at ``delta``."""

    step: int
    steps: int
    epsilon: Extended
    delta: float


@final
class JobCharge(Value):
    """The ledger that a job is charged to, and its reservation there; the reservation is null until the job has been prepared."""

    ledger: str
    reservation: str | None


@final
class JobLaunch(Value):
    """The worker that was asked for in a cluster: its name there, and what the cluster last said of it."""

    name: str
    state: str
    reason: str | None


@final
class JobLinks(Value):
    """Links to related resources."""

    self: str
    events: str
    logs: str
    metrics: str
    cancel: str
    pause: str
    resume: str
    retry: str
    artifacts: str
    certificate: str | None


@final
class Job(Value):
    r"""A job: a training, or a calculation (whose ``algorithm``, ``spec``, ``runtime`` and ``resources`` are null).

    Attributes:
      calculation: the kind of calculation; null for a training.
      priority: jobs of a higher one start first.
      timeout_seconds: how long workers may work on it over all attempts; null for no limit.
      ran_seconds: how long workers have worked on it, as last reported; a retry starts from 0.
      attempt: how often a worker has started it; 0 before the first time.
      progress: as last reported by the training; null before its first step.
      units: how many units of privacy its plan counts; null for a calculation, until it has been prepared, and in lists.
      caveats: what voids that epsilon or isn't protected by it, the most serious first; empty for a calculation.
      metrics: as last measured on the held-out records, by name, and whether those are public or noise covers them; null before.
      failure: why it failed, with the field if its spec doesn't fit its data; null otherwise.
      waits_for: what a paused job waits for before it goes on by itself: approval by a second key; null otherwise.
      files_deleted: when its files (including a calculation's result) were deleted after their retention time; null while they exist.
      certificate: id of its certificate; null until a training has succeeded.
      charge: the budget that it is charged to; null if it was submitted without one.
      launch: the worker that a cluster starts for it; null without a launcher, once it has ended, and in lists.
      result: the calculation's result; null until it has succeeded, and always null in lists, which would get long.
    """

    id: str
    state: JobState
    algorithm: str | None
    spec: AnyTrainingSpec | None
    runtime: RuntimeSpec | None
    resources: Resources | None
    calculation: CalculationKind | None
    labels: Labels
    priority: int
    timeout_seconds: float | None
    ran_seconds: float
    created: datetime
    started: datetime | None
    finished: datetime | None
    attempt: int
    progress: JobProgress | None
    units: int | None
    caveats: tuple[str, ...]
    metrics: Metrics | None
    failure: str | None
    waits_for: str | None
    files_deleted: datetime | None
    certificate: str | None
    charge: JobCharge | None
    launch: JobLaunch | None
    result: CalculationResult | None
    links: JobLinks


@final
class JobPage(Value):
    """Jobs, newest first; ``next`` is the cursor of the following page, null on the last."""

    jobs: tuple[Job, ...]
    next: str | None


@final
class MeasuresPage(Value):
    """Progress and metrics, oldest first; ``next`` is the number after which there may be more, null at the end."""

    measures: tuple[JobEventRecord, ...]
    next: int | None


@final
class ArtifactList(Value):
    """The files of a job; empty until it has succeeded."""

    artifacts: tuple[Artifact, ...]


@final
class ExecutorEntry(Value):
    r"""A worker.

    Attributes:
      device: what its jobs run on: auto (whatever the machine has), cpu, cuda or one accelerator by number.
      hardware: of its machine, in words.
      is_busy: whether it is running a job.
      job: the id of that job, if it is the caller's.
      alive: whether it renewed its lease in time; if not, another worker removes it.
      since: when it took its lease.
    """

    id: str
    device: str
    hardware: str
    is_busy: bool
    job: str | None
    alive: bool
    since: AwareDatetime
    renewed: AwareDatetime


@final
class ExecutorList(Value):
    """Every worker, by name."""

    workers: tuple[ExecutorEntry, ...]
