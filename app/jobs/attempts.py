r"""A worker's side of a job: starting it, telling what happens, ending it. Every write is fenced by the number of the attempt.

Two workers may start the same job (the first only seemed dead). The later start has the higher number, and from then on every write of
the earlier one is refused: it can't add events, end the job or store a certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import final

from pydantic import AwareDatetime
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.database import Database
from app.jobs.document import JOB_DOCUMENT, JobDocument
from app.jobs.events import FINAL_STATES, JobEvent, JobState
from app.jobs.history import append, change_state, locked
from app.jobs.tables import JobRow
from mechanisms.base import Value


class AttemptSuperseded(Exception):
    """The job was started again elsewhere, or has ended: this attempt may not write any more."""

    def __init__(self, job_id: str, attempt: int) -> None:
        self.job_id = job_id
        self.attempt = attempt
        super().__init__(f"attempt {attempt} of job {job_id!r} is no longer the current one")


@final
class Attempt(Value):
    """One start of a job; ``number`` is its fencing token, ``started`` the time of the first start."""

    job_id: str
    number: int
    started: AwareDatetime
    document: JobDocument


@final
class Attempts:
    """Starts jobs and writes what becomes of them."""

    def __init__(self, database: Database, maximum_worker_deaths: int) -> None:
        self._database = database
        self._maximum_worker_deaths = maximum_worker_deaths

    def start(self, job_id: str) -> Attempt | None:
        """Begin a new attempt, or None where there is nothing to do: no such job, ended, cancelled, or given up after its worker died
        too often."""
        with self._database.writing() as session:
            job = locked(session, job_id)
            if job is None or JobState(job.state).is_final:
                return None
            if job.state == JobState.CANCELLING:
                change_state(session, job, JobState.CANCELLED)
                return None
            if job.state == JobState.RUNNING:  # nobody ended the attempt before: its worker is gone
                job.worker_deaths += 1
            if job.worker_deaths >= self._maximum_worker_deaths:
                change_state(session, job, JobState.FAILED, f"its worker was lost {job.worker_deaths} times; not tried again")
                return None
            job.attempt += 1
            change_state(session, job, JobState.RUNNING)
            assert job.started is not None  # set with the first change to running
            document = JOB_DOCUMENT.validate_python(job.document)
            return Attempt(job_id=job_id, number=job.attempt, started=job.started, document=document)

    def is_cancelling(self, attempt: Attempt) -> bool:
        """Whether the job is to be cancelled.

        Raises:
          AttemptSuperseded: the job was started again elsewhere, or has ended.
        """
        with self._database.reading() as session:
            found = session.execute(select(JobRow.state, JobRow.attempt).where(JobRow.id == attempt.job_id)).one_or_none()
        if found is None or found.attempt != attempt.number or found.state not in (JobState.RUNNING, JobState.CANCELLING):
            raise AttemptSuperseded(attempt.job_id, attempt.number)
        return found.state == JobState.CANCELLING

    def record(self, attempt: Attempt, events: Sequence[JobEvent]) -> None:
        """Add events to the job's history."""
        with self._current(attempt) as (session, job):
            append(session, job, events)

    def fail(self, attempt: Attempt, reason: str) -> None:
        """End the job as failed; as cancelled if that was asked in the meantime."""
        with self._current(attempt) as (session, job):
            if job.state == JobState.CANCELLING:
                change_state(session, job, JobState.CANCELLED)
            else:
                change_state(session, job, JobState.FAILED, reason)

    def cancelled(self, attempt: Attempt) -> None:
        """End the job as cancelled."""
        with self._current(attempt) as (session, job):
            change_state(session, job, JobState.CANCELLED)

    def give_back(self, attempt: Attempt, reason: str) -> None:
        """Queue the job again: it stopped in good order and goes on from its checkpoint. Doesn't count as a death."""
        with self._current(attempt) as (session, job):
            if job.state == JobState.CANCELLING:
                change_state(session, job, JobState.CANCELLED)
            else:
                change_state(session, job, JobState.QUEUED, reason)

    def succeed(self, attempt: Attempt, store: Callable[[Session], Sequence[JobEvent]]) -> None:
        """End the job as succeeded, in one transaction with whatever ``store`` writes; as cancelled if that was asked in the meantime.

        ``store`` runs while the job's row is locked and only for the current attempt; the events it returns come before the last one.
        """
        with self._current(attempt) as (session, job):
            if job.state == JobState.CANCELLING:
                change_state(session, job, JobState.CANCELLED)
                return
            append(session, job, store(session))
            session.flush()  # the next event's number is read from the table
            change_state(session, job, JobState.SUCCEEDED)

    def unfinished(self) -> list[str]:
        """Ids of the jobs that have not ended, oldest first."""
        query = select(JobRow.id).where(JobRow.state.not_in(FINAL_STATES)).order_by(JobRow.id)
        with self._database.reading() as session:
            return list(session.scalars(query))

    @contextmanager
    def _current(self, attempt: Attempt) -> Generator[tuple[Session, JobRow]]:
        with self._database.writing() as session:
            job = locked(session, attempt.job_id)
            if job is None or job.attempt != attempt.number or job.state not in (JobState.RUNNING, JobState.CANCELLING):
                raise AttemptSuperseded(attempt.job_id, attempt.number)
            yield session, job
