r"""A ledger inside one transaction: its row is locked, so decisions made here stay correct until the commit.

Every change is one entry. An event's cost is computed before (``pricing``): under the lock there is only addition.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, final

from sqlalchemy import Connection, Row, select
from sqlalchemy.orm import Session

from zetadp.accountants.filters import Price
from zetadp.app.kit.database import now
from zetadp.app.ledgers.entries import (
    Act,
    Approved,
    Charge,
    Closed,
    Committed,
    Entry,
    Lapsed,
    Released,
    Renewed,
    Reserved,
    Settlement,
    digest,
    read_entry,
    read_reserved,
)
from zetadp.app.ledgers.errors import (
    ApproverRefused,
    EntryUnreadable,
    LedgerClosed,
    LedgerDamaged,
    LedgerKeyReused,
    LedgerNotFound,
    ReservationNotApproved,
    ReservationNotFound,
    ReservationSettled,
    UserBudgetExceeded,
)
from zetadp.app.ledgers.ledger_definition import LedgerDefinition, Spent, stored_definition
from zetadp.app.ledgers.pricing import check_part
from zetadp.app.ledgers.requests import ChargedUsers, Expiry
from zetadp.app.ledgers.rows import SERVICE, Requester, analyst_row, entry_row, is_by_service
from zetadp.app.ledgers.rules import Purpose, Rules
from zetadp.app.ledgers.statements import (
    ADD,
    ADD_AND_SAVE,
    JOBS,
    LAPSES,
    LOCK,
    LOOK_AGAIN_SECONDS,
    LOOK_LATER,
    NEVER,
    NEXT,
    OVERDUE,
    RESERVATION,
    SAVE,
    SAVE_USER,
    USED_KEY,
    USERS,
)
from zetadp.app.ledgers.states import LedgerState, stored_state
from zetadp.app.ledgers.sums import Sums
from zetadp.app.tables.job_states import JobState
from zetadp.mechanisms.errors import BudgetExceeded, InvalidParameter


@contextmanager
def locked(session: Session, tenant: str, ledger_id: str, requester: Requester) -> Generator[Book]:
    """The ledger, locked until the transaction ends; a new period is begun and what is overdue settled.

    Raises LedgerNotFound, LedgerDamaged.
    """
    row = session.connection().execute(LOCK, {"ledger": ledger_id, "tenant": tenant}).one_or_none()
    if row is None:
        raise LedgerNotFound(ledger_id)
    book = Book(session.connection(), ledger_id, row, requester)
    book.renew()  # first: what lapses now may have been released in the new period, and counts in it
    book.settle_overdue()
    yield book
    book.save()


@final
class Book:
    """A locked ledger."""

    def __init__(self, connection: Connection, ledger_id: str, row: Row[Any], requester: Requester) -> None:
        self._connection = connection
        self._requester = requester
        self._moment = max(now(), row.latest)  # a clock that was set back must not begin a period again, nor date entries out of order
        self._id, self._opened = ledger_id, row.created
        self._definition = stored_definition(ledger_id, row.definition)
        self._state = stored_state(ledger_id, row.state)
        self._entries, self._head, self._latest, self._next_lapse = row.entries, row.head, row.latest, row.next_lapse
        self._sums = Sums.read(ledger_id, self._definition, row.sums)
        self._added: list[dict[str, str | int | datetime | None]] = []
        self._is_changed = False

    @property
    def definition(self) -> LedgerDefinition:
        return self._definition

    @property
    def number(self) -> int:
        """Number of the last entry."""
        return self._entries

    def serve(self, requester: Requester) -> None:
        """The following calls are for this sender; several may be served in one transaction."""
        self._requester = requester

    def answered_before(self) -> tuple[bool, str | None]:
        """Whether this same request was already answered, and the reservation it was about. Raises LedgerKeyReused."""
        key = self._requester.idempotency_key
        if key is None:
            return False, None
        self._flush()  # it may have come twice into one transaction
        used = self._connection.execute(USED_KEY, {"ledger": self._id, "key": key}).one_or_none()
        if used is None:
            return False, None
        if used.request_sha256 != self._requester.request_sha256:
            raise LedgerKeyReused(key)
        return True, used.reservation_id

    def reserve(
        self,
        reservation_id: str,
        spend: Spent,
        price: Price,
        users: ChargedUsers | None,
        expiry: Expiry | None,
        job: str | None,
        purpose: Purpose | None,
    ) -> Reserved:
        """Set the price aside, for the data set or for each of the users.

        Raises:
          LedgerClosed, BudgetExceeded; InvalidParameter: users are named though the ledger has none, or the reverse.
        """
        if self._state is LedgerState.CLOSED:
            raise LedgerClosed(self._id)
        rules, analyst = self._definition.rules, None
        if rules is not None:
            rules.check_purpose(purpose)
        own = None if rules is None or rules.quotas is None else self._analyst(rules, price)
        charged, left_out = self._charge(price, users)
        if own is not None:
            self._save_users(*own)
            analyst = self._requester.key_id
        lapses = None if expiry is None else self._moment + timedelta(seconds=expiry.seconds)
        act = Reserved(
            reservation=reservation_id,
            spend=spend,
            charge=price.steps,
            users=charged,
            left_out=left_out,
            job=job,
            purpose=purpose,
            analyst=analyst,
            expires=lapses,
            then=None if expiry is None else expiry.then,
        )
        self._append(act, self._requester)
        if lapses is not None:
            self._connection.execute(LAPSES.insert(), {"ledger_id": self._id, "reservation_id": reservation_id, "look_at": lapses})
            if self._next_lapse is None or lapses < self._next_lapse:
                self._next_lapse = lapses
        return act

    def commit(self, reservation_id: str, part: tuple[Spent, Price] | None) -> None:
        r"""Count what was released as spent and free the rest.

        Args:
          part: what was really released, with its price; None if it was all.
        Raises:
          ReservationNotFound, ReservationSettled, ReservationNotApproved, SettlerRefused; InvalidParameter: it isn't part of what was
          reserved.
        """
        reserved = self._reserved(reservation_id)
        if self._asks_for_approval and self._approver(reservation_id) is None:
            raise ReservationNotApproved(reservation_id)
        self._check_settler(reserved, frees=part is not None)
        released, kept = None, reserved.charge
        if part is not None:
            released, price = part
            check_part(released, reserved.spend)
            # What is part of the whole costs no more than the whole, even where two roundings say otherwise.
            kept = tuple(min(pair) for pair in zip(reserved.charge, price.steps, strict=True))
        self._settle(reserved, Committed(reservation=reservation_id, released=released, charge=kept), kept, self._requester)

    def release(self, reservation_id: str) -> None:
        """Free the whole reservation: nothing of it was released. Raises ReservationNotFound, ReservationSettled, SettlerRefused."""
        reserved = self._reserved(reservation_id)
        self._check_settler(reserved, frees=True)
        self._settle(reserved, Released(reservation=reservation_id), None, self._requester)

    def approve(self, reservation_id: str) -> None:
        r"""Agree to a reservation that another key made; once approved it stays so.

        Raises:
          ReservationNotFound, ReservationSettled; ApproverRefused: no key, or the one that reserved, or the ledger asks for no approval.
        """
        self._reserved(reservation_id)
        key, made = self._requester.key_id, self._entry_of(reservation_id)
        if not self._asks_for_approval or key is None or made.by is None or key == made.by:
            raise ApproverRefused(reservation_id)
        if self._approver(reservation_id) is None:
            self._append(Approved(reservation=reservation_id), self._requester)

    def renew(self) -> None:
        """Begin the period that the present is in, if that is a later one; what is reserved stays so."""
        period = self._definition.period_at(self._opened, self._moment)
        if period <= self._sums.period:
            return
        self._append(Renewed(period=period), SERVICE)
        self._sums = self._sums.renewed(period)
        if self._definition.rules is not None and self._definition.rules.quotas is not None:
            before = self._users(analyst_row(quota.key) for quota in self._definition.rules.quotas)
            self._save_users({name: sums.renewed(period) for name, sums in before.items()}, before)

    def close(self) -> None:
        """Admit nothing more. Closing twice has no further effect."""
        if self._state is LedgerState.CLOSED:
            return
        self._append(Closed(), self._requester)
        self._state = LedgerState.CLOSED

    def settle_overdue(self) -> None:
        """Settle overdue reservations as each of them says; a job's reservation waits until the job has ended."""
        if self._next_lapse is None or self._next_lapse > self._moment:
            return
        for row in self._connection.execute(OVERDUE, {"ledger": self._id, "moment": self._moment}).all():
            try:
                reserved = read_reserved(row.number, row.text)
            except EntryUnreadable:
                reserved = None  # nobody knows what happens to it then: it stays reserved, and a verification names it
            if reserved is None or (reserved.job is not None and not self._has_ended(reserved.job)):
                later = self._moment + timedelta(seconds=LOOK_AGAIN_SECONDS)
                self._connection.execute(LOOK_LATER, {"ledger": self._id, "reservation": row.reservation_id, "look_at": later})
                continue
            assert reserved.then is not None  # it has an end, so it says what then
            kept = reserved.charge if reserved.then == "spent" else None
            self._settle(reserved, Lapsed(reservation=reserved.reservation, then=reserved.then), kept, SERVICE)
        self._next_lapse = self._connection.execute(NEXT, {"ledger": self._id}).scalar()
        self._is_changed = True

    def save(self) -> None:
        """Write the entries and the row, if anything changed."""
        if not self._is_changed:
            return
        row = {
            "ledger": self._id,
            "new_state": self._state,
            "new_entries": self._entries,
            "new_head": self._head,
            "new_latest": self._latest,
            "new_next_lapse": self._next_lapse,
            "new_sums": self._sums.text(),
        }
        if len(self._added) == 1 and self._connection.dialect.name == "postgresql":
            # One message to the server instead of two: it is waited for with the row locked. SQLite has no messages, and no such statement.
            self._connection.execute(ADD_AND_SAVE, {**row, **{f"added_{name}": value for name, value in self._added[0].items()}})
            return
        self._flush()
        self._connection.execute(SAVE, row)

    def _flush(self) -> None:
        if self._added:
            self._connection.execute(ADD, self._added)
            self._added = []

    def _charge(self, price: Price, users: ChargedUsers | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Reserve the price; returns who was charged and who was left out."""
        if self._definition.protects == "data_set":
            if users is not None:
                raise InvalidParameter("users", "absent: this ledger protects the data set as a whole", users.names)
            self._sums = self._sums.admitted(self._definition, price)
            return (), ()
        if users is None:
            raise InvalidParameter("users", "given: this ledger protects each user", None)
        before = self._users(users.names)
        after: dict[str, Sums] = {}
        refused: UserBudgetExceeded | None = None
        for name in users.names:
            try:
                after[name] = before.get(name, Sums.empty(self._definition)).admitted(self._definition, price)
            except BudgetExceeded as exceeded:
                refused = UserBudgetExceeded(name, exceeded)
                if users.short_of_budget == "refuse":
                    raise refused from exceeded
        if not after and refused is not None:
            raise refused
        self._save_users(after, before)
        return tuple(after), tuple(name for name in users.names if name not in after)

    def _analyst(self, rules: Rules, price: Price) -> tuple[dict[str, Sums], dict[str, Sums]]:
        """The requester's sums with the price and before, to be saved. Raises BudgetExceeded: its quota doesn't admit it."""
        name = analyst_row(self._requester.key_id)
        before = self._users([name])
        had = before.get(name, Sums.empty(self._definition).renewed(self._sums.period))
        rules.check_quota(self._definition.budget, self._requester.key_id, had.spent, price)
        # An event that the share admits may still be refused by the cap: nothing is saved before that is known.
        self._sums.admitted(self._definition, price)
        return {name: had.admitted(self._definition, price)}, before

    @property
    def _asks_for_approval(self) -> bool:
        rules = self._definition.rules
        return rules is not None and rules.approval == "second_key"

    def _approver(self, reservation_id: str) -> str | None:
        """The key that approved a reservation; None while none has."""
        self._flush()
        rows = self._connection.execute(RESERVATION, {"ledger": self._id, "reservation": reservation_id}).all()
        return next((read_entry(row.number, row.text).by for row in rows if row.kind == "approved"), None)

    def _check_settler(self, reserved: Reserved, *, frees: bool) -> None:
        key = self._requester.key_id
        if self._asks_for_approval and not is_by_service(reserved, key):
            assert self._definition.rules is not None  # they ask
            maker, approver = self._entry_of(reserved.reservation).by, self._approver(reserved.reservation)
            self._definition.rules.check_settler(reserved.reservation, key, maker, approver, frees=frees)

    def _entry_of(self, reservation_id: str) -> Entry:
        """The entry that made a reservation, which is there."""
        rows = self._connection.execute(RESERVATION, {"ledger": self._id, "reservation": reservation_id}).all()
        return read_entry(rows[0].number, rows[0].text)

    def _reserved(self, reservation_id: str) -> Reserved:
        rows = self._connection.execute(RESERVATION, {"ledger": self._id, "reservation": reservation_id}).all()
        kinds = [row.kind for row in rows if row.kind != "approved"]
        if not rows:
            raise ReservationNotFound(self._id, reservation_id)
        added = [str(row["kind"]) for row in self._added if row["reservation_id"] == reservation_id]  # it lapsed just now
        kinds += [kind for kind in added if kind != "approved"]
        if len(kinds) > 1:
            raise ReservationSettled(reservation_id, kinds[1])
        return read_reserved(rows[0].number, rows[0].text)

    def _settle(self, reserved: Reserved, act: Settlement, kept: Charge | None, requester: Requester) -> None:
        if reserved.users:
            before = self._users(reserved.users)
            self._save_users({name: self._settled(before.get(name), reserved.charge, kept) for name in reserved.users}, before)
        else:
            self._sums = self._settled(self._sums, reserved.charge, kept)
        if reserved.analyst is not None:
            name = analyst_row(reserved.analyst)
            own = self._users([name])
            self._save_users({name: self._settled(own.get(name), reserved.charge, kept)}, own)
        self._append(act, requester)
        if reserved.expires is not None:
            self._connection.execute(NEVER, {"ledger": self._id, "reservation": reserved.reservation})

    def _settled(self, sums: Sums | None, charge: Charge, kept: Charge | None) -> Sums:
        # Each reservation is taken out once: its row says whether it is open, and the ledger's row is locked. So it is among the sums.
        if sums is None or not sums.holds(charge):
            raise LedgerDamaged(self._id, "the sums")
        return sums.settled_at(charge, kept)

    def _append(self, act: Act, requester: Requester) -> None:
        entry = Entry(ledger=self._id, number=self._entries + 1, time=self._moment, by=requester.key_id, previous=self._head, act=act)
        text = entry.text()
        self._entries, self._head, self._latest = entry.number, digest(text), entry.time
        self._added.append(entry_row(entry, text, self._head, requester))
        self._is_changed = True

    def _users(self, names: Iterable[str]) -> dict[str, Sums]:
        wanted = select(USERS.c.name, USERS.c.sums).where(USERS.c.ledger_id == self._id, USERS.c.name.in_(list(names)))
        return {row.name: Sums.read(self._id, self._definition, row.sums) for row in self._connection.execute(wanted)}

    def _save_users(self, after: dict[str, Sums], before: dict[str, Sums]) -> None:
        old: Sequence[dict[str, str]] = [
            {"ledger": self._id, "user": name, "sums": sums.text()} for name, sums in after.items() if name in before
        ]
        new = [{"ledger_id": self._id, "name": name, "sums": sums.text()} for name, sums in after.items() if name not in before]
        if old:
            self._connection.execute(SAVE_USER, old)
        if new:
            self._connection.execute(USERS.insert(), new)

    def _has_ended(self, job_id: str) -> bool:
        state = self._connection.execute(select(JOBS.c.state).where(JOBS.c.id == job_id)).scalar()
        return state is None or JobState(state).is_final  # jobs are deleted only after their end
