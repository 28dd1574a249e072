r"""Revoked keys, with time and reason, in a list that is signed by a key that isn't revoked.

Each revocation states the log as it was at that moment, its size and its root, read while nobody could append. A certificate by a key that
was superseded or given up stays valid if it is proven to be in exactly that log: somebody who gets hold of the key later can sign with it,
but can't change a root that another key signed. Times aren't evidence, since anyone with a key can write any time. A certificate by a
compromised key is never valid: nobody can tell since when others had the key.
"""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import ValidationError
from sqlalchemy.orm import Session

from zetadp.app.certificates.errors import KeyAlreadyRevoked, SigningKeyNotFound, SigningKeyUnusable
from zetadp.app.certificates.log.journal import lock, root_of
from zetadp.app.certificates.log.revocation_list import Reason, Revocation, RevocationList
from zetadp.app.certificates.signing.canonical import canonical_json
from zetadp.app.certificates.signing.jws import REVOCATIONS_CONTENT, REVOCATIONS_TYPE, sign
from zetadp.app.certificates.signing.keys import key_file, key_files, revocation_file, rotate, signing_key, write_once
from zetadp.app.kit.settings import Settings


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


def _kept(content: bytes) -> Revocation:
    return Revocation.model_validate_json(content)
