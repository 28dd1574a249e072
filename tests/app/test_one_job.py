r"""A worker that is there for one job: it runs that one, whatever else waits, and ends."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import httpx2
import pytest

from tests.app import launched
from tests.app.forked import Command
from tests.app.jobs_harness import environment, serving, settings, spec, state, submit, wait_until
from tests.app.preparing_harness import prepare_all
from zetadp.app.jobs.attempts import Attempt, Attempts
from zetadp.app.jobs.leases import Executor, Leases
from zetadp.app.jobs.needs import Capacity
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.worker.exits import EXIT_REFUSED


@pytest.fixture
def of(tmp_path: Path) -> Settings:
    return settings(tmp_path).model_copy(update={"lease_seconds": 1.0})


@pytest.fixture
def client(of: Settings) -> Generator[httpx2.Client]:
    with serving(of) as client:
        yield client


@pytest.fixture
def database(of: Settings, client: httpx2.Client) -> Generator[Database]:
    assert client is not None  # the service makes the tables
    opened = Database(of)
    yield opened
    opened.close()


def worker(of: Settings, job_id: str, *options: str, child: str = "fake") -> Command:
    """The worker, forked: what starts one on a cluster executes it, and has tests of its own."""
    folder = Path(tempfile.mkdtemp(prefix="streams-", dir=of.data_dir))
    return Command(folder, child, "--job", job_id, *options, env={**os.environ, **environment(of)}, program=launched.main)


def ended(process: Command) -> tuple[int, str]:
    code = process.wait()
    return code, process.stdout + process.stderr


def test_it_runs_its_job_alone_and_ends(of: Settings, client: httpx2.Client, database: Database) -> None:
    first, second = submit(client), submit(client)
    prepare_all(database)
    code, said = ended(worker(of, second))
    assert code == 0, said
    assert (state(client, first), state(client, second)) == ("queued", "succeeded")
    assert Leases(database, 3).seen() == []
    code, said = ended(worker(of, second))  # as when a cluster starts it again
    assert (code, "job_not_waiting" in said) == (0, True)
    assert client.get(f"/v1/jobs/{second}").json()["attempt"] == 1


@pytest.mark.slow
def test_it_waits_for_the_lease_of_a_worker_that_died_with_its_machine(of: Settings, client: httpx2.Client, database: Database) -> None:
    job_id = submit(client)
    prepare_all(database)
    token = Leases(database, 3).take(Executor(id="dead", host="there", device="auto", hardware="-", lease_seconds=1.0))
    assert isinstance(Attempts(database, 3).start(token, Capacity(), job_id), Attempt)
    code, said = ended(worker(of, job_id))
    assert code == 0, said
    assert state(client, job_id) == "succeeded"
    assert client.get(f"/v1/jobs/{job_id}").json()["attempt"] == 2


def test_it_refuses_a_job_that_needs_more_than_its_machine_has(of: Settings, client: httpx2.Client, database: Database) -> None:
    answer = client.post("/v1/jobs", json={"spec": spec(), "resources": {"memory_bytes": 2**45}})
    assert answer.status_code == 202  # no worker lives, so nothing is known
    prepare_all(database)
    code, said = ended(worker(of, answer.json()["id"]))
    assert code == EXIT_REFUSED, said
    assert "resources.memory_bytes must be at most" in said
    assert state(client, answer.json()["id"]) == "queued"


@pytest.mark.slow
def test_two_machines_with_disks_of_their_own_share_a_real_training(
    of: Settings, client: httpx2.Client, database: Database, tmp_path: Path
) -> None:
    answer = client.post("/v1/jobs", json={"spec": spec(), "runtime": {"processes": 2, "threads": 1}, "resources": {"machines": 2}})
    assert answer.status_code == 202, answer.text
    prepare_all(database)
    job_id = str(answer.json()["id"])
    # The second machine reaches the database, and nothing else of the first one's disk.
    other = of.model_copy(update={"data_dir": tmp_path / "other", "database_url": of.sqlalchemy_url})
    other.data_dir.mkdir()
    place = ["--machines", "2", "--meet", "127.0.0.1:29617"]
    second = worker(other, job_id, *place, "--machine", "1", child="real")
    first = worker(of, job_id, *place, child="real")
    code, said = ended(first)
    assert code == 0, said
    assert state(client, job_id) == "succeeded", said
    code, said = ended(second)
    assert (code, "part_ended" in said) == (0, True), said
    assert not list((other.data_dir / "scratch").rglob("*.safetensors"))
    wait_until(lambda: client.get(f"/v1/jobs/{job_id}").json()["certificate"] is not None)
