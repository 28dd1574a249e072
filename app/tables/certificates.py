r"""The table of the certificates: each envelope as it was signed, never changed."""

from __future__ import annotations

from datetime import datetime
from typing import final

from sqlalchemy import JSON, ForeignKey, String
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from zetadp.app.kit.database import Base, UtcTime


@final
class CertificateRow(Base):
    """A certificate, one for each job at most; ``envelope`` is the DSSE envelope as JSON."""

    __tablename__ = "certificates"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), unique=True)
    created: Mapped[datetime] = mapped_column(UtcTime())
    envelope: Mapped[dict[str, object]] = mapped_column(JSON().with_variant(JSONB(), "postgresql"))
