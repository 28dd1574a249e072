r"""The launcher's rounds over a cluster that does what the test says: one worker for each job, whatever dies or fails."""

from __future__ import annotations

import shutil
import time
from collections.abc import Generator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.app.jobs_harness import provide_database, spec
from tests.app.preparing_harness import prepare_all
from zetadp.app.jobs.attempts import Attempt, Attempts
from zetadp.app.jobs.events import Logged
from zetadp.app.jobs.launches import Launches
from zetadp.app.jobs.leases import Executor, Leases
from zetadp.app.jobs.needs import Capacity
from zetadp.app.jobs.queue import JobQueue
from zetadp.app.jobs.resources import Job, JobSubmission
from zetadp.app.kit.database import Database, now
from zetadp.app.kit.settings import Settings
from zetadp.app.launching import process
from zetadp.app.launching.interface import ClusterUnavailable, Found, LaunchRefused, LaunchState, Order
from zetadp.app.launching.process import MOST_FAILURES, Rounds
from zetadp.app.submissions.service import JobFilter, JobService
from zetadp.app.tables.job_states import Action, JobState
from zetadp.app.tables.jobs import LaunchRow

WAITING, RUNNING = Found(state=LaunchState.WAITING, reason="Resources"), Found(state=LaunchState.RUNNING)


def ended(reason: str) -> Found:
    return Found(state=LaunchState.ENDED, reason=reason)


class FakeCluster:
    """Knows what the test puts into ``known``; with a failure set, every question raises it."""

    def __init__(self) -> None:
        self.known: dict[str, Found] = {}
        self.orders: list[Order] = []
        self.ends: list[str] = []
        self.failure: Exception | None = None
        self.refusal: Exception | None = None

    def capacity(self) -> Capacity:
        return Capacity(memory_bytes=2**40)

    def described(self) -> str:
        return "a cluster of the tests"

    def start(self, order: Order) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.orders.append(order)
        self.known.setdefault(order.name, WAITING)

    def found(self, names: Sequence[str]) -> Mapping[str, Found]:
        if self.failure is not None:
            raise self.failure
        return {name: self.known[name] for name in names if name in self.known}

    def end(self, name: str) -> None:
        self.ends.append(name)

    def close(self) -> None:
        return None


@pytest.fixture
def of(tmp_path: Path) -> Settings:
    settings = Settings(data_dir=tmp_path)
    provide_database(settings)
    return settings


@pytest.fixture
def database(of: Settings) -> Generator[Database]:
    opened = Database(of)
    yield opened
    opened.close()


@pytest.fixture
def service(of: Settings, database: Database, monkeypatch: pytest.MonkeyPatch) -> JobService:
    queue = JobQueue(of)
    monkeypatch.setattr(queue, "call", lambda _job, _priority: None)
    return JobService(of, database, queue, "default")


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def rounds(of: Settings, database: Database, cluster: FakeCluster) -> Rounds:
    return Rounds(Launches(database), cluster, cluster.capacity(), of)


def queued(service: JobService, database: Database, **changes: Any) -> str:
    job = service.submit(JobSubmission.model_validate({"spec": spec(), **changes}), None)
    prepare_all(database)
    return job.id


def take_up(database: Database, job_id: str) -> tuple[str, Attempt]:
    """As the worker does that was started for it: the token of its lease, and its attempt."""
    token = Leases(database, 3).take(Executor(id=f"w-{time.monotonic_ns()}", host="h", device="auto", hardware="-", lease_seconds=60.0))
    attempt = Attempts(database, 3).start(token, Capacity(), job_id)
    assert isinstance(attempt, Attempt)
    return token, attempt


def make_due(database: Database) -> None:
    with database.writing() as session:
        for row in session.query(LaunchRow):
            row.due = now() - timedelta(seconds=1)


def shown(service: JobService, job_id: str) -> Job:
    return service.get(job_id)


def test_a_queued_job_gets_one_worker_whose_state_its_job_shows(
    service: JobService, database: Database, cluster: FakeCluster, rounds: Rounds
) -> None:
    job_id = queued(service, database, resources={"memory_bytes": 2**31, "seconds": 3600, "cpus": 3})
    for _ in range(3):
        rounds.once()
    [order] = cluster.orders
    assert order.job_id == job_id
    assert (order.needs.memory_bytes, order.seconds, order.cpus) == (2**31, 3600, 3)
    launch = shown(service, job_id).launch
    assert launch is not None
    assert (launch.name, launch.state, launch.reason) == (order.name, "waiting", "Resources")
    lines = [record.data.line for record in service.events(job_id, 0, ("log",))[0] if isinstance(record.data, Logged)]
    assert lines == [f"worker {order.name}: waiting", f"worker {order.name}: waiting (Resources)"]


def test_an_order_that_the_cluster_never_got_is_given_again_under_its_name(
    of: Settings, service: JobService, database: Database, cluster: FakeCluster, rounds: Rounds
) -> None:
    queued(service, database)
    cluster.refusal = ClusterUnavailable("sbatch: timed out")
    for _ in range(3):
        with pytest.raises(ClusterUnavailable):
            rounds.once()
    cluster.refusal = None
    [wanted] = [launch.name for launch in Launches(database).all()]
    Rounds(Launches(database), cluster, Capacity(), of).once()  # another launcher, after the first one died
    assert [order.name for order in cluster.orders] == [wanted]


def test_a_worker_that_lost_its_machine_is_followed_by_another_at_once(
    service: JobService, database: Database, cluster: FakeCluster, rounds: Rounds
) -> None:
    job_id = queued(service, database)
    rounds.once()
    for _ in range(8):  # more often than workers that never began may fail
        name = cluster.orders[-1].name
        token, attempt = take_up(database, job_id)
        cluster.known[name] = RUNNING
        rounds.once()
        Attempts(database, 3).stopped(attempt, "its worker was shut down")
        Leases(database, 3).give_up(token)
        cluster.known[name] = ended("PREEMPTED")
        rounds.once()
    assert len({order.name for order in cluster.orders}) == 9
    assert shown(service, job_id).state is JobState.QUEUED


def test_while_a_lost_workers_lease_runs_no_other_is_asked_for(
    service: JobService, database: Database, cluster: FakeCluster, rounds: Rounds
) -> None:
    job_id = queued(service, database)
    rounds.once()
    token, _ = take_up(database, job_id)
    cluster.known[cluster.orders[0].name] = ended("NODE_FAIL")
    rounds.once()
    assert len(cluster.orders) == 1
    [seen] = [lease for lease in Leases(database, 3).seen() if lease.token == token]
    assert Leases(database, 3).bury(seen) == [job_id]
    rounds.once()
    assert len(cluster.orders) == 2


def test_a_worker_that_never_takes_its_job_up_is_asked_for_again_after_pauses_and_not_for_ever(
    service: JobService, database: Database, cluster: FakeCluster, rounds: Rounds
) -> None:
    job_id = queued(service, database)
    for number in range(1, MOST_FAILURES + 1):
        make_due(database)
        rounds.once()
        assert len(cluster.orders) == number
        cluster.known[cluster.orders[-1].name] = ended("failed, NonZeroExitCode")
        rounds.once()
        rounds.once()
        assert len(cluster.orders) == number  # not before the pause is over
    job = shown(service, job_id)
    assert job.state is JobState.FAILED
    assert job.failure == "5 workers in a row ended before they took it up; of the last one the cluster says: failed, NonZeroExitCode"
    rounds.once()
    assert Launches(database).all() == []
    # A retry begins anew.
    service.act(job_id, Action.RETRY)
    rounds.once()
    assert len(cluster.orders) == MOST_FAILURES + 1


def test_what_the_cluster_refuses_fails_with_its_words(
    service: JobService, database: Database, cluster: FakeCluster, rounds: Rounds
) -> None:
    job_id = queued(service, database)
    cluster.refusal = LaunchRefused("Batch job submission failed: Invalid partition name specified")
    rounds.once()
    job = shown(service, job_id)
    assert job.state is JobState.FAILED
    assert job.failure is not None
    assert "the cluster refuses a worker for it: Batch job submission failed: Invalid partition name specified" in job.failure


def test_a_job_that_needs_no_worker_any_more_has_its_waiting_one_ended_at_once_and_a_running_one_after_a_while(
    service: JobService, database: Database, cluster: FakeCluster, rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, running = queued(service, database), queued(service, database)
    rounds.once()
    of_job = {order.job_id: order.name for order in cluster.orders}
    cluster.known[of_job[running]] = RUNNING
    for job_id in (waiting, running):
        service.act(job_id, Action.CANCEL)
    rounds.once()
    assert cluster.ends == [of_job[waiting]]
    monkeypatch.setattr(process, "ENDING_SECONDS", 0.0)
    rounds.once()
    assert cluster.ends[-1] == of_job[running]
    cluster.known = {name: ended("CANCELLED") for name in of_job.values()}
    rounds.once()
    assert Launches(database).all() == []


def test_no_more_workers_are_asked_for_than_the_settings_allow_and_tenants_take_turns(
    of: Settings, service: JobService, database: Database, cluster: FakeCluster
) -> None:
    other = JobService(of, database, service._queue, "ward-3")
    first = [queued(service, database) for _ in range(4)]
    second = queued(other, database)
    rounds = Rounds(Launches(database), cluster, Capacity(), of.model_copy(update={"launches": 2}))
    rounds.once()
    rounds.once()
    assert [order.job_id for order in cluster.orders] == [first[0], second]
    cluster.known.clear()
    assert service.page(JobFilter(), None, 10).jobs[0].launch is None


def test_a_job_that_needs_more_than_the_cluster_has_is_left_for_another_worker(
    of: Settings, service: JobService, database: Database, cluster: FakeCluster, rounds: Rounds
) -> None:
    of_gpu = JobService(of.model_copy(update={"accept_unfit_jobs": True}), database, service._queue, "default")
    queued(of_gpu, database, runtime={"device": "cuda"})
    rounds.once()
    assert cluster.orders == []
    Rounds(Launches(database), cluster, Capacity(devices=("auto", "cpu", "cuda"), gpus=1, gpu_names=("H200",)), of).once()
    assert len(cluster.orders) == 1


def test_a_cluster_that_is_away_changes_nothing(service: JobService, database: Database, cluster: FakeCluster, rounds: Rounds) -> None:
    job_id = queued(service, database)
    rounds.once()
    cluster.failure = ClusterUnavailable("squeue: timed out")
    with pytest.raises(ClusterUnavailable):
        rounds.once()
    cluster.failure = None
    rounds.once()
    assert len(cluster.orders) == 1
    assert shown(service, job_id).state is JobState.QUEUED


def test_commands_of_slurm_are_looked_for_at_the_start(of: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(Exception, match="slurm needs sbatch"):
        process.cluster_of(of.model_copy(update={"launcher": "slurm"}))
