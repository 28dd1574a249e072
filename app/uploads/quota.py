r"""A tenant's room on the disk: taken before a byte is written, in one transaction that others of the tenant wait for."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import delete, func, select, text
from sqlalchemy.orm import Session

from app.uploads.errors import QuotaExceeded
from app.uploads.tables import DataSetRow, UploadRow

BEGUN = ("receiving", "making")
_LOCK = 20_250_102
"""The first key of the tenants' advisory locks on PostgreSQL."""


def free_bytes(session: Session, tenant: str, quota: int, moment: datetime) -> int:
    """What is left, which stays so until this transaction's end; whatever was begun and is overdue is given up first."""
    lock_tenant(session, tenant)
    for row in (UploadRow, DataSetRow):
        session.execute(delete(row).where(row.tenant == tenant, row.state.in_(BEGUN), row.due < moment))
    return quota - used_bytes(session, tenant)


def used_bytes(session: Session, tenant: str) -> int:
    """Of uploads and data sets, begun ones with all that is kept for them."""
    return sum(
        session.scalar(select(func.coalesce(func.sum(row.bytes), 0)).where(row.tenant == tenant)) or 0 for row in (UploadRow, DataSetRow)
    )


def check_room(session: Session, tenant: str, quota: int, asked: int, moment: datetime) -> None:
    """Raises QuotaExceeded where ``asked`` bytes more don't fit. The room is this transaction's until its end."""
    if asked > (free := free_bytes(session, tenant, quota, moment)):
        raise QuotaExceeded(asked, quota - free, quota)


def lock_tenant(session: Session, tenant: str) -> None:
    """One transaction of a tenant at a time. On SQLite, one of all that write goes on anyway."""
    if session.get_bind().dialect.name != "sqlite":
        session.execute(text("SELECT pg_advisory_xact_lock(:first, hashtext(:tenant))"), {"first": _LOCK, "tenant": tenant})
