r"""A site's own ledger: which rounds it has answered, and what is left of its budget. One SQLite file that belongs to the site alone.

A round is charged before anything is drawn for it, in a transaction that is on disk when it returns. So a crash at any moment leaves
a round that is charged without an answer, never an answer that isn't charged; and no number of a round is ever drawn for twice.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

from pydantic import TypeAdapter

from zetadp.accountants.events import Event
from zetadp.accountants.filters import Filter, Price, RdpTargetBudget
from zetadp.mechanisms.base import Adjacency, PrivacyUnit
from zetadp.mechanisms.errors import BudgetExceeded, InvalidParameter
from zetadp.trainer.durable import flush_folder
from zetadp.trainer.sites.messages import FIRST, Reason

WAIT_SECONDS = 30.0
_EVENTS: TypeAdapter[Event] = TypeAdapter(Event)
_SCHEMA = """
CREATE TABLE federations (proposal TEXT PRIMARY KEY, event TEXT NOT NULL) STRICT;
CREATE TABLE rounds (
  proposal TEXT NOT NULL REFERENCES federations, round INTEGER NOT NULL, request TEXT NOT NULL, statement TEXT,
  PRIMARY KEY (proposal, round)
) STRICT;
CREATE TABLE answers (proposal TEXT PRIMARY KEY REFERENCES federations, round INTEGER NOT NULL, frame BLOB NOT NULL) STRICT;
"""


def make_ledger(path: Path) -> None:
    """A new ledger, whole or not at all, of a site that has drawn nothing. Raises FileExistsError if there is one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    with closing(sqlite3.connect(unfinished)) as connection:
        connection.executescript(_SCHEMA)
    os.link(unfinished, path)
    unfinished.unlink()
    flush_folder(path.parent)


def _lost(path: Path) -> InvalidParameter:
    return InvalidParameter("ledger", "the site's own, whole: what it has drawn and spent stands nowhere else", str(path))


@final
class RoundRefused(Exception):
    """A site doesn't answer a request, and charged nothing for it; its round may have been charged by an earlier one."""

    def __init__(self, reason: Reason) -> None:
        self.reason: Reason = reason
        super().__init__(reason)


@final
@dataclass(frozen=True)
class Reserved:
    r"""A round that is charged and may be drawn for, once.

    Attributes:
      charged: rounds of this federation that are charged, this one included.
      previous: the digest of the last statement in this federation.
    """

    charged: int
    previous: str


@final
class SiteLedger:
    r"""The ledger in one file, which ``make_ledger`` has made.

    Args:
      budget: of everything that this site ever releases under this ledger, whatever coordinators choose in view of earlier rounds.
      adjacency, unit: of the budget.
    Raises:
      InvalidParameter: the file is missing, or isn't a whole ledger. One made anew would have forgotten what was drawn and spent.
    """

    def __init__(self, path: Path, budget: RdpTargetBudget, adjacency: Adjacency, unit: PrivacyUnit) -> None:
        self._path, self._opened = path, Filter.opened(budget, adjacency, unit)
        self._prices: dict[str, Price] = {}
        try:
            with self._connected() as connection:
                found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        except sqlite3.DatabaseError as error:
            raise _lost(path) from error
        if found != {"federations", "rounds", "answers"}:
            raise _lost(path)

    def reserve(self, proposal: str, event: Event, number: int, request: str) -> Reserved | bytes:
        r"""Charges a round; or gives the frame that has answered this very request before.

        Args:
          event: what one round of this federation costs.
          request: the digest of the request.
        Raises:
          RoundRefused: past_round, spent_round or budget.
          UnsupportedEvent, IncompatibleEvent: the event has no price in this budget.
        """
        price = self._price(proposal, event)
        with self._transaction() as connection:
            last = connection.execute(
                "SELECT round, request FROM rounds WHERE proposal = ? ORDER BY round DESC LIMIT 1", (proposal,)
            ).fetchone()
            if last is not None and number < last[0]:
                raise RoundRefused("past_round")
            if last is not None and number == last[0]:
                kept = connection.execute("SELECT frame FROM answers WHERE proposal = ? AND round = ?", (proposal, number)).fetchone()
                if kept is None or last[1] != request:
                    raise RoundRefused("spent_round")
                return bytes(kept[0])
            try:
                _ = self._filter(connection).spend(price)
            except BudgetExceeded as exceeded:
                raise RoundRefused("budget") from exceeded
            connection.execute("INSERT OR IGNORE INTO federations VALUES (?, ?)", (proposal, _EVENTS.dump_json(event).decode()))
            connection.execute("INSERT INTO rounds VALUES (?, ?, ?, NULL)", (proposal, number, request))
            return Reserved(self._charged(connection, proposal), self._previous(connection, proposal))

    def answered(self, proposal: str, number: int, statement: str, frame: bytes) -> None:
        """Keeps the answer, in place of that of the round before, with the digest of its statement."""
        with self._transaction() as connection:
            changed = connection.execute(
                "UPDATE rounds SET statement = ? WHERE proposal = ? AND round = ? AND statement IS NULL", (statement, proposal, number)
            ).rowcount
            assert changed == 1  # a round is answered once, after it was reserved
            connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", (proposal, number, frame))

    def charged(self, proposal: str) -> int:
        """Rounds of a federation that are charged."""
        with self._connected() as connection:
            return self._charged(connection, proposal)

    def check_next(self, proposal: str, event: Event, number: int) -> None:
        r"""Whether a round could be reserved; charges nothing.

        Raises:
          RoundRefused: spent_round if it or a later one is charged, or budget.
          UnsupportedEvent, IncompatibleEvent: as ``reserve``.
        """
        price = self._price(proposal, event)
        with self._connected() as connection:
            last = connection.execute("SELECT max(round) FROM rounds WHERE proposal = ?", (proposal,)).fetchone()[0]
            if last is not None and number <= last:
                raise RoundRefused("spent_round")
            try:
                _ = self._filter(connection).spend(price)
            except BudgetExceeded as exceeded:
                raise RoundRefused("budget") from exceeded

    def rounds_left(self, event: Event) -> int:
        """How many more rounds that cost this the budget admits, with nothing else between; 0 where more than all of it is spent."""
        try:
            with self._connected() as connection:
                state = self._filter(connection)
        except RoundRefused:
            return 0
        found = state.repetitions(self._opened.price(event))
        return 0 if found is None else max(found, 0)

    def _price(self, proposal: str, event: Event) -> Price:
        if proposal not in self._prices:
            self._prices[proposal] = self._opened.price(event)
        return self._prices[proposal]

    def _filter(self, connection: sqlite3.Connection) -> Filter:
        """Everything that is charged. Computed anew, since another budget may have been set."""
        spent, count = (0,) * len(self._opened.spent), 0
        found = connection.execute("SELECT proposal, event, count(*) FROM federations JOIN rounds USING (proposal) GROUP BY proposal")
        for proposal, event, rounds in found.fetchall():
            steps = self._price(proposal, _EVENTS.validate_json(event)).steps
            spent = tuple(a + rounds * b for a, b in zip(spent, steps, strict=True))
            count += rounds
        try:
            return Filter(budget=self._opened.budget, adjacency=self._opened.adjacency, unit=self._opened.unit, spent=spent, count=count)
        except ValueError as error:  # a smaller budget was set after more had been spent
            raise RoundRefused("budget") from error

    @staticmethod
    def _charged(connection: sqlite3.Connection, proposal: str) -> int:
        return int(connection.execute("SELECT count(*) FROM rounds WHERE proposal = ?", (proposal,)).fetchone()[0])

    @staticmethod
    def _previous(connection: sqlite3.Connection, proposal: str) -> str:
        found = connection.execute(
            "SELECT statement FROM rounds WHERE proposal = ? AND statement IS NOT NULL ORDER BY round DESC LIMIT 1", (proposal,)
        ).fetchone()
        return FIRST if found is None else str(found[0])

    @contextmanager
    def _connected(self) -> Generator[sqlite3.Connection]:
        # Not a new file where there is none.
        with closing(
            sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=rw", timeout=WAIT_SECONDS, isolation_level=None, uri=True)
        ) as connection:
            # On disk before a commit returns, the rollback journal's removal included.
            connection.execute("PRAGMA synchronous = EXTRA")
            yield connection

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
