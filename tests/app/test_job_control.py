r"""What users do to jobs that a real worker has in hand: pausing, resuming, retrying, time limits; and what they are told meanwhile."""

from __future__ import annotations

import json
import socket
from base64 import b64decode
from collections.abc import Generator
from dataclasses import dataclass

import httpx2
import pytest
from sqlalchemy import update
from typer.testing import CliRunner

from tests.app.fake_child import Order
from tests.app.jobs_harness import (
    ADMIN_KEY,
    Sent,
    Submission,
    child_pids,
    is_alive,
    serving,
    settings,
    spec,
    state,
    stream,
    submit,
    wait_until,
    working,
)
from zetadp.app.cli import app
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.jobs import JobRow
from zetadp.app.worker.naming import names

SLOW = 0.5


@dataclass(frozen=True)
class Service:
    settings: Settings
    client: httpx2.Client


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Service]:
    of = settings(tmp_path_factory.mktemp("control"))
    with serving(of) as client, working(of):
        yield Service(of, client)


def act(service: Service, job_id: str, action: str) -> Submission:
    answer = service.client.post(f"/v1/jobs/{job_id}/{action}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def until(service: Service, job_id: str, kind: str) -> Sent:
    return next(event for event in stream(service.client, job_id) if event.kind == kind)


def job(service: Service, job_id: str) -> Submission:
    return service.client.get(f"/v1/jobs/{job_id}").json()


def test_paused_job_frees_its_worker_and_goes_on_from_its_checkpoint_when_resumed(service: Service) -> None:
    job_id = submit(service.client, Order.HOLD)
    until(service, job_id, "progress")
    assert act(service, job_id, "pause")["state"] in ("pausing", "paused")
    wait_until(lambda: state(service.client, job_id) == "paused")
    assert not is_alive(child_pids(service.settings, job_id)[-1])
    other = submit(service.client)
    assert list(stream(service.client, other))[-1].data["state"] == "succeeded"
    act(service, job_id, "resume")
    events = list(stream(service.client, job_id))
    stopped = next(event for event in events if event.kind == "stopped")
    resumed = [event for event in events if event.kind == "started"][1]
    assert resumed.data["resumed_from_step"] == stopped.data["step"]
    assert [event.data["step"] for event in events if event.kind == "progress"] == list(range(1, 21))
    assert [event.data["state"] for event in events if event.kind == "state"] == [
        "preparing", "queued", "running", "pausing", "paused", "queued", "running", "succeeded",
    ]  # fmt: skip


def test_cancelled_job_that_is_retried_goes_on_and_its_certificate_counts_the_restart(service: Service) -> None:
    job_id = submit(service.client, Order.HOLD)
    until(service, job_id, "checkpoint")
    act(service, job_id, "cancel")
    wait_until(lambda: state(service.client, job_id) == "cancelled")
    assert act(service, job_id, "retry")["finished"] is None
    events = list(stream(service.client, job_id))
    assert [event.data["resumed_from_step"] for event in events if event.kind == "started"][1] >= 5
    made = job(service, job_id)
    envelope = service.client.get(made["links"]["certificate"]).json()
    certified = json.loads(b64decode(envelope["payload"]))["predicate"]
    assert (made["state"], certified["job"]["attempts"], certified["run"]["steps_released"]) == ("succeeded", 2, 20)


@pytest.mark.slow
def test_job_that_runs_longer_than_its_timeout_fails_at_a_checkpoint_and_may_be_retried(service: Service) -> None:
    body = {"spec": spec(), "runtime": {"microbatch_size": int(Order.HOLD), "checkpoint_seconds": 0.01}, "timeout_seconds": 2.0}
    job_id = service.client.post("/v1/jobs", json=body).json()["id"]
    events = list(stream(service.client, job_id))
    failed = job(service, job_id)
    assert (failed["state"], failed["failure"]) == ("failed", "it ran for longer than its timeout of 2 s")
    assert [event.kind for event in events if event.kind != "state"][-2:] == ["checkpoint", "stopped"]
    act(service, job_id, "retry")  # it has its time again
    again = [event for event in stream(service.client, job_id, events[-1].number) if event.kind == "started"]
    assert again[0].data["resumed_from_step"] == next(event.data["step"] for event in events if event.kind == "stopped")


@pytest.mark.slow
def test_time_limit_counts_what_earlier_attempts_ran(service: Service) -> None:
    body = {"spec": spec(), "runtime": {"microbatch_size": int(Order.HOLD), "checkpoint_seconds": SLOW}, "timeout_seconds": 100}
    job_id = service.client.post("/v1/jobs", json=body).json()["id"]
    until(service, job_id, "progress")
    act(service, job_id, "pause")
    wait_until(lambda: state(service.client, job_id) == "paused")
    assert job(service, job_id)["ran_seconds"] >= SLOW
    database = Database(service.settings)
    with database.writing() as session:
        session.execute(update(JobRow).where(JobRow.id == job_id).values(ran_seconds=101.0))
    database.close()
    act(service, job_id, "resume")
    assert list(stream(service.client, job_id))[-1].data["state"] == "failed"
    assert job(service, job_id)["attempt"] == 2


def test_job_whose_checkpoint_is_gone_is_not_run_from_the_start_again(service: Service) -> None:
    job_id = submit(service.client, Order.HOLD)
    until(service, job_id, "checkpoint")
    act(service, job_id, "pause")
    wait_until(lambda: state(service.client, job_id) == "paused")
    (service.settings.job_dir(job_id) / "attempts" / "000001" / "checkpoint.safetensors").unlink()
    act(service, job_id, "resume")
    events = list(stream(service.client, job_id))
    assert job(service, job_id)["state"] == "failed"
    assert "released twice and counted once" in job(service, job_id)["failure"]
    assert not [event for event in events if event.kind == "checkpoint" and event.attempt == 2]


def test_log_is_told_without_free_text_and_kept_in_bounds(service: Service) -> None:
    job_id = submit(service.client, Order.COMPLAIN)
    lines = [str(event.data["line"]) for event in _stream_of(service, job_id, "logs")]
    assert lines[0] == "attempt 1: process started"
    assert lines[1:5] == [
        "Traceback (most recent call last):",
        '  File "/x/train.py", line 3, in step',
        "(1 line left out: free text may quote data)",
        "ValueError",
    ]
    assert lines[-1] == "attempt 1: process ended with code 0"
    assert "Jane" not in json.dumps(lines)
    assert "Jane" in (service.settings.job_dir(job_id) / "training.log").read_text()  # for whoever may read the data anyway


def test_log_goes_on_after_the_last_event_seen(service: Service) -> None:
    job_id = submit(service.client, Order.COMPLAIN)
    events = _stream_of(service, job_id, "logs")
    assert _stream_of(service, job_id, "logs", after=events[2].number) == events[3:]


def test_figures_have_the_live_epsilon_of_every_step(service: Service) -> None:
    job_id = submit(service.client)
    streamed = _stream_of(service, job_id, "metrics/stream")
    page = service.client.get(f"/v1/jobs/{job_id}/metrics").json()
    assert [measure["number"] for measure in page["measures"]] == [event.number for event in streamed]
    assert page["next"] is None
    spent = [
        (measure["data"]["step"], measure["data"]["epsilon"]) for measure in page["measures"] if measure["data"]["event"] == "progress"
    ]
    assert spent == [(step, step / 20) for step in range(1, 21)]
    assert page["measures"][-1]["data"]["metrics"] == {"accuracy": 0.5, "roc_auc": 0.75}


def test_hardware_names_the_worker_and_what_it_runs(service: Service) -> None:
    job_id = submit(service.client, Order.HOLD)
    until(service, job_id, "progress")
    [worker] = service.client.get("/v1/hardware").json()["workers"]
    assert (worker["device"], worker["is_busy"], worker["job"], worker["alive"]) == ("auto", True, job_id, True)
    assert worker["id"] == next(names(None, socket.gethostname(), "auto"))
    assert "CPU threads" in worker["hardware"]
    act(service, job_id, "cancel")
    wait_until(lambda: not service.client.get("/v1/hardware").json()["workers"][0]["is_busy"])


@pytest.mark.slow
def test_command_line_pauses_labels_resumes_and_reads_the_log(service: Service) -> None:
    job_id = submit(service.client, Order.COMPLAIN_AND_HOLD)
    until(service, job_id, "progress")

    def run(command: str, *arguments: str) -> str:
        where = ["--address", str(service.client.base_url), "--key", ADMIN_KEY]
        result = CliRunner().invoke(app, [command, *where, *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert job_id in run("hardware")
    assert f"job {job_id}  pausing" in run("pause", job_id)
    wait_until(lambda: state(service.client, job_id) == "paused")
    run("label", job_id, "team=a", "x=y=z")
    assert job(service, job_id)["labels"] == {"team": "a", "x": "y=z"}
    run("resume", job_id)
    run("cancel", job_id)
    wait_until(lambda: state(service.client, job_id) == "cancelled")
    run("retry", job_id)
    assert "ValueError" in run("logs", job_id)
    assert state(service.client, job_id) == "succeeded"


def test_label_without_a_value_is_refused_by_the_command_line() -> None:
    result = CliRunner().invoke(app, ["label", "0" * 32, "team"])
    assert result.exit_code == 2
    assert "expected NAME=VALUE, got 'team'" in result.output


def _stream_of(service: Service, job_id: str, path: str, after: int = 0) -> list[Sent]:
    sent: list[Sent] = []
    with service.client.stream("GET", f"/v1/jobs/{job_id}/{path}", headers={"Last-Event-ID": str(after)}) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if line.startswith("data: "):
                record = json.loads(line.removeprefix("data: "))
                sent.append(Sent(record["number"], record["data"]["event"], record["data"], record["attempt"]))
    return sent
