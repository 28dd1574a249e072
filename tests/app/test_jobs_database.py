r"""The database under load from two sides, and the migrations against the models."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from pydantic import ValidationError
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError, StatementError

from tests.app.jobs_harness import postgresql_server
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.migrations.models import Base
from zetadp.app.tables.jobs import IdempotencyKeyRow, JobRow

MIGRATE = "from zetadp.app.kit.database import Database; from zetadp.app.kit.settings import Settings; Database(Settings()).migrate()"


@pytest.fixture
def database(tmp_path: Path) -> Generator[Database]:
    database = Database(Settings(data_dir=tmp_path))
    database.migrate()
    yield database
    database.close()


def row(job_id: str, created: datetime | None = None) -> JobRow:
    return JobRow(id=job_id, state="queued", created=created or datetime.now(UTC), document={})


def test_migrations_make_the_tables_of_the_models(database: Database) -> None:
    with database.reading() as session:
        context = MigrationContext.configure(session.connection(), opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


@pytest.mark.slow
def test_api_and_worker_may_migrate_at_the_same_moment(tmp_path: Path) -> None:
    environment = {**os.environ, "ZETADP_DATA_DIR": str(tmp_path)}
    starters = [subprocess.Popen([sys.executable, "-c", MIGRATE], env=environment) for _ in range(3)]
    assert [starter.wait() for starter in starters] == [0] * 3


def test_migrating_again_changes_nothing(database: Database) -> None:
    with database.writing() as session:
        session.add(row("a"))
    database.migrate()
    with database.reading() as session:
        assert session.get(JobRow, "a") is not None


def test_writing_transactions_that_read_first_take_turns(database: Database) -> None:
    # With deferred transactions several of them read the same count and pass the limit together (service.md: 9 through a limit of 5).
    limit = 5

    def spend(number: int) -> None:
        with database.writing() as session:
            if (session.scalar(select(func.count()).select_from(JobRow)) or 0) < limit:
                session.add(row(str(number)))

    with ThreadPoolExecutor(24) as pool:
        list(pool.map(spend, range(24)))
    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(JobRow)) == limit


def test_failed_transaction_leaves_nothing(database: Database) -> None:
    def add_and_fail() -> None:
        with database.writing() as session:
            session.add(row("a"))
            session.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        add_and_fail()
    with database.reading() as session:
        assert session.get(JobRow, "a") is None


def test_reading_goes_on_while_another_writes(database: Database) -> None:
    with database.writing() as writer:
        writer.add(row("a"))
        writer.flush()
        with database.reading() as reader:
            assert reader.get(JobRow, "a") is None


def test_row_that_points_nowhere_is_refused(database: Database) -> None:
    with pytest.raises(IntegrityError), database.writing() as session:
        session.add(IdempotencyKeyRow(key="k", request_sha256="0" * 64, job_id="nobody", created=datetime.now(UTC)))


def test_moment_comes_back_in_utc(database: Database) -> None:
    moment = datetime(2025, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    with database.writing() as session:
        session.add(row("a", moment))
    with database.reading() as session:
        stored = session.get(JobRow, "a")
        assert stored is not None
        assert (stored.created, stored.created.tzinfo) == (moment, UTC)


def test_moment_without_a_time_zone_is_refused(database: Database) -> None:
    with pytest.raises(StatementError, match="must have a time zone"), database.writing() as session:
        session.add(row("a", datetime(2025, 1, 1)))  # noqa: DTZ001


def test_other_databases_are_refused_without_repeating_the_password() -> None:
    with pytest.raises(ValidationError, match="must start with sqlite:/// or postgresql://, got 'mysql'") as refusal:
        Settings(database_url="mysql://user:hunter2@host/db")
    assert "hunter2" not in str(refusal.value)


def test_misspelled_setting_is_refused() -> None:
    with pytest.raises(ValidationError, match="data_dirr"):
        Settings.model_validate({"data_dirr": "x"})


def test_data_folder_is_its_owners_alone(tmp_path: Path) -> None:
    Database(Settings(data_dir=tmp_path / "data")).close()
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0


def test_migrations_make_the_tables_of_the_models_on_postgresql(tmp_path: Path) -> None:
    with postgresql_server() as url:
        database = Database(Settings(data_dir=tmp_path, database_url=url))
        database.migrate()
        with database.reading() as session:
            assert session.connection().dialect.name == "postgresql"
            assert compare_metadata(MigrationContext.configure(session.connection()), Base.metadata) == []
        database.close()
