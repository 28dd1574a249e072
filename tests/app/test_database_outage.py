r"""A database that goes away while a worker has a job in hand: a proxy stands before a real PostgreSQL server and is cut."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.app.jobs_harness import child_pids, postgresql_server, serving, settings, stream, submit, wait_until, working
from tests.app.proxy import Proxy, proxied
from zetadp.app.kit.settings import Settings

OUTAGE_SECONDS = 6.0
"""Six leases: longer than any worker may be silent while others see the database."""


@pytest.fixture
def place(tmp_path: Path) -> Generator[tuple[Settings, Proxy]]:
    with postgresql_server() as url, proxied(url) as (through, proxy):
        changes = {"database_url": through, "lease_seconds": 1.0}
        yield Settings.model_validate(settings(tmp_path).model_dump() | changes), proxy


@pytest.mark.slow
def test_job_outlives_its_database(place: tuple[Settings, Proxy]) -> None:
    of, proxy = place
    second = Settings.model_validate(of.model_dump() | {"executor_id": "second"})
    with serving(of) as client, working(of), working(second):
        wait_until(lambda: len(client.get("/v1/hardware").json()["workers"]) == 2)
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
