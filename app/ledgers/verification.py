r"""Checks a ledger: every digest and rule of its history, the balance recomputed from the entries, and the figures stored with them.

The same replay runs in the service, over its tables, and for anyone who downloads the history.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, final

from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from zetadp.accountants.filters import Price
from zetadp.app.kit.database import now
from zetadp.app.ledgers.entries import (
    BEFORE_THE_FIRST,
    Approved,
    Charge,
    Closed,
    Committed,
    Entry,
    Lapsed,
    Opened,
    Released,
    Renewed,
    Reserved,
    Settlement,
    digest,
)
from zetadp.app.ledgers.errors import CostTakesTooLong, SettlerRefused, VerificationTakesTooLong
from zetadp.app.ledgers.ledger_definition import LedgerDefinition, Spent
from zetadp.app.ledgers.pricing import check_part, price_of
from zetadp.app.ledgers.resources import Balance, Head, balance_of, spent_by
from zetadp.app.ledgers.rows import Requester, analyst_row, entry_row, is_by_service
from zetadp.app.ledgers.rules import Rules
from zetadp.app.ledgers.states import LedgerState
from zetadp.app.ledgers.sums import Sums
from zetadp.app.tables.ledgers import LedgerEntryRow, LedgerLapseRow, LedgerRow, LedgerUserRow
from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import PrivacyError

MOST_PROBLEMS = 20
ENTRIES_AT_ONCE = 1000

CLOCKS_DIFFER = timedelta(minutes=5)
"""How far the clocks of the machine that wrote an entry and of this one may be apart."""

PRICES_DIFFER = 10**9
"""A charge may be below the price computed here by one part in this: prices are rounded, and another machine may round otherwise."""


@final
class ChainReport(Value):
    r"""The findings.

    Attributes:
      verdict: ``sound`` if every check passed.
      entries: the number of entries read.
      head: the last entry; compare it with one that you noted earlier.
      balance: recomputed from the entries; null if each user has one, or if nothing could be read.
      users: the number of users charged; null if the ledger protects the data set as a whole.
      problems: the first problems found, at most 20, each with the number of its entry.
    """

    verdict: Literal["sound", "broken"]
    entries: int
    head: Head
    balance: Balance | None
    users: int | None
    problems: tuple[str, ...]


@final
class _Broken(Exception):
    """A rule that an entry breaks."""


@final
@dataclass(slots=True)
class Replay:
    """A ledger rebuilt from its entries. Broken rules are noted, and the replay continues with what the entries say."""

    ledger_id: str
    definition: LedgerDefinition | None = None
    state: LedgerState = LedgerState.OPEN
    number: int = 0
    head: str = BEFORE_THE_FIRST
    balances: dict[str, Sums] = field(default_factory=dict[str, Sums])
    open: dict[str, Reserved] = field(default_factory=dict[str, Reserved])
    settled: set[str] = field(default_factory=set[str])
    opened: datetime | None = None
    latest: datetime | None = None
    makers: dict[str, str | None] = field(default_factory=dict[str, str | None])
    approved: dict[str, str] = field(default_factory=dict[str, str])
    pricing_seconds: float = math.inf
    problems: list[str] = field(default_factory=list[str])

    def read(self, text: str, sha256: str) -> Entry | None:
        """Read the next entry; None if it can't be read at all."""
        expected = self.number + 1
        self.number = expected
        if digest(text) != sha256:
            self.note("its digest isn't that of its text")
        before, self.head = self.head, sha256
        try:
            entry = Entry.model_validate_json(text)
        except ValidationError as invalid:
            self.note(f"it can't be read ({invalid.error_count()} errors)")
            return None
        for what, found, right in (
            ("its ledger", entry.ledger, self.ledger_id),
            ("its number", entry.number, expected),
            ("the digest of the entry before it", entry.previous, before),
        ):
            if found != right:
                self.note(f"{what} must be {right!r}, got {found!r}")
        try:
            self._apply(entry)
        except (_Broken, PrivacyError, SettlerRefused) as broken:
            self.note(str(broken))
        return entry

    def note(self, problem: str, where: str | None = None) -> None:
        """Note a problem, with the entry that was read last or elsewhere."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(f"{where or f'entry {self.number}'}: {problem}")

    def sums(self, holder: str) -> Sums:
        """The sums of a user, or of the data set (the empty name)."""
        assert self.definition is not None  # asked only after the first entry was read
        return self.balances.get(holder) or Sums.empty(self.definition)

    def report(self) -> ChainReport:
        """The findings."""
        definition = self.definition
        if definition is None:
            self.note("it has no entry that opens it", "ledger")
        is_whole = definition is not None and definition.protects == "data_set"
        balance = None
        if is_whole:
            assert definition is not None  # is_whole
            try:
                balance = balance_of(definition, self.sums(""))
            except PrivacyError as broken:
                self.note(str(broken), "balance")
        return ChainReport(
            verdict="broken" if self.problems else "sound",
            entries=self.number,
            head=Head(number=self.number, sha256=self.head),
            balance=balance,
            users=None if is_whole or definition is None else len(self.balances),
            problems=tuple(self.problems),
        )

    def _apply(self, entry: Entry) -> None:
        act = entry.act
        if isinstance(act, Opened) != (self.number == 1):
            raise _Broken("the first entry, and no other, opens the ledger")
        self._check_time(entry)
        if isinstance(act, Lapsed | Renewed) and entry.by is not None:
            self.note(f"the service itself writes that, not key {entry.by}")
        match act:
            case Opened():
                self.definition, self.opened = act.definition, entry.time
            case Closed():
                if self.state is LedgerState.CLOSED:
                    raise _Broken("the ledger was already closed")
                self.state = LedgerState.CLOSED
            case Reserved():
                self._reserve(act, entry.by)
            case Approved():
                self._approve(act, entry.by)
            case Renewed():
                self._renew(act, entry.time)
            case Committed() | Released() | Lapsed():
                self._settle(act, entry)

    def _check_time(self, entry: Entry) -> None:
        if self.latest is not None and entry.time < self.latest:
            self.note("its time is before that of an earlier entry")
        self.latest = entry.time if self.latest is None else max(self.latest, entry.time)
        if entry.time > now() + CLOCKS_DIFFER:
            self.note("its time is ahead of this machine's clock")
        if self.definition is None or self.opened is None or isinstance(entry.act, Renewed):
            return
        # What is settled in a period that no entry begins would be free again with the next one, though it may have been released in it.
        if (period := self.definition.period_at(self.opened, entry.time)) > self.sums("").period:
            self.note(f"period {period} of the budget had begun, and no entry says so")

    def _check_price(self, spend: Spent, charge: Charge, most: Charge | None) -> None:
        """That the charge is no less than the spend costs, or than ``most``, by which a part is charged at most."""
        try:
            price = price_of(self._known(), spend, self.pricing_seconds).steps
        except CostTakesTooLong as reached:
            raise VerificationTakesTooLong(self.number, self.pricing_seconds) from reached
        except PrivacyError as broken:
            self.note(f"its spend has no price: {broken}")
            return
        least = price if most is None else tuple(min(pair) for pair in zip(price, most, strict=True))
        if any(part < whole - whole // PRICES_DIFFER for part, whole in zip(charge, least, strict=True)):
            self.note("its charge is less than its spend costs")

    def _check_length(self, charge: Charge) -> None:
        if len(charge) != (number := len(self._known().budget.limits)):
            raise _Broken(f"it must charge each limit of the budget, {number}, got {len(charge)}")

    def _approve(self, act: Approved, by: str | None) -> None:
        rules = self._known().rules
        if rules is None or rules.approval != "second_key":
            raise _Broken("the ledger asks for no approval")
        if act.reservation not in self.open or act.reservation in self.approved:
            raise _Broken(f"reservation {act.reservation!r} isn't waiting for an approval")
        if by is None or by == self.makers[act.reservation]:
            raise _Broken("a reservation is approved by another key than the one that made it")
        self.approved[act.reservation] = by

    def _renew(self, act: Renewed, time: datetime) -> None:
        definition = self._known()
        assert self.opened is not None  # with the definition
        if not self.sums("").period < act.period <= definition.period_at(self.opened, time):
            raise _Broken(f"period {act.period} of the budget hadn't begun, or had before")
        for holder in {"", *self.balances}:
            self.balances[holder] = self.sums(holder).renewed(act.period)

    def _charge_analyst(self, rules: Rules, act: Reserved, by: str | None) -> None:
        if rules.quotas is None:
            if act.analyst is not None:
                raise _Broken("it counts in a quota, and the ledger has none")
            return
        if act.analyst is None or act.analyst != by:
            raise _Broken("it counts in the quota of another key than the one that made it")
        name, price = analyst_row(by), Price(steps=act.charge)
        had = self.balances.get(name) or Sums.empty(self._known()).renewed(self.sums("").period)
        rules.check_quota(self._known().budget, by, had.spent, price)
        self.balances[name] = had.admitted(self._known(), price)

    def _reserve(self, act: Reserved, by: str | None) -> None:
        definition = self._known()
        if self.state is LedgerState.CLOSED:
            raise _Broken("a closed ledger admits nothing")
        if act.reservation in self.open or act.reservation in self.settled:
            raise _Broken(f"reservation {act.reservation!r} was made before")
        if bool(act.users) != (definition.protects == "each_user") or len(set(act.users)) != len(act.users):
            raise _Broken("users must be named, each once, if and only if the ledger protects each user")
        if (act.expires is None) != (act.then is None):
            raise _Broken("a reservation must say what happens when it lapses if and only if it can lapse")
        self._check_length(act.charge)
        self._check_price(act.spend, act.charge, None)
        price, rules = Price(steps=act.charge), definition.rules or Rules()
        rules.check_purpose(act.purpose)
        self._charge_analyst(rules, act, by)
        for holder in act.users or ("",):
            self.balances[holder] = self.sums(holder).admitted(definition, price)
        self.open[act.reservation], self.makers[act.reservation] = act, by

    def _settle(self, act: Settlement, entry: Entry) -> None:
        if act.reservation not in self.open:
            raise _Broken(f"no open reservation {act.reservation!r}")
        made = self.open[act.reservation]
        kept = spent_by(act, made)
        self._check_length(kept)
        if any(part > whole for part, whole in zip(kept, made.charge, strict=True)):
            raise _Broken("more is committed than was reserved")
        if isinstance(act, Lapsed):
            if act.then != made.then or made.expires is None:
                raise _Broken(f"it lapses as {act.then}, reserved was {made.then}")
            if entry.time < made.expires:
                self.note("it lapses before its time")
        else:
            self._check_settler(act, made, entry.by)
        if isinstance(act, Committed):
            if act.released is None and kept != made.charge:
                raise _Broken("all of it was released, but not all of it is committed")
            if act.released is not None:
                check_part(act.released, made.spend)
                self._check_price(act.released, kept, made.charge)
        del self.open[act.reservation]
        self.settled.add(act.reservation)
        is_free = isinstance(act, Released) or (isinstance(act, Lapsed) and act.then == "refunded")
        own = () if made.analyst is None else (analyst_row(made.analyst),)
        for holder in (*(made.users or ("",)), *own):
            self.balances[holder] = self.sums(holder).settled_at(made.charge, None if is_free else kept)

    def _check_settler(self, act: Committed | Released, made: Reserved, by: str | None) -> None:
        rules, approver = self._known().rules or Rules(), self.approved.get(act.reservation)
        if isinstance(act, Committed) and rules.approval == "second_key" and approver is None:
            self.note("it was committed without an approval")
        is_whole = isinstance(act, Committed) and act.released is None
        if not is_by_service(made, by):
            rules.check_settler(act.reservation, by, self.makers[act.reservation], approver, frees=not is_whole)

    def _known(self) -> LedgerDefinition:
        if self.definition is None:
            raise _Broken("nothing was opened")
        return self.definition


def verify_history(ledger_id: str, entries: Iterable[tuple[str, str]], known_head: Head | None) -> ChainReport:
    r"""Check a history that was downloaded.

    Args:
      entries: text and digest of every entry, in order.
      known_head: the number and digest of an entry, known from earlier or elsewhere, that must be among them.
    """
    replay = Replay(ledger_id)
    seen: str | None = None
    for text, sha256 in entries:
        replay.read(text, sha256)
        if known_head is not None and replay.number == known_head.number:
            seen = sha256
    if known_head is not None and seen != known_head.sha256:
        replay.note(f"expected the digest {known_head.sha256}, got {seen or 'no such entry'}", f"entry {known_head.number}, as noted")
    return replay.report()


def verify_stored(session: Session, row: LedgerRow, pricing_seconds: float = math.inf) -> ChainReport:
    r"""Check a ledger's tables: its history and everything stored with it.

    Args:
      pricing_seconds: how long recomputing the price of one entry may take.
    Raises:
      VerificationTakesTooLong: it takes longer.
    """
    replay = Replay(row.id, pricing_seconds=pricing_seconds)
    for stored in _stored_entries(session, row.id):
        if stored.number != replay.number + 1:
            replay.note(f"entry {replay.number + 1} is missing", f"entry {stored.number}")
        entry = replay.read(stored.text, stored.sha256)
        if entry is not None:
            by_text = entry_row(entry, stored.text, stored.sha256, Requester(None, stored.idempotency_key, stored.request_sha256))
            if any(getattr(stored, column) != value for column, value in by_text.items()):
                replay.note("its columns differ from its text")
    _compare_row(replay, row)
    _compare_users(session, replay)
    _compare_lapses(session, replay)
    return replay.report()


def _stored_entries(session: Session, ledger_id: str) -> Iterator[LedgerEntryRow]:
    after = 0
    while True:
        query = select(LedgerEntryRow).where(LedgerEntryRow.ledger_id == ledger_id, LedgerEntryRow.number > after)
        rows = list(session.scalars(query.order_by(LedgerEntryRow.number).limit(ENTRIES_AT_ONCE)))
        yield from rows
        session.expunge_all()  # a long history isn't kept in memory
        if len(rows) < ENTRIES_AT_ONCE:
            return
        after = rows[-1].number


def _compare_row(replay: Replay, row: LedgerRow) -> None:
    definition = replay.definition
    if definition is None:
        return  # the report says so
    whole = replay.sums("") if definition.protects == "data_set" else Sums.empty(definition)
    for what, kept, right in (
        ("its number of entries", row.entries, replay.number),
        ("its head", row.head, replay.head),
        ("its state", row.state, str(replay.state)),
        ("its name", row.name, definition.name),
        ("the time of its last entry", row.latest, replay.latest),
        ("its definition", row.definition, definition.model_dump_json()),
        ("its sums", row.sums, whole.text()),
    ):
        if kept != right:
            replay.note(f"{what} must be {right} by the entries, got {kept}", "ledger")


def _compare_users(session: Session, replay: Replay) -> None:
    kept = session.execute(select(LedgerUserRow.name, LedgerUserRow.sums).where(LedgerUserRow.ledger_id == replay.ledger_id))
    # As texts: what was changed may be none that can be read.
    stored: dict[str, str] = {name: sums for name, sums in kept}  # noqa: C416 (rows, not pairs)
    computed = {name: sums.text() for name, sums in replay.balances.items() if name}
    for name in stored.keys() | computed.keys():
        if stored.get(name) != computed.get(name):
            replay.note(f"its sums must be {computed.get(name)} by the entries, got {stored.get(name)}", f"user {name!r}")


def _compare_lapses(session: Session, replay: Replay) -> None:
    kept = set(session.scalars(select(LedgerLapseRow.reservation_id).where(LedgerLapseRow.ledger_id == replay.ledger_id)))
    lapsing = {name for name, made in replay.open.items() if made.expires is not None}
    for name in sorted(lapsing - kept):
        replay.note("it lapses, but the time isn't stored", f"reservation {name}")
    for name in sorted(kept - lapsing):
        replay.note("it isn't open or never lapses, but is stored as one that lapses", f"reservation {name}")
