r"""Workers as Jobs of Kubernetes: the requests of the real client to an API server that answers in Kubernetes' forms."""

from __future__ import annotations

import socket
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.app.kubernetes_harness import (
    JOBS,
    NODES,
    POD,
    RELEASES,
    SERVICES,
    ApiServer,
    api_server,
    check_schema,
    dry_run,
    failure,
    kubectl_missing,
    kubernetes_settings,
    listed,
    missing,
    order,
    schema_missing,
    write_kubeconfig,
)
from tests.selection import thinned
from zetadp.app.kit.settings import Settings
from zetadp.app.launching.clusters import cluster_of
from zetadp.app.launching.interface import Cluster, ClusterUnavailable, LaunchRefused, Order
from zetadp.mechanisms.errors import InvalidParameter

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
MIB = 2**20


def node(name: str, gpus: int = 0, product: str | None = None, memory: str = "65813488Ki", **spec_: Any) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": name, "pool": "training"} | ({} if product is None else {"nvidia.com/gpu.product": product})
    allocatable = {"cpu": "15890m", "memory": memory, "pods": "110"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    conditions = [
        {"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory"},
        {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"},
    ]
    status = {"allocatable": allocatable, "capacity": allocatable, "conditions": conditions}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec_, "status": status}


NODE_LIST = [
    node("cpu-1", memory="131072Mi"),
    node("gpu-1", 8, "NVIDIA-H100-80GB-HBM3", taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]),
    node("gpu-2", 4, "NVIDIA-H200", taints=[{"key": "dedicated", "value": "mri", "effect": "NoSchedule"}]),
    # None of these counts:
    node("cordoned", 16, "NVIDIA-B200", unschedulable=True),
    node("control", memory="999Gi", taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]),
    {
        **(broken := node("broken", 32, "NVIDIA-A100")),
        "status": {**broken["status"], "conditions": [{"type": "Ready", "status": "Unknown"}]},
    },
    {**(other := node("other", 64, "Tesla-T4")), "metadata": {**other["metadata"], "labels": {"pool": "web"}}},
]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[ApiServer]:
    with api_server(tmp_path) as server:
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        server.answers["GET", NODES] = listed("NodeList", NODE_LIST)
        yield server


@pytest.fixture
def of(tmp_path: Path) -> Settings:
    return kubernetes_settings(tmp_path)


@pytest.fixture
def cluster(of: Settings, server: ApiServer) -> Generator[Cluster]:
    made = cluster_of(of)
    yield made
    made.close()


def made_job(server: ApiServer, settings: Settings, wanted: Order) -> dict[str, Any]:
    cluster_of(settings).start(wanted)
    return server.kept[JOBS][wanted.name]


def test_an_order_is_a_job_of_the_operators_pod(server: ApiServer, of: Settings) -> None:
    made = made_job(server, of, order(gpus=2, kind="h100", seconds=3600, memory=3 * 2**30))
    assert server.tokens == {"Bearer a-token"}
    labels = {
        "app.kubernetes.io/name": "zetadp-worker",
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/part-of": "zetadp",
        "app.kubernetes.io/instance": "zetadp-7f-01",
        "app.kubernetes.io/managed-by": "zetadp-launcher",
        "zetadp/job-id": "7f",
    }
    ours = {"cpu": "4", "memory": str(3 * 2**30 + 512 * MIB), "nvidia.com/gpu": "2"}
    term = {"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H100-80GB-HBM3"]}]}
    [body] = server.sent("POST")
    assert body["metadata"] == {"name": "zetadp-7f-01", "labels": labels}
    assert made["spec"] == {
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": 3600,
        "completions": 1,
        "parallelism": 1,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]},
        "template": {
            "metadata": {"annotations": {"sidecar.istio.io/inject": "false"}, "labels": {"team": "mri", **labels}},
            "spec": {
                **POD["spec"],
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": 26,
                "activeDeadlineSeconds": 3574,
                "tolerations": [*POD["spec"]["tolerations"], {"key": "nvidia.com/gpu", "operator": "Exists"}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}},
                "containers": [
                    {
                        **POD["spec"]["containers"][0],
                        "command": ["zetadp", "worker", "--job", "7f"],
                        "resources": {"requests": {"ephemeral-storage": "1Gi", **ours}, "limits": ours},
                    }
                ],
            },
        },
    }


def test_without_wishes_nothing_is_asked_beyond_cores(server: ApiServer, of: Settings) -> None:
    pod = made_job(server, of, order())["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "4"}
    assert {"activeDeadlineSeconds", "affinity", "subdomain"} & pod.keys() == set()


def test_several_machines_are_numbered_pods_that_meet_at_the_first_and_end_together(server: ApiServer, of: Settings) -> None:
    job = made_job(server, of, order(machines=2, gpus=1))["spec"]
    assert (job["completionMode"], job["completions"], job["parallelism"], job["backoffLimit"]) == ("Indexed", 2, 2, 0)
    assert "podFailurePolicy" not in job  # a lost machine is not replaced: nobody would wait for it
    pod = job["template"]["spec"]
    meeting = ["--machines", "2", "--machine", "$(JOB_COMPLETION_INDEX)", "--meet", "zetadp-7f-01-0.zetadp-7f-01:29500"]
    assert pod["containers"][0]["command"] == ["zetadp", "worker", "--job", "7f", *meeting]
    assert pod["subdomain"] == "zetadp-7f-01"
    service = server.kept[SERVICES]["zetadp-7f-01"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "zetadp-7f-01", "uid": "uid-of-zetadp-7f-01"}
    assert service["metadata"]["ownerReferences"] == [owner]  # so that it goes with its Job
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": "zetadp-7f-01"}


def test_a_launcher_that_died_before_the_service_was_made_is_followed_by_one_that_makes_it(
    server: ApiServer, of: Settings, cluster: Cluster
) -> None:
    cluster.start(order(machines=2))
    server.kept[SERVICES].clear()
    following = cluster_of(of)
    for _ in range(3):
        following.found(["zetadp-7f-01"])
    assert [body["kind"] for body in server.sent("POST")] == ["Job", "Service", "Service"]


def test_machines_that_may_not_meet_are_not_left_behind(server: ApiServer, cluster: Cluster) -> None:
    server.answers["POST", SERVICES] = failure(403, "Forbidden", 'services is forbidden: User "launcher" cannot create resource "services"')
    with pytest.raises(LaunchRefused, match="cannot create resource"):
        cluster.start(order(machines=2))
    assert server.kept[JOBS] == {}


def test_the_queue_of_kueue_starts_the_job(server: ApiServer, tmp_path: Path) -> None:
    of = kubernetes_settings(tmp_path, kubernetes_queue="ward-3", kubernetes_priority="research")
    made = made_job(server, of, order())
    assert made["spec"]["suspend"] is True
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "ward-3"
    assert made["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "research"
    assert "kueue.x-k8s.io/queue-name" not in made["spec"]["template"]["metadata"]["labels"]


def test_the_operators_choice_of_nodes_stays_beside_that_of_accelerators(server: ApiServer, tmp_path: Path) -> None:
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "ab"]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zones}}}
    of = kubernetes_settings(tmp_path, {"spec": {**POD["spec"], "affinity": affinity}})
    pod = made_job(server, of, order(gpus=1, kind="nvidia-h"))["spec"]["template"]["spec"]
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    kinds = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H100-80GB-HBM3", "NVIDIA-H200"]}
    assert [term["matchExpressions"] for term in terms] == [[*zone["matchExpressions"], kinds] for zone in zones]


def test_an_order_that_is_there_already_changes_nothing(server: ApiServer, cluster: Cluster) -> None:
    cluster.start(order())
    cluster.start(order())
    assert len(server.kept[JOBS]) == 1
    assert server.sent("DELETE") == []


REFUSED = [
    failure(422, "Invalid", 'Job.batch "zetadp-7f-01" is invalid: spec.template.spec.containers[0].image: Required value'),
    failure(400, "BadRequest", 'Job in version "v1" cannot be handled as a Job: strict decoding error: unknown field "spec.x"'),
    failure(403, "Forbidden", 'jobs.batch is forbidden: User "launcher" cannot create resource "jobs" in API group "batch"'),
    failure(403, "Forbidden", 'jobs.batch "zetadp-7f-01" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'),
    failure(404, "NotFound", 'namespaces "ward" not found'),
]
PASSING = [
    failure(
        403, "Forbidden", 'jobs.batch "zetadp-7f-01" is forbidden: exceeded quota: team, requested: count/jobs.batch=1, used: 9, limited: 9'
    ),
    failure(401, "Unauthorized", "Unauthorized"),
    failure(429, "TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    failure(500, "InternalError", 'Internal error occurred: failed calling webhook "mjob.kb.io"'),
    failure(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
    failure(504, "Timeout", "Timeout: request did not complete within requested timeout"),
]


@pytest.mark.parametrize("answer", REFUSED, ids=lambda answer: f"{answer[0]}-{answer[1]['message'][-20:]}")
def test_what_time_cant_mend_is_refused_in_the_servers_words(server: ApiServer, cluster: Cluster, answer: Any) -> None:
    server.answers["POST", JOBS] = answer
    with pytest.raises(LaunchRefused) as refused:
        cluster.start(order())
    assert str(refused.value) == answer[1]["message"]


@pytest.mark.parametrize("answer", PASSING, ids=lambda answer: f"{answer[0]}")
def test_what_time_mends_is_asked_again(server: ApiServer, cluster: Cluster, answer: Any) -> None:
    server.answers["POST", JOBS] = answer
    with pytest.raises(ClusterUnavailable, match="POST"):
        cluster.start(order())


def test_a_server_that_is_away_or_silent_is_unavailable_within_the_time_of_a_request(
    tmp_path: Path, server: ApiServer, of: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zetadp.app.launching.kubernetes.api.REQUEST_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        for port in (silent.getsockname()[1], 1):
            write_kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{port}")
            away = cluster_of(of)
            for ask in (away.capacity, lambda away=away: away.found(["a"]), lambda away=away: away.end("a")):
                with pytest.raises(ClusterUnavailable, match=r"(GET|DELETE) /api"):
                    ask()
            away.close()


def test_what_isnt_an_answer_of_kubernetes_is_unavailable(server: ApiServer, cluster: Cluster) -> None:
    server.answers["GET", JOBS] = (200, {"items": [{"metadata": "a proxy's"}]})
    with pytest.raises(ClusterUnavailable, match="isn't a list of Job"):
        cluster.found(["a"])
    for answer in ((200, {"items": "none"}), (302, {})):
        server.answers["GET", JOBS] = answer
        with pytest.raises(ClusterUnavailable, match="GET /apis/batch"):
            cluster.found(["a"])
    server.answers["POST", JOBS] = (201, {})
    with pytest.raises(ClusterUnavailable, match="isn't a list of Job"):
        cluster.start(order(machines=2))


def test_capacity_is_that_of_the_nodes_that_take_the_operators_pod(cluster: Cluster) -> None:
    capacity = cluster.capacity()
    assert (capacity.devices, capacity.gpus, capacity.machines) == (("auto", "cpu", "cuda"), 8, 3)
    assert capacity.gpu_names == ("NVIDIA-H100-80GB-HBM3", "NVIDIA-H200")
    assert capacity.memory_bytes == (131072 - 512) * MIB  # some is the worker's own
    assert cluster.described() == "Kubernetes: 3 machines, up to 8 accelerators on each (NVIDIA-H100-80GB-HBM3, NVIDIA-H200)"


def test_long_lists_are_read_page_by_page(server: ApiServer, cluster: Cluster) -> None:
    pages = {"": listed("NodeList", NODE_LIST[:1], "more"), "more": listed("NodeList", NODE_LIST[1:2])}
    server.answers["GET", NODES] = lambda query: pages[query.get("continue", "")]
    assert cluster.capacity().machines == 2


def test_an_account_that_may_not_list_nodes_is_told_so(server: ApiServer, cluster: Cluster) -> None:
    server.answers["GET", NODES] = failure(403, "Forbidden", 'nodes is forbidden: User "launcher" cannot list resource "nodes"')
    with pytest.raises(InvalidParameter, match=r"an account that may list the cluster's nodes.*cannot list resource"):
        cluster.capacity()


def test_a_kind_that_no_node_has_is_refused(cluster: Cluster) -> None:
    with pytest.raises(LaunchRefused, match=r"one of the cluster's kinds \(NVIDIA-H100-80GB-HBM3, NVIDIA-H200\), got 'b200'"):
        cluster.start(order(gpus=1, kind="b200"))


@pytest.mark.parametrize(
    ("pod", "changes", "words"),
    thinned(
        [
            ({"spec": {"containers": [{"name": "worker"}]}}, {}, "ZETADP_KUBERNETES_IMAGE"),
            ({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}, {}, "one named worker"),
            ({"spec": {"containers": "worker"}}, {}, "one named worker"),
            ({"spec": {"restartPolicy": "Always", "containers": [{"image": "x"}]}}, {}, "without restartPolicy"),
            ({"spec": {"containers": [{"image": "x", "args": ["serve"]}]}}, {}, "without args"),
            ({"spec": {"containers": [{"image": "x"}], "tolerations": [{"value": 3}]}}, {}, "tolerations"),
            ({"spec": [1]}, {}, "an object as the pod's spec"),
            ({"kind": "Pod", "data": {}}, {}, "metadata and the spec of a pod"),
            (POD, {"kubernetes_pod": Path("/nowhere/pod.yaml")}, "a YAML file with a pod"),
            (POD, {"launch_command": "zetadp 'worker"}, "ZETADP_LAUNCH_COMMAND"),
        ],
        every=3,
    ),
)
def test_a_pod_that_cant_be_used_is_refused_at_the_start(
    server: ApiServer, tmp_path: Path, pod: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidParameter, match=words):
        cluster_of(kubernetes_settings(tmp_path, pod, **changes))


def test_without_a_cluster_to_ask_the_launcher_doesnt_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(InvalidParameter, match="KUBECONFIG"):
        cluster_of(kubernetes_settings(tmp_path))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.skipif(schema_missing() is not None, reason=str(schema_missing()))
def test_every_manifest_has_the_form_that_kubernetes_takes(server: ApiServer, tmp_path: Path, release: str) -> None:
    for number, wanted in enumerate([order(), order(gpus=2, kind="h200", seconds=60, memory=2**31), order(machines=3, gpus=1)]):
        for queue in ("", "ward-3"):
            named = wanted.model_copy(update={"name": f"zetadp-{number}-{queue}x"})
            made_job(server, kubernetes_settings(tmp_path, kubernetes_queue=queue), named)
    manifests = server.sent("POST")
    assert len(manifests) == 8
    for manifest in manifests:
        check_schema(manifest, release)


@pytest.mark.parametrize("path", ["spec.template.spec.restartpolicy", "spec.backoffLimit", "spec.template.spec.containers"])
@pytest.mark.skipif(schema_missing() is not None, reason=str(schema_missing()))
def test_a_broken_manifest_hasnt(server: ApiServer, of: Settings, path: str) -> None:
    made_job(server, of, order())
    [broken] = server.sent("POST")
    *folders, key = path.split(".")
    place = broken
    for folder in folders:
        place = place[folder]
    place[key] = "broken"
    with pytest.raises(Exception, match=r"broken|restartpolicy"):
        check_schema(broken, RELEASES[-1])


@pytest.mark.skipif(kubectl_missing() is not None, reason=str(kubectl_missing()))
def test_kubectl_takes_every_manifest_and_none_of_a_kind_that_isnt_there(server: ApiServer, of: Settings, tmp_path: Path) -> None:
    made_job(server, of, order(machines=2))
    manifests = server.sent("POST")
    taken = dry_run(tmp_path, manifests)
    assert taken.returncode == 0, taken.stderr
    assert [one["kind"] for one in yaml.safe_load_all(taken.stdout)] == ["Job", "Service"]
    refused = dry_run(tmp_path, [{**manifests[0], "kind": "Jbo"}])
    assert refused.returncode != 0
    assert 'no matches for kind "Jbo"' in refused.stderr


def test_without_its_client_the_launcher_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zetadp.app.launching.kubernetes", None)
    with pytest.raises(InvalidParameter, match=r"pip install 'zetadp\[kubernetes\]'"):
        cluster_of(kubernetes_settings(tmp_path))


def test_in_a_pod_its_account_and_namespace_are_used(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of_the_pod(client_configuration: Any) -> None:
        client_configuration.host = server.url
        client_configuration.api_key["authorization"] = "Bearer of-the-pod"

    (tmp_path / "namespace").write_text("ward\n")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    from zetadp.app.launching.kubernetes import api

    monkeypatch.setattr(api, "load_incluster_config", of_the_pod)
    monkeypatch.setattr(api, "OWN_NAMESPACE", tmp_path / "namespace")
    cluster_of(kubernetes_settings(tmp_path)).start(order())
    assert list(server.kept[JOBS]) == ["zetadp-7f-01"]
    assert server.tokens == {"Bearer of-the-pod"}
