r"""Checks a history: every digest and rule, what each spend costs, and the balance recomputed from the entries.

The same replay runs in the service, over its tables, and for anyone who downloads the history.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, final

from pydantic import ValidationError

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
from zetadp.app.ledgers.errors import SettlerRefused
from zetadp.app.ledgers.ledger_definition import LedgerDefinition
from zetadp.app.ledgers.pricing import check_part
from zetadp.app.ledgers.resources import Balance, Head, balance_of, spent_by
from zetadp.app.ledgers.rows import analyst_row, is_by_service
from zetadp.app.ledgers.rules import Rules
from zetadp.app.ledgers.states import LedgerState
from zetadp.app.ledgers.sums import Sums
from zetadp.app.ledgers.verification.prices import Clock, Prices
from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import PrivacyError

MOST_NAMED = 20
"""Problems, and entries whose price wasn't recomputed, that a report names."""

CLOCKS_DIFFER = timedelta(minutes=5)
"""How far the clocks of the machine that wrote an entry and of this one may be apart."""


@final
class ChainReport(Value):
    r"""The findings.

    Attributes:
      verdict: ``sound`` if every check was made and passed; ``broken`` if one failed; ``incomplete`` if none failed, but some weren't made
        within the limit of time.
      entries: the number of entries read.
      head: the last entry that was read; compare it with one that you noted earlier.
      balance: recomputed from the entries; null if each user has one, or if not all could be read.
      users: the number of users charged; null if the ledger protects the data set as a whole, or if not all could be read.
      problems: the first problems found, at most 20, each with the number of its entry; ``further_problems``: how many more there are.
      not_recomputed: the number of entries that were read, but whose price wasn't recomputed within the limit.
      first_not_recomputed: the first of their numbers, at most 20.
      not_read: the number of entries that weren't read within the limit; with some, nothing that is stored beside them was compared.
    """

    verdict: Literal["sound", "broken", "incomplete"]
    entries: int
    head: Head
    balance: Balance | None
    users: int | None
    problems: tuple[str, ...]
    further_problems: int
    not_recomputed: int
    first_not_recomputed: tuple[int, ...]
    not_read: int


class SettledForJob(NamedTuple):
    """The entry of this number, by the service itself, settles what was reserved for a job."""

    entry: int
    act: Committed | Released
    job: str


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
    by_service: list[SettledForJob] = field(default_factory=list["SettledForJob"])
    prices: Prices = field(default_factory=Prices)
    problems: list[str] = field(default_factory=list[str])
    further_problems: int = 0

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
        if len(self.problems) < MOST_NAMED:
            self.problems.append(f"{where or f'entry {self.number}'}: {problem}")
        else:
            self.further_problems += 1

    def sums(self, holder: str) -> Sums:
        """The sums of a user, or of the data set (the empty name)."""
        assert self.definition is not None  # asked only after the first entry was read
        return self.balances.get(holder) or Sums.empty(self.definition)

    def report(self, clock: Clock, not_read: int = 0) -> ChainReport:
        r"""Recompute the prices within what the clock leaves, and tell all findings.

        Args:
          not_read: the number of entries that weren't read.
        """
        definition = self.definition
        if definition is not None:
            for number, problem in self.prices.problems(definition, clock):
                self.note(problem, f"entry {number}")
        elif self.number > 0 or not_read == 0:
            self.note("it has no entry that opens it", "ledger")
        known = definition if not_read == 0 else None
        balance = users = None
        if known is not None and known.protects == "each_user":
            users = len(self.balances)
        elif known is not None:
            try:
                balance = balance_of(known, self.sums(""))
            except PrivacyError as broken:
                self.note(str(broken), "balance")
        waiting = self.prices.waiting
        return ChainReport(
            verdict="broken" if self.problems else "incomplete" if waiting or not_read else "sound",
            entries=self.number,
            head=Head(number=self.number, sha256=self.head),
            balance=balance,
            users=users,
            problems=tuple(self.problems),
            further_problems=self.further_problems,
            not_recomputed=len(waiting),
            first_not_recomputed=tuple(waiting[:MOST_NAMED]),
            not_read=not_read,
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
        self.prices.add(self.number, act.spend, act.charge, None)
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
                self.prices.add(self.number, act.released, kept, made.charge)
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
            if by is None and self.makers[act.reservation] is not None:
                self.note("it was settled without a key, and no job made it")
        elif made.job is not None:
            self.by_service.append(SettledForJob(self.number, act, made.job))

    def _known(self) -> LedgerDefinition:
        if self.definition is None:
            raise _Broken("nothing was opened")
        return self.definition


def verify_history(ledger_id: str, entries: Iterable[tuple[str, str]], known_head: Head | None, seconds: float = math.inf) -> ChainReport:
    r"""Check a history that was downloaded.

    Args:
      entries: text and digest of every entry, in order.
      known_head: the number and digest of an entry, known from earlier or elsewhere, that must be among them.
      seconds: how much processor time that may take; what isn't reached is told as such.
    """
    replay, clock = Replay(ledger_id), Clock(seconds)
    seen: str | None = None
    not_read = 0
    for text, sha256 in entries:
        if clock.left <= 0:
            not_read += 1
            continue
        replay.read(text, sha256)
        if known_head is not None and replay.number == known_head.number:
            seen = sha256
    is_reached = known_head is not None and (not_read == 0 or known_head.number <= replay.number)
    if known_head is not None and is_reached and seen != known_head.sha256:
        replay.note(f"expected the digest {known_head.sha256}, got {seen or 'no such entry'}", f"entry {known_head.number}, as noted")
    return replay.report(clock, not_read)
