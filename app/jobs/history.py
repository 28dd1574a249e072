r"""Writing and reading a job's events, inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import func, select, union_all
from sqlalchemy.orm import Session, aliased

from zetadp.app.jobs.charges import WAITS, settle_job
from zetadp.app.jobs.events import JOB_EVENT, JobEvent, JobEventRecord, StateChanged
from zetadp.app.kit.database import now
from zetadp.app.tables.job_states import HELD_STATES, JobState
from zetadp.app.tables.jobs import DeliveryRow, JobEventRow, JobRow, WebhookRow


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
    """Change a locked job to ``state``, and record it in the history and for webhooks; a job that ends settles with its ledger."""
    job.state, job.awaits = state, None
    if state is JobState.RUNNING and job.started is None:
        job.started = now()
    job.finished = now() if state.is_final else None
    if state not in HELD_STATES:
        job.holder = None
    append(session, job, [StateChanged(state=state, reason=reason)])
    session.flush()
    if session.get(WebhookRow, job.id) is not None:
        session.add(DeliveryRow(job_id=job.id, number=last_number(session, job.id), due=now(), tries=0))
    if state.is_final:
        settle_job(session, job, is_success=state is JobState.SUCCEEDED)


def pause_for_approval(session: Session, job: JobRow, reservation_id: str) -> None:
    """Pause a locked job until this reservation is approved."""
    change_state(session, job, JobState.PAUSED, WAITS.format(reservation_id))
    job.awaits = reservation_id


def events_after(session: Session, job_id: str, number: int, kinds: Sequence[str], limit: int) -> list[JobEventRecord]:
    """Events of these kinds with a higher number, in order, at most ``limit``."""
    query = (
        select(JobEventRow)
        .where(JobEventRow.job_id == job_id, JobEventRow.number > number, JobEventRow.kind.in_(kinds))
        .order_by(JobEventRow.number)
        .limit(limit)
    )
    return [_record(row) for row in session.scalars(query)]


def latest(session: Session, wanted: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], JobEvent]:
    """The last event of each kind for the requested jobs, by (job, kind)."""
    # One step down the index for each job and kind: a grouping would walk through every event of every job.
    last = aliased(JobEventRow)
    queries = [
        select(JobEventRow.job_id, JobEventRow.kind, JobEventRow.data)
        .join(JobRow, JobEventRow.job_id == JobRow.id)
        .where(
            JobRow.id.in_(job_ids),
            JobEventRow.number == select(func.max(last.number)).where(last.job_id == JobRow.id, last.kind == kind).scalar_subquery(),
        )
        for kind, job_ids in wanted.items()
        if job_ids
    ]
    if not queries:
        return {}
    found = session.execute(union_all(*queries))  # in one journey to the server
    return {(job_id, kind): JOB_EVENT.validate_python(data) for job_id, kind, data in found}


def _record(row: JobEventRow) -> JobEventRecord:
    return JobEventRecord(number=row.number, attempt=row.attempt, time=row.time, data=JOB_EVENT.validate_python(row.data))
