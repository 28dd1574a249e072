r"""What the tables hold of an entry, and of whoever asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import final

from zetadp.app.ledgers.entries import Act, Approved, Closed, Entry, Opened, Renewed, Reserved


@final
@dataclass(frozen=True, slots=True)
class Requester:
    """The sender of a request, and how to recognise a repeated request: the digest of the request that came with the key.

    ``key_id`` is the principal: the id of the first key of its rotations, so that a rotated key settles what it reserved before and can't
    approve it.
    """

    key_id: str | None = None
    idempotency_key: str | None = None
    request_sha256: str | None = None


SERVICE = Requester()
"""The service itself."""


def is_by_service(reserved: Reserved, key: str | None) -> bool:
    """Whether the service settles what it reserved for a job: it does so without a key, by what the job has or may have released."""
    return reserved.job is not None and key is None


def analyst_row(key: str | None) -> str:
    """The name of the row with an analyst's sums, which no user can have."""
    return f"#{key}"


def entry_row(entry: Entry, text: str, sha256: str, requester: Requester) -> dict[str, str | int | datetime | None]:
    """The columns of an entry."""
    act = entry.act
    is_about_reservation = not isinstance(act, Opened | Closed | Renewed)
    return {
        "ledger_id": entry.ledger,
        "number": entry.number,
        "time": entry.time,
        "kind": act.kind,
        "sha256": sha256,
        "text": text,
        "idempotency_key": requester.idempotency_key,
        "request_sha256": requester.request_sha256,
        "reservation_id": act.reservation if is_about_reservation else None,
        "settles": _settles(act) if is_about_reservation else None,
        "job_id": act.job if isinstance(act, Reserved) else None,
    }


def _settles(act: Act) -> int:
    """See ``LedgerEntryRow``."""
    return 0 if isinstance(act, Reserved) else 2 if isinstance(act, Approved) else 1
