r"""The log's answers: signed heads and proofs, for its current size or an earlier one."""

from __future__ import annotations

from sqlalchemy.orm import Session

from zetadp.app.certificates.errors import CertificateNotFound, LogSizeUnknown
from zetadp.app.certificates.log import journal
from zetadp.app.certificates.log.checkpoint import LogHead, origin_of, sign_checkpoint
from zetadp.app.certificates.log.evidence import Evidence
from zetadp.app.certificates.log.merkle_proofs import ConsistencyProof, InclusionProof, SignedHead, encode
from zetadp.app.certificates.log.revocations import revocations, signed_revocations
from zetadp.app.certificates.signing.keys import jwks, signing_key
from zetadp.app.kit.settings import Settings


def signed_head(session: Session, settings: Settings, size: int | None = None) -> SignedHead:
    """The head of the log's current or a past size, signed now. Raises LogSizeUnknown for a size it never had."""
    present = journal.size_of(session)
    if size is not None and size > present:
        raise LogSizeUnknown("size", f"at most {present}, the number of entries", size)
    return SignedHead(checkpoint=_checkpoint(session, settings, present if size is None else size))


def inclusion_proof(session: Session, settings: Settings, certificate_id: str, size: int | None = None) -> InclusionProof:
    r"""Proof that a certificate is in the log. The caller has checked that the certificate is its tenant's.

    Raises:
      CertificateNotFound: it isn't in the log.
      LogSizeUnknown: the log never had this size, or the certificate came later.
    """
    number = journal.number_of(session, certificate_id)
    if number is None:
        raise CertificateNotFound(certificate_id)
    return _inclusion(session, settings, number, size)


def consistency_proof(session: Session, settings: Settings, first: int, second: int | None = None) -> ConsistencyProof:
    """Proof that the log of size ``first`` is the beginning of that of size ``second``. Raises LogSizeUnknown for sizes it never had."""
    present = journal.size_of(session)
    chosen = present if second is None else second
    if chosen > present:
        raise LogSizeUnknown("second", f"at most {present}, the number of entries", chosen)
    if first > chosen:
        raise LogSizeUnknown("first", f"at most {chosen}, the second size", first)
    path = journal.consistency_path(session, first, chosen)
    return ConsistencyProof(
        first=first, second=chosen, path=tuple(part.hex() for part in path), checkpoint=_checkpoint(session, settings, chosen)
    )


def own_evidence(session: Session, settings: Settings, statement: bytes, key_ids: tuple[str, ...]) -> Evidence:
    """What this service itself knows about a statement: if its key is revoked, the proof shows that it was logged before."""
    listed = revocations(settings)
    number = journal.number_of_statement(session, statement)
    if number is None:
        return Evidence(inclusion=None, revocations=signed_revocations(settings))
    ended = next((found for key_id in key_ids if (found := listed.find(key_id)) is not None), None)
    size = ended.log_size if ended is not None and number < ended.log_size <= journal.size_of(session) else None
    proof = encode(_inclusion(session, settings, number, size))
    return Evidence(inclusion=proof, revocations=signed_revocations(settings))


def _inclusion(session: Session, settings: Settings, number: int, size: int | None) -> InclusionProof:
    present = journal.size_of(session)
    chosen = present if size is None else size
    if not number < chosen <= present:
        raise LogSizeUnknown("size", f"from {number + 1}, where the certificate is in the log, to {present}", chosen)
    path = journal.inclusion_path(session, number, chosen)
    return InclusionProof(checkpoint=_checkpoint(session, settings, chosen), leaf_index=number, path=tuple(part.hex() for part in path))


def _checkpoint(session: Session, settings: Settings, size: int) -> str:
    head = LogHead(origin=origin_of(jwks(settings).keys[-1]), size=size, root=journal.root_of(session, size).hex())
    return sign_checkpoint(head, signing_key(settings))
