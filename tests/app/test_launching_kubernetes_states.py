r"""What the launcher makes of Jobs and pods of Kubernetes, as the real client reads them, and its rounds over such a cluster."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.app.jobs_harness import provide_database, spec
from tests.app.kubernetes_harness import (
    EVENTS,
    JOBS,
    NODES,
    PODS,
    ApiServer,
    api_server,
    failure,
    kubernetes_settings,
    listed,
    missing,
    order,
)
from tests.app.preparing_harness import prepare_all
from tests.selection import thinned
from zetadp.app.jobs.launches import Launches
from zetadp.app.jobs.queue import JobQueue
from zetadp.app.jobs.resources import JobSubmission
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.launching.clusters import cluster_of
from zetadp.app.launching.interface import Cluster, ClusterUnavailable, LaunchState
from zetadp.app.launching.process import Rounds
from zetadp.app.submissions.service import JobService
from zetadp.app.tables.job_states import Action, JobState

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[ApiServer]:
    with api_server(tmp_path) as server:
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        server.answers["GET", NODES] = listed("NodeList", [])
        yield server


@pytest.fixture
def of(tmp_path: Path) -> Settings:
    return kubernetes_settings(tmp_path)


@pytest.fixture
def cluster(of: Settings, server: ApiServer) -> Generator[Cluster]:
    made = cluster_of(of)
    yield made
    made.close()


def job(*conditions: dict[str, Any], suspend: bool = False, name: str = "a") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ward", "uid": f"uid-of-{name}", "generation": 1},
        "spec": {"backoffLimit": 0, "completions": 1, "parallelism": 1, "suspend": suspend},
        "status": {"conditions": list(conditions), "uncountedTerminatedPods": {}},
    }


def pod(phase: str, name: str = "a", **status: Any) -> dict[str, Any]:
    labels = {"batch.kubernetes.io/job-name": name, "job-name": name, "batch.kubernetes.io/controller-uid": f"uid-of-{name}"}
    return {
        "metadata": {"name": f"{name}-x7k2p", "labels": labels},
        "spec": {},
        "status": {"phase": phase, "qosClass": "Guaranteed", **status},
    }


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"name": "worker", "ready": False, "restartCount": 0, "state": {"waiting": {"reason": reason, "message": message}}}


def terminated(reason: str, code: int) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason, "startedAt": "2026-11-01T09:00:00Z", "finishedAt": "2026-11-01T09:05:00Z"}}
    return {"name": "worker", "ready": False, "restartCount": 0, "state": state}


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/7 nodes are available: 7 Insufficient nvidia.com/gpu.",
}
SCHEDULED = {"type": "PodScheduled", "status": "True"}
PREEMPTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "PreemptionByScheduler",
    "message": "default-scheduler: preempting to accommodate a higher priority pod",
}
COMPLETE = {"type": "Complete", "status": "True", "reason": "CompletionsReached", "message": "Reached expected number of succeeded pods"}
FAILED = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
FAILING = {"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded"}
RUNS = {"name": "worker", "ready": True, "restartCount": 0, "state": {"running": {"startedAt": "2026-11-01T09:00:00Z"}}}
WAITS, IS_RUNNING, ENDED = LaunchState.WAITING, LaunchState.RUNNING, LaunchState.ENDED
STATES: dict[str, tuple[dict[str, Any], list[dict[str, Any]], LaunchState, str | None]] = {
    "new": (job(), [], WAITS, "no pod yet"),
    "no room": (
        job(),
        [pod("Pending", conditions=[UNSCHEDULABLE])],
        WAITS,
        "Unschedulable: 0/7 nodes are available: 7 Insufficient nvidia.com/gpu.",
    ),
    "no image": (
        job(),
        [pod("Pending", conditions=[SCHEDULED], containerStatuses=[waiting("ImagePullBackOff", 'Back-off pulling image "x"')])],
        WAITS,
        'ImagePullBackOff: Back-off pulling image "x"',
    ),
    "no secret": (
        job(),
        [pod("Pending", conditions=[SCHEDULED], containerStatuses=[waiting("CreateContainerConfigError", 'secret "zetadp" not found')])],
        WAITS,
        'CreateContainerConfigError: secret "zetadp" not found',
    ),
    "first container": (
        job(),
        [
            pod(
                "Pending",
                initContainerStatuses=[waiting("ErrImagePull", "not found")],
                containerStatuses=[waiting("PodInitializing")],
            )
        ],
        WAITS,
        "ErrImagePull: not found",
    ),
    "starting": (
        job(),
        [pod("Pending", conditions=[SCHEDULED], containerStatuses=[waiting("ContainerCreating")])],
        WAITS,
        "ContainerCreating",
    ),
    "assigned": (job(), [pod("Pending", conditions=[SCHEDULED])], WAITS, "Pending"),
    "running": (job(), [pod("Running", conditions=[SCHEDULED], containerStatuses=[RUNS])], IS_RUNNING, None),
    "one of two": (
        job(),
        [pod("Running", containerStatuses=[RUNS]), pod("Pending", conditions=[UNSCHEDULABLE])],
        WAITS,
        "Unschedulable: 0/7 nodes are available: 7 Insufficient nvidia.com/gpu.",
    ),
    "replaced": (job(), [pod("Failed", conditions=[PREEMPTED]), pod("Running", containerStatuses=[RUNS])], IS_RUNNING, None),
    "its last seconds": (job(FAILING), [pod("Running", containerStatuses=[RUNS])], IS_RUNNING, None),
    "suspended": (job(suspend=True), [], WAITS, "suspended"),
    "taken back by its queue, its pod still ends": (job(suspend=True), [pod("Running", containerStatuses=[RUNS])], IS_RUNNING, None),
    "complete": (job(COMPLETE), [pod("Succeeded", containerStatuses=[terminated("Completed", 0)])], ENDED, "completed"),
    "exit code": (job(FAILED), [pod("Failed", containerStatuses=[terminated("Error", 78)])], ENDED, "failed: Error, exit code 78"),
    "memory": (job(FAILED), [pod("Failed", containerStatuses=[terminated("OOMKilled", 137)])], ENDED, "failed: OOMKilled, exit code 137"),
    "preempted": (
        job(FAILED),
        [pod("Failed", conditions=[PREEMPTED], containerStatuses=[terminated("Error", 143)])],
        ENDED,
        "failed: PreemptionByScheduler: default-scheduler: preempting to accommodate a higher priority pod",
    ),
    "evicted": (
        job(FAILED),
        [pod("Failed", reason="Evicted", message="The node was low on resource: memory.")],
        ENDED,
        "failed: Evicted: The node was low on resource: memory.",
    ),
    "time": (
        job(FAILED),
        [pod("Failed", reason="DeadlineExceeded", message="Pod was active on the node longer than the specified deadline")],
        ENDED,
        "failed: DeadlineExceeded: Pod was active on the node longer than the specified deadline",
    ),
    "no pods left": (job(FAILED), [], ENDED, "failed: BackoffLimitExceeded: Job has reached the specified backoff limit"),
}


@pytest.mark.parametrize("case", thinned(STATES, every=4))
def test_a_job_and_its_pods_are_a_state_with_a_reason(server: ApiServer, cluster: Cluster, case: str) -> None:
    told, pods, state, reason = STATES[case]
    server.kept[JOBS] = {"a": told, "b": job(COMPLETE, name="b")}
    server.pods = [*pods, pod("Failed", "b")]
    found = cluster.found(["a", "none"])
    assert list(found) == ["a"]
    assert (found["a"].state, found["a"].reason) == (state, reason)


def test_only_this_launchers_jobs_are_asked_for(server: ApiServer, cluster: Cluster) -> None:
    cluster.start(order())
    cluster.found(["zetadp-7f-01"])
    queries = [query for method, path, query, _ in server.requests if method == "GET" and path in (JOBS, PODS)]
    assert [query["labelSelector"] for query in queries] == ["app.kubernetes.io/managed-by=zetadp-launcher"] * 2


def test_pods_that_a_quota_refuses_are_told_of_by_events(server: ApiServer, cluster: Cluster) -> None:
    server.kept[JOBS]["a"] = job()
    said = 'Error creating: pods "a-x7k2p" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8, used: 4, limited: 8'
    event = {"metadata": {"name": "a.17"}, "involvedObject": {"kind": "Job", "name": "a"}, "reason": "FailedCreate", "message": said}
    server.answers["GET", EVENTS] = listed("EventList", [event])
    assert cluster.found(["a"])["a"].reason == f"FailedCreate: {said}"
    server.answers["GET", EVENTS] = failure(403, "Forbidden", "events is forbidden")
    assert cluster.found(["a"])["a"].reason == "no pod yet"


WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/ward/workloads"


def workload(*conditions: dict[str, Any]) -> dict[str, Any]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "uid-of-a", "controller": True}
    return {"metadata": {"name": "job-a-4f1", "ownerReferences": [owner]}, "spec": {}, "status": {"conditions": list(conditions)}}


def test_why_kueue_lets_a_job_wait_is_its_reason(server: ApiServer, tmp_path: Path) -> None:
    queueing = cluster_of(kubernetes_settings(tmp_path, kubernetes_queue="ward-3"))
    server.kept[JOBS]["a"] = job(suspend=True)
    assert queueing.found(["a"])["a"].reason == "its queue ward-3 hasn't admitted it"
    server.answers["GET", "/apis/kueue.x-k8s.io"] = (
        200,
        {
            "kind": "APIGroup",
            "name": "kueue.x-k8s.io",
            "preferredVersion": {"groupVersion": "kueue.x-k8s.io/v1beta2", "version": "v1beta2"},
        },
    )
    text = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 4 more needed"
    pending = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": text}
    server.answers["GET", WORKLOADS] = listed("WorkloadList", [workload(pending)])
    assert queueing.found(["a"])["a"].reason == f"Pending: {text}"
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"}
    checked = {"type": "Admitted", "status": "False", "reason": "NoReservation", "message": "its admission check isn't over"}
    server.answers["GET", WORKLOADS] = listed("WorkloadList", [workload(reserved, checked)])
    assert queueing.found(["a"])["a"].reason == "NoReservation: its admission check isn't over"


def test_an_ended_worker_is_deleted_with_its_pods_grace_and_one_that_is_gone_is_no_error(server: ApiServer, cluster: Cluster) -> None:
    cluster.start(order())
    cluster.end("zetadp-7f-01")
    cluster.end("zetadp-7f-01")
    assert server.kept[JOBS] == {}
    assert [query for method, _, query, _ in server.requests if method == "DELETE"] == [{"propagationPolicy": "Background"}] * 2
    server.answers["DELETE", f"{JOBS}/zetadp-7f-01"] = failure(403, "Forbidden", "cannot delete")
    with pytest.raises(ClusterUnavailable, match="cannot delete"):
        cluster.end("zetadp-7f-01")


def test_what_one_may_not_ask_for_hides_nothing_else(server: ApiServer, tmp_path: Path) -> None:
    queueing = cluster_of(kubernetes_settings(tmp_path, kubernetes_queue="ward-3"))
    server.kept[JOBS] = {"a": job(suspend=True), "b": job(name="b")}
    server.answers["GET", EVENTS] = failure(403, "Forbidden", "events is forbidden")
    server.answers["GET", "/apis/kueue.x-k8s.io"] = (200, {"preferredVersion": {"groupVersion": "kueue.x-k8s.io/v1beta2"}})
    server.answers["GET", WORKLOADS] = listed("WorkloadList", [workload({"type": "QuotaReserved", "status": "False", "reason": "Pending"})])
    assert {name: one.reason for name, one in queueing.found(["a", "b"]).items()} == {"a": "Pending", "b": "no pod yet"}


def test_rounds_of_the_launcher_go_through_it(server: ApiServer, of: Settings, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    provide_database(of)
    database = Database(of)
    queue = JobQueue(of)
    monkeypatch.setattr(queue, "call", lambda _job, _priority: None)
    service = JobService(of, database, queue, "default")
    first, second = (service.submit(JobSubmission.model_validate({"spec": spec()}), None).id for _ in range(2))
    prepare_all(database)
    rounds = Rounds(Launches(database), cluster, cluster.capacity(), of)
    server.answers["POST", JOBS] = failure(503, "ServiceUnavailable", "apiserver is shutting down")
    with pytest.raises(ClusterUnavailable):
        rounds.once()
    del server.answers["POST", JOBS]
    rounds.once()
    names = {body["metadata"]["labels"]["zetadp/job-id"]: name for name, body in server.kept[JOBS].items()}
    assert set(names) == {first, second}
    server.pods = [pod("Pending", names[first], conditions=[UNSCHEDULABLE])]
    rounds.once()
    launch = service.get(first).launch
    assert launch is not None
    assert (launch.name, launch.state) == (names[first], "waiting")
    assert str(launch.reason).startswith("Unschedulable: 0/7 nodes are available")
    # The one that is cancelled while it waits leaves nothing; the one that ends without its job is asked for again.
    service.act(first, Action.CANCEL)
    server.kept[JOBS][names[second]]["status"] = {"conditions": [FAILED]}
    rounds.once()
    assert list(server.kept[JOBS]) == [names[second]]
    told = service.get(second)
    assert (told.state, told.launch and told.launch.state) == (JobState.QUEUED, "ended")
    rounds.once()
    assert service.get(first).launch is None
    server.answers["POST", JOBS] = failure(422, "Invalid", 'Job.batch "zetadp" is invalid: spec.template.spec: Required value')
    third = service.submit(JobSubmission.model_validate({"spec": spec()}), None).id
    prepare_all(database)
    rounds.once()
    assert "the cluster refuses a worker for it: Job.batch" in str(service.get(third).failure)
    database.close()
