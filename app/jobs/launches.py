r"""A launcher's side of a job: which one it starts a worker for next, and what has become of the worker that it asked for."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import final

from pydantic import AwareDatetime
from sqlalchemy import delete, exists, func, select

from zetadp.app.jobs.attempts import end
from zetadp.app.jobs.document import asked_training
from zetadp.app.jobs.events import Logged
from zetadp.app.jobs.fitting import fitting, needs_of_row
from zetadp.app.jobs.history import append, locked
from zetadp.app.jobs.needs import Capacity, Needs, Resources
from zetadp.app.jobs.turns import take_next
from zetadp.app.kit.database import Database, now
from zetadp.app.tables.job_states import HELD_STATES, JobState, Outcome
from zetadp.app.tables.jobs import JobRow, LaunchRow
from zetadp.mechanisms.base import Value
from zetadp.trainer import RuntimeSpec

WANTED = "wanted"
"""The state of a worker that no cluster has taken an order for yet."""
LONGEST_REASON = 255
"""Characters that are kept of a cluster's words."""


@final
class Launch(Value):
    r"""A worker that was asked for, and how its job is.

    Attributes:
      name: of the worker, in the cluster.
      cpus: processor cores on each machine.
      has_started: whether a worker has taken the job up since it was asked for.
      is_over: whether the job needs no worker any more: it has ended, is paused, or was deleted.
      is_held: whether a worker has the job in hand.
      state: the cluster's last word on it, as it was kept.
      failures: launches in a row that ended without that.
      due: when the next may be made.
    """

    job_id: str
    name: str
    needs: Needs
    cpus: int
    seconds: int | None
    has_started: bool
    is_over: bool
    is_held: bool
    state: str
    failures: int
    asked: AwareDatetime
    due: AwareDatetime


@final
class Launches:
    """The workers that a launcher has asked for, at most one for a job."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[Launch]:
        """Every one, the oldest first."""
        query = select(LaunchRow, JobRow).join(JobRow, JobRow.id == LaunchRow.job_id).order_by(LaunchRow.asked, LaunchRow.job_id)
        with self._database.reading() as session:
            return [_launch(row, job) for row, job in session.execute(query)]

    def begin_next(self, capacity: Capacity, most: int) -> Launch | None:
        r"""Write down that a worker is asked for, for the job that is next (``turns.py``) of those that have none; None if none waits.

        It is written before the cluster is asked: a launcher that dies in between finds the name and asks again.

        Args:
          most: how many workers may be asked for at a time.
        """
        unlaunched = (JobRow.state == JobState.QUEUED, ~exists().where(LaunchRow.job_id == JobRow.id), fitting(capacity))
        with self._database.reading() as session:
            if session.scalar(select(JobRow.id).where(*unlaunched).limit(1)) is None:
                return None
        with self._database.writing() as session:
            if (session.scalar(select(func.count()).select_from(LaunchRow)) or 0) >= most:
                return None
            job = take_next(session, JobState.QUEUED, HELD_STATES, *unlaunched)
            if job is None:
                return None
            moment = now()
            row = LaunchRow(job_id=job.id, name=_name(job.id), attempt=job.attempt, asked=moment, state=WANTED, failures=0, due=moment)
            session.add(row)
            session.flush()
            return _launch(row, job)

    def begin_again(self, launch: Launch) -> Launch | None:
        """Likewise, for a job whose worker has ended; None if the job needs none any more."""
        with self._database.writing() as session:
            job, row = locked(session, launch.job_id), session.get(LaunchRow, launch.job_id)
            if job is None or row is None or row.name != launch.name or job.state != JobState.QUEUED:
                return None
            row.name, row.attempt, row.asked, row.state, row.reason = _name(job.id), job.attempt, now(), WANTED, None
            return _launch(row, job)

    def heard(self, launch: Launch, state: str, reason: str | None) -> None:
        """Keep the cluster's last words on it; a new reason is added to the job's log."""
        with self._database.writing() as session:
            job, row = locked(session, launch.job_id), session.get(LaunchRow, launch.job_id)
            if job is None or row is None or row.name != launch.name:
                return
            kept = None if reason is None else reason[:LONGEST_REASON]
            if (row.state, row.reason) == (state, kept):
                return
            row.state, row.reason = state, kept
            append(session, job, [Logged(line=f"worker {row.name}: {state}" + (f" ({kept})" if kept else ""))])

    def failed(self, launch: Launch, reason: str, pause_seconds: float | None) -> None:
        r"""It ended and never took the job up.

        Args:
          pause_seconds: when the next one may be asked for; None if none is, and the job fails with this reason.
        """
        with self._database.writing() as session:
            job, row = locked(session, launch.job_id), session.get(LaunchRow, launch.job_id)
            if job is None or row is None or row.name != launch.name:
                return
            if pause_seconds is not None:
                row.failures += 1
                row.due = now() + timedelta(seconds=pause_seconds)
            elif job.state == JobState.QUEUED:
                end(session, job, Outcome.FAILED, reason)

    def succeeded(self, launch: Launch) -> None:
        """It took the job up: earlier failures no longer count."""
        with self._database.writing() as session:
            row = session.get(LaunchRow, launch.job_id)
            if row is not None and row.name == launch.name:
                row.failures = 0

    def forget(self, launch: Launch) -> None:
        """Its job needs it no more, and nothing of it is left."""
        with self._database.writing() as session:
            session.execute(delete(LaunchRow).where(LaunchRow.job_id == launch.job_id, LaunchRow.name == launch.name))


def _launch(row: LaunchRow, job: JobRow) -> Launch:
    state = JobState(job.state)
    asked, resources = asked_training(job.document), Resources.model_validate(job.resources)
    runtime = RuntimeSpec() if asked is None else asked.runtime
    return Launch(
        job_id=job.id,
        name=row.name,
        needs=needs_of_row(job),
        cpus=resources.cpus or max(1, runtime.threads) * (runtime.processes // job.machines),
        seconds=resources.seconds,
        has_started=job.attempt > row.attempt,
        is_over=state is not JobState.QUEUED and state not in HELD_STATES,
        is_held=state in HELD_STATES,
        state=row.state,
        failures=row.failures,
        asked=row.asked,
        due=row.due,
    )


def _name(job_id: str) -> str:
    """In letters that every cluster takes; no worker of this job had it before, of which a cluster may still tell."""
    return f"zetadp-{job_id}-{secrets.token_hex(4)}"
