r"""Deletion after the retention time. Certificates, ledger entries, and their jobs are kept for ever.

The database records a deletion before it happens: a process that dies in between leaves a file that the next round finds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Self, final

import structlog
from sqlalchemy import CursorResult, Select, delete, func, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session, aliased

from zetadp.app.access.audit_log import local_event
from zetadp.app.certificates.signing.noise_keys import delete_noise_key, kept_for
from zetadp.app.jobs.errors import QueueUnavailable
from zetadp.app.jobs.events import Logged, process_started
from zetadp.app.jobs.history import append, locked
from zetadp.app.jobs.queue import JobQueue
from zetadp.app.jobs.workspaces import JOBS, job_prefix
from zetadp.app.kit.database import Database, now
from zetadp.app.kit.settings import Settings
from zetadp.app.storage.base import StorageUnavailable
from zetadp.app.storage.folder import remove_folder
from zetadp.app.storage.opening import storage_of
from zetadp.app.tables.access import AuditRow
from zetadp.app.tables.job_states import FINAL_STATES
from zetadp.app.tables.jobs import DeliveryRow, IdempotencyKeyRow, JobEventRow, JobRow, WebhookRow
from zetadp.app.tables.operations import AuditDeletionRow, HousekeepingRow
from zetadp.app.tables.tenants import DEFAULT_TENANT
from zetadp.mechanisms.base import Value

AT_ONCE = 200
"""Jobs, or a few times as many rows, in one transaction, since everyone shares the write lock."""
LOOK_SECONDS = 60.0
ROUND_SECONDS = 3600.0
TASK = "retention"
_log = structlog.get_logger()


@final
class Removed(Value):
    """What a round deleted or would delete: folders of jobs, jobs whose events were thinned, noise keys, and rows."""

    job_files: int = 0
    job_events: int = 0
    idempotency_keys: int = 0
    webhooks: int = 0
    audit_entries: int = 0
    noise_keys: int = 0
    calls: int = 0


@final
class Retention:
    """One round of deleting, by the settings."""

    def __init__(self, settings: Settings, database: Database, queue: JobQueue) -> None:
        self._settings = settings
        self._database = database
        self._queue = queue

    def clean(self, moment: datetime, *, is_rehearsal: bool = False) -> Removed:
        """Delete what is older than the settings allow, as of this moment; or only count it. Raises QueueUnavailable at the very end."""
        settings = self._settings
        kept: Sequence[tuple[str, float | None, Callable[[datetime], int], Callable[[datetime], int]]] = (
            ("job_files", settings.keep_job_files_days, self._job_files, self._counted(self._jobs_with_files)),
            ("job_events", settings.keep_job_events_days, self._job_events, self._counted(self._jobs_with_events)),
            ("idempotency_keys", settings.keep_idempotency_days, self._idempotency_keys, self._counted(_old_keys)),
            ("webhooks", settings.keep_webhook_days, self._webhooks, self._counted(_old_webhooks)),
            ("audit_entries", settings.keep_audit_log_days, self._audit_entries, self._counted(_old_entries)),
            ("noise_keys", settings.keep_noise_keys_days, self._noise_keys, lambda before: len(self._jobs_with_keys(before))),
            ("calls", settings.keep_call_days, self._calls, lambda before: self._queue.forget(before, only_count=True)),
        )
        counts = {
            name: (counted if is_rehearsal else done)(moment - timedelta(days=days))
            for name, days, done, counted in kept
            if days is not None
        }
        removed = Removed.model_validate(counts)
        if not is_rehearsal:
            _log.info("retention_round", **removed.model_dump())
        return removed

    def _counted(self, rows: Callable[[datetime], Select[Any]]) -> Callable[[datetime], int]:
        def count(before: datetime) -> int:
            with self._database.reading() as session:
                return session.scalar(select(func.count()).select_from(rows(before).subquery())) or 0

        return count

    def _jobs_with_files(self, before: datetime) -> Select[Any]:
        return _ended(before).where(JobRow.files_deleted.is_(None))

    def _jobs_with_events(self, before: datetime) -> Select[Any]:
        return _ended(before).where(JobRow.events_deleted.is_(None))

    def _job_files(self, before: datetime) -> int:
        count = self._marked(self._jobs_with_files(before), "files_deleted", lambda _session, _ids: None)
        store = storage_of(self._settings).store
        for job_id in _given_up(self._database, store.names(f"{JOBS}/")):
            store.delete_all(job_prefix(job_id))
        remove_logs(self._settings, self._database)
        return count

    def _job_events(self, before: datetime) -> int:
        last = aliased(JobEventRow)

        def thin(session: Session, ids: Sequence[str]) -> None:
            said = JobEventRow.data["line"].as_string()
            lines = delete(JobEventRow).where(JobEventRow.job_id.in_(ids), JobEventRow.kind == "log")
            session.execute(lines.where(said.not_like(process_started("%").line)).execution_options(synchronize_session=False))
            newest = select(func.max(last.number)).where(last.job_id == JobEventRow.job_id, last.kind == JobEventRow.kind)
            superseded = delete(JobEventRow).where(JobEventRow.job_id.in_(ids), JobEventRow.kind.in_(("progress", "metrics")))
            session.execute(superseded.where(JobEventRow.number < newest.scalar_subquery()).execution_options(synchronize_session=False))

        return self._marked(self._jobs_with_events(before), "events_deleted", thin)

    def _marked(self, jobs: Select[Any], column: str, work: Callable[[Session, Sequence[str]], None]) -> int:
        """Do the work for each of these jobs that still needs it once its row is locked; returns their number."""
        total = 0
        while True:
            with self._database.writing() as session:
                ids = list(session.scalars(jobs.limit(AT_ONCE).with_for_update(skip_locked=True)))
                work(session, ids)
                session.execute(update(JobRow).where(JobRow.id.in_(ids)).values({column: now()}))
            total += len(ids)
            if len(ids) < AT_ONCE:
                return total

    def _idempotency_keys(self, before: datetime) -> int:
        def drop(session: Session) -> int:
            job_ids = session.scalars(_old_keys(before).limit(AT_ONCE)).all()
            return _deleted(session, delete(IdempotencyKeyRow).where(IdempotencyKeyRow.job_id.in_(job_ids)))

        return self._until_none(drop)

    def _webhooks(self, before: datetime) -> int:
        def drop(session: Session) -> int:
            job_ids = session.scalars(_old_webhooks(before).limit(AT_ONCE)).all()
            return _deleted(session, delete(WebhookRow).where(WebhookRow.job_id.in_(job_ids)))

        return self._until_none(drop)

    def _audit_entries(self, before: datetime) -> int:
        with self._database.writing() as session:
            count = session.scalar(select(func.count()).select_from(_old_entries(before).subquery())) or 0
            if count == 0:
                return 0
            session.add(AuditDeletionRow(time=now(), before=before))
            session.flush()  # the database lets nothing go that isn't on record
            session.execute(delete(AuditRow).where(AuditRow.time < before).execution_options(synchronize_session=False))
            session.add(local_event(DEFAULT_TENANT, "-", "audit log shortened", f"{count} entries from before {before.isoformat()}").row())
            return count

    def _jobs_with_keys(self, before: datetime) -> list[str]:
        held = kept_for(storage_of(self._settings).store)
        with self._database.reading() as session:
            found = [
                session.scalars(_ended(before).where(JobRow.id.in_(held[first : first + AT_ONCE]))).all()
                for first in range(0, len(held), AT_ONCE)
            ]
        return [job_id for part in found for job_id in part]

    def _noise_keys(self, before: datetime) -> int:
        return sum(delete_key(self._settings, self._database, job_id) for job_id in self._jobs_with_keys(before))

    def _calls(self, before: datetime) -> int:
        return self._queue.forget(before)

    def _until_none(self, drop: Callable[[Session], int]) -> int:
        total = 0
        while True:
            with self._database.writing() as session:
                count = drop(session)
            total += count
            if count == 0:
                return total


@final
class Housekeeper:
    """Runs a round once an hour in its own thread, in only one of several processes. A context manager."""

    def __init__(self, retention: Retention, database: Database) -> None:
        self._retention = retention
        self._database = database
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="housekeeping", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            try:
                if claimed(self._database, TASK, now(), ROUND_SECONDS):
                    self._retention.clean(now())
            except (SQLAlchemyError, QueueUnavailable, StorageUnavailable, OSError) as error:
                _log.warning("retention_failed", error=type(error).__name__)  # the next round does what is left


def delete_key(settings: Settings, database: Database, job_id: str) -> bool:
    """Delete the noise key of a job that has ended, and say so in the job's log; False if it hasn't ended. Raises StorageUnavailable."""
    with database.writing() as session:
        job = locked(session, job_id)  # it can't be retried meanwhile
        if job is None or job.state not in FINAL_STATES:
            return False
        delete_noise_key(storage_of(settings).store, job_id, now())
        append(session, job, [Logged(line="noise key deleted: nobody can repeat this run any more")])
    _log.info("noise_key_deleted", job=job_id)
    return True


def remove_logs(settings: Settings, database: Database) -> None:
    """Remove this machine's logs of jobs whose files were deleted: with a storage elsewhere a worker has those of the jobs that it ran."""
    folder = settings.data_dir / JOBS
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    for job_id in _given_up(database, names):
        remove_folder(settings.job_dir(job_id))


def _given_up(database: Database, job_ids: Sequence[str]) -> Iterator[str]:
    """Those of these jobs whose files are to be gone."""
    for first in range(0, len(job_ids), AT_ONCE):
        given_up = select(JobRow.id).where(JobRow.id.in_(job_ids[first : first + AT_ONCE]), JobRow.files_deleted.is_not(None))
        with database.reading() as session:
            found = session.scalars(given_up).all()
        yield from found


def claimed(database: Database, task: str, moment: datetime, every_seconds: float) -> bool:
    """Whether the task is due and this process is the one to do it."""
    with database.reading() as session:
        row = session.get(HousekeepingRow, task)
        if row is not None and row.due > moment:
            return False
    following = moment + timedelta(seconds=every_seconds)
    try:
        with database.writing() as session:
            if row is None:
                session.add(HousekeepingRow(name=task, due=following))
                return True
            due = update(HousekeepingRow).where(HousekeepingRow.name == task, HousekeepingRow.due <= moment).values(due=following)
            return session.execute(due.returning(HousekeepingRow.name)).first() is not None
    except IntegrityError:
        return False  # another process was first


def _ended(before: datetime) -> Select[str]:
    return select(JobRow.id).where(JobRow.state.in_(FINAL_STATES), JobRow.finished < before)


def _old_keys(before: datetime) -> Select[str]:
    # A job that hasn't ended keeps its key: sent again, its submission would make a second one.
    ended = select(IdempotencyKeyRow.job_id).join(JobRow, JobRow.id == IdempotencyKeyRow.job_id)
    return ended.where(JobRow.state.in_(FINAL_STATES), IdempotencyKeyRow.created < before)


def _old_webhooks(before: datetime) -> Select[str]:
    to_tell = select(DeliveryRow.job_id).where(DeliveryRow.job_id == WebhookRow.job_id).exists()
    ended = select(WebhookRow.job_id).join(JobRow, JobRow.id == WebhookRow.job_id)
    return ended.where(JobRow.state.in_(FINAL_STATES), JobRow.finished < before, ~to_tell)


def _old_entries(before: datetime) -> Select[int]:
    return select(AuditRow.number).where(AuditRow.time < before)


def _deleted(session: Session, statement: Any) -> int:
    found = session.execute(statement)
    assert isinstance(found, CursorResult)  # a DELETE has no rows
    return found.rowcount
