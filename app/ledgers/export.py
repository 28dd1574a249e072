r"""A ledger's spends as a table for other programs: one row for each reservation."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import final

from zetadp.app.ledgers.entries import Approved, Closed, Entry, Opened, Renewed, Reserved
from zetadp.app.ledgers.ledger_definition import LedgerDefinition
from zetadp.app.ledgers.resources import spent_by
from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter

COLUMNS = ("entry", "time", "period", "key", "purpose", "job", "state", "approved_by", "limit", "share")


@final
class SpendRow(Value):
    r"""One reservation.

    Attributes:
      entry, time, period: of the entry that made it; ``period`` is the budget's, from 0.
      key: that reserved; null for the service and where no key was sent.
      state: reserved, committed, released or lapsed.
      limit: of several limits the one that decides: the largest share, or the smallest where one kept limit is enough.
      share: of that limit, rounded to the nearest float: what is finally spent, or what is reserved while that is open.
    """

    entry: int
    time: datetime
    period: int
    key: str | None
    purpose: str | None
    job: str | None
    state: str
    approved_by: str | None
    limit: str
    share: float


def spend_rows(entries: Iterable[Entry]) -> list[SpendRow]:
    """The reservations of a whole history, in its order. Raises InvalidParameter if it doesn't begin with the opening of a ledger."""
    definition: LedgerDefinition | None = None
    made: dict[str, tuple[Entry, Reserved, int]] = {}
    ends: dict[str, tuple[str, Sequence[int]]] = {}
    approvals: dict[str, str | None] = {}
    period = 0
    for entry in entries:
        match act := entry.act:
            case Opened():
                definition = act.definition
            case Reserved():
                made[act.reservation] = (entry, act, period)
            case Approved():
                approvals[act.reservation] = entry.by
            case Renewed():
                period = act.period
            case Closed():
                pass
            case _:
                ends[act.reservation] = (act.kind, spent_by(act, made[act.reservation][1]))
    if definition is None:
        raise InvalidParameter("history", "one that begins with the opening of a ledger", "none")
    return [
        _row(definition, entry, act, began, ends.get(name, ("reserved", act.charge)), approvals.get(name))
        for name, (entry, act, began) in made.items()
    ]


def _row(
    definition: LedgerDefinition, entry: Entry, act: Reserved, period: int, end: tuple[str, Sequence[int]], approved_by: str | None
) -> SpendRow:
    state, steps = end
    budget = definition.budget
    kept = [(spent / grid.limit, name) for spent, grid, name in zip(steps, budget.grids, budget.quantities, strict=True) if grid.limit > 0]
    one_is_enough = budget.is_kept([True] + [False] * (len(steps) - 1))
    share, limit = min(kept) if one_is_enough else max(kept)
    return SpendRow(
        entry=entry.number,
        time=entry.time,
        period=period,
        key=entry.by,
        purpose=act.purpose,
        job=act.job,
        state=state,
        approved_by=approved_by,
        limit=limit,
        share=share,
    )


def as_csv(rows: Iterable[SpendRow]) -> str:
    """With a line of names first; absent values are empty. No value begins with a sign that a spreadsheet would compute."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        document = row.model_dump(mode="json")
        writer.writerow(["" if document[name] is None else document[name] for name in COLUMNS])
    return text.getvalue()
