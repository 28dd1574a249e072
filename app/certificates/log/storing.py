r"""Storing a certificate, its row and its entry in the log, both or neither; and finding it again."""

from __future__ import annotations

import json
from datetime import datetime
from typing import cast

from sqlalchemy import select
from sqlalchemy.orm import Session

from zetadp.app.certificates.errors import CertificateNotFound, SigningKeyRevoked
from zetadp.app.certificates.facts.announced import AnnouncedFacts
from zetadp.app.certificates.log.entries import CERTIFICATE, certificate_entry
from zetadp.app.certificates.log.journal import append, lock
from zetadp.app.certificates.signing.envelope import Envelope, encode
from zetadp.app.certificates.signing.keys import is_revoked
from zetadp.app.kit.database import new_id
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.certificates import CertificateRow
from zetadp.app.tables.jobs import JobRow


def store_certificate(session: Session, settings: Settings, job_id: str, envelope: bytes, created: datetime) -> str:
    r"""Store an issued certificate in the session's transaction; returns its id.

    Raises:
      SigningKeyRevoked: its key was revoked since it signed. Revoking takes the log's lock too, so none that is revoked comes in later.
    """
    opened = Envelope.model_validate_json(envelope)
    lock(session)
    for signature in opened.signatures:
        if is_revoked(settings, signature.keyid):
            raise SigningKeyRevoked(signature.keyid)
    certificate_id = new_id()
    session.add(CertificateRow(id=certificate_id, job_id=job_id, created=created, envelope=cast("dict[str, object]", json.loads(envelope))))
    entry = certificate_entry(opened.content, announced_in(opened.content))
    append(session, CERTIFICATE, certificate_id, entry, created)
    return certificate_id


def announced_in(statement: bytes) -> AnnouncedFacts | None:
    """Where the plan of a statement that this service signed was logged."""
    found = json.loads(statement)["predicate"].get("announced")
    return None if found is None else AnnouncedFacts.model_validate(found)


def stored_envelope(session: Session, certificate_id: str, tenant: str) -> bytes:
    """The envelope's bytes as they were issued: a database keeps its content, and the layout is one and the same.

    Raises:
      CertificateNotFound: this tenant has none with this id.
    """
    # A certificate is its job's tenant's; that is said in one place, the job's row.
    row = session.scalar(
        select(CertificateRow)
        .join(JobRow, JobRow.id == CertificateRow.job_id)
        .where(CertificateRow.id == certificate_id, JobRow.tenant == tenant)
    )
    if row is None:
        raise CertificateNotFound(certificate_id)
    return encode(Envelope.model_validate(row.envelope))
