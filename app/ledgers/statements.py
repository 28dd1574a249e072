r"""The statements of a locked ledger, built once: the session's own machinery for rows takes several times as long, and the lock is held
meanwhile."""

from __future__ import annotations

from sqlalchemy import Table, bindparam, func, select

from zetadp.app.kit.database import Base
from zetadp.app.tables.jobs import JobRow
from zetadp.app.tables.ledgers import LedgerEntryRow, LedgerLapseRow, LedgerRow, LedgerUserRow

LAPSES_AT_ONCE = 100
"""Overdue reservations that one transaction settles, so that its time stays bounded."""

LOOK_AGAIN_SECONDS = 60.0
"""When to check again an overdue reservation of a job that hasn't ended."""


def _table(row: type[Base]) -> Table:
    table = row.__table__
    assert isinstance(table, Table)  # of every declarative class
    return table


LEDGERS, USERS, ENTRIES, LAPSES, JOBS = (_table(row) for row in (LedgerRow, LedgerUserRow, LedgerEntryRow, LedgerLapseRow, JobRow))
_KEPT = [LEDGERS.c[name] for name in ("state", "created", "entries", "head", "latest", "next_lapse", "definition", "sums")]
LOCK = select(*_KEPT).where(LEDGERS.c.id == bindparam("ledger"), LEDGERS.c.tenant == bindparam("tenant")).with_for_update()
SAVE = (
    LEDGERS.update()
    .where(LEDGERS.c.id == bindparam("ledger"))
    .values({column: bindparam(f"new_{column}") for column in ("state", "entries", "head", "latest", "next_lapse", "sums")})
)
ADD = ENTRIES.insert()
ADD_AND_SAVE = SAVE.add_cte(ADD.values({column.name: bindparam(f"added_{column.name}") for column in ENTRIES.c}).cte("added"))
SAVE_USER = USERS.update().where(USERS.c.ledger_id == bindparam("ledger"), USERS.c.name == bindparam("user"))
USED_KEY = select(ENTRIES.c.request_sha256, ENTRIES.c.reservation_id).where(
    ENTRIES.c.ledger_id == bindparam("ledger"), ENTRIES.c.idempotency_key == bindparam("key")
)
RESERVATION = (
    select(ENTRIES.c.number, ENTRIES.c.kind, ENTRIES.c.text)
    .where(ENTRIES.c.ledger_id == bindparam("ledger"), ENTRIES.c.reservation_id == bindparam("reservation"))
    .order_by(ENTRIES.c.settles)
)
OVERDUE = (
    select(LAPSES.c.reservation_id, ENTRIES.c.number, ENTRIES.c.text)
    .join(ENTRIES, (ENTRIES.c.ledger_id == LAPSES.c.ledger_id) & (ENTRIES.c.reservation_id == LAPSES.c.reservation_id))
    .where(LAPSES.c.ledger_id == bindparam("ledger"), LAPSES.c.look_at <= bindparam("moment"), ENTRIES.c.settles == 0)
    .order_by(LAPSES.c.look_at)
    .limit(LAPSES_AT_ONCE)
)
_LAPSE = (LAPSES.c.ledger_id == bindparam("ledger"), LAPSES.c.reservation_id == bindparam("reservation"))
LOOK_LATER, NEVER = LAPSES.update().where(*_LAPSE), LAPSES.delete().where(*_LAPSE)
NEXT = select(func.min(LAPSES.c.look_at)).where(LAPSES.c.ledger_id == bindparam("ledger"))
