r"""The log's answers: signed heads and proofs, for its current size or an earlier one."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from zetadp.app.certificates.errors import CertificateNotFound, LogSizeUnknown
from zetadp.app.certificates.log import journal
from zetadp.app.certificates.log.checkpoint import LogHead, open_checkpoint, origin_of, sign_checkpoint
from zetadp.app.certificates.log.entries import CERTIFICATE, certificate_entry, plan_index
from zetadp.app.certificates.log.evidence import Evidence, Signed
from zetadp.app.certificates.log.merkle_proofs import ConsistencyProof, InclusionProof, Proofs, SignedHead, encode
from zetadp.app.certificates.log.notes import Note
from zetadp.app.certificates.log.revocations import revocations, signed_revocations
from zetadp.app.certificates.signing.keys import jwks, signing_key
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.certificate_log import AnnouncedPlanRow, LogHeadRow

HEADS = 64
"""Kept heads after an entry that are looked at for witnesses' signatures."""


def signed_head(session: Session, settings: Settings, size: int | None = None) -> SignedHead:
    """The head of the log's current or a past size, signed now. Raises LogSizeUnknown for a size it never had."""
    present = journal.size_of(session)
    if size is not None and size > present:
        raise LogSizeUnknown("size", f"at most {present}, the number of entries", size)
    return SignedHead(checkpoint=_checkpoint(session, settings, present if size is None else size))


def proofs_of(session: Session, settings: Settings, certificate_id: str, size: int | None = None) -> Proofs:
    r"""Proof that a certificate is in the log, and its plan before it. The caller has checked that the certificate is its tenant's.

    Args:
      size: of the log under whose head the certificate is proved; its current one if None.
    Raises:
      CertificateNotFound: it isn't in the log.
      LogSizeUnknown: the log never had this size, or the certificate came later.
    """
    number = journal.number_of(session, CERTIFICATE, certificate_id)
    if number is None:
        raise CertificateNotFound(certificate_id)
    return _proofs(session, settings, number, size)


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


def own_evidence(session: Session, settings: Settings, signed: Signed) -> Evidence:
    """What this service itself knows about a certificate: if its key is revoked, the proof shows that it was logged before."""
    listed = revocations(settings)
    number = journal.number_of_entry(session, certificate_entry(signed.content, signed.announced))
    if number is None:
        return Evidence(proofs=None, revocations=signed_revocations(settings))
    ended = next((found for key_id in signed.key_ids if (found := listed.find(key_id)) is not None), None)
    size = ended.log_size if ended is not None and number < ended.log_size <= journal.size_of(session) else None
    return Evidence(proofs=encode(_proofs(session, settings, number, size)), revocations=signed_revocations(settings))


def head_of(session: Session, settings: Settings, size: int) -> LogHead:
    """The head of this size, unsigned."""
    return LogHead(origin=origin_of(jwks(settings).keys[-1]), size=size, root=journal.root_of(session, size).hex())


def _proofs(session: Session, settings: Settings, number: int, size: int | None) -> Proofs:
    present = journal.size_of(session)
    kept = None if size is not None else _witnessed_head(session, number)
    chosen = kept.size if kept is not None else present if size is None else size
    if not number < chosen <= present:
        raise LogSizeUnknown("size", f"from {number + 1}, where the certificate is in the log, to {present}", chosen)
    checkpoint = _checkpoint(session, settings, chosen) if kept is None else _counting(kept.checkpoint, settings)
    certificate = InclusionProof(checkpoint, number, tuple(journal.inclusion_path(session, number, chosen)))
    plan, stamps = _plan_proof(session, settings, number)
    pending = "witnesses" if size is None and settings.witnesses is not None and not _is_asked(session, number) else None
    return Proofs(certificate=certificate.text, plan=plan, time_stamps=stamps, pending=pending)


def _plan_proof(session: Session, settings: Settings, number: int) -> tuple[str | None, tuple[str, ...]]:
    """Under the head that its certificate names, with the time stamps on it."""
    index = plan_index(journal.content_of(session, number))
    planned = None if index is None else session.get(AnnouncedPlanRow, index)
    if index is None or planned is None or planned.head_size is None:
        return None, ()
    kept = session.get(LogHeadRow, planned.head_size)
    checkpoint = _checkpoint(session, settings, planned.head_size) if kept is None else _counting(kept.checkpoint, settings)
    path = tuple(journal.inclusion_path(session, index, planned.head_size))
    return InclusionProof(checkpoint, index, path).text, tuple(kept.time_stamps) if kept is not None else ()


def newest_head(session: Session, settings: Settings) -> str:
    """The newest checkpoint that witnesses signed, if that is of the present size; else one of the present size, signed now."""
    kept = session.get(LogHeadRow, size := journal.size_of(session))
    return _checkpoint(session, settings, size) if kept is None else _counting(kept.checkpoint, settings)


def _is_asked(session: Session, number: int) -> bool:
    """Whether witnesses were asked about a head after this entry, whatever they answered."""
    return session.scalar(select(LogHeadRow.size).where(LogHeadRow.size > number).limit(1)) is not None


def _witnessed_head(session: Session, number: int) -> LogHeadRow | None:
    """Of the heads after this entry that were kept, the one that most witnesses signed, the earliest of those; None if none did."""
    later = session.scalars(select(LogHeadRow).where(LogHeadRow.size > number).order_by(LogHeadRow.size).limit(HEADS)).all()
    signed = [(len(Note.read(head.checkpoint).signatures), head) for head in later]
    most = max((count for count, _ in signed), default=1)
    return next((head for count, head in signed if count == most), None) if most > 1 else None


def _counting(checkpoint: str, settings: Settings) -> str:
    """The checkpoint; newly signed by the service, if the key that signed it was revoked since. Witnesses signed the text alone."""
    head, key = open_checkpoint(checkpoint, jwks(settings))
    if revocations(settings).find(key.kid) is None:
        return checkpoint
    others = [one.line for one in Note.read(checkpoint).signatures if one.name != head.origin]
    return sign_checkpoint(head, signing_key(settings)) + "".join(others)


def _checkpoint(session: Session, settings: Settings, size: int) -> str:
    return sign_checkpoint(head_of(session, settings, size), signing_key(settings))
