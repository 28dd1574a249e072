r"""The tables of uploads and data sets. A tenant's used quota is the sum of ``bytes`` over both, including unfinished ones."""

from __future__ import annotations

from datetime import datetime
from typing import final

from sqlalchemy import BigInteger, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from zetadp.app.kit.database import Base, UtcTime
from zetadp.app.tables.tenants import TENANT_LENGTH


@final
class UploadRow(Base):
    """An upload. While it is ``receiving``, until ``due`` at most, ``bytes`` is the space reserved for it; then its size."""

    __tablename__ = "uploads"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    tenant: Mapped[str] = mapped_column(String(TENANT_LENGTH))
    state: Mapped[str] = mapped_column(String(16))
    created: Mapped[datetime] = mapped_column(UtcTime())
    due: Mapped[datetime] = mapped_column(UtcTime())
    name: Mapped[str] = mapped_column(String(200))
    format: Mapped[str] = mapped_column(String(16))
    bytes: Mapped[int] = mapped_column(BigInteger())
    sha256: Mapped[str | None] = mapped_column(String(64))
    contents: Mapped[str | None] = mapped_column(Text())
    idempotency_key: Mapped[str | None] = mapped_column(String(255))

    __table_args__ = (UniqueConstraint("tenant", "idempotency_key"), Index(None, "tenant", "id"))


@final
class DataSetRow(Base):
    """A data set. While it is ``making``, until ``due`` at most, ``bytes`` is the space reserved for it; then its size.

    ``definition`` is the request, ``stored`` its result, ``manifest`` the text whose digest certificates have. A ``deleted``
    row is kept for certificates that name it, without its arrays.
    """

    __tablename__ = "data_sets"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    tenant: Mapped[str] = mapped_column(String(TENANT_LENGTH))
    state: Mapped[str] = mapped_column(String(16))
    created: Mapped[datetime] = mapped_column(UtcTime())
    due: Mapped[datetime] = mapped_column(UtcTime())
    deleted: Mapped[datetime | None] = mapped_column(UtcTime())
    bytes: Mapped[int] = mapped_column(BigInteger())
    definition: Mapped[str] = mapped_column(Text())
    stored: Mapped[str | None] = mapped_column(Text())
    manifest: Mapped[str | None] = mapped_column(Text())
    idempotency_key: Mapped[str | None] = mapped_column(String(255))
    request_sha256: Mapped[str] = mapped_column(String(64))

    __table_args__ = (UniqueConstraint("tenant", "idempotency_key"), Index(None, "tenant", "id"))
