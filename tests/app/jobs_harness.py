r"""Real processes for the tests of jobs: a worker in a process of its own, and an API that answers over HTTP."""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final

import httpx2
import psycopg
import pytest
import uvicorn
from psycopg import sql
from pydantic import SecretStr
from starlette.types import ASGIApp

from tests.app import fake_child
from tests.app.fake_child import Order
from tests.app.forked import PRELOADED
from tests.app.preparing_harness import preparing_here
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.app.worker import process as worker
from zetadp.app.worker.child import training_command

Submission = dict[str, Any]
"""A JSON object of the REST interface."""

WAIT_SECONDS = 120.0
"""Nothing in these tests takes longer, however busy the machine is. Who waits sees sooner that what it waits for can't come any more."""
SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.1
"""Between two looks at what is waited for: most of them ask the service, whose answers take processor time from what is waited for."""
TELLING_SECONDS = 5.0
"""How long a worker that doesn't end may take to write where its threads are."""
LOG_END = 8000
"""How many characters of a worker's log a failure shows."""
FINAL_STATES = ("succeeded", "failed", "cancelled")


def spec(**changes: object) -> Submission:
    """A small valid training spec; with so much noise its certificate is computed fast."""
    return {
        "algorithm": "zeta_dp_sgd",
        "data": {"kind": "digits_phase_pairs", "split_seed": 0, "test_fraction": 0.2},
        "model": {"kind": "complex_mlp", "hidden": [8], "activation": "cardioid", "head": "magnitude"},
        "optimizer": {"kind": "sgd", "learning_rate": 0.5},
        "privacy": {"adjacency": "add_remove", "unit": "record", "delta": 1e-5, "noise_multiplier": 20.0},
        "clipping_bound": 1.0,
        "expected_batch_size": 64,
        "steps": 20,
        "evaluation": {"kind": "public_held_out"},
    } | changes


ADMIN_KEY = "zdp_" + "0123456789ab" * 2 + "_" + "0123456789abcdef" * 4
"""The admin key of every service of the tests, with every scope, of the tenant ``default``."""

AUTHORIZED = {"Authorization": f"Bearer {ADMIN_KEY}"}


def settings(data_dir: Path) -> Settings:
    """Settings of a service that looks often, so that tests needn't wait, and knows the tests' key."""
    return Settings(
        data_dir=data_dir,
        admin_key=SecretStr(ADMIN_KEY),
        event_poll_seconds=0.05,
        resubmit_seconds=0.5,
        stop_grace_seconds=1.0,
        calculation_wait_seconds=300.0,  # beside other work the calculating processes may take long to start
        shutdown_seconds=60.0,  # a busy machine's workers give up their leases too
    )


@cache
def migrated() -> bytes:
    """A SQLite database without a row, with the tables of this version: making them takes longer than all else of a start."""
    with TemporaryDirectory() as folder:
        database = Database(Settings(data_dir=Path(folder)))
        database.migrate()
        database.close()
        return (Path(folder) / "zetadp.sqlite").read_bytes()


def provide_database(of: Settings) -> None:
    """Put a migrated database where the service will look for its own, unless it has one or a worker makes one just now."""
    own = of.data_dir / "zetadp.sqlite"
    if of.database_url is not None or own.exists():
        return
    of.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = of.data_dir / "migrated.sqlite"
    made.write_bytes(migrated())
    with suppress(FileExistsError):
        os.link(made, own)
    made.unlink()


@contextmanager
def serving(of: Settings) -> Generator[httpx2.Client]:
    """A client of a server that runs in this process; it sends the tests' key, which the server knows whatever its settings."""
    provide_database(of)
    app = create_app(of)
    with running(app) as address:
        app.state.keys.adopt(ADMIN_KEY)
        with httpx2.Client(base_url=address, timeout=WAIT_SECONDS, headers=AUTHORIZED) as client:
            yield client


@contextmanager
def running(app: ASGIApp) -> Generator[str]:
    """The address of a server in this process, on a port of its own; on leaving, its thread has ended."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, name="server")
    thread.start()
    try:
        wait_until(lambda: server.started, unless=lambda: None if thread.is_alive() else "the server has ended before it answered")
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def environment(of: Settings) -> dict[str, str]:
    """The same settings as environment variables."""
    plain = {
        name: value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        for name, value in of.model_dump(exclude_none=True).items()
    }
    return {"ZETADP_" + name.upper(): value for name, value in plain.items()}


@final
class Worker:
    """A worker process as ``subprocess`` would have it, and its log."""

    def __init__(self, process: BaseProcess, log: Path) -> None:
        self._process = process
        self._log = log
        self._may_end = False

    @property
    def pid(self) -> int:
        assert self._process.pid is not None  # it was started
        return self._process.pid

    @property
    def log(self) -> str:
        """What it and every other worker of its folder have written."""
        return self._log.read_text() if self._log.exists() else ""

    @property
    def unforeseen_end(self) -> str | None:
        """That it has ended although the test neither ended it nor waited for that."""
        if self._may_end or self._process.exitcode is None:
            return None
        return f"a worker has ended with code {self._process.exitcode}; its log ends with:\n{self.log[-LOG_END:]}"

    def send_signal(self, number: int) -> None:
        self._may_end = self._may_end or number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
        os.kill(self.pid, number)

    def wait(self, timeout: float = WAIT_SECONDS) -> int:
        """Its exit code, once it has ended. Where it doesn't end, the failure says where its threads are."""
        self._may_end = True
        self._process.join(timeout)
        if self._process.exitcode is None:
            os.kill(self.pid, signal.SIGUSR1)
            self._process.join(TELLING_SECONDS)
            pytest.fail(f"it still runs after {timeout} s; its log ends with:\n{self.log[-LOG_END:]}")
        return self._process.exitcode

    def kill(self) -> None:
        self._may_end = True
        self._process.kill()


_workers: list[Worker] = []
"""Those that run for the test that runs."""


@contextmanager
def working(of: Settings, child: str = "fake", queue_url: str | None = None) -> Generator[Worker]:
    """A worker process, which has its queue elsewhere if told so. On leaving, it is gone.

    Workers are forked from a process that has loaded the libraries: that takes Python seconds, and no test is about them.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=work, args=({**os.environ, **environment(of)}, child, queue_url), daemon=True)
    process.start()
    started = Worker(process, of.data_dir / "worker.log")
    _workers.append(started)
    try:
        yield started
    finally:
        _workers.remove(started)
        started.kill()
        started.wait()


def work(variables: dict[str, str], child: str, queue_url: str | None) -> None:
    """A worker's life, in a process of its own."""
    os.environ.clear()
    os.environ.update(variables)
    of = Settings()
    log = os.open(of.data_dir / "worker.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    if queue_url is not None:
        Settings.queue_url = property(lambda _self: queue_url)  # pyright: ignore[reportAttributeAccessIssue]

    def stand_in(workdir: Path) -> list[str]:
        return [sys.executable, "-S", "-E", fake_child.__file__, str(workdir), str(os.getpid())]

    raise SystemExit(worker.main(of, training_command if child == "real" else stand_in, preparing_here(of.made_data_sets_dir)))


def wait_until(
    condition: Callable[[], bool],
    seconds: float = WAIT_SECONDS,
    found: Callable[[], object] | None = None,
    unless: Callable[[], str | None] | None = None,
) -> None:
    """Poll until the condition holds; fails the test if it doesn't, with what was found instead.

    It fails at once where a worker of the test has ended by itself, or where ``unless`` says why the condition can't hold any more.
    """

    def hopeless() -> str | None:
        ends = [end for worker in _workers if (end := worker.unforeseen_end) is not None]
        return ends[0] if ends else None if unless is None else unless()

    deadline, pause = time.monotonic() + seconds, SHORTEST_PAUSE_SECONDS
    while not condition():
        why = hopeless()
        if why is None and time.monotonic() >= deadline:
            logs = [f"; the log of worker {worker.pid} ends with:\n{worker.log[-LOG_END:]}" for worker in _workers]
            why = f"still not so after {seconds} s" + "".join(logs)
        if why is not None:
            if condition():  # the last that happened before may have brought it
                return
            pytest.fail(why if found is None else f"{why}: {found()}")
        time.sleep(pause)
        pause = min(1.3 * pause, LONGEST_PAUSE_SECONDS)


def wait_for_state(client: httpx2.Client, job_id: str, wanted: str) -> None:
    """Wait until the job is in this state; fails at once where it has ended in another."""

    def ended_otherwise() -> str | None:
        job = client.get(f"/v1/jobs/{job_id}").json()
        return f"the job has ended otherwise: {job}" if job["state"] in FINAL_STATES and job["state"] != wanted else None

    wait_until(lambda: state(client, job_id) == wanted, found=lambda: client.get("/v1/jobs").json(), unless=ended_otherwise)


def submit(client: httpx2.Client, order: Order = Order.FINISH, step_seconds: float = 0.01, **changes: object) -> str:
    """The id of a new job, which the fake child treats as ordered."""
    runtime = {"microbatch_size": int(order), "checkpoint_seconds": step_seconds}
    response = client.post("/v1/jobs", json={"spec": spec(**changes), "runtime": runtime})
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


def state(client: httpx2.Client, job_id: str) -> str:
    return str(client.get(f"/v1/jobs/{job_id}").json()["state"])


@dataclass(frozen=True)
class Sent:
    """One server-sent event."""

    number: int
    kind: str
    data: dict[str, object]
    attempt: int


def stream(client: httpx2.Client, job_id: str, after: int | None = None) -> Iterator[Sent]:
    """Follow a job's events until the server ends the stream."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    with client.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers) as response:
        assert response.status_code == 200
        fields: dict[str, str] = {}
        for line in response.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
                continue
            if "id" in fields:
                record = json.loads(fields["data"])
                yield Sent(int(fields["id"]), fields["event"], record["data"], record["attempt"])
            fields = {}


def child_pids(of: Settings, job_id: str) -> list[int]:
    """Process ids of the fake children that worked on the job, in order."""
    kept = os.environ.get("FAKE_CHILD_PIDS")
    pids = of.job_dir(job_id) / "pids" if kept is None else Path(kept) / job_id
    return [int(line) for line in pids.read_text().split()] if pids.exists() else []


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and waits to be reaped doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def kill(process: Worker) -> None:
    """SIGKILL, as the system's out-of-memory killer would."""
    process.send_signal(signal.SIGKILL)
    process.wait()


@contextmanager
def postgresql_server() -> Generator[str]:
    """The URL of a fresh database on a real server (``ZETADP_TEST_POSTGRESQL``, by default this machine's), dropped afterwards.

    Where no server answers the test is skipped with that reason; with ``CI=true`` it fails instead.
    """
    server = os.environ.get("ZETADP_TEST_POSTGRESQL", "postgresql://postgres@127.0.0.1:5432/test")
    name = f"zetadp_{uuid.uuid4().hex}"
    try:
        connection = psycopg.connect(server, autocommit=True, connect_timeout=3)
    except psycopg.OperationalError as unreachable:
        reason = f"no PostgreSQL server answers: {unreachable}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield server.rpartition("/")[0] + f"/{name}"
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
