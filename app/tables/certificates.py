r"""The table of the certificates: each envelope as it was signed, never changed."""

from __future__ import annotations

from datetime import datetime
from typing import final

from sqlalchemy import JSON, ForeignKey, String, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, Session, mapped_column

from app.certificates.errors import CertificateNotFound
from app.certificates.signing.envelope import Envelope, encode
from app.kit.database import Base, UtcTime
from app.tables.jobs import JobRow


@final
class CertificateRow(Base):
    """A certificate, one for each job at most; ``envelope`` is the DSSE envelope as JSON."""

    __tablename__ = "certificates"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), unique=True)
    created: Mapped[datetime] = mapped_column(UtcTime())
    envelope: Mapped[dict[str, object]] = mapped_column(JSON().with_variant(JSONB(), "postgresql"))


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
