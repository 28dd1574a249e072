r"""Writing and reading a job's events, inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.database import now
from app.jobs.events import JOB_EVENT, JobEvent, JobEventRecord, JobState, StateChanged
from app.jobs.tables import JobEventRow, JobRow


def locked(session: Session, job_id: str) -> JobRow | None:
    """The job's row, locked until the transaction ends; every change to a job or its events starts here."""
    return session.get(JobRow, job_id, with_for_update=True)


def append(session: Session, job: JobRow, events: Sequence[JobEvent]) -> None:
    """Add events to the history of a job whose row this transaction has locked."""
    last = last_number(session, job.id)
    moment = now()
    session.add_all(
        JobEventRow(
            job_id=job.id,
            number=number,
            attempt=job.attempt,
            kind=event.event,
            time=moment,
            data=JOB_EVENT.dump_python(event, mode="json"),
        )
        for number, event in enumerate(events, start=last + 1)
    )


def last_number(session: Session, job_id: str) -> int:
    """Number of the job's last event; 0 before the first."""
    return session.scalar(select(func.max(JobEventRow.number)).where(JobEventRow.job_id == job_id)) or 0


def change_state(session: Session, job: JobRow, state: JobState, reason: str | None = None) -> None:
    """Move a locked job to ``state`` and tell its history."""
    job.state = state
    if state is JobState.RUNNING and job.started is None:
        job.started = now()
    if state.is_final:
        job.finished = now()
    append(session, job, [StateChanged(state=state, reason=reason)])


def events_after(session: Session, job_id: str, number: int, limit: int) -> list[JobEventRecord]:
    """Events with a higher number, in order, at most ``limit``."""
    query = select(JobEventRow).where(JobEventRow.job_id == job_id, JobEventRow.number > number).order_by(JobEventRow.number).limit(limit)
    return [_record(row) for row in session.scalars(query)]


def latest(session: Session, job_ids: Sequence[str], kinds: Sequence[str]) -> dict[tuple[str, str], JobEvent]:
    """The last event of each kind of each job, by (job, kind)."""
    numbers = (
        select(JobEventRow.job_id, func.max(JobEventRow.number).label("number"))
        .where(JobEventRow.job_id.in_(job_ids), JobEventRow.kind.in_(kinds))
        .group_by(JobEventRow.job_id, JobEventRow.kind)
        .subquery()
    )
    query = select(JobEventRow).join(numbers, (JobEventRow.job_id == numbers.c.job_id) & (JobEventRow.number == numbers.c.number))
    return {(row.job_id, row.kind): JOB_EVENT.validate_python(row.data) for row in session.scalars(query)}


def _record(row: JobEventRow) -> JobEventRecord:
    return JobEventRecord(number=row.number, attempt=row.attempt, time=row.time, data=JOB_EVENT.validate_python(row.data))
