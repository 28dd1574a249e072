r"""What a key may be used for."""

from __future__ import annotations

from enum import StrEnum


class Scope(StrEnum):
    """What a key may be used for. No scope includes another: a key lists each of its scopes by name."""

    CALCULATE = "calculate"
    SUBMIT = "submit"
    LEDGER = "ledger"
    ADMIN = "admin"
    METRICS = "metrics"
