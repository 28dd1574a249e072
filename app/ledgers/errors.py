r"""Errors of the ledgers. They carry data and know nothing of HTTP; ``app/errors.py`` has the table to status codes."""

from __future__ import annotations

from mechanisms.errors import BudgetExceeded


class LedgerError(Exception):
    """Base of every error of this package that a user can cause."""


class LedgerNotFound(LedgerError):
    """No ledger of this tenant has this id."""

    def __init__(self, ledger_id: str) -> None:
        self.ledger_id = ledger_id
        super().__init__(f"there is no ledger {ledger_id!r}")


class ReservationNotFound(LedgerError):
    """The ledger has no reservation of this id."""

    def __init__(self, ledger_id: str, reservation_id: str) -> None:
        self.ledger_id = ledger_id
        self.reservation_id = reservation_id
        super().__init__(f"ledger {ledger_id!r} has no reservation {reservation_id!r}")


class LedgerNameTaken(LedgerError):
    """Another ledger of the tenant has this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"a ledger named {name!r} already exists")


class LedgerClosed(LedgerError):
    """The ledger no longer admits reservations."""

    def __init__(self, ledger_id: str) -> None:
        self.ledger_id = ledger_id
        super().__init__(f"ledger {ledger_id!r} is closed")


class ReservationSettled(LedgerError):
    """The reservation was already committed or released, or it has lapsed; that is final."""

    def __init__(self, reservation_id: str, state: str) -> None:
        self.reservation_id = reservation_id
        self.state = state
        super().__init__(f"reservation {reservation_id!r} is {state} and can't be settled again")


class ReservationHeld(LedgerError):
    """A job made the reservation, and only the job settles it."""

    def __init__(self, reservation_id: str, job_id: str) -> None:
        self.reservation_id = reservation_id
        self.job_id = job_id
        super().__init__(f"reservation {reservation_id!r} belongs to job {job_id!r}, which settles it when it ends")


class LedgerKeyReused(LedgerError):
    """The Idempotency-Key was used before, with another request."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"Idempotency-Key {key!r} was used before with another request")


class CostTakesTooLong(LedgerError):
    """The event's cost can't be computed in the time that a request may take."""

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
