r"""The tables of the ledgers. Entries are only ever added; the rest follows from them and is stored so that a spend takes constant time."""

from __future__ import annotations

from datetime import datetime
from typing import final

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from zetadp.app.kit.database import Base, UtcTime

_WITH_KEY, _WITH_JOB = text("idempotency_key IS NOT NULL"), text("job_id IS NOT NULL")
"""Most entries have neither, and an index on all of them would cost as much as the entry itself."""


@final
class LedgerRow(Base):
    """A ledger. Its row is what every spend locks: it has the head of the chain and the running sums.

    ``definition`` and ``sums`` are JSON, as text: compared and cached by their bytes. ``sums`` is that of the data set; users have rows of
    their own. ``latest`` is the time of the last entry. ``next_lapse`` is no later than the moment at which the next open reservation has
    to be looked at.
    """

    __tablename__ = "ledgers"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    tenant: Mapped[str] = mapped_column(String(63))
    name: Mapped[str] = mapped_column(String(128))
    state: Mapped[str] = mapped_column(String(16))
    created: Mapped[datetime] = mapped_column(UtcTime())
    entries: Mapped[int]
    head: Mapped[str] = mapped_column(String(64))
    latest: Mapped[datetime] = mapped_column(UtcTime())
    next_lapse: Mapped[datetime | None] = mapped_column(UtcTime())
    definition: Mapped[str] = mapped_column(Text())
    sums: Mapped[str] = mapped_column(Text())
    idempotency_key: Mapped[str | None] = mapped_column(String(255))
    request_sha256: Mapped[str | None] = mapped_column(String(64))

    __table_args__ = (UniqueConstraint("tenant", "name"), UniqueConstraint("tenant", "idempotency_key"), Index(None, "tenant", "id"))


@final
class LedgerUserRow(Base):
    """The running sums of one user of a ledger that protects each of them, or of one analyst's key, with # before it."""

    __tablename__ = "ledger_users"

    ledger_id: Mapped[str] = mapped_column(ForeignKey("ledgers.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(128), primary_key=True)
    sums: Mapped[str] = mapped_column(Text())


@final
class LedgerEntryRow(Base):
    """An entry: ``text`` holds everything and is what is hashed. The other columns are for finding it or about its request.

    ``settles`` is 0 in the entry that makes a reservation, 1 in the one that settles it and 2 in the one that approves it, so that there
    can't be two of any. Where a reservation stands follows: it is open as long as only the first is there.
    """

    __tablename__ = "ledger_entries"

    ledger_id: Mapped[str] = mapped_column(ForeignKey("ledgers.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    time: Mapped[datetime] = mapped_column(UtcTime())
    kind: Mapped[str] = mapped_column(String(16))
    sha256: Mapped[str] = mapped_column(String(64))
    text: Mapped[str] = mapped_column(Text())
    idempotency_key: Mapped[str | None] = mapped_column(String(255))
    request_sha256: Mapped[str | None] = mapped_column(String(64))
    reservation_id: Mapped[str | None] = mapped_column(String(64))
    settles: Mapped[int | None]
    # No foreign key: a job may be deleted long before its ledger.
    job_id: Mapped[str | None] = mapped_column(String(64))

    __table_args__ = (
        UniqueConstraint("ledger_id", "reservation_id", "settles"),
        Index(None, "ledger_id", "idempotency_key", unique=True, sqlite_where=_WITH_KEY, postgresql_where=_WITH_KEY),
        Index(None, "job_id", sqlite_where=_WITH_JOB, postgresql_where=_WITH_JOB),
    )


@final
class LedgerLapseRow(Base):
    """An open reservation that lapses, and when it has to be looked at; gone once it is settled."""

    __tablename__ = "ledger_lapses"

    ledger_id: Mapped[str] = mapped_column(ForeignKey("ledgers.id"), primary_key=True)
    reservation_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    look_at: Mapped[datetime] = mapped_column(UtcTime())

    __table_args__ = (Index(None, "ledger_id", "look_at"),)


@final
class LedgerJobRow(Base):
    """The reservation of a job, in its latest run; ``attempt`` is how often the job had been started before it was made."""

    __tablename__ = "ledger_jobs"

    job_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    ledger_id: Mapped[str] = mapped_column(ForeignKey("ledgers.id"))
    reservation_id: Mapped[str] = mapped_column(String(64), index=True)
    attempt: Mapped[int]
