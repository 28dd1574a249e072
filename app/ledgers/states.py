r"""States of ledgers and reservations."""

from __future__ import annotations

from enum import StrEnum


class LedgerState(StrEnum):
    """Whether a ledger admits reservations."""

    OPEN = "open"
    CLOSED = "closed"


class ReservationState(StrEnum):
    """reserved -> committed, released or lapsed; none of these three ever changes."""

    RESERVED = "reserved"
    COMMITTED = "committed"
    RELEASED = "released"
    LAPSED = "lapsed"
