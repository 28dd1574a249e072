r"""Revoked keys, with time and reason, in a list that is signed by a key that isn't revoked.

Each revocation states the log as it was at that moment, its size and its root, read while nobody could append. A certificate by a key that
was superseded or given up stays valid if it is proven to be in exactly that log: somebody who gets hold of the key later can sign with it,
but can't change a root that another key signed. Times aren't evidence, since anyone with a key can write any time. A certificate by a
compromised key is never valid: nobody can tell since when others had the key.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, final

from pydantic import AwareDatetime, Field, ValidationError
from sqlalchemy.orm import Session

from app.certificates.canonical import canonical_json
from app.certificates.errors import KeyAlreadyRevoked, SigningKeyNotFound, SigningKeyUnusable
from app.certificates.jws import REVOCATIONS_CONTENT, REVOCATIONS_TYPE, CompactJws, JwsUnreadable, sign
from app.certificates.keys import KeyText, PublicKeySet, key_file, key_files, revocation_file, rotate, signing_key, write_once
from app.certificates.log.checkpoint import LogSize
from app.certificates.log.journal import lock, root_of
from app.certificates.statement import Sha256
from app.settings import Settings
from mechanisms.base import Value


class Reason(StrEnum):
    """Why a key is revoked. ``compromised``: somebody else may have or may have had it, so don't trust anything it signed."""

    SUPERSEDED = "superseded"
    CEASED = "ceased"
    COMPROMISED = "compromised"


@final
class Revocation(Value):
    r"""A key that signs no more.

    Attributes:
      time: when it was revoked.
      log_size, log_root: the log of certificates at that moment.
    """

    kid: KeyText
    time: AwareDatetime
    reason: Reason
    log_size: LogSize
    log_root: Sha256


@final
class RevocationList(Value):
    r"""Every revoked key of a service.

    Attributes:
      issued: when the list was signed: of two lists the later one counts.
    """

    issued: AwareDatetime
    revocations: Annotated[tuple[Revocation, ...], Field(max_length=1000)]

    def find(self, key_id: str) -> Revocation | None:
        """The revocation of this key, or None."""
        return next((one for one in self.revocations if one.kid == key_id), None)


@final
class RevocationsRefused(Exception):
    """The list can't be read, or isn't signed by a trusted key that it doesn't itself revoke."""


def revoke(session: Session, settings: Settings, key_id: str, reason: Reason) -> Revocation:
    r"""Revoke a key for good, and make a new one first if none would be left. Nothing is logged meanwhile: this locks the log.

    Raises:
      SigningKeyNotFound: this service has no such key.
      KeyAlreadyRevoked: it was already revoked. A superseded key may still be declared compromised.
    """
    path = key_file(settings, key_id)
    if path is None:
        raise SigningKeyNotFound(key_id)
    row = lock(session)
    found = Revocation(
        kid=key_id,
        time=datetime.now(UTC).replace(microsecond=0),
        reason=reason,
        log_size=row.size,
        log_root=root_of(session, row.size).hex(),
    )
    kept = revocation_file(path)
    if all(revocation_file(other).exists() for other in key_files(settings) if other != path):
        rotate(settings)
    if not write_once(kept, canonical_json(found)):
        before = _kept(kept.read_bytes())
        if reason is not Reason.COMPROMISED or before.reason is Reason.COMPROMISED:
            raise KeyAlreadyRevoked(key_id, before.reason)
        draft = kept.with_suffix(".worse")
        draft.unlink(missing_ok=True)  # of a process that was killed right here; the log's lock keeps others away
        write_once(draft, canonical_json(found))
        draft.replace(kept)
    return found


def revocations(settings: Settings) -> RevocationList:
    """Every revocation, the oldest key's first. Raises SigningKeyUnusable if one can't be read."""
    files = [revocation_file(path) for path in key_files(settings)]
    try:
        kept = tuple(_kept(path.read_bytes()) for path in files if path.exists())
    except ValidationError as error:
        raise SigningKeyUnusable(str(settings.data_dir / "keys"), "a revocation in it can't be read") from error
    return RevocationList(issued=datetime.now(UTC).replace(microsecond=0), revocations=kept)


def signed_revocations(settings: Settings) -> bytes:
    """The list as a compact JWS by the newest key that isn't revoked, ending in a newline."""
    return sign(canonical_json(revocations(settings)), REVOCATIONS_TYPE, REVOCATIONS_CONTENT, signing_key(settings))


def read_revocations(text: bytes, keys: PublicKeySet) -> RevocationList:
    """The list in a JWS. Raises RevocationsRefused unless it was signed by a trusted key that it doesn't revoke."""
    try:
        opened = CompactJws.read(text, REVOCATIONS_TYPE, REVOCATIONS_CONTENT)
    except JwsUnreadable as error:
        raise RevocationsRefused(f"the list of revoked keys {error}") from error
    key = keys.find(opened.header.kid)
    if key is None:
        raise RevocationsRefused(f"the list of revoked keys is signed by a key that isn't among the {len(keys.keys)} trusted")
    if not opened.is_signed_by(key):
        raise RevocationsRefused(f"the list of revoked keys was changed after key {key.kid} signed it, or that key never did")
    try:
        found = RevocationList.model_validate_json(opened.content)
    except ValidationError as error:
        raise RevocationsRefused("the list of revoked keys isn't one that this version reads") from error
    if canonical_json(found) != opened.content:
        raise RevocationsRefused("the list of revoked keys isn't laid out as issued")
    if found.find(key.kid) is not None:
        raise RevocationsRefused(f"the list of revoked keys is signed by {key.kid}, which it revokes itself")
    return found


def _kept(content: bytes) -> Revocation:
    return Revocation.model_validate_json(content)
