r"""A federation's job over REST: it starts Flower's server, with TLS, is followed, tells how its sites stand, and ends the server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.app.jobs_harness import AUTHORIZED, environment, settings, wait_until
from tests.trainer.federation_by_hand import FLOWER, Federation, tls_files
from zetadp.app.jobs.events import JobEventRecord
from zetadp.trainer.specs.report import SitesStanding

ROUNDS = 4
PATIENCE = 600.0
"""Seconds for a federation to start and end, beside other work."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (FLOWER / "bin" / "flower-superlink").exists(), reason="Flower isn't installed: make build/flower/.installed"),
]


@contextmanager
def _service(folder: Path, federation: Federation) -> Generator[httpx2.Client]:
    """A real service with a real worker, which has the coordinator's settings."""
    variables = {**os.environ, **environment(settings(folder)), "ZETADP_FEDERATION": str(federation.folder / "coordinator.yaml")}
    with (folder / "out").open("w") as out, (folder / "log").open("w") as log:
        command = [sys.executable, "-m", "zetadp", "serve", "--port", "0", "--with-worker"]
        service = subprocess.Popen(command, env=variables, stdout=out, stderr=log, start_new_session=True)
    try:
        wait_until(lambda: "zetadp is at " in (folder / "out").read_text(), PATIENCE)
        address = (folder / "out").read_text().splitlines()[0].removeprefix("zetadp is at ")
        with httpx2.Client(base_url=address, headers=AUTHORIZED, timeout=120) as client:
            yield client
    finally:
        service.terminate()
        service.wait(120)


def _listens(federation: Federation) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", federation.port)) == 0


def _job(client: httpx2.Client, federation: Federation) -> Callable[[], dict[str, Any]]:
    answer = client.post("/v1/jobs", json={"spec": federation.spec.model_dump(mode="json", exclude_none=True)})
    assert answer.status_code in {201, 202}, answer.text
    return lambda: client.get(f"/v1/jobs/{answer.json()['id']}").json()


def _standing(client: httpx2.Client, job: str) -> list[SitesStanding]:
    """What its history says of its sites."""
    found: list[SitesStanding] = []
    with client.stream("GET", f"/v1/jobs/{job}/events") as stream:
        for line in stream.iter_lines():
            if line.startswith("data:"):
                data = JobEventRecord.model_validate_json(line.removeprefix("data:")).data
                found += [data] if isinstance(data, SitesStanding) else []
    return found


def test_a_job_starts_its_federation_over_tls_and_tells_how_its_sites_stand(tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()
    (tmp_path / "service").mkdir()
    federation = Federation(tmp_path / "sites", 2, tls=tls_files(tmp_path), steps=ROUNDS)
    with _service(tmp_path / "service", federation) as client, federation.sites():
        job = _job(client, federation)
        wait_until(lambda: job()["state"] in {"succeeded", "failed"}, PATIENCE, job)
        assert job()["state"] == "succeeded", job()
        last = _standing(client, job()["id"])[-1]
        assert (last.round, last.rounds) == (ROUNDS, ROUNDS)
        assert [(site.name, site.answered, site.charged) for site in last.sites] == [("a", True, ROUNDS), ("b", True, ROUNDS)]
        assert not _listens(federation)
        text = client.get(f"/v1/certificates/{job()['certificate']}?form=html").text
        assert federation.proposal.digest in text
        names = {one["name"] for one in client.get(f"/v1/jobs/{job()['id']}/artifacts").json()["artifacts"]}
        assert "statements.jsonl" in names


def test_a_cancelled_job_ends_flowers_server(tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()
    (tmp_path / "service").mkdir()
    federation = Federation(tmp_path / "sites", 2, tls=tls_files(tmp_path), steps=ROUNDS)
    with _service(tmp_path / "service", federation) as client:  # none of the sites is there
        job = _job(client, federation)
        wait_until(lambda: _listens(federation), PATIENCE)
        client.post(f"/v1/jobs/{job()['id']}/cancel")
        wait_until(lambda: job()["state"] == "cancelled", PATIENCE, job)
        wait_until(lambda: not _listens(federation), PATIENCE)
