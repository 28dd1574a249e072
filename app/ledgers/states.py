r"""States of ledgers and reservations."""

from __future__ import annotations

from enum import StrEnum

from zetadp.app.ledgers.errors import LedgerDamaged


class LedgerState(StrEnum):
    """Whether a ledger admits reservations."""

    OPEN = "open"
    CLOSED = "closed"


def stored_state(ledger_id: str, text: str) -> LedgerState:
    """The state of this ledger, as stored. Raises LedgerDamaged."""
    try:
        return LedgerState(text)
    except ValueError as unknown:
        raise LedgerDamaged(ledger_id, "the state") from unknown


class ReservationState(StrEnum):
    """reserved -> committed, released or lapsed; none of these three ever changes."""

    RESERVED = "reserved"
    COMMITTED = "committed"
    RELEASED = "released"
    LAPSED = "lapsed"
