r"""A queue that can't be reached, from the start or later: jobs are stored and done all the same, and nobody waits for it."""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from app.database import Database
from app.jobs.leases import Leases, Seen
from app.settings import Settings
from tests.app.fake_child import Order
from tests.app.jobs_harness import (
    Worker,
    child_pids,
    is_alive,
    kill,
    postgresql_server,
    serving,
    settings,
    state,
    stream,
    submit,
    wait_until,
    working,
)
from tests.app.test_database_outage import proxied

SOON_SECONDS = 25.0
"""Less than the 30 s that the queue's engine waits for a locked file before it tries once more."""


def named(of: Settings, name: str) -> Settings:
    return Settings.model_validate(of.model_dump() | {"executor_id": name, "lease_seconds": 1.0})


@contextmanager
def locked(of: Settings) -> Generator[None]:
    """The queue's file as somebody leaves it who holds its lock: nobody else reads or writes it."""
    with closing(sqlite3.connect(of.data_dir / "queue.sqlite", timeout=5.0, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield


def leases(of: Settings) -> dict[str, Seen]:
    with closing(Database(of)) as database:
        return {lease.id: lease for lease in Leases(database, 3).seen()}


def log(of: Settings) -> str:
    path = of.data_dir / "worker.log"
    return path.read_text() if path.exists() else ""


def ends_soon(client: httpx2.Client, job_id: str) -> None:
    wait_until(lambda: state(client, job_id) == "succeeded", SOON_SECONDS)


def stop(worker: Worker) -> None:
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=20) == 0


def test_worker_that_starts_while_the_queue_is_locked_does_what_comes_and_ends_when_told(tmp_path: Path) -> None:
    of = settings(tmp_path)
    with serving(of) as client, locked(of), working(of) as worker:
        wait_until(lambda: "worker_started" in log(of))
        for _ in range(2):  # the second comes to a worker that has looked in vain before
            begun = time.monotonic()
            job_id = submit(client)
            assert time.monotonic() - begun < SOON_SECONDS
            ends_soon(client, job_id)
        stop(worker)


def test_job_of_a_killed_worker_goes_on_and_the_other_keeps_its_lease_while_the_queue_is_locked(tmp_path: Path) -> None:
    of = settings(tmp_path)
    with serving(of) as client, working(named(of, "first")) as first:
        done = submit(client)
        assert list(stream(client, done))[-1].data["state"] == "succeeded"
        wait_until(lambda: answered(of) == 1)  # it hears calls
        job_id = submit(client, Order.HOLD)
        next(event for event in stream(client, job_id) if event.kind == "checkpoint")
        with working(named(of, "second")) as second:
            wait_until(lambda: len(leases(of)) == 2)
            with locked(of):
                kill(first)
                ends_soon(client, job_id)
                before = leases(of)["second"]
                wait_until(lambda: leases(of)["second"].beat >= before.beat + 3, SOON_SECONDS)
                assert leases(of)["second"].token == before.token
                assert "lease_lost" not in log(of)
                stop(second)
    assert not is_alive(child_pids(of, job_id)[-1])


def test_worker_tries_again_until_the_queue_is_there(tmp_path: Path) -> None:
    of = settings(tmp_path)
    queue = of.data_dir / "queue.sqlite"
    queue.write_bytes(b"this is no database" * 1000)
    with serving(of) as client, working(of) as worker:
        wait_until(lambda: "queue_unavailable" in log(of))
        ends_soon(client, submit(client))
        queue.unlink()
        wait_until(lambda: "queue_reached" in log(of))
        submit(client)
        wait_until(lambda: answered(of) >= 1)
        stop(worker)
    assert log(of).count("queue_unavailable") == 1


def test_worker_outlives_a_queue_on_postgresql_that_cannot_be_reached_at_its_start_or_later(tmp_path: Path) -> None:
    with postgresql_server() as url, proxied(url) as (through, proxy):
        of = Settings.model_validate(settings(tmp_path).model_dump() | {"database_url": url})
        proxy.cut()
        with serving(of) as client, working(of, queue_url=through) as worker:
            wait_until(lambda: "queue_unavailable" in log(of))
            ends_soon(client, submit(client))
            proxy.mend()
            wait_until(lambda: "queue_reached" in log(of))
            ends_soon(client, submit(client))
            wait_until(lambda: answered(of) >= 1)
            proxy.cut()
            ends_soon(client, submit(client))
            stop(worker)


def test_service_that_cannot_reach_the_database_at_its_start_says_so(tmp_path: Path) -> None:
    of = Settings.model_validate(settings(tmp_path).model_dump() | {"database_url": "postgresql://nobody:hunter2@127.0.0.1:1/none"})
    with working(of) as worker:
        assert worker.wait(timeout=60) == 75
    assert "the database doesn't answer: OperationalError" in log(of)
    assert "hunter2" not in log(of)


def answered(of: Settings) -> int:
    """How many calls a worker has answered."""
    schema = "dbos." if of.database_url else ""
    with closing(Database(Settings(database_url=of.queue_url, data_dir=of.data_dir))) as queue, queue.reading() as session:
        try:
            return session.scalar(text(f"SELECT count(*) FROM {schema}workflow_status WHERE status = 'SUCCESS'")) or 0
        except DBAPIError:
            return 0  # nobody has made the tables yet
