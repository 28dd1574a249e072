r"""A job's events, as its event stream shows them: changes of state, the training child's own events, and its files."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, final

from pydantic import Field, TypeAdapter

from zetadp.app.tables.job_states import JobState
from zetadp.mechanisms.base import Value
from zetadp.trainer.specs.report import CheckpointWritten, Failed, Finished, Metrics, Progress, SitesStanding, Stage, Started, Stopped


@final
class StateChanged(Value):
    """The job changed to ``state``; ``reason`` says why it failed, was queued again or stopped for another cause."""

    event: Literal["state"] = "state"
    state: JobState
    reason: str | None = None


@final
class Artifact(Value):
    """A file of a finished job: its name, size and digest."""

    name: str
    bytes: int
    sha256: str


@final
class ArtifactsStored(Value):
    """The files of a job that succeeded; none are listed before."""

    event: Literal["artifacts"] = "artifacts"
    artifacts: tuple[Artifact, ...]


@final
class Logged(Value):
    """A line of the training process's log, restricted to what can't hold a data value (``app/worker/log_lines.py``)."""

    event: Literal["log"] = "log"
    line: str


def process_started(attempt: int | str) -> Logged:
    """What the log says just before an attempt's training process is started: from then on it may have released something.

    Retention keeps these lines: whether a plan was logged before its training began is found out by them.
    """
    return Logged(line=f"attempt {attempt}: process started")


JobEvent = Annotated[
    StateChanged
    | ArtifactsStored
    | Logged
    | Started
    | Progress
    | Metrics
    | Stage
    | SitesStanding
    | CheckpointWritten
    | Finished
    | Stopped
    | Failed,
    Field(discriminator="event"),
]
JOB_EVENT: TypeAdapter[JobEvent] = TypeAdapter(JobEvent)
HISTORY = ("state", "artifacts", "started", "progress", "metrics", "stage", "sites", "checkpoint", "finished", "stopped", "failed")
"""Kinds of events in a job's event stream."""
LOG = ("log",)
MEASURES = ("progress", "metrics")
"""Kinds of events that can be plotted: steps done with the epsilon spent so far, and metrics on held-out records."""


@final
class JobEventRecord(Value):
    """One entry of a job's history.

    Attributes:
      number: position in the history, from 1 without gaps, log lines included; the id of the server-sent event.
      attempt: the attempt that it belongs to; 0 before the first.
    """

    number: int
    attempt: int
    time: datetime
    data: JobEvent
