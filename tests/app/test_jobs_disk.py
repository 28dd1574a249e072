r"""A PostgreSQL server whose disk is full: a trigger lets it answer so, in its own words, whatever the disk of this machine holds."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.app.jobs_harness import postgresql_server, serving, settings, spec, stream, submit, wait_until, working
from tests.selection import chosen
from zetadp.app.kit.settings import Settings

SLOW = 0.5
FULL = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$;
"""


@pytest.fixture
def of(tmp_path: Path) -> Generator[Settings]:
    with postgresql_server() as url:
        yield Settings.model_validate(settings(tmp_path).model_dump() | {"database_url": url})


@contextmanager
def full(of: Settings, table: str) -> Generator[None]:
    """The table takes no row meanwhile."""
    with psycopg.connect(of.sqlalchemy_url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(FULL)
        name = sql.Identifier(table)
        connection.execute(sql.SQL("CREATE TRIGGER full_disk BEFORE INSERT ON {} EXECUTE FUNCTION full_disk()").format(name))
        yield
        connection.execute("DROP FUNCTION full_disk CASCADE")


@pytest.mark.slow
@pytest.mark.parametrize("table", chosen(["jobs", "job_events", "idempotency_keys"], ["job_events"]))
def test_full_disk_of_postgresql_is_told_and_leaves_nothing(of: Settings, table: str) -> None:
    with serving(of) as client:
        headers = {"Idempotency-Key": "again"}
        with full(of, table):
            refused = client.post("/v1/jobs", json={"spec": spec()}, headers=headers)
            assert (refused.status_code, refused.json()["type"]) == (507, "storage-full")
            assert "extend" not in refused.text
            assert client.get("/v1/jobs").json()["jobs"] == []
        made = client.post("/v1/jobs", json={"spec": spec()}, headers=headers)
        assert made.status_code == 202
        assert [job["id"] for job in client.get("/v1/jobs").json()["jobs"]] == [made.json()["id"]]


@pytest.mark.slow
def test_job_goes_on_while_the_database_has_no_room_for_its_events_and_tells_each_once(of: Settings) -> None:
    log = of.data_dir / "worker.log"
    with serving(of) as client, working(of):
        job_id = submit(client, step_seconds=SLOW)
        next(event for event in stream(client, job_id) if event.kind == "progress")
        with full(of, "job_events"):
            wait_until(lambda: "database_unavailable" in log.read_text())
        steps = [event.data["step"] for event in stream(client, job_id) if event.kind == "progress"]
        assert steps == list(range(1, 21))
        job = client.get(f"/v1/jobs/{job_id}").json()
        assert (job["state"], job["attempt"]) == ("succeeded", 1)
