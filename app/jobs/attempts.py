r"""A worker's side of a job: starting the next one, recording what happens, ending it. Every write is fenced by the attempt's number.

A worker can only start a waiting job, and only while its lease holds: the transaction that starts the job checks both. A lost worker loses
its jobs with its lease (``app/jobs/leases.py``); from then on every write of its attempts is refused: they can't add events, end the job or
store a certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TypeVar, final

from pydantic import AwareDatetime
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from zetadp.app.certificates.facts.ledger_entry import LedgerFacts
from zetadp.app.jobs.charges import charge_of
from zetadp.app.jobs.document import JOB_DOCUMENT, JobDocument
from zetadp.app.jobs.errors import LeaseLost
from zetadp.app.jobs.events import JobEvent
from zetadp.app.jobs.fitting import fitting, needs_of_row
from zetadp.app.jobs.history import append, change_state, locked
from zetadp.app.jobs.needs import Capacity, check_available
from zetadp.app.jobs.turns import take_next
from zetadp.app.kit.database import Database
from zetadp.app.tables.job_states import HELD_STATES, JobState, Outcome, after_outcome
from zetadp.app.tables.jobs import ExecutorRow, JobEventRow, JobRow
from zetadp.mechanisms.base import Value
from zetadp.trainer.specs.report import CheckpointWritten

T = TypeVar("T")


class AttemptSuperseded(Exception):
    """The job was taken from this attempt, was started elsewhere, or has ended: this attempt may no longer write."""

    def __init__(self, job_id: str, attempt: int) -> None:
        self.job_id = job_id
        self.attempt = attempt
        super().__init__(f"attempt {attempt} of job {job_id!r} is no longer the current one")


@final
class Attempt(Value):
    r"""One start of a job.

    Attributes:
      number: its fencing token.
      holder: the token of its worker's lease, which nobody but the service's own processes knows.
      started: time of the job's first start.
      timeout_seconds: how long workers may work on the job over all attempts; None for no limit.
      ran_seconds: how long they have, before this attempt.
      memory_bytes: how much the job's processes may use on this machine; None for no limit of its own.
      charge: the ledger entry that reserves its plan; None without a ledger.
      traceparent: of the span that submitted the job; None where traces were off.
    """

    job_id: str
    number: int
    holder: str
    started: AwareDatetime
    document: JobDocument
    timeout_seconds: float | None
    ran_seconds: float
    memory_bytes: int | None
    charge: LedgerFacts | None
    traceparent: str | None = None


@final
class Attempts:
    """Starts jobs and records their outcome."""

    def __init__(self, database: Database, maximum_worker_deaths: int) -> None:
        self._database = database
        self._maximum_worker_deaths = maximum_worker_deaths

    def start_next(self, token: str, capacity: Capacity) -> Attempt | None:
        """Start the job that is next (``turns.py``) of those that this capacity suffices for; None if there is none.

        Raises:
          LeaseLost: the lease of this token no longer holds.
        """
        enough = fitting(capacity)
        waiting = select(JobRow.id).where(JobRow.state == JobState.QUEUED, enough).limit(1)
        with self._database.reading() as session:  # nearly always there is none, and the write lock is everyone's
            if session.scalar(waiting) is None:
                return None
        with self._database.writing() as session:
            executor = session.scalar(select(ExecutorRow).where(ExecutorRow.token == token).with_for_update())
            if executor is None:
                raise LeaseLost(token)
            job = take_next(session, JobState.QUEUED, HELD_STATES, enough)
            if job is None:
                return None
            return _begun(session, executor, job)

    def start(self, token: str, capacity: Capacity, job_id: str) -> Attempt | JobState | None:
        r"""Start this job if it waits; otherwise its state, or None if there is no such job.

        Raises:
          LeaseLost: the lease of this token no longer holds.
          InvalidParameter: it needs more than this capacity.
        """
        with self._database.writing() as session:
            executor = session.scalar(select(ExecutorRow).where(ExecutorRow.token == token).with_for_update())
            if executor is None:
                raise LeaseLost(token)
            job = locked(session, job_id)
            if job is None or job.state != JobState.QUEUED:
                return None if job is None else JobState(job.state)
            check_available(needs_of_row(job), [capacity])
            return _begun(session, executor, job)

    def running(self, job_id: str) -> Attempt | JobState | None:
        """The attempt that a worker has in hand; otherwise the job's state, or None if there is no such job."""
        with self._database.reading() as session:
            job = session.get(JobRow, job_id)
            if job is None or job.state not in HELD_STATES or job.holder is None:
                return None if job is None else JobState(job.state)
            return _attempt(session, job)

    def wanted(self, attempt: Attempt) -> JobState:
        """The job's state: running, or the state that it should change to.

        Raises:
          AttemptSuperseded: the job was taken away or has ended.
        """
        with self._database.reading() as session:
            found = session.execute(select(JobRow.state, JobRow.attempt).where(JobRow.id == attempt.job_id)).one_or_none()
        if found is None or found.attempt != attempt.number or found.state not in HELD_STATES:
            raise AttemptSuperseded(attempt.job_id, attempt.number)
        return JobState(found.state)

    def stored_events(self, attempt: Attempt) -> int:
        """The number of its child's events that this attempt has stored: the only way to know after a lost connection."""
        query = select(func.count()).where(
            JobEventRow.job_id == attempt.job_id,
            JobEventRow.attempt == attempt.number,
            JobEventRow.kind.not_in(("state", "artifacts")),
        )
        with self._database.reading() as session:
            return session.scalar(query) or 0

    def record(self, attempt: Attempt, events: Sequence[JobEvent], ran_seconds: float) -> None:
        """Add events to the job's history; ``ran_seconds``: how long workers have worked on it, over all attempts."""
        with self._current(attempt) as (session, job):
            job.ran_seconds = ran_seconds
            append(session, job, events)

    def last_checkpoint(self, attempt: Attempt) -> int:
        """Step of the last checkpoint that the job reported; 0 before the first."""
        query = (
            select(JobEventRow.data)
            .where(JobEventRow.job_id == attempt.job_id, JobEventRow.kind == "checkpoint")
            .order_by(JobEventRow.number.desc())
            .limit(1)
        )
        with self._database.reading() as session:
            data = session.scalar(query)
        return 0 if data is None else CheckpointWritten.model_validate(data).step

    def fail(self, attempt: Attempt, reason: str) -> None:
        """End the job as failed, or as cancelled if that was requested meanwhile."""
        self._end(attempt, Outcome.FAILED, reason)

    def stopped(self, attempt: Attempt, reason: str | None = None) -> None:
        """The child stopped cleanly and its checkpoint stays: the job is paused or cancelled if that was requested, else queued again."""
        self._end(attempt, Outcome.STOPPED, reason)

    def lost(self, attempt: Attempt, how: str = "its worker was lost") -> None:
        """The worker itself failed. Counts like its death."""
        with self._current(attempt) as (session, job):
            lose(session, job, self._maximum_worker_deaths, how)

    def within(self, attempt: Attempt, write: Callable[[Session, JobRow], T]) -> T:
        """What ``write`` gives, in a transaction with the job's row locked. Raises AttemptSuperseded."""
        with self._current(attempt) as (session, job):
            return write(session, job)

    def reading(self, read: Callable[[Session], T]) -> T:
        """What ``read`` gives, in a transaction that locks nothing."""
        with self._database.reading() as session:
            return read(session)

    def writing(self, write: Callable[[Session], None]) -> None:
        """What ``write`` does, in a transaction of its own that no attempt fences: for facts that are the same whoever writes them."""
        with self._database.writing() as session:
            write(session)

    def succeed(self, attempt: Attempt, store: Callable[[Session], Sequence[JobEvent]]) -> None:
        """End the job as succeeded, in one transaction with what ``store`` writes; or as cancelled if that was requested meanwhile.

        ``store`` runs while the job's row is locked and only for the current attempt; the events it returns come before the last one.
        """
        with self._current(attempt) as (session, job):
            state = after_outcome(JobState(job.state), Outcome.FINISHED)
            if state is JobState.SUCCEEDED:
                append(session, job, store(session))
                session.flush()  # the next event's number is read from the table
            change_state(session, job, state)

    def _end(self, attempt: Attempt, outcome: Outcome, reason: str | None) -> None:
        with self._current(attempt) as (session, job):
            end(session, job, outcome, reason)

    @contextmanager
    def _current(self, attempt: Attempt) -> Generator[tuple[Session, JobRow]]:
        with self._database.writing() as session:
            job = locked(session, attempt.job_id)
            if job is None or job.attempt != attempt.number or job.state not in HELD_STATES:
                raise AttemptSuperseded(attempt.job_id, attempt.number)
            yield session, job


def _begun(session: Session, executor: ExecutorRow, job: JobRow) -> Attempt:
    """A waiting job that both are locked for, in this worker's hand."""
    executor.job_id = job.id
    job.holder = executor.token
    job.attempt += 1
    change_state(session, job, JobState.RUNNING)
    return _attempt(session, job)


def _attempt(session: Session, job: JobRow) -> Attempt:
    assert job.started is not None  # set with the first change to running
    assert job.holder is not None  # a worker has it in hand
    return Attempt(
        job_id=job.id,
        number=job.attempt,
        holder=job.holder,
        started=job.started,
        document=JOB_DOCUMENT.validate_python(job.document),
        timeout_seconds=job.timeout_seconds,
        ran_seconds=job.ran_seconds,
        memory_bytes=job.memory_bytes,
        charge=charge_of(session, job.id),
        traceparent=job.traceparent,
    )


def end(session: Session, job: JobRow, outcome: Outcome, reason: str | None) -> None:
    """Change a locked job that a worker holds or prepares to the state that this outcome leads to.

    The history gets a reason if that wasn't the aim.
    """
    state = after_outcome(JobState(job.state), outcome)
    asked = {JobState.PAUSING: JobState.PAUSED, JobState.CANCELLING: JobState.CANCELLED}.get(JobState(job.state))
    change_state(session, job, state, None if state is asked else reason)


def lose(session: Session, job: JobRow, maximum_worker_deaths: int, how: str = "its worker was lost") -> None:
    """A locked job's worker is gone: another worker may start it, unless too many have died with it."""
    job.worker_deaths += 1
    if job.worker_deaths >= maximum_worker_deaths:
        end(session, job, Outcome.FAILED, f"{how}{_times(job.worker_deaths)}; no further attempt")
    else:
        end(session, job, Outcome.STOPPED, how)


def _times(count: int) -> str:
    return "" if count == 1 else f" {count} times"
