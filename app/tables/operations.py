r"""The tables of operations: what left the audit log, when the next round of housekeeping is due, and when backups were written."""

from __future__ import annotations

from datetime import datetime
from typing import final

from sqlalchemy import BigInteger, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from zetadp.app.kit.database import Base, UtcTime


@final
class AuditDeletionRow(Base):
    """Entries of the audit log from ``before`` this moment were deleted at ``time``. Such a row stays; without one no deletion."""

    __tablename__ = "audit_log_deletions"

    number: Mapped[int] = mapped_column(BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True)
    time: Mapped[datetime] = mapped_column(UtcTime())
    before: Mapped[datetime] = mapped_column(UtcTime())


@final
class BackupRow(Base):
    """A backup that was written whole: when it began, as of when it has the database. No backup has this row."""

    __tablename__ = "backups"

    made: Mapped[datetime] = mapped_column(UtcTime(), primary_key=True)


@final
class HousekeepingRow(Base):
    """A task that one process at a time does, and when it is due again."""

    __tablename__ = "housekeeping"

    name: Mapped[str] = mapped_column(String(32), primary_key=True)
    due: Mapped[datetime] = mapped_column(UtcTime())
