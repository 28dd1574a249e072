r"""Real worker processes with a stand-in for the training child: success, failure, cancellation, death, and what is left of each."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from sqlalchemy import text

from tests.app.fake_child import Order
from tests.app.jobs_harness import (
    Sent,
    Submission,
    child_pids,
    is_alive,
    kill,
    postgresql_server,
    serving,
    settings,
    spec,
    state,
    stream,
    submit,
    wait_until,
    working,
)
from tests.selection import thinned
from zetadp.app.jobs.leases import Leases
from zetadp.app.jobs.queue import JobQueue
from zetadp.app.jobs.resources import JobSubmission
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.submissions.service import JobService
from zetadp.app.worker.process import EXIT_BUSY

RUNTIME = {"microbatch_size": int(Order.HOLD), "checkpoint_seconds": 0.01}


@dataclass(frozen=True)
class Service:
    settings: Settings
    client: httpx2.Client
    worker_pid: int


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Service]:
    """An API and a worker that no test here kills."""
    of = settings(tmp_path_factory.mktemp("service"))
    with serving(of) as client, working(of) as worker:
        yield Service(of, client, worker.pid)


@pytest.fixture
def api(tmp_path: Path) -> Generator[Service]:
    """An API alone; the test starts its workers."""
    of = settings(tmp_path)
    with serving(of) as client:
        yield Service(of, client, 0)


@pytest.fixture(scope="module")
def succeeded(service: Service) -> tuple[str, list[Sent]]:
    """A job that succeeded, and its history."""
    job_id = submit(service.client)
    return job_id, list(stream(service.client, job_id))


def job(service: Service, job_id: str) -> Submission:
    return service.client.get(f"/v1/jobs/{job_id}").json()


def until(service: Service, job_id: str, kind: str, after: int = 0) -> Sent:
    """The next event of this kind."""
    return next(event for event in stream(service.client, job_id, after) if event.kind == kind)


def ended(service: Service, job_id: str) -> str:
    """The final state, once it is reached."""
    return str(list(stream(service.client, job_id))[-1].data["state"])


def test_history_tells_every_step_and_ends_with_success(succeeded: tuple[str, list[Sent]]) -> None:
    _, events = succeeded
    assert [event.data["state"] for event in events if event.kind == "state"] == ["preparing", "queued", "running", "succeeded"]
    assert [event.data["step"] for event in events if event.kind == "progress"] == list(range(1, 21))
    assert events[-1].kind == "state"


def test_broken_stream_goes_on_without_loss(service: Service, succeeded: tuple[str, list[Sent]]) -> None:
    job_id, events = succeeded
    seen: list[Sent] = []
    while len(seen) < len(events):
        for event in stream(service.client, job_id, seen[-1].number if seen else None):
            seen.append(event)
            if len(seen) % 7 == 0:
                break  # the connection is closed here
    assert seen == events


def test_job_tells_progress_metrics_and_certificate(service: Service, succeeded: tuple[str, list[Sent]]) -> None:
    resource = job(service, succeeded[0])
    assert resource["progress"] == {"step": 20, "steps": 20, "epsilon": 1.0, "delta": 1e-5}
    assert resource["metrics"] == {"event": "metrics", "step": 20, "held_out": "public", "metrics": {"accuracy": 0.5, "roc_auc": 0.75}}
    assert (resource["attempt"], resource["failure"]) == (1, None)
    assert resource["links"]["certificate"] == f"/v1/certificates/{resource['certificate']}"


def test_artifacts_have_the_listed_sizes_and_digests(service: Service, succeeded: tuple[str, list[Sent]]) -> None:
    listed = service.client.get(f"/v1/jobs/{succeeded[0]}/artifacts").json()["artifacts"]
    assert [entry["name"] for entry in listed] == ["certificate.json", "code-manifest.sha256", "model.safetensors", "spec.json"]
    for entry in listed:
        content = service.client.get(f"/v1/jobs/{succeeded[0]}/artifacts/{entry['name']}").content
        assert (len(content), hashlib.sha256(content).hexdigest()) == (entry["bytes"], entry["sha256"])


def test_stored_certificate_is_the_one_beside_the_model(service: Service, succeeded: tuple[str, list[Sent]]) -> None:
    resource = job(service, succeeded[0])
    served = service.client.get(resource["links"]["certificate"]).content
    assert served == service.client.get(f"/v1/jobs/{succeeded[0]}/artifacts/certificate.json").content


@pytest.mark.parametrize(
    ("order", "reason"),
    thinned(
        [
            (Order.FAIL, "the gradient isn't finite"),
            (Order.CRASH, "the training process was ended by SIGKILL (the system may have run out of memory)"),
            (Order.RELEASE_TOO_FEW, "19 steps instead of 20"),
            (Order.LEAVE_NO_REPORT, "training ended without a report: No such file or directory"),
        ],
        every=2,
    ),
)
def test_failed_training_ends_the_job_with_the_reason_and_without_certificate(service: Service, order: Order, reason: str) -> None:
    job_id = submit(service.client, order)
    assert ended(service, job_id) == "failed"
    resource = job(service, job_id)
    assert reason in resource["failure"]
    assert resource["certificate"] is None
    assert service.client.get(f"/v1/jobs/{job_id}/artifacts").json() == {"artifacts": []}


def test_running_job_is_cancelled_at_a_checkpoint(service: Service) -> None:
    job_id = submit(service.client, Order.HOLD)
    until(service, job_id, "progress")
    assert service.client.post(f"/v1/jobs/{job_id}/cancel").json()["state"] in ("cancelling", "cancelled")
    wait_until(lambda: state(service.client, job_id) == "cancelled")
    events = list(stream(service.client, job_id))
    assert [event.kind for event in events if event.kind != "state"][-2:] == ["checkpoint", "stopped"]
    assert not is_alive(child_pids(service.settings, job_id)[-1])


@pytest.mark.slow
def test_child_that_ignores_its_stop_is_killed_after_the_grace(service: Service) -> None:
    job_id = submit(service.client, Order.IGNORE_SIGTERM, step_seconds=3600.0)
    wait_until(lambda: bool(child_pids(service.settings, job_id)))
    service.client.post(f"/v1/jobs/{job_id}/cancel")
    assert ended(service, job_id) == "cancelled"
    assert not is_alive(child_pids(service.settings, job_id)[-1])


@pytest.mark.slow
def test_cancelled_waiting_job_never_starts(service: Service) -> None:
    first, second = submit(service.client, Order.HOLD), submit(service.client)
    assert service.client.post(f"/v1/jobs/{second}/cancel").json()["state"] == "cancelled"
    service.client.post(f"/v1/jobs/{first}/cancel")
    ended(service, first)
    ended(service, submit(service.client, Order.FAIL))  # the queue has gone on to what came after
    assert job(service, second)["attempt"] == 0


@pytest.mark.slow
def test_stored_job_that_never_reached_the_queue_is_trained(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    database, queue = Database(service.settings), JobQueue(service.settings)
    monkeypatch.setattr(queue, "call", lambda _job_id, _priority: None)
    stored = JobService(service.settings, database, queue, "default").submit(
        JobSubmission.model_validate({"spec": spec(), "runtime": RUNTIME}), None
    )
    database.close()
    until(service, stored.id, "started")
    service.client.post(f"/v1/jobs/{stored.id}/cancel")


@pytest.mark.slow
def test_second_worker_of_the_same_given_name_is_refused(service: Service) -> None:
    (name,) = [worker["id"] for worker in service.client.get("/v1/hardware").json()["workers"]]
    with working(Settings.model_validate(service.settings.model_dump() | {"executor_id": name})) as second:
        assert second.wait() == EXIT_BUSY
    assert f"a worker named '{name}' is already running" in (service.settings.data_dir / "worker.log").read_text()


@pytest.mark.slow
def test_second_worker_without_a_given_name_takes_the_next_one(service: Service) -> None:
    def workers() -> set[str]:
        return {worker["id"] for worker in service.client.get("/v1/hardware").json()["workers"]}

    (name,) = names = workers()
    with working(service.settings) as second:
        wait_until(lambda: len(workers()) == 2)
        assert workers() == {name, f"{name}-2"}
        second.send_signal(signal.SIGTERM)
        assert second.wait() == 0
    assert workers() == names


@pytest.mark.slow
def test_worker_whose_lease_was_taken_kills_its_child_and_writes_no_more(service: Service) -> None:
    job_id = submit(service.client, Order.HOLD)
    until(service, job_id, "checkpoint")
    database = Database(service.settings)
    leases = Leases(database, service.settings.maximum_worker_deaths)
    wait_until(lambda: any(leases.bury(lease) is not None for lease in leases.seen()))
    wait_until(lambda: not is_alive(child_pids(service.settings, job_id)[0]))
    database.close()
    assert ended(service, job_id) == "succeeded"  # the same worker, under a new lease
    history = _history(service, job_id)
    numbers = [event.attempt for event in history]
    assert numbers == sorted(numbers), "the superseded attempt wrote after the later one had started"
    assert [event.data["resumed_from_step"] for event in history if event.kind == "started"][1] >= 5


def test_worker_opens_no_port(service: Service) -> None:
    sockets = {os.readlink(entry) for entry in Path(f"/proc/{service.worker_pid}/fd").iterdir() if entry.is_symlink()}
    lines = [line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
    assert not [fields for fields in lines if f"socket:[{fields[9]}]" in sockets]


def test_nothing_in_the_queue_is_a_pickle(service: Service, succeeded: tuple[str, list[Sent]]) -> None:
    with Database(Settings(database_url=service.settings.queue_url, data_dir=service.settings.data_dir)).reading() as session:
        formats = set(session.scalars(text("SELECT serialization FROM workflow_status")))
    assert formats == {"zetadp_json"}


def test_killed_worker_takes_its_child_along_and_the_next_goes_on_from_the_checkpoint(api: Service) -> None:
    job_id = submit(api.client, Order.HOLD)
    with working(api.settings) as first:
        checkpoint = until(api, job_id, "checkpoint")
        kill(first)
    wait_until(lambda: not is_alive(child_pids(api.settings, job_id)[0]))
    assert state(api.client, job_id) == "running"
    with working(api.settings):
        started = until(api, job_id, "started", checkpoint.number)
    assert (started.attempt, started.data["resumed_from_step"]) == (2, 5)


@pytest.mark.slow
def test_job_that_loses_three_workers_fails(api: Service) -> None:
    job_id = submit(api.client, step_seconds=3600.0)
    for number in (1, 2, 3):
        with working(api.settings) as worker:
            wait_until(lambda number=number: len(child_pids(api.settings, job_id)) == number)
            kill(worker)
    with working(api.settings):
        assert ended(api, job_id) == "failed"
    assert job(api, job_id)["failure"] == "its worker was lost 3 times; no further attempt"
    reasons = [event.data["reason"] for event in _history(api, job_id) if event.data.get("state") == "queued"]
    assert reasons == [None, "its worker was lost", "its worker was lost"]


@pytest.mark.slow
def test_job_that_breaks_the_worker_itself_every_time_fails(api: Service) -> None:
    job_id = submit(api.client)
    folder = api.settings.job_dir(job_id)
    folder.parent.mkdir()
    folder.write_text("no folder can be made here")
    with working(api.settings):
        assert ended(api, job_id) == "failed"
    assert job(api, job_id)["failure"] == "its worker was lost 3 times; no further attempt"


@pytest.mark.slow
def test_worker_that_is_told_to_stop_leaves_the_job_for_one_of_another_name(api: Service) -> None:
    job_id = submit(api.client, Order.HOLD)
    with working(api.settings) as first:
        until(api, job_id, "progress")
        first.send_signal(signal.SIGTERM)
        assert first.wait() == 0
    assert state(api.client, job_id) == "queued"
    stopped, reached = next((event.number, event.data["step"]) for event in _history(api, job_id) if event.kind == "stopped")
    other = Settings.model_validate(api.settings.model_dump() | {"executor_id": "other"})
    with working(other):
        started = until(api, job_id, "started", stopped)
    assert (started.attempt, started.data["resumed_from_step"]) == (2, reached)


@pytest.mark.slow
def test_whole_job_runs_on_postgresql(tmp_path: Path) -> None:
    with postgresql_server() as url:
        of = Settings.model_validate(settings(tmp_path).model_dump() | {"database_url": url})
        with serving(of) as client, working(of):
            job_id = submit(client)
            assert ended(Service(of, client, 0), job_id) == "succeeded"
            assert client.get("/v1/jobs", params={"algorithm": "zeta_dp_sgd"}).json()["jobs"][0]["id"] == job_id


def _history(service: Service, job_id: str) -> list[Sent]:
    """What has happened so far, also to a job that hasn't ended."""
    database = Database(service.settings)
    records, _ = JobService(service.settings, database, JobQueue(service.settings), "default").events(job_id, 0)
    database.close()
    return [Sent(record.number, record.data.event, record.data.model_dump(), record.attempt) for record in records]
