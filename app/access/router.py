r"""The REST interface of keys and of the audit log. An admin manages its own tenant and can't see other tenants' keys."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response, status

from zetadp.app.access.audit_log import AuditLog
from zetadp.app.access.caller import Caller, requires
from zetadp.app.access.lifecycle import audit_log, key_service
from zetadp.app.access.resources import AuditPage, Key, KeyPage, KeyRequest, KeyRotation, NewKey
from zetadp.app.access.scopes import Scope
from zetadp.app.access.service import KeyService
from zetadp.app.kit.key_text import ID_PATTERN

Admin = Annotated[Caller, Depends(requires(Scope.ADMIN))]
Keys = Annotated[KeyService, Depends(key_service)]
KeyId = Annotated[str, Path(max_length=64, description="Id of the key: the part between the underscores of its text.")]
Cursor = Annotated[str | None, Query(pattern=ID_PATTERN, description="The `next` of the previous page.")]
Limit = Annotated[int, Query(ge=1, le=200)]

router = APIRouter(tags=["access"])


@router.post("/keys", status_code=status.HTTP_201_CREATED, summary="Create a key")
def create_key(asked: KeyRequest, admin: Admin, keys: Keys, response: Response) -> NewKey:
    """The answer shows the key's text, only this once. There is no Idempotency-Key: a second answer couldn't show the text again."""
    made = keys.create(admin.tenant, asked.name, asked.scopes, asked.expires)
    response.headers["Location"] = f"/v1/keys/{made.key.id}"
    return made


@router.get("/keys", summary="List keys, newest first")
def list_keys(admin: Admin, keys: Keys, limit: Limit = 50, cursor: Cursor = None) -> KeyPage:
    """Your own tenant's keys, including revoked and expired ones; never their secrets."""
    return keys.page(admin.tenant, cursor, limit)


@router.post("/keys/{key_id}/rotate", status_code=status.HTTP_201_CREATED, summary="Replace a key")
def rotate_key(key_id: KeyId, rotation: KeyRotation, admin: Admin, keys: Keys, response: Response) -> NewKey:
    """A new key with the old one's name, scopes and expiry. The old one stays valid for the grace period, so that holders can switch."""
    made = keys.rotate(admin.tenant, key_id, rotation.grace_seconds)
    response.headers["Location"] = f"/v1/keys/{made.key.id}"
    return made


@router.delete("/keys/{key_id}", summary="Revoke a key")
def revoke_key(key_id: KeyId, admin: Admin, keys: Keys) -> Key:
    """It ends at once; streams opened with it end within seconds. Its name stays for the audit log."""
    return keys.revoke(admin.tenant, key_id)


@router.get("/audit-log", summary="Read the audit log, newest first")
def read_audit_log(
    admin: Admin,
    audit: Annotated[AuditLog, Depends(audit_log)],
    limit: Limit = 50,
    cursor: Annotated[int | None, Query(ge=1, le=2**62, description="The `next` of the previous page.")] = None,
) -> AuditPage:
    """Every write and every refused access of your own tenant. Those without a valid key have no tenant: `default`'s admins see them."""
    return audit.page(admin.tenant, cursor, limit)
