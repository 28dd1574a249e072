r"""What was stored before there were tenants belongs to ``default`` afterwards, on SQLite and PostgreSQL."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.exc import IntegrityError

from app.settings import Settings
from tests.app.jobs_harness import postgresql_server

BEFORE, TENANTS = "0001", "0002"
JOB = "INSERT INTO jobs (id, state, created, attempt, worker_deaths, document) VALUES ('j', 'queued', '2025-01-01', 0, 0, '{}')"
KEY = "INSERT INTO idempotency_keys (key, request_sha256, job_id, created) VALUES ('k', 'x', 'j', '2025-01-01')"
SAME_KEY = "INSERT INTO idempotency_keys (tenant, key, request_sha256, job_id, created) VALUES (:tenant, 'k', 'x', 'j', '2025-01-01')"


def _keeps_what_was_there(of: Settings) -> None:
    of.data_dir.mkdir(parents=True, exist_ok=True)
    config = Config()
    config.set_main_option("script_location", str(files("app") / "migrations"))
    engine = create_engine(of.sqlalchemy_url)

    def migrate(revision: str, *, up: bool = True) -> None:
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            (command.upgrade if up else command.downgrade)(config, revision)

    def add(statement: str, **values: str) -> None:
        with engine.begin() as connection:
            connection.execute(text(statement), values)

    migrate(BEFORE)
    add(JOB)
    add(KEY)
    migrate(TENANTS)
    with engine.connect() as connection:
        for table in ("jobs", "idempotency_keys"):
            assert connection.execute(text(f"SELECT tenant FROM {table}")).scalars().all() == ["default"]
    assert inspect(engine).get_pk_constraint("idempotency_keys")["constrained_columns"] == ["tenant", "key"]
    add(SAME_KEY, tenant="b")
    with pytest.raises(IntegrityError):
        add(SAME_KEY, tenant="default")
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM idempotency_keys WHERE tenant = 'b'"))
    migrate(BEFORE, up=False)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT key FROM idempotency_keys")).scalars().all() == ["k"]
    engine.dispose()


def test_what_was_there_belongs_to_the_default_tenant(tmp_path: Path) -> None:
    _keeps_what_was_there(Settings(data_dir=tmp_path))


def test_what_was_there_belongs_to_the_default_tenant_on_postgresql(tmp_path: Path) -> None:
    with postgresql_server() as url:
        _keeps_what_was_there(Settings(data_dir=tmp_path, database_url=url))
