r"""Errors of the ledgers. They carry data, and each says how a request is answered with it."""

from __future__ import annotations

from zetadp.app.kit.errors import ProblemType, ServiceError
from zetadp.mechanisms.errors import BudgetExceeded


class LedgerError(ServiceError):
    """Base of every error of this package that a user can cause."""


class LedgerNotFound(LedgerError):
    """No ledger of this tenant has this id."""

    problem = ProblemType(404, "ledger-not-found", "No such ledger.")

    def __init__(self, ledger_id: str) -> None:
        self.ledger_id = ledger_id
        super().__init__(f"there is no ledger {ledger_id!r}")


class ReservationNotFound(LedgerError):
    """The ledger has no reservation of this id."""

    problem = ProblemType(404, "reservation-not-found", "No such reservation.")

    def __init__(self, ledger_id: str, reservation_id: str) -> None:
        self.ledger_id = ledger_id
        self.reservation_id = reservation_id
        super().__init__(f"ledger {ledger_id!r} has no reservation {reservation_id!r}")


class LedgerNameTaken(LedgerError):
    """Another ledger of the tenant has this name."""

    problem = ProblemType(409, "ledger-name-taken", "The name is taken.")

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"a ledger named {name!r} already exists")


class LedgerClosed(LedgerError):
    """The ledger no longer admits reservations."""

    problem = ProblemType(409, "ledger-closed", "The ledger is closed.")

    def __init__(self, ledger_id: str) -> None:
        self.ledger_id = ledger_id
        super().__init__(f"ledger {ledger_id!r} is closed")


class EntryUnreadable(LedgerError):
    """The stored text of an entry isn't what the service wrote: nothing is decided by it."""

    problem = ProblemType(409, "ledger-entry-unreadable", "An entry of the ledger can't be read.")

    def __init__(self, entry: int) -> None:
        self.entry = entry
        super().__init__(f"entry {entry} of the ledger's history can't be read: somebody changed what is stored; verify the ledger")


class LedgerDamaged(LedgerError):
    """What is stored of the ledger beside its entries isn't what the service wrote: nothing is decided by it."""

    problem = ProblemType(409, "ledger-damaged", "What is stored of the ledger can't be used.")

    def __init__(self, ledger_id: str, part: str) -> None:
        self.ledger_id = ledger_id
        self.part = part
        super().__init__(
            f"{part} of ledger {ledger_id!r} can't be used: somebody changed what is stored; verify the ledger, which names what differs,"
            " and restore the database from a backup"
        )


class ReservationSettled(LedgerError):
    """The reservation was already committed or released, or it has lapsed; that is final."""

    problem = ProblemType(409, "reservation-settled", "The reservation is already settled.")

    def __init__(self, reservation_id: str, state: str) -> None:
        self.reservation_id = reservation_id
        self.state = state
        super().__init__(f"reservation {reservation_id!r} is {state} and can't be settled again")


class ReservationNotApproved(LedgerError):
    """The ledger asks for a second key's approval, and there is none yet."""

    problem = ProblemType(409, "reservation-not-approved", "The reservation isn't approved.")

    def __init__(self, reservation_id: str) -> None:
        self.reservation_id = reservation_id
        super().__init__(f"reservation {reservation_id!r} has no approval by a second key yet")


class ApproverRefused(LedgerError):
    """The reservation can't be approved by this key."""

    problem = ProblemType(403, "approver-refused", "This key can't approve the reservation.")

    def __init__(self, reservation_id: str) -> None:
        self.reservation_id = reservation_id
        super().__init__(
            f"reservation {reservation_id!r} is approved by another key than the one that made it, on a ledger that asks for it"
        )


class SettlerRefused(LedgerError):
    """The reservation can't be settled like this by this key."""

    problem = ProblemType(403, "settler-refused", "This key can't settle the reservation like this.")

    def __init__(self, reservation_id: str, allowed: str) -> None:
        self.reservation_id = reservation_id
        super().__init__(f"reservation {reservation_id!r} may be settled like this only by {allowed}")


class ReservationHeld(LedgerError):
    """A job made the reservation, and only the job settles it."""

    problem = ProblemType(409, "reservation-held", "The reservation belongs to a job.")

    def __init__(self, reservation_id: str, job_id: str) -> None:
        self.reservation_id = reservation_id
        self.job_id = job_id
        super().__init__(f"reservation {reservation_id!r} belongs to job {job_id!r}, which settles it when it ends")


class LedgerKeyReused(LedgerError):
    """The Idempotency-Key was used before, with another request."""

    problem = ProblemType(409, "ledger-idempotency-conflict", "The Idempotency-Key was already used with another request.")

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"Idempotency-Key {key!r} was used before with another request")


class CostTakesTooLong(LedgerError):
    """The event's cost can't be computed in the time that a request may take."""

    problem = ProblemType(422, "cost-takes-too-long", "The cost of the event takes too long to compute.")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(
            f"computing this event's cost takes more than {seconds:g} s; compute its Renyi divergences as a job and reserve those numbers"
        )


class UserBudgetExceeded(BudgetExceeded):
    """A spend that exceeds what one of its users has left."""

    def __init__(self, user: str, exceeded: BudgetExceeded) -> None:
        super().__init__(exceeded.quantity, exceeded.requested, exceeded.remaining)
        self.user = user
        self.args = (f"user {user!r}: {exceeded}",)
