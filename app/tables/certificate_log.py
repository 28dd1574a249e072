r"""The tables of the log. Entries and nodes are only ever added: the database refuses to change or remove one (migration 0001)."""

from __future__ import annotations

from datetime import datetime
from typing import final

from sqlalchemy import JSON, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from zetadp.app.kit.database import Base, UtcTime
from zetadp.app.tables.tenants import TENANT_LENGTH


@final
class LogRow(Base):
    """The one log. Its row is what every append locks, so that processes take turns; it has the number of entries."""

    __tablename__ = "certificate_log"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    size: Mapped[int]


@final
class LogEntryRow(Base):
    """An entry: what it is about (a plan or a certificate, by id), its public content, and the hash of its leaf in hexadecimal."""

    __tablename__ = "certificate_log_entries"

    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(String(32))
    # No foreign key: what it is about may be removed long before the log.
    subject: Mapped[str] = mapped_column(String(80))
    content: Mapped[str] = mapped_column(String(500))
    leaf: Mapped[str] = mapped_column(String(64), index=True)
    time: Mapped[datetime] = mapped_column(UtcTime())

    __table_args__ = (UniqueConstraint("kind", "subject"),)


@final
class LogHeadRow(Base):
    """A head under which something was proved: its checkpoint with the witnesses' signatures, and the time stamps on it, in base64."""

    __tablename__ = "certificate_log_heads"

    size: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    checkpoint: Mapped[str] = mapped_column(Text())
    time_stamps: Mapped[list[str]] = mapped_column(JSON())
    time: Mapped[datetime] = mapped_column(UtcTime())


@final
class AnnouncedSetRow(Base):
    """A tenant's data set whose plans are counted, by a digest of what names it, and its random tag in the log."""

    __tablename__ = "announced_data_sets"

    tenant: Mapped[str] = mapped_column(String(TENANT_LENGTH), primary_key=True)
    identity: Mapped[str] = mapped_column(String(64), primary_key=True)
    tag: Mapped[str] = mapped_column(String(32), unique=True)


@final
class AnnouncedPlanRow(Base):
    """A plan in the log: its entry, its job and attempt, its data set's tag and its number there, and the logged statement.

    ``head_size``: of the head that was signed for it; null until then. ``time_stamps`` and ``cosignatures``: how many it had when the first
    step began; 0 until it has one. ``beacon``: as its certificate will name it. ``epsilon`` and ``delta``: what the whole plan guarantees,
    as decimal numbers; null until somebody asks, and empty where it guarantees nothing. ``terms``: the adjacency and the unit that they
    are about, with a space between; empty where it guarantees nothing.
    """

    __tablename__ = "announced_plans"

    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    job_id: Mapped[str] = mapped_column(String(64), index=True)
    attempt: Mapped[int]
    tag: Mapped[str] = mapped_column(String(32))
    ordinal: Mapped[int]
    statement: Mapped[str] = mapped_column(Text())
    head_size: Mapped[int | None]
    time_stamps: Mapped[int]
    cosignatures: Mapped[int]
    beacon: Mapped[str | None] = mapped_column(String(64))
    epsilon: Mapped[str | None] = mapped_column(String(64))
    delta: Mapped[str | None] = mapped_column(String(64))
    terms: Mapped[str] = mapped_column(String(100))

    __table_args__ = (UniqueConstraint("tag", "ordinal"),)


@final
class LogNodeRow(Base):
    """An inner node over a complete subtree: ``level`` >= 1, and how many such subtrees are to its left."""

    __tablename__ = "certificate_log_nodes"

    level: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    hash: Mapped[str] = mapped_column(String(64))
