r"""Reserve, commit and release inside a caller's transaction, so that a job and its reservation are stored, or end, together.

The price comes first and outside (``price_of``): it may take seconds, and the ledger's row is locked from the first of these calls to the
transaction's end. A transaction that also locks a job locks the job first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from sqlalchemy.orm import Session

from zetadp.accountants.filters import Price
from zetadp.app.kit.database import new_id
from zetadp.app.ledgers.book import Book, locked
from zetadp.app.ledgers.errors import EntryUnreadable, LedgerClosed, LedgerDamaged, LedgerKeyReused
from zetadp.app.ledgers.ledger_definition import Spent
from zetadp.app.ledgers.queries import found_reservation
from zetadp.app.ledgers.requests import ChargedUsers, Expiry
from zetadp.app.ledgers.resources import Reservation, reservation_of
from zetadp.app.ledgers.rows import SERVICE, Requester
from zetadp.app.ledgers.rules import Purpose
from zetadp.mechanisms.errors import BudgetExceeded, InvalidParameter

REFUSALS = (LedgerClosed, LedgerDamaged, EntryUnreadable, LedgerKeyReused, BudgetExceeded, InvalidParameter)
"""Why a reservation isn't made; the ledger is as it was before, and what others reserve in the same transaction stands."""


@final
@dataclass(frozen=True, slots=True)
class Priced:
    """A spend with its price on one ledger."""

    ledger_id: str
    spend: Spent
    price: Price


def reserve_in(session: Session, tenant: str, priced: Priced, requester: Requester, job: str, purpose: Purpose | None) -> Reservation:
    """Set a job's price aside, for the key that submitted it. Raises LedgerNotFound and ``REFUSALS``."""
    with locked(session, tenant, priced.ledger_id, SERVICE) as book:
        return reserve_on(session, book, priced, requester, job=job, purpose=purpose)


def reserve_on(
    session: Session,
    book: Book,
    priced: Priced,
    requester: Requester,
    *,
    users: ChargedUsers | None = None,
    expiry: Expiry | None = None,
    job: str | None = None,
    purpose: Purpose | None = None,
) -> Reservation:
    """Set the price aside on a locked ledger; for an already answered request, the reservation it made then. Raises ``REFUSALS``."""
    book.serve(requester)
    is_old, reservation_id = book.answered_before()
    if is_old:
        assert reservation_id is not None  # the digest of the request says that it was for a reservation
        return found_reservation(session, priced.ledger_id, reservation_id)
    made = book.reserve(new_id(), priced.spend, priced.price, users, expiry, job, purpose)
    return reservation_of(priced.ledger_id, made, book.number, None)


def commit_in(
    session: Session, tenant: str, ledger_id: str, reservation_id: str, requester: Requester, part: tuple[Spent, Price] | None
) -> Reservation:
    r"""Count the reservation, or the part that was really released, as spent, and free the rest.

    Raises:
      LedgerNotFound, ReservationNotFound, ReservationSettled, ReservationNotApproved, SettlerRefused, LedgerKeyReused.
    """
    with locked(session, tenant, ledger_id, requester) as book:
        if not book.answered_before()[0]:
            book.commit(reservation_id, part)
    return found_reservation(session, ledger_id, reservation_id)


def release_in(session: Session, tenant: str, ledger_id: str, reservation_id: str, requester: Requester) -> Reservation:
    """Free the whole reservation, of which nothing was released. Raises as ``commit_in``."""
    with locked(session, tenant, ledger_id, requester) as book:
        if not book.answered_before()[0]:
            book.release(reservation_id)
    return found_reservation(session, ledger_id, reservation_id)
