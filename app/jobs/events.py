r"""What happens to a job, as its event stream tells it: changes of state, the training child's own events, and what it left behind."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, final

from pydantic import Field, TypeAdapter

from mechanisms.base import Value
from trainer.report import CheckpointWritten, Failed, Finished, Metrics, Progress, Started, Stopped


class JobState(StrEnum):
    """Where a job is: queued -> running -> succeeded, failed or cancelled, with cancelling between.

    A running job whose worker shuts down in good order is queued again and goes on from its checkpoint.
    """

    QUEUED = "queued"
    RUNNING = "running"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in FINAL_STATES


FINAL_STATES = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})


@final
class StateChanged(Value):
    """The job went to ``state``; ``reason`` says why it failed or was queued again."""

    event: Literal["state"] = "state"
    state: JobState
    reason: str | None = None


@final
class Artifact(Value):
    """A file that a finished job left: its name, size and digest."""

    name: str
    bytes: int
    sha256: str


@final
class ArtifactsStored(Value):
    """The files of a job that succeeded; nothing is listed before."""

    event: Literal["artifacts"] = "artifacts"
    artifacts: tuple[Artifact, ...]


JobEvent = Annotated[
    StateChanged | ArtifactsStored | Started | Progress | Metrics | CheckpointWritten | Finished | Stopped | Failed,
    Field(discriminator="event"),
]
JOB_EVENT: TypeAdapter[JobEvent] = TypeAdapter(JobEvent)


@final
class JobEventRecord(Value):
    """One entry of a job's history.

    Attributes:
      number: position in the history, from 1 without gaps; the id of the server-sent event.
      attempt: which start of the job it belongs to; 0 before the first.
    """

    number: int
    attempt: int
    time: datetime
    data: JobEvent
