r"""The database: one engine per process, one session per transaction, the same code for SQLite and PostgreSQL."""

from __future__ import annotations

import fcntl
import secrets
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING, cast, final

import sqlalchemy
from sqlalchemy import Connection, DateTime, Dialect, Engine, MetaData, TypeDecorator, create_engine, event
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.orm import DeclarativeBase, Session

from zetadp.app.kit.errors import ProblemType, Unavailable
from zetadp.app.kit.settings import Settings

if TYPE_CHECKING:
    from sqlite3 import Connection as SqliteConnection

    from alembic.config import Config

PATIENCE: dict[str, int | str] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    "options": "-c idle_in_transaction_session_timeout=15s",
}
"""Timeouts of PostgreSQL's client, in seconds and milliseconds: a server that silently disappears must not block anybody for hours, and
neither must a process that was suspended in the middle of a transaction, with its locks."""
UNAVAILABLE = (OperationalError, InterfaceError, InternalError, PoolExhausted)
"""Errors that mean that the connection is gone or the database doesn't answer. psycopg calls an ended transaction an ``InternalError``."""
CONNECTIONS = 15
"""The most connections of one process; all are kept open, since opening one takes as long as several queries."""
PROBE_SECONDS = 2.0
"""How long a service that starts waits for the lock of its SQLite file before it starts without."""
WRITING = "zetadp_writing"
"""Execution option of connections whose transactions will write."""


class DatabaseUnavailable(Unavailable):
    """The database doesn't answer. If the connection broke at the end of a write, the write may or may not have been done."""

    problem = ProblemType(503, "database-unavailable", "The database doesn't answer.")

    def __init__(self, retry_after_seconds: int) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(f"the database doesn't answer; try again in {retry_after_seconds} s, a write with its Idempotency-Key")


class Base(DeclarativeBase):
    """Base of every table; constraint names are fixed, so that a migration can name what it changes."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


@final
class UtcTime(TypeDecorator[datetime]):
    """A time. SQLite stores no time zone, so times are stored in UTC and always come back aware."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 (SQLAlchemy's signature)
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a stored time must have a time zone, got {value!r}")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 (as above)
        return None if value is None else value.replace(tzinfo=value.tzinfo or UTC).astimezone(UTC)


def now() -> datetime:
    """The current time, in UTC."""
    return datetime.now(UTC)


def new_id() -> str:
    """A fresh id of 32 hexadecimal digits; ids sort by the millisecond they were made in."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


@final
class Database:
    r"""An engine and its two kinds of transaction.

    On SQLite a transaction that will write takes the write lock at once (``BEGIN IMMEDIATE``): a deferred one reads first, and two of
    them can both see a budget as free. On PostgreSQL both kinds are ordinary transactions and rows are locked where they are read.
    """

    def __init__(self, settings: Settings) -> None:
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._engine = _engine(settings)
        self._write_engine = self._engine.execution_options(**{WRITING: True})
        # A question to PostgreSQL sees what is committed when it is asked, in a transaction or without: both ends are journeys for nothing.
        self._read_engine = self._engine if self.is_sqlite else self._engine.execution_options(isolation_level="AUTOCOMMIT")

    @property
    def is_sqlite(self) -> bool:
        return self._engine.dialect.name == "sqlite"

    @contextmanager
    def reading(self) -> Generator[Session]:
        """A session for queries only, which may change and lock nothing. On PostgreSQL each query has its own snapshot."""
        with Session(self._read_engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def writing(self) -> Generator[Session]:
        """One transaction: committed at the end, rolled back if anything raises."""
        with Session(self._write_engine, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def snapshot(self) -> Generator[Connection]:
        """A read-only connection that sees the database as of its first query, whatever is written meanwhile."""
        engine = self._engine
        if not self.is_sqlite:  # on SQLite every transaction is one
            engine = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def filling(self) -> Generator[Connection]:
        """One transaction for many statements, with pauses of any length between them: for a database that nobody uses yet."""
        with self._write_engine.begin() as connection:
            if not self.is_sqlite:
                connection.execute(sqlalchemy.text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            yield connection

    def check(self) -> None:
        """Ask the database for an answer; raises SQLAlchemy's error if there is none."""
        with self._engine.connect() as connection:
            connection.execute(sqlalchemy.text("SELECT 1"))

    def probe(self) -> None:
        """Ask whether a start needn't wait: raises SQLAlchemy's error if the database doesn't answer, or its file is locked for a while."""
        if not self.is_sqlite:
            self.check()
            return
        import sqlite3  # as in ``upgrade``: only for this

        try:
            with closing(sqlite3.connect(self._engine.url.database or "", PROBE_SECONDS, isolation_level=None)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            raise OperationalError("BEGIN IMMEDIATE", None, error) from error

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def migrate(self) -> None:
        """Update the tables to this version. API and worker may call it at the same time: one waits for the other."""
        with self._write_engine.begin() as connection:
            if not self.is_sqlite:  # on SQLite the transaction itself holds the only write lock
                connection.execute(sqlalchemy.text("SELECT pg_advisory_xact_lock(20250101)"))
            upgrade(connection, "head")


def upgrade(connection: Connection, revision: str) -> None:
    """Update the tables to this revision, in the connection's transaction."""
    from alembic import command  # a tenth of a second to import, and only tables that are made or checked need it

    config = _migrations()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def revisions() -> list[str]:
    """Every revision of the tables that this code knows, newest first."""
    from alembic.script import ScriptDirectory  # as in ``upgrade``

    return [script.revision for script in ScriptDirectory.from_config(_migrations()).walk_revisions()]


def _migrations() -> Config:
    from alembic import config as alembic_config  # as in ``upgrade``

    config = alembic_config.Config()
    config.set_main_option("script_location", str(files("zetadp.app") / "migrations"))
    return config


def _engine(settings: Settings) -> Engine:
    if settings.sqlalchemy_url.startswith("sqlite"):
        return _sqlite_engine(settings)
    # Values stay out of errors' texts: those are logged.
    return create_engine(
        settings.sqlalchemy_url,
        pool_pre_ping=True,
        pool_size=CONNECTIONS,
        max_overflow=0,
        connect_args=PATIENCE,
        hide_parameters=True,
    )


def _sqlite_engine(settings: Settings) -> Engine:
    engine = create_engine(
        settings.sqlalchemy_url,
        pool_size=CONNECTIONS,
        max_overflow=0,
        connect_args={"timeout": settings.database_busy_seconds},
        hide_parameters=True,
    )

    def on_connect(connection: SqliteConnection, _record: object) -> None:
        connection.isolation_level = None  # the driver then begins nothing by itself; on_begin does
        # Switching a fresh file to WAL doesn't wait for locks, so starters take turns.
        with _first_open(settings):
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA foreign_keys = ON")

    def on_begin(connection: Connection) -> None:
        options = cast("dict[str, object]", connection.get_execution_options())
        connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get(WRITING) else "BEGIN")

    event.listen(engine, "connect", on_connect)
    event.listen(engine, "begin", on_begin)
    return engine


@contextmanager
def _first_open(settings: Settings) -> Generator[None]:
    with (settings.data_dir / "database.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
