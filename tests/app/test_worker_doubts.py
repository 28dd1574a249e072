r"""What a worker can't be sure of: a start whose answer was lost, a keeper that says nothing, a log that can't be written."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest
from sqlalchemy.exc import OperationalError

from tests.app import fake_child
from tests.app.jobs_harness import serving, settings, state, submit, wait_until
from tests.app.preparing_harness import prepare_all
from tests.selection import thinned
from zetadp.app.jobs.attempts import Attempt, Attempts
from zetadp.app.jobs.leases import Executor, LeaseKeeper, Leases
from zetadp.app.jobs.needs import Capacity
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.worker import process
from zetadp.app.worker.child import JobChild
from zetadp.app.worker.exits import EXIT_BROKEN


class Asked:
    """Instead of a ``Shutdown``, whose thread would outlive the test."""

    def __init__(self) -> None:
        self.stopping = threading.Event()

    def ask(self) -> None:
        self.stopping.set()


class InHouse:
    """A worker in this process, one look at a time."""

    def __init__(self, of: Settings, stack: ExitStack) -> None:
        self.database = Database(of)
        stack.callback(self.database.close)
        self.asked = Asked()
        self.moment = 0.0
        self.worker = process._Worker(of, self.database, self.asked, _stand_in, list, None)  # pyright: ignore[reportArgumentType]
        self.worker._take_name("a")
        leases = Leases(self.database, of.maximum_worker_deaths)
        executor = Executor(id="a", host="here", device="auto", hardware="none", lease_seconds=of.lease_seconds)
        self.keeper = stack.enter_context(LeaseKeeper(leases, executor, print, self.worker._unable))

    def look(self) -> bool:
        return self.worker._run_next(self.keeper)

    def pass_time(self, seconds: float) -> None:
        """As if the worker's thread had waited so long."""
        self.moment += seconds


def _stand_in(workdir: Path) -> list[str]:
    return [sys.executable, fake_child.__file__, str(workdir), str(os.getpid())]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[tuple[InHouse, httpx2.Client]]:
    monkeypatch.setattr(process, "FIRST_PAUSE_SECONDS", 0.01)
    of = settings(tmp_path)
    with serving(of) as client, ExitStack() as stack:
        in_house = InHouse(of, stack)
        monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: in_house.moment))
        yield in_house, client


def test_job_whose_start_was_stored_without_an_answer_is_started_again(
    place: tuple[InHouse, httpx2.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_house, client = place
    start = Attempts.start_next

    def lose_the_answer(self: Attempts, token: str, capacity: Capacity) -> Attempt | None:
        monkeypatch.setattr(Attempts, "start_next", start)
        start(self, token, capacity)
        raise OperationalError("COMMIT", None, Exception("the connection is gone"))

    job_id = submit(client)
    prepare_all(in_house.database)
    monkeypatch.setattr(Attempts, "start_next", lose_the_answer)
    assert not in_house.look()
    assert state(client, job_id) == "running"  # this worker holds it, and nobody runs it
    assert in_house.look()
    job = client.get(f"/v1/jobs/{job_id}").json()
    assert (job["state"], job["attempt"]) == ("succeeded", 2)


def test_worker_whose_keeper_has_fallen_silent_ends_instead_of_doing_nothing(
    place: tuple[InHouse, httpx2.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_house, client = place
    submit(client)
    prepare_all(in_house.database)
    leases = Leases(in_house.database, 3)
    answers = threading.Event()
    monkeypatch.setattr(Leases, "renew", lambda _self, _token: answers.wait())
    wait_until(lambda: leases.bury(leases.seen()[0]) == [])
    in_house.pass_time(3600.0)
    assert in_house.look()
    assert not in_house.asked.stopping.is_set()  # it may have been suspended all the while
    in_house.pass_time(3600.0)
    assert in_house.look()
    assert in_house.asked.stopping.is_set()
    answers.set()
    assert in_house.worker._code == EXIT_BROKEN


@pytest.mark.parametrize("log", thinned(["/dev/full", "missing/training.log"], every=2))
def test_end_of_a_child_is_found_though_its_log_cannot_be_written(tmp_path: Path, log: str) -> None:
    tells = "import sys; sys.stderr.write('x' * 100_000 + '\\n'); sys.stderr.flush(); print('{}')"
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        with JobChild([sys.executable, "-c", tells], tmp_path / log, descriptor, None, None) as child:
            for _ in range(600):
                if child.is_over:
                    break
                child.events(0.1)
            assert child.is_over
    finally:
        os.close(descriptor)
