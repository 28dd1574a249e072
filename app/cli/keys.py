r"""``keys``: keys for the operator, directly on this machine's database. A tenant's first admin key is made here."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated

import typer

from zetadp.app.access.audit_log import AuditLog, local_event
from zetadp.app.access.errors import AccessError, KeyNotFound
from zetadp.app.access.resources import LONGEST_GRACE, NewKey
from zetadp.app.access.scopes import Scope
from zetadp.app.access.service import KeyService
from zetadp.app.cli.console import AsJson, Exit, clear_errors, fail, out, print_json
from zetadp.app.cli.processes import read_settings
from zetadp.app.kit.database import Database, now
from zetadp.app.kit.key_text import KeyText
from zetadp.app.tables.tenants import DEFAULT_TENANT, TENANT_PATTERN

LISTED = 200

Tenant = Annotated[str, typer.Option(help="The key's tenant: lowercase letters, digits and hyphens.")]
KeyId = Annotated[str, typer.Argument(help="Id of the key, as `keys list` shows it.")]

commands = typer.Typer(name="keys", help="Make, list, rotate and revoke keys, directly on this machine's database.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(commands)


@commands.command()
def create(
    name: Annotated[str, typer.Option(help="Whose key it is or what it is for.")],
    scope: Annotated[list[Scope], typer.Option(help="What it may be used for (repeatable).")],
    tenant: Tenant = DEFAULT_TENANT,
    days: Annotated[float | None, typer.Option(min=0.001, max=36_500, help="Expires after this many days; never if absent.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it, only this once. A tenant exists once it has a key."""
    if re.fullmatch(TENANT_PATTERN, tenant) is None:
        fail(f"tenant must be small letters, digits and hyphens, at most 63, got {tenant[:80]!a}", Exit.USAGE)
    if not name or len(name) > 100 or not name.isprintable():
        fail(f"name must have 1 to 100 printable characters, got {name[:80]!a}", Exit.USAGE)
    with _keys() as (keys, audit):
        made = keys.create(tenant, name, scope, None if days is None else now() + timedelta(days=days))
        audit.record(local_event(tenant, made.key.id, "keys create", made.key.id))
    _show(made, as_json=as_json)


@commands.command(name="list")
def list_keys(tenant: Tenant = DEFAULT_TENANT, as_json: AsJson = False) -> None:
    """List a tenant's newest 200 keys; never their secrets."""
    with _keys() as (keys, _):
        found = keys.page(tenant, None, LISTED).keys
    if as_json:
        out.print(json.dumps([key.model_dump(mode="json") for key in found], indent=2), markup=False)
        return
    moment = now()
    for key in found:
        end = "" if key.expires is None else f"expires {key.expires:%Y-%m-%d %H:%M} UTC"
        is_over = key.expires is not None and key.expires <= moment
        state = "revoked" if key.revoked is not None else "expired" if is_over else end or "valid"
        used = "never used" if key.last_used is None else f"last used {key.last_used:%Y-%m-%d %H:%M} UTC"
        rotated = "" if key.principal == key.id else f"  rotated from {key.principal}"
        out.print(f"{key.id}  {key.name}  {','.join(key.scopes)}  {state}  {used}{rotated}", markup=False)


@commands.command()
def rotate(
    key_id: KeyId,
    tenant: Tenant = DEFAULT_TENANT,
    grace_seconds: Annotated[int, typer.Option(min=0, max=LONGEST_GRACE, help="How long the old key stays valid.")] = 86_400,
    as_json: AsJson = False,
) -> None:
    """Replace a key by a new one with the same name, scopes and expiry, and print the new one, only this once."""
    with _keys() as (keys, audit):
        made = keys.rotate(tenant, key_id, grace_seconds)
        audit.record(local_event(tenant, made.key.id, "keys rotate", key_id))
    _show(made, as_json=as_json)


@commands.command()
def revoke(key_id: KeyId, tenant: Tenant = DEFAULT_TENANT) -> None:
    """End a key at once."""
    with _keys() as (keys, audit):
        keys.revoke(tenant, key_id)
        audit.record(local_event(tenant, key_id, "keys revoke", key_id))
    out.print(f"key {key_id} is revoked", markup=False)


@commands.command()
def generate() -> None:
    """Print a fresh key that is stored nowhere, for the ZETADP_ADMIN_KEY of a service that you start later."""
    sys.stdout.write(KeyText.fresh().text + "\n")


@contextmanager
def _keys() -> Generator[tuple[KeyService, AuditLog]]:
    with clear_errors():
        database = Database(read_settings())
        try:
            database.migrate()
            audit = AuditLog(database)
            try:
                yield KeyService(database), audit
            finally:
                audit.close()
        except AccessError as refused:
            fail(str(refused), Exit.NOT_FOUND if isinstance(refused, KeyNotFound) else Exit.FAILED)
        finally:
            database.close()


def _show(made: NewKey, *, as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    out.print(f"key {made.key.id} of tenant {made.key.tenant} ({', '.join(made.key.scopes)}); it is shown only this once:", markup=False)
    sys.stdout.write(made.text + "\n")
