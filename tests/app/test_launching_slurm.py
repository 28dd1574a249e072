r"""Workers by a real cluster of Slurm's, with a real service and a real launcher; the training process is a stand-in."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from pathlib import Path

import httpx2
import pytest

from tests.app.jobs_harness import FINAL_STATES, serving, settings, spec, state, wait_for_state, wait_until
from tests.app.launching_harness import for_launching, launching, logs_of
from tests.app.slurm_harness import missing, preempt, queue_of, slurm_cluster
from zetadp.app.jobs.needs import Needs
from zetadp.app.kit.settings import Settings
from zetadp.app.launching.interface import ClusterUnavailable, LaunchRefused, LaunchState, Order
from zetadp.app.launching.slurm import Slurm
from zetadp.mechanisms.errors import InvalidParameter

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
STEPS = 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[dict[str, str]]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment


@pytest.fixture
def of(tmp_path: Path) -> Settings:
    return for_launching(settings(tmp_path), "slurm")


@pytest.fixture
def client(of: Settings, cluster: dict[str, str]) -> Generator[httpx2.Client]:
    with serving(of) as client, launching(of, cluster):
        yield client


def submitted(client: httpx2.Client, step_seconds: float = 0.01, **changes: object) -> str:
    runtime = {"microbatch_size": 1, "checkpoint_seconds": step_seconds}
    answer = client.post("/v1/jobs", json={"spec": spec(steps=STEPS), "runtime": runtime, **changes})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def steps_told(client: httpx2.Client, job_id: str) -> list[int]:
    measures = client.get(f"/v1/jobs/{job_id}/metrics").json()["measures"]
    return [one["data"]["step"] for one in measures if one["data"]["event"] == "progress"]


def test_a_job_runs_where_slurm_has_room_and_its_certificate_is_there(client: httpx2.Client, of: Settings, cluster: dict[str, str]) -> None:
    job_id = submitted(client, resources={"memory_bytes": 2**30, "seconds": 3600, "cpus": 2})
    wait_until(lambda: state(client, job_id) in FINAL_STATES, found=lambda: f"{logs_of(of)}; {queue_of(cluster)}")
    job = client.get(f"/v1/jobs/{job_id}").json()
    assert (job["state"], job["attempt"]) == ("succeeded", 1)
    assert job["certificate"] is not None
    assert steps_told(client, job_id) == list(range(1, STEPS + 1))
    [entry] = [one for one in client.get("/v1/hardware").json()["workers"] if one["id"] == "launcher"]
    assert entry["hardware"] == "Slurm: 2 machines"


@pytest.mark.slow
def test_a_preempted_job_goes_on_from_its_checkpoint(client: httpx2.Client, of: Settings, cluster: dict[str, str]) -> None:
    job_id = submitted(client, step_seconds=0.25)
    wait_until(lambda: len(steps_told(client, job_id)) >= 3, found=lambda: logs_of(of))
    preempt(cluster, 1.0)
    wait_for_state(client, job_id, "succeeded")
    job = client.get(f"/v1/jobs/{job_id}").json()
    assert job["attempt"] >= 2
    told = steps_told(client, job_id)
    assert told == list(range(1, STEPS + 1))  # it stopped at a checkpoint: no step was run twice


@pytest.mark.slow
def test_a_job_that_is_cancelled_while_it_waits_leaves_nothing_in_the_queue(
    client: httpx2.Client, of: Settings, cluster: dict[str, str]
) -> None:
    blocking = preempt(cluster, 600.0)
    try:
        job_id = submitted(client)
        wait_until(lambda: job_id in queue_of(cluster), found=lambda: logs_of(of))
        wait_until(lambda: (client.get(f"/v1/jobs/{job_id}").json()["launch"] or {}).get("reason") is not None)
        client.post(f"/v1/jobs/{job_id}/cancel")
        wait_until(lambda: client.get(f"/v1/jobs/{job_id}").json()["launch"] is None)
        wait_until(lambda: not any(job_id in line and "PENDING" in line for line in queue_of(cluster).splitlines()))
    finally:
        os.spawnvpe(os.P_WAIT, "scancel", ["scancel", blocking], cluster)
    assert state(client, job_id) == "cancelled"


@pytest.mark.slow
def test_what_slurm_refuses_fails_the_job_with_its_words(tmp_path: Path, cluster: dict[str, str]) -> None:
    of = for_launching(settings(tmp_path), "slurm", slurm_options="--qos=nobody-has-it --constraint=none-such")
    with serving(of) as client, launching(of, cluster):
        job_id = submitted(client)
        wait_for_state(client, job_id, "failed")
        failure = client.get(f"/v1/jobs/{job_id}").json()["failure"]
    assert failure.startswith("the cluster refuses a worker for it: ")
    assert "Invalid" in failure


@pytest.mark.slow
def test_more_than_the_cluster_has_is_answered_at_submission(client: httpx2.Client, of: Settings) -> None:
    wait_until(lambda: client.get("/v1/hardware").json()["workers"] != [], found=lambda: logs_of(of))
    asked = {"spec": spec(), "runtime": {"device": "cuda", "processes": 2}, "resources": {"machines": 2}}
    answer = client.post("/v1/jobs", json=asked)
    assert answer.status_code == 422
    assert "which is what the workers of this service have" in answer.text
    too_large = client.post("/v1/jobs", json={"spec": spec(), "resources": {"memory_bytes": 2**40}})
    assert (too_large.status_code, "resources.memory_bytes" in too_large.text) == (422, True)


@pytest.mark.slow
def test_a_real_training_spread_over_two_machines_goes_on_after_both_were_taken(tmp_path: Path, cluster: dict[str, str]) -> None:
    of = for_launching(settings(tmp_path), "slurm", "real", stop_grace_seconds=10.0)
    with serving(of) as client, launching(of, cluster):
        asked = {
            "spec": spec(steps=400),
            "runtime": {"processes": 2, "threads": 1, "checkpoint_seconds": 0.2},
            "resources": {"machines": 2},
        }
        job_id = str(client.post("/v1/jobs", json=asked).json()["id"])
        wait_until(lambda: len(steps_told(client, job_id)) >= 3, found=lambda: f"{logs_of(of)}; {queue_of(cluster)}")
        preempt(cluster, 1.0)
        wait_until(lambda: state(client, job_id) in FINAL_STATES, 300.0, found=lambda: f"{logs_of(of)}; {queue_of(cluster)}")
        job = client.get(f"/v1/jobs/{job_id}").json()
    assert (job["state"], job["failure"]) == ("succeeded", None), logs_of(of)
    assert job["attempt"] >= 2
    assert job["certificate"] is not None


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of commands that answer as the test says, instead of Slurm's."""
    folder = tmp_path / "commands"
    folder.mkdir()
    for name in ("sbatch", "squeue", "scancel", "sinfo"):
        answers(folder, name, "")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def answers(folder: Path, name: str, text: str, code: int = 0) -> None:
    """``text`` on standard output, or on standard error if it fails; what it was given stays in a file."""
    command = folder / name
    command.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/{name}.given\ncat <<"END" {">&2" if code else ""}\n{text}\nEND\nexit {code}\n'
    )
    command.chmod(command.stat().st_mode | stat.S_IXUSR)


ORDER = Order(
    name="zetadp-1",
    job_id="1",
    needs=Needs(device="cuda", gpus=2, gpu_kind="h200", memory_bytes=3 * 2**30 + 1, machines=1),
    cpus=4,
    seconds=3601,
    grace_seconds=25.0,
)


def test_an_order_is_slurms_options(tmp_path: Path, commands: Path) -> None:
    answers(commands, "sinfo", "n1|gpu:H200:8(S:0-1),gpu:l4:2|512000\nn2|(null)|64000+")
    slurm = Slurm(for_launching(settings(tmp_path), "slurm", slurm_options="--partition=gpu --output=/scratch/%x.log"))
    capacity = slurm.capacity()
    assert (capacity.gpus, capacity.gpu_names, capacity.memory_bytes, capacity.machines) == (10, ("H200", "l4"), 512000 * 2**20, 2)
    slurm.start(ORDER)
    given = (commands / "sbatch.given").read_text().splitlines()
    for option in (
        "--gpus-per-node=H200:2",
        "--mem=3073M",
        "--time=61",
        "--cpus-per-task=4",
        "--nodes=1",
        "--signal=B:TERM@26",
        "--requeue",
    ):
        assert option in given
    assert given.index("--output=/scratch/%x.log") > 0  # after ours, so that it counts
    assert "--partition=gpu" in (commands / "sinfo.given").read_text()


def test_states_of_slurm_are_waiting_running_or_ended(tmp_path: Path, commands: Path) -> None:
    slurm = Slurm(for_launching(settings(tmp_path), "slurm"))
    answers(
        commands,
        "squeue",
        "a|PENDING|(Resources)\nb|COMPLETING|None\nc|OUT_OF_MEMORY|OutOfMemory\nd|TIMEOUT|TimeLimit\nd|PENDING|BeginTime",
    )
    found = slurm.found(["a", "b", "c", "d", "e"])
    assert {name: one.state for name, one in found.items()} == {
        "a": LaunchState.WAITING,
        "b": LaunchState.RUNNING,
        "c": LaunchState.ENDED,
        "d": LaunchState.WAITING,  # of two with one name the living one counts
    }
    assert found["c"].reason == "out_of_memory, OutOfMemory"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Unable to contact slurm controller (connect failure)", ClusterUnavailable),
        ("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", ClusterUnavailable),
        ("Invalid partition name specified", LaunchRefused),
    ],
)
def test_what_time_mends_is_told_from_what_is_refused(tmp_path: Path, commands: Path, said: str, kind: type[Exception]) -> None:
    slurm = Slurm(for_launching(settings(tmp_path), "slurm"))
    answers(commands, "sbatch", f"sbatch: error: Batch job submission failed: {said}", code=1)
    with pytest.raises(kind):
        slurm.start(ORDER.model_copy(update={"needs": ORDER.needs.model_copy(update={"gpu_kind": None})}))


def test_options_that_no_shell_could_read_are_refused_at_the_start(tmp_path: Path, commands: Path) -> None:
    with pytest.raises(InvalidParameter, match="ZETADP_SLURM_OPTIONS"):
        Slurm(for_launching(settings(tmp_path), "slurm", slurm_options="--comment='half"))
