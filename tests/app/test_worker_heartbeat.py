r"""The health check of workers and launchers: it tells one that has got stuck or is gone, and never one whose database is away."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.app.jobs_harness import provide_database, settings, wait_until, working
from zetadp.app.cli import app
from zetadp.app.jobs.leases import Executor, LeaseKeeper, Leases
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.worker.heartbeat import beat, last_beat_seconds, patience_seconds
from zetadp.app.worker.naming import lock_file, sole_executor


def ask(of: Settings, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    monkeypatch.setenv("ZETADP_DATA_DIR", str(of.data_dir))
    done = CliRunner().invoke(app, ["alive"])
    return done.exit_code, done.output


@pytest.mark.slow
def test_a_worker_that_runs_is_alive_and_one_that_was_killed_soon_isnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = settings(tmp_path)
    assert ask(of, monkeypatch) == (1, "no worker or launcher of this machine has run on this data folder\n")
    with working(of) as worker:
        wait_until(lambda: list(tmp_path.glob("worker-*.lock")) != [])
        [file] = tmp_path.glob("worker-*.lock")
        long_ago = time.time() - 1000.0
        os.utime(file, (long_ago, long_ago))
        wait_until(lambda: ask(of, monkeypatch)[0] == 0)  # it beats by itself
        worker.kill()
        worker.wait()
    os.utime(file, (long_ago, long_ago))
    code, said = ask(of, monkeypatch)
    assert code == 1
    assert "the last sign of life is 100" in said


def test_while_the_database_is_away_signs_of_life_go_on(tmp_path: Path) -> None:
    of = Settings(data_dir=tmp_path, lease_seconds=0.5, database_busy_seconds=0.1)
    provide_database(of)
    database = Database(of)
    signs: list[float] = []
    executor = Executor(id="a", host="h", device="cpu", hardware="-", lease_seconds=of.lease_seconds)
    with LeaseKeeper(Leases(database, 3), executor, lambda _jobs: None, lambda _error: None, lambda: signs.append(time.monotonic())):
        wait_until(lambda: len(signs) >= 2)
        (tmp_path / "zetadp.sqlite").rename(tmp_path / "away")
        database.close()
        (tmp_path / "zetadp.sqlite").mkdir()  # nothing that could be opened
        before = len(signs)
        wait_until(lambda: len(signs) >= before + 3)
    (tmp_path / "zetadp.sqlite").rmdir()


def test_only_this_machines_workers_count_and_with_a_name_only_that_one(tmp_path: Path) -> None:
    of = Settings(data_dir=tmp_path)
    lock_file(tmp_path, "elsewhere").write_text("another-machine")
    assert last_beat_seconds(of) is None
    with sole_executor(tmp_path, "left", 0.0), sole_executor(tmp_path, "right", 0.0):
        assert lock_file(tmp_path, "left").read_text() == socket.gethostname()
        long_ago = time.time() - 1000.0
        os.utime(lock_file(tmp_path, "left"), (long_ago, long_ago))
        beat(of, "right")
        assert last_beat_seconds(of) == pytest.approx(0.0, abs=patience_seconds(of) / 2)
        assert last_beat_seconds(Settings(data_dir=tmp_path, executor_id="left")) == pytest.approx(1000.0, abs=60.0)


def test_one_that_waits_for_a_name_gives_no_sign_for_its_holder(tmp_path: Path) -> None:
    with sole_executor(tmp_path, "a", 0.0):
        long_ago = time.time() - 1000.0
        os.utime(lock_file(tmp_path, "a"), (long_ago, long_ago))
        with pytest.raises(Exception, match="already running"), sole_executor(tmp_path, "a", 0.0):
            pass
        assert last_beat_seconds(Settings(data_dir=tmp_path)) == pytest.approx(1000.0, abs=60.0)


def test_a_disk_that_refuses_is_no_reason_to_end(tmp_path: Path) -> None:
    beat(Settings(data_dir=tmp_path), "never-locked")
    assert list(tmp_path.iterdir()) == []
