r"""The tables of the jobs: ids, times, states, foreign keys and one JSON column. Derived numbers are computed from the events."""

from __future__ import annotations

from datetime import datetime
from typing import final

from sqlalchemy import JSON, BigInteger, Double, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from zetadp.app.kit.database import Base, UtcTime
from zetadp.app.kit.tracing import LONGEST_PARENT
from zetadp.app.tables.tenants import DEFAULT_TENANT, TENANT_LENGTH

JsonObject = dict[str, object]


@final
class JobRow(Base):
    """A job: ``document`` holds what was asked (spec, runtime) and, once it is prepared, what follows from it (the plan); neither changes.

    ``attempt`` counts the starts and is the fencing token: only the latest start may write events or end the job. ``holder`` is the token
    of the lease of the worker that has the job in hand or prepares it, and null otherwise. ``ledger`` is the budget that its plan is
    reserved from before it is queued, ``purpose`` what for, ``spender`` the principal that sent or last retried it. ``resources`` is
    what was asked of machines; ``device``, ``gpus``, ``gpu_kind`` and ``memory_bytes`` are what each of its ``machines`` must have.
    ``awaits`` is the reservation whose approval a paused job waits for, to go on by itself then; null once its user paused it.
    ``worker_deaths`` counts the starts whose worker was lost, ``ran_seconds`` the time in hand over all attempts; a retry resets both.
    ``files_deleted``: when its folder was given up, checkpoint, log and artifacts; it can't be tried again then. ``events_deleted``: when
    its log lines and figures were.
    ``traceparent``: of the span that submitted it; null where traces were off.
    """

    __tablename__ = "jobs"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    tenant: Mapped[str] = mapped_column(String(TENANT_LENGTH), server_default=DEFAULT_TENANT)
    state: Mapped[str] = mapped_column(String(16))
    created: Mapped[datetime] = mapped_column(UtcTime())
    started: Mapped[datetime | None] = mapped_column(UtcTime())
    finished: Mapped[datetime | None] = mapped_column(UtcTime())
    attempt: Mapped[int] = mapped_column(default=0)
    worker_deaths: Mapped[int] = mapped_column(default=0)
    document: Mapped[JsonObject] = mapped_column(JSON())
    labels: Mapped[dict[str, str]] = mapped_column(JSON(), default=dict)
    priority: Mapped[int] = mapped_column(default=0)
    device: Mapped[str] = mapped_column(String(16), default="auto")
    gpus: Mapped[int] = mapped_column(default=0)
    gpu_kind: Mapped[str | None] = mapped_column(String(64))
    memory_bytes: Mapped[int | None] = mapped_column(BigInteger())
    machines: Mapped[int] = mapped_column(default=1)
    resources: Mapped[JsonObject] = mapped_column(JSON(), default=dict)
    timeout_seconds: Mapped[float | None] = mapped_column(Double())
    ledger: Mapped[str | None] = mapped_column(String(32))
    purpose: Mapped[str | None] = mapped_column(String(128))
    spender: Mapped[str | None] = mapped_column(String(64))
    awaits: Mapped[str | None] = mapped_column(String(64))
    ran_seconds: Mapped[float] = mapped_column(Double(), default=0.0)
    holder: Mapped[str | None] = mapped_column(String(32), index=True)
    files_deleted: Mapped[datetime | None] = mapped_column(UtcTime())
    events_deleted: Mapped[datetime | None] = mapped_column(UtcTime())
    traceparent: Mapped[str | None] = mapped_column(String(LONGEST_PARENT))

    __table_args__ = (Index(None, "tenant", "id"), Index(None, "tenant", "state", "id"), Index(None, "state", "priority", "tenant", "id"))


@final
class TurnRow(Base):
    """When a tenant's turn last came in one of the two queues: of jobs that wait to be prepared, and of those that wait to run."""

    __tablename__ = "job_turns"

    queue: Mapped[str] = mapped_column(String(16), primary_key=True)
    tenant: Mapped[str] = mapped_column(String(TENANT_LENGTH), primary_key=True)
    served: Mapped[datetime] = mapped_column(UtcTime())


@final
class LaunchRow(Base):
    """The worker that a launcher has asked a cluster to start for a job, under ``name``, when the job had been started ``attempt`` times.

    ``state`` and ``reason`` are the cluster's last words on it. ``failures``: launches in a row that ended and never started the job;
    after one, the next is made when ``due``.
    """

    __tablename__ = "launches"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(String(63), unique=True)
    attempt: Mapped[int]
    asked: Mapped[datetime] = mapped_column(UtcTime())
    state: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str | None] = mapped_column(String(255))
    failures: Mapped[int] = mapped_column(default=0)
    due: Mapped[datetime] = mapped_column(UtcTime())


@final
class JobEventRow(Base):
    """One event of a job; ``number`` counts from 1 without gaps."""

    __tablename__ = "job_events"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    attempt: Mapped[int]
    kind: Mapped[str] = mapped_column(String(32))
    time: Mapped[datetime] = mapped_column(UtcTime())
    data: Mapped[JsonObject] = mapped_column(JSON())

    __table_args__ = (Index(None, "job_id", "kind", "number"),)


@final
class IdempotencyKeyRow(Base):
    """A tenant's used Idempotency-Key, the digest of the request it came with, and the job it made."""

    __tablename__ = "idempotency_keys"

    tenant: Mapped[str] = mapped_column(String(TENANT_LENGTH), primary_key=True, server_default=DEFAULT_TENANT)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    request_sha256: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    created: Mapped[datetime] = mapped_column(UtcTime())


@final
class ExecutorRow(Base):
    """A live worker and its lease: ``token`` is new whenever the lease is taken again, ``beat`` counts its renewals.

    ``lock`` identifies the lock on its name that it holds, so that its successor on the same machine knows that it is dead.
    """

    __tablename__ = "executors"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    token: Mapped[str] = mapped_column(String(32))
    beat: Mapped[int]
    since: Mapped[datetime] = mapped_column(UtcTime())
    renewed: Mapped[datetime] = mapped_column(UtcTime())
    lease_seconds: Mapped[float] = mapped_column(Double())
    host: Mapped[str] = mapped_column(String(255))
    lock: Mapped[str] = mapped_column(String(128))
    device: Mapped[str] = mapped_column(String(1000))
    hardware: Mapped[str] = mapped_column(String(255))
    capacity: Mapped[JsonObject] = mapped_column(JSON())
    job_id: Mapped[str | None] = mapped_column(String(64))


@final
class WebhookRow(Base):
    """The receiver of a job's changes of state: its URL and the host in it. The secret signs the messages and is never shown."""

    __tablename__ = "webhooks"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    url: Mapped[str] = mapped_column(String(2000))
    host: Mapped[str] = mapped_column(String(253))
    secret: Mapped[str] = mapped_column(String(255))


@final
class DeliveryRow(Base):
    """One change of state to deliver, written in the transaction that made it; deleted when it was delivered or given up."""

    __tablename__ = "webhook_deliveries"

    job_id: Mapped[str] = mapped_column(ForeignKey("webhooks.job_id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    due: Mapped[datetime] = mapped_column(UtcTime(), index=True)
    tries: Mapped[int] = mapped_column(default=0)
