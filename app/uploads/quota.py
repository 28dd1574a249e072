r"""A tenant's storage quota: reserved before a byte is written, in one transaction that the tenant's others wait for."""

from __future__ import annotations

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from zetadp.app.tables.uploads import DataSetRow, UploadRow
from zetadp.app.uploads.errors import QuotaExceeded

_LOCK = 20_250_102
"""The first key of the tenants' advisory locks on PostgreSQL."""


def free_bytes(session: Session, tenant: str, quota: int) -> int:
    """What is left of a tenant's quota; it doesn't change until this transaction's end."""
    lock_tenant(session, tenant)
    return quota - used_bytes(session, tenant)


def used_bytes(session: Session, tenant: str) -> int:
    """Bytes of uploads and data sets; unfinished ones count with all that is reserved for them."""
    sums = (select(func.coalesce(func.sum(row.bytes), 0)).where(row.tenant == tenant) for row in (UploadRow, DataSetRow))
    return sum(int(session.scalar(query) or 0) for query in sums)


def check_room(session: Session, tenant: str, quota: int, asked: int) -> None:
    """Raises QuotaExceeded if ``asked`` more bytes don't fit. The space is this transaction's until its end."""
    if asked > (free := free_bytes(session, tenant, quota)):
        raise QuotaExceeded(asked, quota - free, quota)


def lock_tenant(session: Session, tenant: str) -> None:
    """Allows one transaction per tenant at a time. SQLite has only one writing transaction anyway."""
    if session.get_bind().dialect.name != "sqlite":
        session.execute(text("SELECT pg_advisory_xact_lock(:first, hashtext(:tenant))"), {"first": _LOCK, "tenant": tenant})
