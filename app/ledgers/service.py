r"""Operations on ledgers. Each call is one transaction; costs are computed before it, and history is read without a lock."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import final

from sqlalchemy import exists, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, aliased

from zetadp.app.kit.database import Database, new_id, now
from zetadp.app.ledgers.admission import REFUSALS, Priced, commit_in, release_in, reserve_on
from zetadp.app.ledgers.book import locked
from zetadp.app.ledgers.entries import BEFORE_THE_FIRST, Entry, EntryPage, EntryRecord, Opened, act_in, digest
from zetadp.app.ledgers.errors import LedgerDamaged, LedgerKeyReused, LedgerNameTaken
from zetadp.app.ledgers.group_commit import GroupCommit
from zetadp.app.ledgers.ledger_definition import LedgerDefinition, Spent, stored_definition
from zetadp.app.ledgers.pricing import price_of
from zetadp.app.ledgers.projections import projected
from zetadp.app.ledgers.queries import (
    check_not_held,
    check_quota_keys,
    found_ledger,
    found_reservation,
    ledger_of,
    quota_left,
    reservations_of,
    sums_of,
    user_balance,
)
from zetadp.app.ledgers.requests import ReservationRequest
from zetadp.app.ledgers.resources import Balance, Ledger, LedgerPage, Projection, Reservation, ReservationPage
from zetadp.app.ledgers.rows import SERVICE, Requester, entry_row
from zetadp.app.ledgers.states import LedgerState, ReservationState
from zetadp.app.ledgers.sums import Sums
from zetadp.app.ledgers.verification.replay import ChainReport
from zetadp.app.ledgers.verification.tables import verify_stored
from zetadp.app.tables.jobs import JobRow
from zetadp.app.tables.ledgers import LedgerEntryRow, LedgerRow
from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter

DEFINITIONS_KEPT = 4096
"""A definition never changes and a ledger is never deleted, so cached ones stay correct."""


@final
@dataclass(frozen=True, slots=True)
class _Request:
    """A request waiting for the ledger."""

    request: ReservationRequest
    priced: Priced
    requester: Requester


@final
class LedgerService:
    r"""The ledgers of one database; one object for all requests.

    Args:
      pricing_seconds: how much processor time the cost of one event, or one verification, may take.
    """

    def __init__(self, database: Database, pricing_seconds: float) -> None:
        self._database = database
        self._pricing_seconds = pricing_seconds
        self._definition = lru_cache(DEFINITIONS_KEPT)(self._read_definition)
        self._reservations = GroupCommit(self._reserve_all)

    def create(self, tenant: str, definition: LedgerDefinition, by: str | None, key: str | None) -> Ledger:
        """Make a ledger; with a key that was used before, return the one it made then.

        Raises LedgerNameTaken, LedgerKeyReused; InvalidParameter: a quota names no key, or one that another was rotated to.
        """
        requester = _requester(by, key, "create", definition)
        try:
            return self._create(tenant, definition, requester)
        except IntegrityError:  # PostgreSQL: the name or the key was stored by another request at the same moment
            return self._create(tenant, definition, requester)

    def get(self, tenant: str, ledger_id: str) -> Ledger:
        """The ledger with its balance; overdue reservations are settled first. Raises LedgerNotFound, LedgerDamaged."""
        with self._database.reading() as session:
            row = found_ledger(session, tenant, ledger_id)
            if not _is_due(row, now()):
                return ledger_of(session, row)
        with self._database.writing() as session:
            with locked(session, tenant, ledger_id, Requester()):
                pass  # what is overdue is settled, and a new period begun, by taking the lock
            return ledger_of(session, found_ledger(session, tenant, ledger_id))

    def page(self, tenant: str, state: LedgerState | None, before: str | None, limit: int) -> LedgerPage:
        """At most ``limit`` ledgers that are older than ``before``, newest first; what is overdue is settled first."""
        query = select(LedgerRow).where(LedgerRow.tenant == tenant).order_by(LedgerRow.id.desc()).limit(limit + 1)
        if state is not None:
            query = query.where(LedgerRow.state == state)
        if before is not None:
            query = query.where(LedgerRow.id < before)
        moment = now()
        with self._database.reading() as session:
            rows = list(session.scalars(query))
            found: dict[str, Ledger | None] = {row.id: _unless_due(session, row, moment) for row in rows[:limit]}
        ledgers: list[Ledger] = []
        damaged: list[str] = []
        for ledger_id, ledger in found.items():
            try:
                ledgers.append(ledger or self.get(tenant, ledger_id))
            except LedgerDamaged:
                damaged.append(ledger_id)
        return LedgerPage(ledgers=tuple(ledgers), damaged=tuple(damaged), next=rows[limit - 1].id if len(rows) > limit else None)

    def close(self, tenant: str, ledger_id: str, by: str | None, key: str | None) -> Ledger:
        """Admit nothing more; open reservations can still be settled. Raises LedgerNotFound, LedgerKeyReused."""
        requester = _requester(by, key, "close", None)
        with self._database.writing() as session:
            with locked(session, tenant, ledger_id, requester) as book:
                if not book.answered_before()[0]:
                    book.close()
            return ledger_of(session, found_ledger(session, tenant, ledger_id))

    def priced(self, tenant: str, ledger_id: str, spend: Spent) -> Priced:
        """What a spend costs on this ledger, to be reserved in a transaction. Raises LedgerNotFound and as ``price_of``."""
        return Priced(ledger_id, spend, price_of(self._definition(tenant, ledger_id), spend, self._pricing_seconds))

    def reserve(self, tenant: str, ledger_id: str, request: ReservationRequest, by: str | None, key: str | None) -> Reservation:
        r"""Set a spend aside.

        Raises:
          LedgerNotFound, LedgerClosed, LedgerKeyReused, BudgetExceeded; InvalidParameter, UnsupportedEvent, IncompatibleEvent,
          CostTakesTooLong: the spend has no cost there.
        """
        priced = self.priced(tenant, ledger_id, request.spend)
        return self._reservations.submit((tenant, ledger_id), _Request(request, priced, _requester(by, key, "reserve", request)))

    def commit(
        self, tenant: str, ledger_id: str, reservation_id: str, released: Spent | None, by: str | None, key: str | None
    ) -> Reservation:
        r"""Count what was released as spent.

        Raises:
          LedgerNotFound, ReservationNotFound, ReservationSettled, ReservationNotApproved, SettlerRefused, LedgerKeyReused; as ``reserve``
          for ``released``.
        """
        part = None if released is None else (released, self.priced(tenant, ledger_id, released).price)
        signature = None if released is None else ReservationRequest(spend=released)
        with self._database.writing() as session:
            check_not_held(session, tenant, ledger_id, reservation_id)
            return commit_in(session, tenant, ledger_id, reservation_id, _requester(by, key, f"commit {reservation_id}", signature), part)

    def approve(self, tenant: str, ledger_id: str, reservation_id: str, by: str | None, key: str | None) -> Reservation:
        """Agree to what another key reserved. Raises LedgerNotFound, LedgerKeyReused, and as ``Book.approve``."""
        requester = _requester(by, key, f"approve {reservation_id}", None)
        with self._database.writing() as session:
            with locked(session, tenant, ledger_id, requester) as book:
                if not book.answered_before()[0]:
                    book.approve(reservation_id)
            return found_reservation(session, ledger_id, reservation_id)

    def release(self, tenant: str, ledger_id: str, reservation_id: str, by: str | None, key: str | None) -> Reservation:
        """Free a reservation of which nothing was released. Raises as ``commit``."""
        with self._database.writing() as session:
            check_not_held(session, tenant, ledger_id, reservation_id)
            return release_in(session, tenant, ledger_id, reservation_id, _requester(by, key, f"release {reservation_id}", None))

    def reservation(self, tenant: str, ledger_id: str, reservation_id: str) -> Reservation:
        """One reservation. Raises LedgerNotFound, ReservationNotFound."""
        self.get(tenant, ledger_id)  # settles what is overdue
        with self._database.reading() as session:
            return found_reservation(session, ledger_id, reservation_id)

    def reservations(self, tenant: str, ledger_id: str, state: ReservationState | None, before: int | None, limit: int) -> ReservationPage:
        """At most ``limit`` reservations that are older than ``before``, newest first. Raises LedgerNotFound."""
        self.get(tenant, ledger_id)
        made, settling = LedgerEntryRow, aliased(LedgerEntryRow)
        query = select(made).where(made.ledger_id == ledger_id, made.settles == 0).order_by(made.number.desc()).limit(limit + 1)
        if state is not None:
            settled = exists().where(
                settling.ledger_id == made.ledger_id, settling.reservation_id == made.reservation_id, settling.settles == 1
            )
            query = query.where(~settled if state is ReservationState.RESERVED else settled.where(settling.kind == state))
        if before is not None:
            query = query.where(made.number < before)
        with self._database.reading() as session:
            rows = list(session.scalars(query))
            found, unreadable = reservations_of(session, rows[:limit])
        older = rows[limit - 1].number if len(rows) > limit else None
        return ReservationPage(reservations=tuple(found), unreadable=tuple(unreadable), next=older)

    def entries(self, tenant: str, ledger_id: str, after: int, limit: int) -> EntryPage:
        """At most ``limit`` entries with higher numbers, in order. Raises LedgerNotFound."""
        query = (
            select(LedgerEntryRow)
            .where(LedgerEntryRow.ledger_id == ledger_id, LedgerEntryRow.number > after)
            .order_by(LedgerEntryRow.number)
            .limit(limit + 1)
        )
        with self._database.reading() as session:
            found_ledger(session, tenant, ledger_id)
            rows = list(session.scalars(query))
        records = tuple(
            EntryRecord(number=row.number, time=row.time, sha256=row.sha256, text=row.text, act=act_in(row.text)) for row in rows[:limit]
        )
        return EntryPage(entries=records, next=rows[limit - 1].number if len(rows) > limit else None)

    def user(self, tenant: str, ledger_id: str, user: str) -> Balance:
        """What a user has left. Raises LedgerNotFound, InvalidParameter."""
        self.get(tenant, ledger_id)
        with self._database.reading() as session:
            return user_balance(session, found_ledger(session, tenant, ledger_id), user)

    def project(self, tenant: str, ledger_id: str, spend: Spent, user: str | None, by: str | None) -> Projection:
        """How many more such spends fit, for this key where keys have quotas. Raises LedgerNotFound and as ``reserve``."""
        self.get(tenant, ledger_id)
        with self._database.reading() as session:
            row = found_ledger(session, tenant, ledger_id)
            definition, sums = stored_definition(row.id, row.definition), sums_of(session, row, user)
            quota = quota_left(session, row, by)
        return projected(definition, sums, spend, self._pricing_seconds, quota)

    def verify(self, tenant: str, ledger_id: str) -> ChainReport:
        """Check the whole history and every figure stored with it, as far as one calculation's time reaches. Raises LedgerNotFound."""
        with self._database.reading() as session:
            if not self._database.is_sqlite:  # there a transaction sees one moment anyway
                session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            return verify_stored(session, found_ledger(session, tenant, ledger_id), self._pricing_seconds)

    def _reserve_all(self, ledger: tuple[str, str], asked: Sequence[_Request]) -> list[Reservation | Exception]:
        outcomes: list[Reservation | Exception] = []
        with self._database.writing() as session, locked(session, *ledger, SERVICE) as book:
            for one in asked:
                try:
                    request = one.request
                    if request.job is not None:
                        _check_job(session, ledger[0], request.job)
                    made = reserve_on(
                        session,
                        book,
                        one.priced,
                        one.requester,
                        users=request.users,
                        expiry=request.expiry,
                        job=request.job,
                        purpose=request.purpose,
                    )
                    outcomes.append(made)
                except REFUSALS as refusal:
                    outcomes.append(refusal)
        return outcomes

    def _read_definition(self, tenant: str, ledger_id: str) -> LedgerDefinition:
        with self._database.reading() as session:
            return stored_definition(ledger_id, found_ledger(session, tenant, ledger_id).definition)

    def _create(self, tenant: str, definition: LedgerDefinition, requester: Requester) -> Ledger:
        with self._database.writing() as session:
            if requester.idempotency_key is not None:
                query = select(LedgerRow).where(LedgerRow.tenant == tenant, LedgerRow.idempotency_key == requester.idempotency_key)
                if (before := session.scalar(query)) is not None:
                    if before.request_sha256 != requester.request_sha256:
                        raise LedgerKeyReused(requester.idempotency_key)
                    return ledger_of(session, before)
            if session.scalar(select(LedgerRow.id).where(LedgerRow.tenant == tenant, LedgerRow.name == definition.name)) is not None:
                raise LedgerNameTaken(definition.name)
            check_quota_keys(session, tenant, definition)
            moment, ledger_id = now(), new_id()
            opened = Opened(definition=definition)
            entry = Entry(ledger=ledger_id, number=1, time=moment, by=requester.key_id, previous=BEFORE_THE_FIRST, act=opened)
            text = entry.text()
            row = LedgerRow(
                id=ledger_id,
                tenant=tenant,
                name=definition.name,
                state=LedgerState.OPEN,
                created=moment,
                entries=1,
                head=digest(text),
                latest=moment,
                next_lapse=None,
                definition=definition.model_dump_json(),
                sums=Sums.empty(definition).text(),
                idempotency_key=requester.idempotency_key,
                request_sha256=requester.request_sha256,
            )
            session.add(row)
            session.flush()
            session.add(LedgerEntryRow(**entry_row(entry, text, row.head, Requester())))
            session.flush()
            return ledger_of(session, row)


def _unless_due(session: Session, row: LedgerRow, moment: datetime) -> Ledger | None:
    """The ledger as it is stored; None if something has to be settled first, or if what is stored of it can't be used."""
    try:
        return None if _is_due(row, moment) else ledger_of(session, row)
    except LedgerDamaged:
        return None


def _is_due(row: LedgerRow, moment: datetime) -> bool:
    """Whether a reservation is overdue or the budget's period is over."""
    definition = stored_definition(row.id, row.definition)
    ends = definition.renews_at(row.created, Sums.read(row.id, definition, row.sums).period)
    return any(end is not None and end <= moment for end in (row.next_lapse, ends))


def _requester(by: str | None, key: str | None, what: str, body: Value | None) -> Requester:
    if key is None:
        return Requester(key_id=by)
    signature = f"{what}\n{'' if body is None else body.model_dump_json()}"
    return Requester(key_id=by, idempotency_key=key, request_sha256=hashlib.sha256(signature.encode()).hexdigest())


def _check_job(session: Session, tenant: str, job_id: str) -> None:
    if session.scalar(select(JobRow.id).where(JobRow.id == job_id, JobRow.tenant == tenant)) is None:
        raise InvalidParameter("job", "the id of one of your jobs", job_id)
