r"""A database that is locked or away when a service or a worker starts: it is waited for, with growing pauses, and nobody ends."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx2
import pytest
from sqlalchemy.exc import IntegrityError, OperationalError
from structlog.testing import capture_logs

from tests.app.forked import Command
from tests.app.jobs_harness import (
    ADMIN_KEY,
    AUTHORIZED,
    environment,
    postgresql_server,
    provide_database,
    running,
    serving,
    settings,
    submit,
    wait_for_state,
    wait_until,
    working,
)
from tests.app.proxy import proxied
from zetadp.app.kit import waiting
from zetadp.app.kit.settings import Settings
from zetadp.app.kit.waiting import Stopped, when_available
from zetadp.app.main import create_app

AWAY = OperationalError("SELECT", None, Exception("nobody is there"))


@contextmanager
def locked(of: Settings) -> Generator[None]:
    """The database's file as somebody leaves it who holds its lock: nobody else reads or writes it."""
    provide_database(of)
    with closing(sqlite3.connect(of.data_dir / "zetadp.sqlite", timeout=5.0, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield


def changed(of: Settings, **changes: object) -> Settings:
    return Settings.model_validate(of.model_dump() | changes)


def test_work_is_done_again_with_growing_pauses_until_the_database_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(waiting, "LONGEST_PAUSE_SECONDS", 0.03)
    answers = iter([AWAY, AWAY, AWAY, AWAY, None])

    def work() -> str:
        if (error := next(answers)) is not None:
            raise error
        return "done"

    with capture_logs() as lines:
        assert when_available(work, threading.Event()) == "done"
    assert [line.get("pause_seconds") for line in lines] == [0.01, 0.02, 0.03, 0.03, None]
    assert [line["event"] for line in lines] == ["database_unavailable"] * 4 + ["database_reached"]


def test_other_errors_are_not_waited_for() -> None:
    def work() -> None:
        raise IntegrityError("INSERT", None, Exception("it is there"))

    with pytest.raises(IntegrityError):
        when_available(work, threading.Event())


def test_who_is_asked_to_end_does_not_wait_for_work_that_hangs() -> None:
    stopping, hanging = threading.Event(), threading.Event()

    def work() -> None:
        stopping.set()
        hanging.wait()

    with pytest.raises(Stopped):
        when_available(work, stopping)
    hanging.set()


def test_slow_work_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SLOW_SECONDS", 0.1)
    with capture_logs() as lines:
        when_available(lambda: time.sleep(0.5), threading.Event())
    assert [line["event"] for line in lines] == ["database_slow"]


@pytest.mark.slow
def test_worker_that_cannot_reach_its_database_says_so_and_ends_when_told(tmp_path: Path) -> None:
    of = changed(settings(tmp_path), database_url="postgresql://nobody:hunter2@127.0.0.1:1/none")
    with working(of) as worker:
        wait_until(lambda: worker.log.count("database_unavailable") >= 2)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait() == 0
    assert "hunter2" not in worker.log
    assert "shutdown_limit_reached" not in worker.log


@pytest.mark.slow
def test_worker_that_waits_for_a_lock_ends_at_once_when_told(tmp_path: Path) -> None:
    of = changed(settings(tmp_path), database_busy_seconds=3600.0, stop_grace_seconds=1800.0)
    with locked(of), working(of) as worker:
        wait_until(lambda: has_open(worker.pid, of.data_dir / "zetadp.sqlite"))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait() == 0


def has_open(pid: int, file: Path) -> bool:
    return str(file) in {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()}


@pytest.mark.slow
def test_worker_begins_once_its_locked_database_is_free(tmp_path: Path) -> None:
    of = changed(settings(tmp_path), database_busy_seconds=0.1)
    with working(of) as worker:
        with locked(of):
            wait_until(lambda: "database_unavailable" in worker.log)
        wait_until(lambda: "worker_started" in worker.log)
        with serving(of) as client:
            wait_for_state(client, submit(client), "succeeded")


def test_service_whose_database_is_away_at_its_start_lives_and_is_ready_when_it_is_back(tmp_path: Path) -> None:
    with postgresql_server() as url, proxied(url) as (through, proxy):
        proxy.cut()
        of = changed(settings(tmp_path), database_url=through)
        with running(create_app(of)) as address, httpx2.Client(base_url=address, timeout=120) as client:
            assert client.get("/livez").status_code == 200
            assert client.get("/readyz").status_code == 503
            assert client.get("/v1/jobs", headers=AUTHORIZED).status_code == 503
            proxy.mend()
            wait_until(lambda: client.get("/readyz").status_code == 200)
            wait_until(lambda: client.get("/v1/jobs", headers=AUTHORIZED).status_code == 200)  # the operator's key is there too


@pytest.mark.slow
def test_service_whose_file_is_locked_at_its_start_lives(tmp_path: Path) -> None:
    of = changed(settings(tmp_path), database_busy_seconds=0.1)
    with ExitStack() as stack:
        with locked(of):
            address = stack.enter_context(running(create_app(of)))
            client = stack.enter_context(httpx2.Client(base_url=address, timeout=120, headers=AUTHORIZED))
            assert client.get("/livez").status_code == 200
            assert client.get("/v1/jobs").status_code == 401  # the operator's key couldn't be stored
        wait_until(lambda: client.get("/v1/jobs").status_code == 200)


@pytest.mark.slow
def test_serve_without_a_key_waits_until_it_can_make_one(tmp_path: Path) -> None:
    of = changed(settings(tmp_path / "data"), admin_key=None, port=0, database_busy_seconds=0.1)
    variables = environment(of)
    with locked(of):
        command = Command(tmp_path / "serve", "serve", "--port", "0", env=variables)
        try:
            wait_until(lambda: "database_unavailable" in command.stderr)
            assert command.stdout == ""
        except BaseException:
            command.kill()
            raise
    try:
        wait_until(lambda: "admin key, shown this once: zdp_" in command.stdout)
        assert ADMIN_KEY not in command.stdout
        command.terminate()
        assert command.wait() == 0
    finally:
        command.kill()
