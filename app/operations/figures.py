r"""Figures of the database and the disk, read when Prometheus asks and cached for some seconds: many scrapers cost as much as one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any, final

import structlog
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from sqlalchemy import Select, func, or_, select
from sqlalchemy.orm import Session

from zetadp.app.access.audit_log import AuditLog
from zetadp.app.certificates.log import journal
from zetadp.app.certificates.log.cosignatures import WitnessesUnreadable, signatures, witnesses_in
from zetadp.app.jobs.leases import database_time, is_alive
from zetadp.app.kit.database import UNAVAILABLE, Database, now
from zetadp.app.kit.disk import disk
from zetadp.app.kit.settings import Settings
from zetadp.app.ledgers.states import LedgerState
from zetadp.app.tables.certificate_log import LogHeadRow
from zetadp.app.tables.certificates import CertificateRow
from zetadp.app.tables.job_states import HELD_STATES, UNFINISHED_STATES, JobState
from zetadp.app.tables.jobs import DeliveryRow, ExecutorRow, JobEventRow, JobRow
from zetadp.app.tables.ledgers import LedgerEntryRow, LedgerRow
from zetadp.app.tables.operations import BackupRow

KEPT_SECONDS = 5.0
NOT_CERTIFIED = ("no certificate is issued%", "%nothing is certified%")
"""Patterns of the failure reasons of jobs that could not be certified (``app/worker/completion.py``)."""
_log = structlog.get_logger()


@final
class Figures(Collector):
    """Jobs, workers, webhooks, ledgers, certificates, the audit log's queue, the database's answer and the disk."""

    def __init__(self, settings: Settings, database: Database, audit: AuditLog) -> None:
        self._settings = settings
        self._database = database
        self._audit = audit
        self._lock = threading.Lock()
        self._kept: list[Metric] = []
        self._read = -KEPT_SECONDS

    def describe(self) -> Iterable[Metric]:
        """None: the names come from what is collected, and registering must not query the database."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """The metrics as of the last reading, which is at most some seconds old."""
        with self._lock:
            if time.monotonic() - self._read >= KEPT_SECONDS:
                self._kept, self._read = self._fresh(), time.monotonic()
            return list(self._kept)

    def _fresh(self) -> list[Metric]:
        free, size = disk(self._settings.data_dir)
        found = [
            _gauge("zetadp_disk_free_bytes", "Free space on the data folder's disk.", free),
            _gauge("zetadp_disk_bytes", "Size of the data folder's disk.", size),
            _gauge("zetadp_audit_waiting", "Entries of the audit log that aren't written yet.", self._audit.waiting),
        ]
        begun = time.monotonic()
        try:
            self._database.check()
            seconds = time.monotonic() - begun
            with self._database.reading() as session:
                found += [*_jobs(session), *_workers(session), *_others(session), *_kept_elsewhere(session)]
                found += self._witnesses()
        except UNAVAILABLE as error:
            _log.warning("database_unavailable", error=type(error).__name__)
            return [*found, _gauge("zetadp_database_up", "Whether the database answers.", 0)]
        return [
            *found,
            _gauge("zetadp_database_up", "Whether the database answers.", 1),
            _gauge("zetadp_database_seconds", "Time of the simplest database query.", seconds),
        ]

    def _witnesses(self) -> list[Metric]:
        try:
            asked = len(witnesses_in(self._settings.witnesses))
        except WitnessesUnreadable as error:
            _log.warning("witnesses_unreadable", reason=str(error))
            return []
        return [_gauge("zetadp_log_witnesses", "Witnesses that are asked to sign the log of certificates.", asked)]


def _jobs(session: Session) -> list[Metric]:
    counts = {state: count for state, count in session.execute(select(JobRow.state, func.count()).group_by(JobRow.state))}  # noqa: C416
    states = GaugeMetricFamily("zetadp_jobs", "Jobs, by state.", labels=["state"])
    for state in JobState:
        states.add_metric([state], counts.get(state, 0))
    waiting = (JobState.PREPARING, JobState.QUEUED)
    oldest: datetime | None = session.scalar(select(func.min(JobRow.created)).where(JobRow.state.in_(waiting)))
    tried = select(func.coalesce(func.sum(JobRow.attempt), 0), func.coalesce(func.sum(JobRow.worker_deaths), 0))
    attempts, deaths = session.execute(tried.where(JobRow.state.in_(UNFINISHED_STATES))).one()
    waited = 0.0 if oldest is None else max(0.0, (now() - oldest).total_seconds())
    return [
        states,
        _gauge("zetadp_queue_depth", "Jobs waiting for a worker, also to be prepared.", sum(counts.get(state, 0) for state in waiting)),
        _gauge("zetadp_queue_oldest_seconds", "Age of the oldest waiting job; 0 if none is waiting.", waited),
        _gauge("zetadp_jobs_in_hand", "Jobs held by a worker.", sum(counts.get(state, 0) for state in HELD_STATES)),
        _gauge("zetadp_unfinished_attempts", "Attempts of unfinished jobs.", attempts),
        _gauge("zetadp_unfinished_worker_deaths", "Workers lost while running still unfinished jobs.", deaths),
    ]


def _workers(session: Session) -> list[Metric]:
    rows = list(session.scalars(select(ExecutorRow)))
    moment = database_time(session)
    alive = [row for row in rows if is_alive(row, moment)]
    workers = GaugeMetricFamily("zetadp_workers", "Workers, by whether they renew their lease.", labels=["state"])
    workers.add_metric(["idle"], sum(row.job_id is None for row in alive))
    workers.add_metric(["busy"], sum(row.job_id is not None for row in alive))
    workers.add_metric(["silent"], len(rows) - len(alive))
    return [workers]


def _others(session: Session) -> list[Metric]:
    waiting = _count(session, select(DeliveryRow))
    failing = _count(session, select(DeliveryRow).where(DeliveryRow.tries > 0))
    made = _count(session, select(LedgerEntryRow).where(LedgerEntryRow.settles == 0))
    settled = _count(session, select(LedgerEntryRow).where(LedgerEntryRow.settles == 1))
    ledgers = {state: count for state, count in session.execute(select(LedgerRow.state, func.count()).group_by(LedgerRow.state))}  # noqa: C416
    families = GaugeMetricFamily("zetadp_ledgers", "Ledgers, by state.", labels=["state"])
    for state in LedgerState:
        families.add_metric([state], ledgers.get(state, 0))
    reason = JobEventRow.data["reason"].as_string()
    refused = select(func.count(func.distinct(JobRow.id))).join(JobEventRow, JobEventRow.job_id == JobRow.id)
    refused = refused.where(
        JobRow.state == JobState.FAILED, JobEventRow.kind == "state", or_(*(reason.like(text) for text in NOT_CERTIFIED))
    )
    return [
        _gauge("zetadp_webhooks_waiting", "State changes not yet delivered to webhooks.", waiting),
        _gauge("zetadp_webhooks_failing", "Undelivered state changes that were tried already.", failing),
        families,
        _gauge("zetadp_reservations_open", "Reservations in ledgers that aren't settled.", made - settled),
        _gauge("zetadp_ledger_entries", "Entries of all ledgers.", _count(session, select(LedgerEntryRow))),
        _gauge("zetadp_certificates", "Certificates issued.", _count(session, select(CertificateRow))),
        _gauge("zetadp_certificates_refused", "Jobs that failed because nothing could be certified.", session.scalar(refused) or 0),
    ]


def _kept_elsewhere(session: Session) -> list[Metric]:
    """What others keep of this service: backups, and witnesses the heads of its log."""
    backup = session.scalar(select(func.max(BackupRow.made)))
    head = session.scalar(select(LogHeadRow).order_by(LogHeadRow.size.desc()).limit(1))
    return [
        _gauge("zetadp_backup_timestamp_seconds", "When the last backup was made, since 1970; 0 if none is known.", _moment(backup)),
        _gauge("zetadp_log_entries", "Entries of the log of certificates.", journal.size_of(session)),
        _gauge(
            "zetadp_log_head_entries", "Entries under the log's newest head that was signed and kept.", 0 if head is None else head.size
        ),
        _gauge("zetadp_log_head_timestamp_seconds", "When that head was signed, since 1970; 0 if none was.", _moment(head and head.time)),
        _gauge("zetadp_log_head_witnesses", "Witnesses that signed that head.", 0 if head is None else signatures(head.checkpoint) - 1),
    ]


def _moment(time: datetime | None) -> float:
    return 0.0 if time is None else time.timestamp()


def _count(session: Session, rows: Select[Any]) -> int:
    return session.scalar(rows.with_only_columns(func.count(), maintain_column_froms=True)) or 0


def _gauge(name: str, documentation: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, documentation, value=value)
