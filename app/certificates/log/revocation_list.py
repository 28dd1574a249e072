r"""The list of revoked keys as its readers see it: what a revocation states, and who may sign the list."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, final

from pydantic import AwareDatetime, Field, ValidationError

from zetadp.app.certificates.facts.statement import Sha256
from zetadp.app.certificates.log.checkpoint import LogSize
from zetadp.app.certificates.signing.canonical import canonical_json
from zetadp.app.certificates.signing.jws import REVOCATIONS_CONTENT, REVOCATIONS_TYPE, CompactJws, JwsUnreadable
from zetadp.app.certificates.signing.keys import KeyText, PublicKeySet
from zetadp.mechanisms.base import Value


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
