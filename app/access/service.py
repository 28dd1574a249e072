r"""Operations on keys: make, list, rotate, revoke, and look up the owner. Each is one transaction."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import final

from sqlalchemy import exists, select

from zetadp.app.access.caller import Caller
from zetadp.app.access.errors import KeyConflict, KeyNeeded, KeyNotFound
from zetadp.app.access.resources import Key, KeyPage, NewKey
from zetadp.app.access.scopes import Scope
from zetadp.app.kit.database import Database, now
from zetadp.app.kit.key_text import KeyText
from zetadp.app.tables.access import KeyRow
from zetadp.app.tables.tenants import DEFAULT_TENANT
from zetadp.mechanisms.errors import InvalidParameter

FIRST_KEY = "first admin key"
_NO_DIGEST = 64 * "0"


@final
class KeyService:
    """The keys of one service, of all its tenants."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, tenant: str, name: str, scopes: Sequence[Scope], expires: datetime | None) -> NewKey:
        """A new key; its text is in the answer and nowhere else. Raises InvalidParameter if it would have expired already."""
        if expires is not None and expires <= now():
            raise InvalidParameter("expires", "in the future", expires.isoformat())
        return self._stored(KeyText.fresh(), tenant, name, scopes, expires)

    def page(self, tenant: str, before: str | None, limit: int) -> KeyPage:
        """At most ``limit`` keys that are older than the key ``before``, newest first; revoked ones too."""
        query = select(KeyRow).where(KeyRow.tenant == tenant).order_by(KeyRow.id.desc()).limit(limit + 1)
        if before is not None:
            query = query.where(KeyRow.id < before)
        with self._database.reading() as session:
            rows = list(session.scalars(query))
        return KeyPage(keys=tuple(_resource(row) for row in rows[:limit]), next=rows[limit - 1].id if len(rows) > limit else None)

    def rotate(self, tenant: str, key_id: str, grace_seconds: int) -> NewKey:
        """A new key of the same principal, with the name, scopes and expiry of the old one, which expires after the grace.

        Raises KeyNotFound, KeyConflict.
        """
        fresh, moment = KeyText.fresh(), now()
        with self._database.writing() as session:
            old = _found(session.get(KeyRow, key_id, with_for_update=True), tenant, key_id)
            if (state := _state(old, moment)) is not None:
                raise KeyConflict(key_id, state, "rotated")
            row = _row(fresh, tenant, old.name, [Scope(scope) for scope in old.scopes], old.expires, old.principal)
            session.add(row)
            end = moment + timedelta(seconds=grace_seconds)
            old.expires = end if old.expires is None else min(old.expires, end)
            return NewKey(key=_resource(row), text=fresh.text)

    def revoke(self, tenant: str, key_id: str) -> Key:
        """End a key at once. Revoking twice has no further effect. Raises KeyNotFound."""
        with self._database.writing() as session:
            row = _found(session.get(KeyRow, key_id, with_for_update=True), tenant, key_id)
            row.revoked = row.revoked or now()
            return _resource(row)

    def caller(self, text: str) -> Caller:
        """The owner of this key. Raises KeyNeeded if it isn't valid, without saying why."""
        shown = KeyText.read(text)
        if shown is None:
            raise KeyNeeded
        with self._database.reading() as session:
            row = session.get(KeyRow, shown.id)
        # Compared in any case, in the same time whatever it is compared with.
        is_right = hmac.compare_digest(shown.sha256, _NO_DIGEST if row is None else row.secret_sha256)
        if row is None or not is_right or _state(row, now()) is not None:
            raise KeyNeeded
        return Caller(tenant=row.tenant, key_id=row.id, principal=row.principal, scopes=frozenset(Scope(scope) for scope in row.scopes))

    def is_valid(self, key_id: str) -> bool:
        """Whether the key is there, not revoked and not expired."""
        with self._database.reading() as session:
            row = session.get(KeyRow, key_id)
        return row is not None and _state(row, now()) is None

    def is_empty(self) -> bool:
        """Whether no tenant ever had a key: revoked and expired ones stay."""
        with self._database.reading() as session:
            return not session.scalar(select(exists().select_from(KeyRow)))

    def first(self) -> NewKey:
        """The first admin key, with every scope, of the operator's tenant."""
        return self._stored(KeyText.fresh(), DEFAULT_TENANT, FIRST_KEY, tuple(Scope), None)

    def adopt(self, text: str) -> bool:
        """Store a key that the operator made as an admin key, unless it is known already; returns whether it was new.

        A known key stays as it is: a revoked one isn't restored. Raises InvalidParameter if its id belongs to another key.
        """
        given = KeyText.read(text)
        if given is None:
            raise InvalidParameter("admin_key", "of the form zdp_<24 hexadecimal digits>_<64 hexadecimal digits>", "something else")
        with self._database.writing() as session:
            known = session.get(KeyRow, given.id)
            if known is None:
                session.add(_row(given, DEFAULT_TENANT, FIRST_KEY, tuple(Scope), None, given.id))
            elif not hmac.compare_digest(known.secret_sha256, given.sha256):
                raise InvalidParameter("admin_key", "the key that is stored under its id", "another secret")
        return known is None

    def _stored(self, text: KeyText, tenant: str, name: str, scopes: Sequence[Scope], expires: datetime | None) -> NewKey:
        row = _row(text, tenant, name, scopes, expires, text.id)
        with self._database.writing() as session:
            session.add(row)
        return NewKey(key=_resource(row), text=text.text)


def _row(text: KeyText, tenant: str, name: str, scopes: Sequence[Scope], expires: datetime | None, principal: str) -> KeyRow:
    return KeyRow(
        id=text.id,
        tenant=tenant,
        principal=principal,
        name=name,
        secret_sha256=text.sha256,
        scopes=sorted({str(scope) for scope in scopes}),
        created=now(),
        expires=expires,
        revoked=None,
        last_used=None,
    )


def _found(row: KeyRow | None, tenant: str, key_id: str) -> KeyRow:
    if row is None or row.tenant != tenant:
        raise KeyNotFound(key_id)
    return row


def _state(row: KeyRow, moment: datetime) -> str | None:
    """Why the key isn't valid; None if it is."""
    if row.revoked is not None:
        return "revoked"
    return "expired" if row.expires is not None and row.expires <= moment else None


def _resource(row: KeyRow) -> Key:
    return Key(
        id=row.id,
        tenant=row.tenant,
        principal=row.principal,
        name=row.name,
        scopes=tuple(Scope(scope) for scope in row.scopes),
        created=row.created,
        expires=row.expires,
        revoked=row.revoked,
        last_used=row.last_used,
    )
