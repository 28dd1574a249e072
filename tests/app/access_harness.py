r"""Keys of any tenant for the tests, made as the operator makes them: directly on the service's database."""

from __future__ import annotations

from datetime import datetime

from zetadp.app.access.resources import NewKey
from zetadp.app.access.scopes import Scope
from zetadp.app.access.service import KeyService
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings


def made(of: Settings, tenant: str, *scopes: Scope, expires: datetime | None = None) -> NewKey:
    """A new key of this tenant, with these scopes or all of them."""
    database = Database(of)
    try:
        return KeyService(database).create(tenant, "of a test", scopes or tuple(Scope), expires)
    finally:
        database.close()


def shown(key: NewKey | str) -> dict[str, str]:
    """The header that shows a key."""
    return {"Authorization": f"Bearer {key if isinstance(key, str) else key.text}"}
