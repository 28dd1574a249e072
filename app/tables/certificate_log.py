r"""The tables of the log. Entries and nodes are only ever added: the database refuses to change or remove one (migration 0006)."""

from __future__ import annotations

from datetime import datetime
from typing import final

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from zetadp.app.kit.database import Base, UtcTime


@final
class LogRow(Base):
    """The one log. Its row is what every append locks, so that processes take turns; it has the number of entries."""

    __tablename__ = "certificate_log"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    size: Mapped[int]


@final
class LogEntryRow(Base):
    """A leaf. ``leaf`` is its hash in hexadecimal: a statement holds 256 random bits (``digests``), so nobody can guess one from it."""

    __tablename__ = "certificate_log_entries"

    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # No foreign key: a certificate may be removed long before the log.
    certificate_id: Mapped[str] = mapped_column(String(64), unique=True)
    leaf: Mapped[str] = mapped_column(String(64), index=True)
    time: Mapped[datetime] = mapped_column(UtcTime())


@final
class LogNodeRow(Base):
    """An inner node over a complete subtree: ``level`` >= 1, and how many such subtrees are to its left."""

    __tablename__ = "certificate_log_nodes"

    level: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    hash: Mapped[str] = mapped_column(String(64))
