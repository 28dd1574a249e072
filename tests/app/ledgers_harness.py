r"""Ledgers for the tests: a service over SQLite or a real PostgreSQL, definitions, events and spends."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.app.jobs_harness import postgresql_server
from zetadp.accountants import Event, Release, Repeated
from zetadp.accountants.filters import AnyBudget, GdpBudget, PureBudget, PureSpend
from zetadp.app.kit.database import Database, now
from zetadp.app.kit.settings import Settings
from zetadp.app.ledgers.ledger_definition import LedgerDefinition, Spent
from zetadp.app.ledgers.requests import ChargedUsers, Expiry, ReservationRequest
from zetadp.app.ledgers.resources import Ledger, Reservation
from zetadp.app.ledgers.service import LedgerService
from zetadp.app.tables.access import KeyRow
from zetadp.mechanisms import Adjacency, Gaussian, Sensitivity

TENANT = "clinic"
KINDS = ("sqlite", "postgresql")
QUOTA_KEYS = ("ann", "ben")


@contextmanager
def databases(kind: str, folder: Path) -> Generator[Database]:
    """A fresh database with all tables, and the keys that quotas name."""
    if kind == "sqlite":
        with _migrated(Settings(data_dir=folder)) as database:
            yield database
    else:
        with postgresql_server() as url, _migrated(Settings(data_dir=folder, database_url=url)) as database:
            yield database


@contextmanager
def _migrated(settings: Settings) -> Generator[Database]:
    database = Database(settings)
    try:
        database.migrate()
        with database.writing() as session:
            session.add_all(_key(name) for name in QUOTA_KEYS)
        yield database
    finally:
        database.close()


def _key(name: str) -> KeyRow:
    none = {"expires": None, "revoked": None, "last_used": None}
    return KeyRow(id=name, tenant=TENANT, principal=name, name=name, secret_sha256="0" * 64, scopes=["ledger"], created=now(), **none)


def definition(budget: AnyBudget | None = None, name: str = "scans", protects: str = "data_set", unit: str = "record") -> LedgerDefinition:
    return LedgerDefinition.model_validate(
        {"name": name, "budget": budget or PureBudget(epsilon=1.0), "adjacency": "add_remove", "unit": unit, "protects": protects}
    )


def opened(service: LedgerService, *arguments: object, **named: object) -> Ledger:
    """A new ledger with a definition of these parts."""
    return service.create(TENANT, definition(*arguments, **named), None, None)  # pyright: ignore[reportArgumentType]


def pure(epsilon: float) -> PureSpend:
    return PureSpend(epsilon=epsilon)


def gaussian(std: float, count: int = 1, unit: str = "record") -> Event:
    event = Release(mechanism=Gaussian(std=std, sensitivity=Sensitivity(l2=1.0, adjacency=Adjacency.ADD_REMOVE, unit=unit)))
    return event if count == 1 else Repeated(count=count, event=event)


def reserved(
    service: LedgerService,
    ledger: Ledger,
    spend: Spent,
    users: ChargedUsers | None = None,
    expiry: Expiry | None = None,
    job: str | None = None,
    key: str | None = None,
) -> Reservation:
    request = ReservationRequest(spend=spend, users=users, expiry=expiry, job=job)
    return service.reserve(TENANT, ledger.id, request, None, key)


GDP = GdpBudget(mu=1.0)
