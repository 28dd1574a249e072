r"""Asks the configured witnesses to sign the log's head, and keeps what they signed.

A witness that has signed a longer log than this one is told nothing of: between reading the log and asking, another worker may have had a
longer head signed, and then the log is read again. One that goes on knowing a longer log has seen entries that this service has lost.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import final

import structlog
from httpx2 import Client, HTTPError, InvalidURL
from sqlalchemy.orm import Session

from zetadp.app.certificates.log import journal
from zetadp.app.certificates.log.checkpoint import LogHead, sign_checkpoint
from zetadp.app.certificates.log.cosignatures import Asked, cosignatures_on, witnesses_in
from zetadp.app.certificates.log.notes import MOST_SIGNATURES, Note, NoteRefused
from zetadp.app.certificates.log.service import head_of
from zetadp.app.certificates.log.time_stamps import of_different_signers
from zetadp.app.certificates.log.witness import add_request
from zetadp.app.certificates.signing.keys import signing_key
from zetadp.app.kit.database import Database, now
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.certificate_log import LogHeadRow

ASKING_SECONDS = 10.0
ROUNDS, TRIES = 3, 3
LARGEST_ANSWER = 4000
MOST_STAMPS = 16
"""On one head: proofs hold no more."""
_log = structlog.get_logger()

Proving = Callable[[int, int], list[bytes]]
"""From the first size to the second: the hashes that prove that the log only grew."""


@final
@dataclass(frozen=True)
class Witnessed:
    """A head, its checkpoint with the signatures of those witnesses that gave one, and how many that were."""

    head: LogHead
    checkpoint: str
    count: int


_signed_last: dict[tuple[bytes, str], int] = {}
"""By witness and log the size that it signed last, as far as this process knows: saves a question."""


def witnessed(settings: Settings, reading: Callable[[Callable[[Session], LogHead]], LogHead], proof: Proving) -> Witnessed:
    r"""The log's present head, signed by the service and by every witness that answers.

    Args:
      reading: runs a reader in a transaction.
      proof: gives the hashes that prove that the log of the second size continues that of the first.
    Raises:
      WitnessesUnreadable: the file of witnesses can't be read.
    """
    asked = witnesses_in(settings.witnesses)

    def tried() -> tuple[Witnessed, bool]:
        head = reading(lambda session: head_of(session, settings, journal.size_of(session)))
        checkpoint, count, is_behind = _signed(asked, head, sign_checkpoint(head, signing_key(settings)), proof)
        return Witnessed(head, checkpoint, count), is_behind

    found, is_behind = tried()
    for _ in range(ROUNDS - 1):
        if not is_behind:
            break
        found, is_behind = tried()
    return found


def _signed(asked: list[Asked], head: LogHead, checkpoint: str, proof: Proving) -> tuple[str, int, bool]:
    count, is_behind, own = 0, False, checkpoint
    for witness in asked:
        with suppress(HTTPError, InvalidURL), Client(timeout=ASKING_SECONDS) as client:
            line = _by(witness, client, head, own, proof)
            is_behind = is_behind or line is None
            count += bool(line)
            checkpoint += line or ""
            continue
        _log.warning("witness_silent", witness=witness.key.name)
    return checkpoint, count, is_behind


def _by(witness: Asked, client: Client, head: LogHead, checkpoint: str, proof: Proving) -> str | None:
    """Its signature's line; empty if it gives none, and None if it knows a longer log."""
    known = witness.key.raw, head.origin
    old = _signed_last.get(known, 0)
    for _ in range(TRIES):
        path = proof(old, head.size) if 0 < old < head.size else []
        old = min(old, head.size)
        answer = client.post(f"{witness.address}/add-checkpoint", content=add_request(old, path, checkpoint))
        if answer.status_code == 409 and answer.text.strip().isdecimal():
            old = int(answer.text)
            if old > head.size:
                _log.warning("witness_ahead", witness=witness.key.name, size=old, own=head.size)
                return None
            continue
        if answer.status_code != 200 or len(answer.content) > LARGEST_ANSWER:
            break
        try:
            note = Note.read(checkpoint + answer.text)
            # Its line has to hold on this text, and not on one that begins with it.
            if note.text != head.text or not cosignatures_on(note, [witness.key]):
                break
        except NoteRefused as refused:
            _log.warning("witness_signature_refused", witness=witness.key.name, reason=str(refused))
            return ""
        _signed_last[known] = head.size
        return next(one.line for one in note.signatures if (one.name, one.key_id) == (witness.key.name, witness.key.id))
    _log.warning("witness_refused", witness=witness.key.name, size=head.size)
    return ""


def kept_and_witnessed(settings: Settings, database: Database) -> Witnessed:
    """The present head of the log in this database, signed and kept. Raises WitnessesUnreadable."""

    def reading(read: Callable[[Session], LogHead]) -> LogHead:
        with database.reading() as session:
            return read(session)

    def proof(first: int, second: int) -> list[bytes]:
        with database.reading() as session:
            return journal.consistency_path(session, first, second)

    signed = witnessed(settings, reading, proof)
    with database.writing() as session:
        keep_head(session, signed, [])
    return signed


def keep_head(session: Session, signed: Witnessed, stamps: list[str]) -> LogHeadRow:
    """Keep a head that was signed; of one size with all signatures and stamps that it ever had, the first of each signer."""
    journal.lock(session)  # two workers may have had one head signed at once
    before = session.get(LogHeadRow, signed.head.size)
    if before is None:
        first = of_different_signers(stamps)[:MOST_STAMPS]
        before = LogHeadRow(size=signed.head.size, checkpoint=signed.checkpoint, time_stamps=first, time=now())
        session.add(before)
        return before
    before.checkpoint = _with_more(before.checkpoint, signed.checkpoint)
    before.time_stamps = of_different_signers([*before.time_stamps, *stamps])[:MOST_STAMPS]
    return before


def _with_more(before: str, signed: str) -> str:
    """The checkpoint, followed by the signatures on the second by keys that didn't sign the first; the service signed both."""
    known, more = Note.read(before).signatures, Note.read(signed).signatures[1:]
    fresh = [one for one in more if (one.name, one.key_id) not in [(other.name, other.key_id) for other in known]]
    return before + "".join(one.line for one in fresh[: MOST_SIGNATURES - len(known)])
