r"""The worker of a service: started again when it ends by itself, and gone when the service is, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from tests.app.jobs_harness import AUTHORIZED, environment, is_alive, settings, wait_until
from zetadp.app.cli import supervision
from zetadp.app.cli.exits import Exit
from zetadp.app.cli.supervision import WorkerSupervisor
from zetadp.app.kit import tracing
from zetadp.app.kit.settings import Settings
from zetadp.app.worker import process
from zetadp.app.worker.exits import EXIT_REFUSED
from zetadp.mechanisms.errors import InvalidParameter


@dataclass
class Supervised:
    """A supervised command, which appends its process id to a file each time it is started."""

    pids: Path
    lines: list[EventDict] = field(default_factory=list)

    @property
    def starts(self) -> list[int]:
        return [int(line) for line in self.pids.read_text().split()] if self.pids.exists() else []


@pytest.fixture
def supervised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    monkeypatch.setattr(supervision, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(supervision, "LONGEST_PAUSE_SECONDS", 0.04)

    @contextmanager
    def make(script: str, patience_seconds: float = 60.0) -> Generator[Supervised]:
        found = Supervised(tmp_path / "pids")
        command = ["sh", "-c", f'echo $$ >> "{found.pids}"; {script}']
        with capture_logs() as found.lines, WorkerSupervisor(command, patience_seconds):
            yield found

    return make


def test_worker_that_ends_by_itself_is_started_again_with_growing_pauses(supervised: Callable[..., object]) -> None:
    with supervised("exit 7") as found:  # pyright: ignore[reportGeneralTypeIssues]
        wait_until(lambda: len(found.starts) >= 5)
    told = [line for line in found.lines if line["event"] == "worker_ended"][:4]
    assert [line["exit_code"] for line in told] == [7] * 4
    assert [line["restarts"] for line in told] == [1, 2, 3, 4]
    assert [line["pause_seconds"] for line in told] == [0.01, 0.02, 0.04, 0.04]
    assert {line["log_level"] for line in told} == {"warning"}


def test_pauses_begin_anew_after_a_worker_that_was_well(supervised: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "STEADY_SECONDS", 0.0)
    with supervised("exit 0") as found:  # pyright: ignore[reportGeneralTypeIssues]
        wait_until(lambda: len(found.starts) >= 4)
    assert {line["pause_seconds"] for line in found.lines} == {0.01}


@pytest.mark.parametrize("code", [EXIT_REFUSED, Exit.USAGE])
def test_worker_that_is_refused_is_not_started_again_soon(supervised: Callable[..., object], code: int) -> None:
    with supervised(f"exit {int(code)}") as found:  # pyright: ignore[reportGeneralTypeIssues]
        wait_until(lambda: bool(found.lines))
    assert [(line["exit_code"], line["pause_seconds"]) for line in found.lines] == [(code, 600.0)]
    assert len(found.starts) == 1


def test_killed_worker_is_started_again_and_the_signal_is_told(supervised: Callable[..., object]) -> None:
    with supervised("exec sleep 600") as found:  # pyright: ignore[reportGeneralTypeIssues]
        wait_until(lambda: len(found.starts) == 1)
        os.kill(found.starts[0], signal.SIGKILL)
        wait_until(lambda: len(found.starts) == 2)
    assert [line["exit_code"] for line in found.lines] == [-signal.SIGKILL]


@pytest.mark.parametrize("script", ["exec sleep 600", 'trap "" TERM; while :; do sleep 0.1; done'], ids=["willing", "deaf"])
def test_worker_ends_with_its_supervisor(supervised: Callable[..., object], script: str) -> None:
    with supervised(script, patience_seconds=0.3) as found:  # pyright: ignore[reportGeneralTypeIssues]
        wait_until(lambda: len(found.starts) == 1)
    assert not is_alive(found.starts[0])
    assert found.lines == []


def test_worker_that_cannot_be_started_is_tried_again(supervised: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    start = subprocess.Popen

    def refused(*_arguments: object, **_named: object) -> object:
        monkeypatch.setattr(subprocess, "Popen", start)
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refused)
    with supervised("exec sleep 600") as found:  # pyright: ignore[reportGeneralTypeIssues]
        wait_until(lambda: len(found.starts) == 1)
    assert [line["event"] for line in found.lines] == ["worker_not_started", "worker_ended"]


def test_worker_with_settings_that_it_can_never_meet_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_service: str) -> None:
        raise InvalidParameter("OTEL_TRACES_EXPORTER", "none, or the name of an installed exporter", "nonsense")

    monkeypatch.setattr(tracing, "configure", refused)
    assert process._run(Settings(data_dir=tmp_path), NeverAsked(), process.training_command, list, None) == EXIT_REFUSED  # pyright: ignore[reportArgumentType]


class NeverAsked:
    """Instead of a ``Shutdown``, whose thread would outlive the test."""


def workers(client: httpx2.Client) -> list[str]:
    """When the living workers took their leases."""
    answer = client.get("/v1/hardware")
    return [worker["since"] for worker in answer.json()["workers"] if worker["alive"]] if answer.status_code == 200 else []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_real_worker_is_started_again_and_ends_with_the_service_however_that_ends(tmp_path: Path, number: signal.Signals) -> None:
    of = settings(tmp_path)
    variables = {**os.environ, **environment(of), "ZETADP_LOG_FORMAT": "json"}
    with (tmp_path / "out").open("w") as out, (tmp_path / "log").open("w") as log:
        command = [sys.executable, "-m", "zetadp", "serve", "--port", "0", "--with-worker"]
        service = subprocess.Popen(command, env=variables, stdout=out, stderr=log, start_new_session=True)
    try:
        wait_until(lambda: "zetadp is at " in (tmp_path / "out").read_text())
        address = (tmp_path / "out").read_text().splitlines()[0].removeprefix("zetadp is at ")
        with httpx2.Client(base_url=address, headers=AUTHORIZED, timeout=120) as client:
            wait_until(lambda: len(workers(client)) == 1)
            before, (pid,) = workers(client), children(service.pid)
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: len(now := workers(client)) == 1 and now != before)
        (again,) = children(service.pid)
        assert again != pid
        assert '"exit_code": -9' in (tmp_path / "log").read_text()
        service.send_signal(number)
        service.wait(120)
        wait_until(lambda: not is_alive(again))
    finally:
        service.kill()
        service.wait()


def children(pid: int) -> list[int]:
    """Its child processes, of whichever of its threads."""
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
