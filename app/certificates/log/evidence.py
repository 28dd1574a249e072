r"""What a verifier may get in addition to a certificate and keys: a proof that it is in the log, and the list of revoked keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from zetadp.app.certificates.facts.report import Check, failed, not_checked, passed
from zetadp.app.certificates.log.checkpoint import LogHead
from zetadp.app.certificates.log.merkle_proofs import InclusionProof, ProofRefused, check_inclusion, read_proof
from zetadp.app.certificates.log.revocation_list import Reason, Revocation, RevocationList, RevocationsRefused, read_revocations
from zetadp.app.certificates.signing.keys import PublicKeySet

REVOKED = "revocation"
"""Name of the check that fails if a key is revoked."""


@final
@dataclass(frozen=True)
class Evidence:
    r"""As files hold it.

    Attributes:
      inclusion: the proof as ``/v1/certificates/{id}/inclusion`` gives it; None if there is none.
      revocations: the list as ``/.well-known/zetadp-revocations.jws`` gives it; None if there is none.
    """

    inclusion: bytes | None = None
    revocations: bytes | None = None


def check_evidence(statement: bytes, key_ids: tuple[str, ...], keys: PublicKeySet, evidence: Evidence) -> Iterator[Check]:
    """Checks whether the statement is in the log, and whether the keys that signed it (all trusted) still count."""
    try:
        revoked = None if evidence.revocations is None else read_revocations(evidence.revocations, keys)
    except RevocationsRefused as error:
        # An unreadable list may hide a revocation, so it isn't taken for an empty one.
        yield failed("revocations", str(error))
        return
    head, logged = _check_log(statement, keys, evidence.inclusion, revoked)
    if revoked is None:
        yield not_checked(REVOKED, "no list of revoked keys was given")
    else:
        yield from (_check_key(key_id, revoked, head) for key_id in key_ids)
    yield logged


def _check_log(statement: bytes, keys: PublicKeySet, proof: bytes | None, revoked: RevocationList | None) -> tuple[LogHead | None, Check]:
    if proof is None:
        return None, not_checked("log", "no proof of inclusion in the log was given")
    try:
        inclusion = read_proof(proof, InclusionProof)
        head, key = check_inclusion(statement, inclusion, keys)
    except ProofRefused as error:
        return None, failed("log", f"the proof of inclusion doesn't hold: {error}")
    ended = None if revoked is None else revoked.find(key.kid)
    if ended is not None and not _is_of(ended, head):
        return None, failed("log", f"the log's head is signed by {key.kid}, {_revoked_as(ended)}: get a new proof")
    where = f"entry {inclusion.leaf_index + 1} of {head.size} in {head.origin} with root {head.root}"
    return head, passed("log", f"{where}, signed by the trusted key {key.kid}")


def _check_key(key_id: str, revoked: RevocationList, head: LogHead | None) -> Check:
    found = revoked.find(key_id)
    as_of = f"as of {revoked.issued:%Y-%m-%d %H:%M} UTC"
    if found is None:
        return passed(REVOKED, f"the key {key_id} isn't revoked, {as_of}")
    signer = f"signed by {key_id}, {_revoked_as(found)}"
    if found.reason is Reason.COMPROMISED:
        return failed(REVOKED, f"{signer}: don't trust anything that it signed, before that or after")
    if head is None or not _is_of(found, head):
        return failed(
            REVOKED, f"{signer}; it isn't proved to be from before: that takes a proof of inclusion in the log of {found.log_size}"
        )
    return passed(REVOKED, f"{signer}; this certificate is from before: it is in the log as it was then")


def _is_of(revocation: Revocation, head: LogHead) -> bool:
    """Whether this is the log that the revocation states. A compromised key is never trusted, not even for a matching root."""
    same = (head.size, head.root) == (revocation.log_size, revocation.log_root)
    return same and revocation.reason is not Reason.COMPROMISED


def _revoked_as(revocation: Revocation) -> str:
    return f"which was revoked on {revocation.time:%Y-%m-%d %H:%M} UTC as {revocation.reason.value}"
