r"""A database that goes away while a worker has a job in hand: a proxy stands before a real PostgreSQL server and is cut."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import final

import pytest

from app.settings import Settings
from tests.app.jobs_harness import child_pids, postgresql_server, serving, settings, stream, submit, wait_until, working

OUTAGE_SECONDS = 6.0
"""Six leases: longer than any worker may be silent while others see the database."""


@final
class Proxy:
    """Passes on what comes to its port, unless it is cut or muted."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._open: set[socket.socket] = set()
        self._passing: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._is_cut = self._is_mute = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, name="proxy")
        self._accepting.start()

    def cut(self) -> None:
        """End every connection and refuse new ones."""
        with self._lock:
            self._is_cut = True
            for side in self._open:
                _shut_down(side)

    def mend(self) -> None:
        with self._lock:
            self._is_cut = False

    def mute(self) -> None:
        """From now on take everything and pass on nothing: connections stay open, and nobody answers."""
        self._is_mute = True

    def close(self) -> None:
        self.cut()
        _shut_down(self._listener)  # closing alone doesn't wake whoever waits in accept()
        for thread in (self._accepting, *self._passing):
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._is_cut:
                    client.close()
                    continue
                server = socket.create_connection(self._server)
                self._open |= {client, server}
            for source, target in ((client, server), (server, client)):
                self._passing.append(threading.Thread(target=self._pass_on, args=(source, target), name="proxy"))
                self._passing[-1].start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while content := source.recv(65536):
                if not self._is_mute:
                    target.sendall(content)
        _shut_down(target)  # which ends the other direction's thread too
        with self._lock:
            self._open.discard(source)
            source.close()


def _shut_down(side: socket.socket) -> None:
    with suppress(OSError):  # it is closed, or its other end is
        side.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxied(url: str) -> Generator[tuple[str, Proxy]]:
    """The same database through a proxy."""
    head, _, rest = url.rpartition("@")
    place, _, name = rest.partition("/")
    host, _, port = place.partition(":")
    proxy = Proxy(host, int(port or 5432))
    try:
        yield f"{head}@127.0.0.1:{proxy.port}/{name}", proxy
    finally:
        proxy.close()


@pytest.fixture
def place(tmp_path: Path) -> Generator[tuple[Settings, Proxy]]:
    with postgresql_server() as url, proxied(url) as (through, proxy):
        changes = {"database_url": through, "lease_seconds": 1.0}
        yield Settings.model_validate(settings(tmp_path).model_dump() | changes), proxy


def test_job_outlives_its_database(place: tuple[Settings, Proxy]) -> None:
    of, proxy = place
    second = Settings.model_validate(of.model_dump() | {"executor_id": "second"})
    with serving(of) as client, working(of), working(second):
        wait_until(lambda: len(client.get("/v1/hardware").json()["workers"]) == 2, 60.0)
        job_id = submit(client, step_seconds=0.5)  # 10 s in all: it goes on while nobody can be told
        next(event for event in stream(client, job_id) if event.kind == "progress")
        proxy.cut()
        time.sleep(OUTAGE_SECONDS)
        proxy.mend()
        wait_until(lambda: client.get(f"/v1/jobs/{job_id}").status_code == 200)
        events = list(stream(client, job_id))
        job = client.get(f"/v1/jobs/{job_id}").json()
        assert (job["state"], job["attempt"]) == ("succeeded", 1)
        assert [event.data["step"] for event in events if event.kind == "progress"] == list(range(1, 21))
        assert len(child_pids(of, job_id)) == 1
        other = submit(client)
        assert list(stream(client, other))[-1].data["state"] == "succeeded"
