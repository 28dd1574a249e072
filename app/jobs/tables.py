r"""The tables of the jobs: ids, times, states, foreign keys and one JSON column. Derived numbers are computed from the events."""

from __future__ import annotations

from datetime import datetime
from typing import final

from sqlalchemy import JSON, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from app.database import Base, UtcTime

JsonObject = dict[str, object]


@final
class JobRow(Base):
    """A job: ``document`` holds what was asked and what follows from it (spec, runtime, plan, labels), and never changes.

    ``attempt`` counts the starts and is the fencing token: only the latest start may write events or end the job. ``worker_deaths``
    counts the starts that were never brought to an end.
    """

    __tablename__ = "jobs"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    state: Mapped[str] = mapped_column(String(16), index=True)
    created: Mapped[datetime] = mapped_column(UtcTime())
    started: Mapped[datetime | None] = mapped_column(UtcTime())
    finished: Mapped[datetime | None] = mapped_column(UtcTime())
    attempt: Mapped[int] = mapped_column(default=0)
    worker_deaths: Mapped[int] = mapped_column(default=0)
    document: Mapped[JsonObject] = mapped_column(JSON())


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
    """A used Idempotency-Key, the digest of the request it came with, and the job it made."""

    __tablename__ = "idempotency_keys"

    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    request_sha256: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    created: Mapped[datetime] = mapped_column(UtcTime())
