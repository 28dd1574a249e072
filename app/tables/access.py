r"""The tables of keys and of the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import final

from sqlalchemy import JSON, BigInteger, Index, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from zetadp.app.kit.database import Base, UtcTime
from zetadp.app.tables.tenants import TENANT_LENGTH


@final
class KeyRow(Base):
    """A key without its secret: only the secret's SHA-256 is stored. A revoked key stays, so that the audit log's names keep a meaning.

    ``principal`` is the id of the first key of its rotations, its own where it wasn't made by one.
    """

    __tablename__ = "access_keys"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    tenant: Mapped[str] = mapped_column(String(TENANT_LENGTH))
    principal: Mapped[str] = mapped_column(String(32))
    name: Mapped[str] = mapped_column(String(100))
    secret_sha256: Mapped[str] = mapped_column(String(64))
    scopes: Mapped[list[str]] = mapped_column(JSON())
    created: Mapped[datetime] = mapped_column(UtcTime())
    expires: Mapped[datetime | None] = mapped_column(UtcTime())
    revoked: Mapped[datetime | None] = mapped_column(UtcTime())
    last_used: Mapped[datetime | None] = mapped_column(UtcTime())

    __table_args__ = (Index(None, "tenant", "id"),)


@final
class AuditRow(Base):
    """One action that was done or refused. Triggers in the database refuse to change a row or to remove one that isn't old.

    ``tenant`` and ``key_id`` are null if no valid key was sent.
    """

    __tablename__ = "audit_log"

    # SQLite counts up only what is an INTEGER.
    number: Mapped[int] = mapped_column(BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True)
    time: Mapped[datetime] = mapped_column(UtcTime())
    tenant: Mapped[str | None] = mapped_column(String(TENANT_LENGTH))
    key_id: Mapped[str | None] = mapped_column(String(32))
    address: Mapped[str] = mapped_column(String(64))
    action: Mapped[str] = mapped_column(String(200))
    target: Mapped[str] = mapped_column(String(500))
    status: Mapped[int]
    request_id: Mapped[str] = mapped_column(String(64))

    __table_args__ = (Index(None, "tenant", "number"), Index(None, "time"))
