r"""A ledger's spends as a table for other programs: one row for each reservation."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import final

from pydantic import ValidationError

from zetadp.accountants.filters import AnyBudget
from zetadp.app.ledgers.entries import Approved, Charge, Closed, Entry, Opened, Renewed, Reserved
from zetadp.app.ledgers.ledger_definition import LedgerDefinition
from zetadp.app.ledgers.resources import spent_by
from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter

COLUMNS = ("entry", "time", "period", "key", "purpose", "job", "state", "approved_by", "limit", "share")

COMPUTED = ("=", "+", "-", "@")
"""What spreadsheets take for the beginning of a formula. Names of keys and jobs are whatever a history says."""


@final
class SpendRow(Value):
    r"""One reservation.

    Attributes:
      entry, time, period: of the entry that made it; ``period`` is the budget's, from 0.
      key: that reserved; null for the service and where no key was sent.
      state: reserved, committed, released or lapsed.
      limit: of several limits the one that decides about all that counts in this period: where their sum is the largest part of the
        limit, or the smallest where one kept limit is enough. All rows of a period have the same one, so that shares add up; where each
        user has a balance, it is that of the user of this reservation who has the largest share.
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


@final
@dataclass(slots=True)
class _Made:
    """A reservation: the entry that made it, in which period, and how and when it ended."""

    entry: Entry
    act: Reserved
    period: int
    state: str = "reserved"
    kept: Charge = ()
    ended: int | None = None
    approved_by: str | None = None

    @property
    def holders(self) -> tuple[str, ...]:
        return self.act.users or ("",)

    def counted(self, periods: Iterable[int]) -> Iterator[tuple[int, Charge]]:
        """Those of the periods that it counts in, with what it counts there: all of it where it was still reserved at the period's end."""
        for period in periods:
            if self.period <= period and (self.ended is None or period <= self.ended):
                yield period, self.kept if period == self.ended else self.act.charge


def entries_in(texts: Iterable[str]) -> Iterator[Entry]:
    """The entries of a history's texts. Raises InvalidParameter: one is none."""
    for number, text in enumerate(texts, 1):
        try:
            yield Entry.model_validate_json(text)
        except ValidationError as invalid:
            raise _unsound("one whose entries can be read", f"entry {number}, which can't") from invalid


def spend_rows(entries: Iterable[Entry]) -> list[SpendRow]:
    r"""The reservations of a whole history, in its order.

    Raises:
      InvalidParameter: it doesn't begin with the opening of a ledger, or isn't sound: ``ledger verify`` says why.
    """
    definition: LedgerDefinition | None = None
    made: dict[str, _Made] = {}
    period = 0
    for entry in entries:
        match act := entry.act:
            case Opened():
                definition = act.definition
            case Reserved():
                made[act.reservation] = _Made(entry, act, period, kept=act.charge)
            case Renewed():
                period = act.period
            case Closed():
                pass
            case Approved():
                _found(made, entry, act.reservation).approved_by = entry.by
            case _:
                found = _found(made, entry, act.reservation)
                found.state, found.kept, found.ended = act.kind, spent_by(act, found.act), period
    if definition is None:
        raise _unsound("one that begins with the opening of a ledger", "none")
    number = len(definition.budget.limits)
    for one in made.values():
        if len(one.act.charge) != number or len(one.kept) != number:
            raise _unsound(f"one whose charges are of {number} limits", f"another one in entry {one.entry.number}")
    totals = _totals(made.values())
    return [_row(definition.budget, one, totals) for one in made.values()]


def _found(made: dict[str, _Made], entry: Entry, name: str) -> _Made:
    if name not in made:
        raise _unsound("one in which reservations are made before they end", f"none for entry {entry.number}")
    return made[name]


def _unsound(expected: str, got: str) -> InvalidParameter:
    return InvalidParameter("history", expected, got)


_Totals = dict[tuple[int, str], Charge]
"""What counts in a period, for each holder of a balance."""


def _totals(made: Collection[_Made]) -> _Totals:
    totals: _Totals = {}
    periods = {one.period for one in made}  # of no others anything is told
    for one in made:
        for period, steps in one.counted(periods):
            for holder in one.holders:
                before = totals.get((period, holder), (0,) * len(steps))
                totals[period, holder] = tuple(a + b for a, b in zip(before, steps, strict=True))
    return totals


def _row(budget: AnyBudget, one: _Made, totals: _Totals) -> SpendRow:
    share, limit = max(_share(budget, one.kept, totals[one.period, holder]) for holder in one.holders)
    return SpendRow(
        entry=one.entry.number,
        time=one.entry.time,
        period=one.period,
        key=one.entry.by,
        purpose=one.act.purpose,
        job=one.act.job,
        state=one.state,
        approved_by=one.approved_by,
        limit=limit,
        share=share,
    )


def _share(budget: AnyBudget, steps: Charge, total: Charge) -> tuple[float, str]:
    """The share of the limit that decides about the total, and its name."""
    limits = [(k, grid.limit) for k, grid in enumerate(budget.grids) if grid.limit > 0]
    one_is_enough = budget.is_kept([True] + [False] * (len(steps) - 1))
    decides = min if one_is_enough else max
    k, limit = decides(limits, key=lambda one: Fraction(total[one[0]], one[1]))
    return steps[k] / limit, budget.quantities[k]


def as_csv(rows: Iterable[SpendRow]) -> str:
    """With a line of names first; absent values are empty. A value that a spreadsheet would compute has an apostrophe before it, and what
    isn't printable is a space."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        document = row.model_dump(mode="json")
        writer.writerow([_as_text(document[name]) for name in COLUMNS])
    return text.getvalue()


def _as_text(value: object) -> object:
    if not isinstance(value, str):
        return "" if value is None else value
    # A line's end within a value would begin a row.
    told = "".join(one if one.isprintable() else " " for one in value)
    return f"'{told}" if told.lstrip().startswith(COMPUTED) else told
