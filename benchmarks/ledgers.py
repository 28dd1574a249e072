r"""Ledgers under load: 64 concurrent clients, 10000 reservations on one ledger, beside a bare one-row UPDATE under the same concurrency.

On SQLite and on PostgreSQL (``ZETADP_TEST_POSTGRESQL``, by default this machine's; left out where none answers). Also the cost of one spend
with 100 and with 100000 entries in the history.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import psycopg
from psycopg import sql
from sqlalchemy import text

from zetadp.accountants.filters import PureBudget, PureSpend
from zetadp.app.access.scopes import Scope
from zetadp.app.access.service import KeyService
from zetadp.app.client import Client, RequestRefused
from zetadp.app.kit.database import Database, new_id
from zetadp.app.kit.settings import Settings
from zetadp.app.ledgers.book import SERVICE, locked
from zetadp.app.ledgers.ledger_definition import LedgerDefinition
from zetadp.app.ledgers.requests import ReservationRequest
from zetadp.app.ledgers.service import LedgerService
from zetadp.mechanisms import Adjacency
from zetadp.mechanisms.errors import BudgetExceeded

_CLIENTS = 64
_RESERVATIONS = 10_000
_FEW, _MANY = 100, 100_000
_BLOCK = 500
_BATCH = 1000
_TENANT = "default"
_SERVER = os.environ.get("ZETADP_TEST_POSTGRESQL", "postgresql://postgres@127.0.0.1:5432/test")


def run() -> Iterator[str]:
    """The report's lines."""
    for kind in ("sqlite", "postgresql"):
        with TemporaryDirectory() as folder, _database(kind, Path(folder)) as opened:
            if opened is None:
                yield f"ledgers, {kind}: no server answers at {_SERVER}"
                continue
            settings, database = opened
            yield from _load(kind, database)
            yield from _over_http(kind, settings, database)
            yield from _flatness(kind, database)


def _load(kind: str, database: Database) -> Iterator[str]:
    service = LedgerService(database, 10.0)
    # One in ten doesn't fit: what is refused must cost nothing, and what fits must all be there.
    fitting = _RESERVATIONS * 9 // 10
    ledger = service.create(_TENANT, _definition("load", float(fitting)), None, None)
    request = ReservationRequest(spend=PureSpend(epsilon=1.0))
    outcomes: Counter[str] = Counter()

    def reserve(_number: int) -> str:
        try:
            service.reserve(_TENANT, ledger.id, request, None, None)
        except BudgetExceeded:
            return "refused"
        return "admitted"

    with database.writing() as session:
        session.execute(text("CREATE TABLE bare (id INTEGER PRIMARY KEY, number INTEGER NOT NULL)"))
        session.execute(text("INSERT INTO bare VALUES (1, 0)"))

    def update(_number: int) -> str:
        with database.writing() as session:
            session.execute(_BARE)
        return "updated"

    rates: dict[str, list[float]] = {"ledger": [], "bare": []}
    numbers = iter(range(10**9))
    for _ in range(4):  # in turn, so that whatever else the machine does falls on both
        for name, work in (("bare", update), ("ledger", reserve)):
            seconds, found = _together(work, _RESERVATIONS // 4, numbers)
            rates[name].append(_RESERVATIONS / 4 / seconds)
            outcomes.update(found)
    report = service.verify(_TENANT, ledger.id)
    balance = service.get(_TENANT, ledger.id).balance
    assert balance is not None  # a data set's ledger
    overspent = max(0, outcomes["admitted"] - fitting)
    lost = fitting - (report.entries - 1) if outcomes["refused"] else outcomes["admitted"] - (report.entries - 1)
    bare, ours = median(rates["bare"]), median(rates["ledger"])
    yield (
        f"ledgers, {kind}: {_CLIENTS} clients, {_RESERVATIONS} reservations: {outcomes['admitted']} admitted of {fitting} that fit, "
        f"{outcomes['refused']} refused, {overspent} overspent, {lost} lost; history {report.verdict}, "
        f"remaining {balance.limits[0].remaining:g}"
    )
    yield f"ledgers, {kind}: {ours:.0f} reservations/s, {bare:.0f} bare updates/s, ratio {ours / bare:.2f} (target 0.5)"


_BARE = text("UPDATE bare SET number = number + 1 WHERE id = 1")


def _together(work: Callable[[int], str], number: int, numbers: Iterator[int]) -> tuple[float, Counter[str]]:
    """Seconds that the clients take for this many calls, and what came of them."""
    with ThreadPoolExecutor(_CLIENTS) as pool:
        barrier = threading.Barrier(_CLIENTS)
        list(pool.map(lambda _: barrier.wait(), range(_CLIENTS)))  # all threads are there before the clock starts
        start = time.perf_counter()
        outcomes = Counter(pool.map(work, [next(numbers) for _ in range(number)]))
        return time.perf_counter() - start, outcomes


def _over_http(kind: str, settings: Settings, database: Database) -> Iterator[str]:
    """The same reservations from as many clients of a server in a process of its own."""
    fitting = _RESERVATIONS * 9 // 10
    variables = {
        "ZETADP_DATA_DIR": str(settings.data_dir),
        "ZETADP_LOG_LEVEL": "error",
        "ZETADP_REQUESTS_PER_KEY": "1000000/second",
        "ZETADP_REQUESTS_PER_ADDRESS": "1000000/second",
        **({} if settings.database_url is None else {"ZETADP_DATABASE_URL": settings.database_url}),
    }
    command = [sys.executable, "-m", "zetadp", "serve", "--port", "0"]
    key = KeyService(database).create(_TENANT, "benchmark", tuple(Scope), None).text
    ledger = LedgerService(database, 10.0).create(_TENANT, _definition("http", float(fitting)), None, None)
    server = subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own module
    try:
        assert server.stdout is not None
        address = server.stdout.readline().removeprefix("zetadp is at ").strip()
        clients = threading.local()

        def reserve(_number: int) -> str:
            if not hasattr(clients, "own"):
                clients.own = Client(address, key)
            try:
                clients.own.reserve(ledger.id, ReservationRequest(spend=PureSpend(epsilon=1.0)))
            except RequestRefused as refusal:
                return f"status {refusal.status}"
            return "admitted"

        seconds, outcomes = _together(reserve, _RESERVATIONS, iter(range(_RESERVATIONS)))
    finally:
        server.terminate()
        server.wait(30)
    report = LedgerService(database, 10.0).verify(_TENANT, ledger.id)
    yield (
        f"ledgers, {kind}, over HTTP: {_CLIENTS} clients, {_RESERVATIONS} reservations: {dict(outcomes)} of {fitting} that fit, "
        f"{report.entries - 1} in the history, which is {report.verdict}; {_RESERVATIONS / seconds:.0f} requests/s"
    )


def _flatness(kind: str, database: Database) -> Iterator[str]:
    service = LedgerService(database, 10.0)
    ledger = service.create(_TENANT, _definition("long", 1e9), None, None)
    spend = PureSpend(epsilon=1.0)
    priced = service.priced(_TENANT, ledger.id, spend)
    figures: list[tuple[int, float]] = []
    entries = 1
    for mark in (_FEW, _MANY):
        while entries < mark:  # many in one transaction, by the code that makes each of them
            with database.writing() as session, locked(session, _TENANT, ledger.id, SERVICE) as book:
                for _ in range(min(_BATCH, mark - entries)):
                    book.reserve(new_id(), spend, priced.price, None, None, None)
            entries = service.get(_TENANT, ledger.id).head.number
        seconds: list[float] = []
        for _ in range(_BLOCK):
            start = time.perf_counter()
            service.reserve(_TENANT, ledger.id, ReservationRequest(spend=spend), None, None)
            seconds.append(time.perf_counter() - start)
        entries += _BLOCK
        figures.append((mark, median(seconds)))
    told = ", ".join(f"{seconds * 1e3:.2f} ms after {mark} entries" for mark, seconds in figures)
    yield f"ledgers, {kind}: one spend takes {told}; ratio {figures[-1][1] / figures[0][1]:.2f} (flat: 1)"
    start = time.perf_counter()
    report = service.verify(_TENANT, ledger.id)
    yield f"ledgers, {kind}: {report.entries} entries verified in {time.perf_counter() - start:.1f} s: {report.verdict}"


def _definition(name: str, epsilon: float) -> LedgerDefinition:
    return LedgerDefinition(
        name=name, budget=PureBudget(epsilon=epsilon), adjacency=Adjacency.ADD_REMOVE, unit="record", protects="data_set"
    )


@contextmanager
def _database(kind: str, folder: Path) -> Generator[tuple[Settings, Database] | None]:
    if kind == "sqlite":
        settings = Settings(data_dir=folder)
        with _opened(settings) as database:
            yield settings, database
        return
    try:
        connection = psycopg.connect(_SERVER, autocommit=True, connect_timeout=3)
    except psycopg.OperationalError:
        yield None
        return
    name = f"zetadp_{uuid.uuid4().hex}"
    with connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            settings = Settings(data_dir=folder, database_url=_SERVER.rpartition("/")[0] + f"/{name}")
            with _opened(settings) as database:
                yield settings, database
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def _opened(settings: Settings) -> Generator[Database]:
    database = Database(settings)
    try:
        database.migrate()
        yield database
    finally:
        database.close()
