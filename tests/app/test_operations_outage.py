r"""No database and no room on the disk: what every route answers meanwhile, and that it goes on by itself."""

from __future__ import annotations

import errno
import threading
from collections.abc import Generator
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI
from sqlalchemy import PoolProxiedConnection, event

from tests.app import jobs_harness
from tests.app.jobs_harness import AUTHORIZED, postgresql_server, serving, settings, spec, submit
from tests.app.openapi_harness import document
from tests.app.preparing_harness import prepare_all
from tests.app.proxy import Proxy, proxied
from zetadp.app.jobs.attempts import Attempts
from zetadp.app.jobs.leases import Executor, Leases
from zetadp.app.jobs.needs import Capacity
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.app.operations import readiness
from zetadp.app.tables.jobs import JobRow
from zetadp.app.worker import running
from zetadp.app.worker.running import Runner

OPEN_TAGS = {"calculators", "papers", "recipes"}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "KEPT_SECONDS", 0.0)
    monkeypatch.setattr(readiness, "LIMIT_SECONDS", 60.0)


@pytest.fixture
def place(tmp_path: Path) -> Generator[tuple[Settings, Proxy]]:
    with postgresql_server() as url, proxied(url) as (through, proxy):
        yield Settings.model_validate(settings(tmp_path).model_dump() | {"database_url": through}), proxy


def calls() -> list[tuple[str, str, bool]]:
    """(method, path, whether a key is needed) of every route that isn't a calculator's."""
    found: list[tuple[str, str, bool]] = []
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            if not OPEN_TAGS & set(operation.get("tags", ())):
                names = [part["name"] for part in operation.get("parameters", ()) if part["in"] == "path"]
                found.append((method, path.format(**dict.fromkeys(names, "0" * 32)), "security" in operation))
    return found


def test_every_route_says_that_the_database_is_away_and_when_to_ask_again(place: tuple[Settings, Proxy]) -> None:
    of, proxy = place
    with serving(of) as client, httpx2.Client(base_url=client.base_url, timeout=120) as keyless:
        routes = calls()
        before = submit(client)
        proxy.cut()
        for method, path, needs_key in routes:
            # What needs no key is asked without: one that is shown is looked up.
            shown = AUTHORIZED if needs_key else None
            answer = keyless.request(method, path, json={} if method in ("post", "patch") else None, headers=shown)
            if needs_key or path == "/readyz":
                assert answer.status_code == 503, (method, path, answer.text)
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.headers["retry-after"] == "5"
                assert answer.json()["type"] == ("not-ready" if path == "/readyz" else "database-unavailable")
                assert answer.json()["request_id"] == answer.headers["x-request-id"]
                for inner in ("postgres", "127.0.0.1", "SELECT", "psycopg"):
                    assert inner not in answer.text
        assert client.get("/livez").status_code == 200
        assert client.post("/v1/jobs", json={"spec": spec()}).status_code == 503
        proxy.mend()
        assert client.get("/readyz").status_code == 200
        assert [job["id"] for job in client.get("/v1/jobs").json()["jobs"]] == [before]
        assert client.post("/v1/jobs", json={"spec": spec()}).status_code == 202
        problems = client.get("/metrics").text
        assert 'zetadp_problems_total{type="internal-error"} 0.0' in problems
    assert len([route for route in routes if route[2]]) > 30


def test_full_disk_of_sqlite_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apps: list[FastAPI] = []

    def kept(of: Settings) -> FastAPI:
        apps.append(create_app(of))
        return apps[-1]

    monkeypatch.setattr(jobs_harness, "create_app", kept)
    pages = {"most": 1}  # as many as there are: none can be added

    def limited(connection: PoolProxiedConnection, _record: object, _proxy: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages['most']}")  # pyright: ignore[reportAttributeAccessIssue]

    body = {"spec": spec(), "labels": {f"label{number}": "x" * 100 for number in range(20)}}
    with serving(settings(tmp_path)) as client:
        first = client.post("/v1/jobs", json=body)
        assert first.status_code == 202
        event.listen(apps[0].state.database._engine, "checkout", limited)
        answers = [client.post("/v1/jobs", json=body) for _ in range(8)]
        refused = [answer for answer in answers if answer.status_code != 202]
        assert refused
        for answer in refused:
            assert (answer.status_code, answer.json()["type"]) == (507, "storage-full")
        pages["most"] = 2**30
        assert client.post("/v1/jobs", json=body).status_code == 202
        stored = client.get("/v1/jobs", params={"limit": 100}).json()["jobs"]
        assert len(stored) == 2 + len(answers) - len(refused)


@pytest.mark.slow
def test_worker_without_room_says_so_and_gives_up_after_three_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = settings(tmp_path)
    with serving(of) as client:
        job_id = submit(client)
        database = Database(of)
        prepare_all(database)
        leases, attempts = Leases(database, 3), Attempts(database, 3)
        token = leases.take(Executor(id="w", host="h", device="cpu", hardware="-", lease_seconds=60.0))

        def full(*_arguments: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(running, "write_request", full)
        states: list[str] = []
        while (attempt := attempts.start_next(token, Capacity())) is not None:
            Runner(of, attempts, threading.Event(), lambda _workdir: []).run(attempt)
            with database.reading() as session:
                states.append(session.get_one(JobRow, job_id).state)
        database.close()
        assert states == ["queued", "queued", "failed"]
        assert client.get(f"/v1/jobs/{job_id}").json()["failure"] == "its worker's disk is full 3 times; no further attempt"
