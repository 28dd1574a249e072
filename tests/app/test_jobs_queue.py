r"""A queue that can't be reached, from the start or later: jobs are stored and done all the same, and nobody waits for it."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from tests.app.fake_child import Order
from tests.app.jobs_harness import (
    Worker,
    child_pids,
    is_alive,
    kill,
    postgresql_server,
    serving,
    settings,
    stream,
    submit,
    wait_for_state,
    wait_until,
    working,
)
from tests.app.proxy import proxied
from zetadp.app.jobs.leases import Leases, Seen
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings


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


def stop(worker: Worker) -> None:
    worker.send_signal(signal.SIGTERM)
    assert worker.wait() == 0


@pytest.mark.slow
def test_worker_that_starts_while_the_queue_is_locked_does_what_comes_and_ends_when_told(tmp_path: Path) -> None:
    of = settings(tmp_path)
    with serving(of) as client, locked(of), working(of) as worker:
        wait_until(lambda: "worker_started" in worker.log)
        for _ in range(2):  # the second comes to a worker that has looked in vain before
            wait_for_state(client, submit(client), "succeeded")  # while the file is locked: who waited for it would wait for ever
        stop(worker)


@pytest.mark.slow
def test_job_of_a_killed_worker_goes_on_and_the_other_keeps_its_lease_while_the_queue_is_locked(tmp_path: Path) -> None:
    of = settings(tmp_path)
    with serving(of) as client, working(named(of, "first")) as first:
        done = submit(client)
        assert list(stream(client, done))[-1].data["state"] == "succeeded"
        wait_until(lambda: calls(of) >= 1)  # it hears calls, of which a job may take two
        job_id = submit(client, Order.HOLD)
        next(event for event in stream(client, job_id) if event.kind == "checkpoint")
        with working(named(of, "second")) as second:
            wait_until(lambda: len(leases(of)) == 2)
            with locked(of):
                kill(first)
                wait_for_state(client, job_id, "succeeded")
                before = leases(of)["second"]
                wait_until(lambda: leases(of)["second"].beat >= before.beat + 3)
                assert leases(of)["second"].token == before.token
                assert "lease_lost" not in second.log
                stop(second)
    assert not is_alive(child_pids(of, job_id)[-1])


@pytest.mark.slow
def test_worker_tries_again_until_the_queue_is_there(tmp_path: Path) -> None:
    of = settings(tmp_path)
    queue = of.data_dir / "queue.sqlite"
    queue.write_bytes(b"this is no database" * 1000)
    with serving(of) as client, working(of) as worker:
        wait_until(lambda: "queue_unavailable" in worker.log)
        wait_for_state(client, submit(client), "succeeded")
        queue.unlink()
        wait_until(lambda: "queue_reached" in worker.log)
        submit(client)
        wait_until(lambda: calls(of) >= 1)
        stop(worker)
    assert worker.log.count("queue_unavailable") == 1


@pytest.mark.slow
def test_worker_outlives_a_queue_on_postgresql_that_cannot_be_reached_at_its_start_or_later(tmp_path: Path) -> None:
    with postgresql_server() as url, proxied(url) as (through, proxy):
        of = Settings.model_validate(settings(tmp_path).model_dump() | {"database_url": url})
        proxy.cut()
        with serving(of) as client, working(of, queue_url=through) as worker:
            wait_until(lambda: "queue_unavailable" in worker.log)
            wait_for_state(client, submit(client), "succeeded")
            proxy.mend()
            wait_until(lambda: "queue_reached" in worker.log)
            wait_for_state(client, submit(client), "succeeded")
            wait_until(lambda: calls(of) >= 1)
            proxy.cut()
            wait_for_state(client, submit(client), "succeeded")
            stop(worker)


def calls(of: Settings, status: str = "SUCCESS") -> int:
    """How many calls a worker has answered, or has in hand (``PENDING``)."""
    schema = "dbos." if of.database_url else ""
    with closing(Database(Settings(database_url=of.queue_url, data_dir=of.data_dir))) as queue, queue.reading() as session:
        try:
            return session.scalar(text(f"SELECT count(*) FROM {schema}workflow_status WHERE status = :status"), {"status": status}) or 0
        except DBAPIError:
            return 0  # nobody has made the tables yet
