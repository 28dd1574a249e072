r"""An API server of Kubernetes' on loopback, which answers in its forms, and what is needed to check manifests."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from zetadp.app.jobs.needs import Needs
from zetadp.app.kit.settings import Settings
from zetadp.app.launching.interface import Order

NAMESPACE = "ward"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
NODES = "/api/v1/nodes"
RELEASES = ("1.29", "1.34", "1.37")
"""Of Kubernetes, whose schemas manifests must fit."""
Answer = tuple[int, dict[str, Any]]


def missing() -> str | None:
    """Why the client can't be tested; None if it can."""
    return None if find_spec("kubernetes") else "the Python package kubernetes isn't installed"


def failure(code: int, reason: str, message: str, **details: Any) -> Answer:
    """As the API server says no."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason}
    return code, {**status, "details": details, "code": code}


def listed(kind: str, items: list[dict[str, Any]], following: str = "") -> Answer:
    metadata = {"resourceVersion": "81237", **({"continue": following} if following else {})}
    return 200, {"kind": kind, "apiVersion": "v1", "metadata": metadata, "items": items}


class ApiServer:
    r"""Keeps the Jobs and Services that are made.

    Attributes:
      answers: come before that, by method and path: each an answer, or what makes one of a query.
      pods: as they are listed.
    """

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Answer | Callable[[dict[str, str]], Answer]] = {}
        self.kept: dict[str, dict[str, dict[str, Any]]] = {JOBS: {}, SERVICES: {}}
        self.pods: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.tokens: set[str] = set()
        self.url = ""

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        self.requests.append((method, path, query, body))
        made = self.answers.get((method, path))
        if made is not None:
            return made(query) if callable(made) else made
        return self._of_kept(method, path, body)

    def _of_kept(self, method: str, path: str, body: Any) -> Answer:
        folder, _, name = path.rpartition("/")
        if method == "POST" and path in self.kept:
            return self._keep(path, body)
        if method == "DELETE" and self.kept.get(folder, {}).pop(name, None) is not None:
            return 200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": {"name": name}}
        if method == "GET" and path in self.kept:
            return listed("List", list(self.kept[path].values()))
        if method == "GET" and path == PODS:
            return listed("PodList", self.pods)
        if method == "GET" and path in DISCOVERY:
            return 200, DISCOVERY[path]
        return failure(404, "NotFound", f'"{name}" not found', name=name)

    def sent(self, method: str) -> list[Any]:
        return [body for asked, _, _, body in self.requests if asked == method]

    def _keep(self, path: str, body: Any) -> Answer:
        name = body["metadata"]["name"]
        if name in self.kept[path]:
            kind = path.rpartition("/")[2]
            return failure(409, "AlreadyExists", f'{kind} "{name}" already exists', name=name, kind=kind)
        kept = {**body, "metadata": {**body["metadata"], "namespace": NAMESPACE, "uid": f"uid-of-{name}"}, "status": {}}
        self.kept[path][name] = kept
        return 201, kept


@contextmanager
def api_server(folder: Path) -> Generator[ApiServer]:
    """It runs while the context lasts; ``folder/kubeconfig`` leads to it."""
    server = ApiServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_words: Any) -> None:
            return None

        def _any(self) -> None:
            parts = urlsplit(self.path)
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            server.tokens.add(self.headers.get("Authorization", ""))
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            code, body = server.answer(self.command, parts.path, query, json.loads(text) if text else None)
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _any  # noqa: N815 (http.server's names)

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    server.url = f"http://127.0.0.1:{listening.server_address[1]}"
    thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
    thread.start()
    write_kubeconfig(folder / "kubeconfig", server.url)
    try:
        yield server
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


def write_kubeconfig(path: Path, url: str) -> None:
    context = {"cluster": "tests", "user": "launcher", "namespace": NAMESPACE}
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "tests",
                "clusters": [{"name": "tests", "cluster": {"server": url}}],
                "users": [{"name": "launcher", "user": {"token": "a-token"}}],
                "contexts": [{"name": "tests", "context": context}],
            }
        )
    )


def _resources(group: str, kinds: dict[str, tuple[str, bool]]) -> dict[str, Any]:
    verbs = ["create", "delete", "get", "list"]
    listed = [
        {"name": name, "singularName": kind.lower(), "namespaced": is_namespaced, "kind": kind, "verbs": verbs}
        for name, (kind, is_namespaced) in kinds.items()
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": listed}


CORE = {"configmaps": "ConfigMap", "persistentvolumeclaims": "PersistentVolumeClaim", "secrets": "Secret"}
CORE |= {"services": "Service", "serviceaccounts": "ServiceAccount", "pods": "Pod"}
GROUPS = {
    "apps/v1": {"deployments": ("Deployment", True)},
    "batch/v1": {"jobs": ("Job", True)},
    "networking.k8s.io/v1": {"ingresses": ("Ingress", True), "networkpolicies": ("NetworkPolicy", True)},
    "policy/v1": {"poddisruptionbudgets": ("PodDisruptionBudget", True)},
    "rbac.authorization.k8s.io/v1": {
        "roles": ("Role", True),
        "rolebindings": ("RoleBinding", True),
        "clusterroles": ("ClusterRole", False),
        "clusterrolebindings": ("ClusterRoleBinding", False),
    },
}
DISCOVERY: dict[str, Any] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    "/api/v1": _resources("v1", {name: (kind, True) for name, kind in CORE.items()}),
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [
            {
                "name": group.split("/", maxsplit=1)[0],
                "versions": [{"groupVersion": group, "version": "v1"}],
                "preferredVersion": {"groupVersion": group, "version": "v1"},
            }
            for group in GROUPS
        ],
    },
    **{f"/apis/{group}": _resources(group, kinds) for group, kinds in GROUPS.items()},
}


def schema_missing() -> str | None:
    return None if find_spec("kubernetes_validate") else "the Python package kubernetes-validate isn't installed"


def check_schema(manifest: dict[str, Any], release: str) -> None:
    """Raises ValidationError if a server of this release would refuse it for its form: unknown fields count."""
    import kubernetes_validate

    kubernetes_validate.validate(manifest, release, strict=True)


def kubectl_missing() -> str | None:
    return None if shutil.which("kubectl") else "kubectl isn't installed"


def dry_run(folder: Path, manifests: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    """What kubectl says of them. Its own validation needs a server's OpenAPI document in a binary form: schemas are checked apart."""
    command = ["kubectl", f"--kubeconfig={folder / 'kubeconfig'}", f"--cache-dir={folder / 'cache'}", "create"]
    command += ["--dry-run=client", "--validate=false", "--output=yaml", "--filename=-"]
    text = yaml.safe_dump_all(manifests)
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)


POD: dict[str, Any] = {
    "metadata": {"annotations": {"sidecar.istio.io/inject": "false"}, "labels": {"team": "mri"}},
    "spec": {
        "serviceAccountName": "zetadp-worker",
        "nodeSelector": {"pool": "training"},
        "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "mri", "effect": "NoSchedule"}],
        "terminationGracePeriodSeconds": 10,
        "containers": [
            {
                "name": "worker",
                "image": "registry.example/zetadp-worker:0.1.0",
                "envFrom": [{"secretRef": {"name": "zetadp"}}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "resources": {"requests": {"ephemeral-storage": "1Gi", "cpu": "64"}},
            }
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
    },
}


def order(machines: int = 1, gpus: int = 0, kind: str | None = None, seconds: int | None = None, memory: int | None = None) -> Order:
    needs = Needs(device="cuda" if gpus else "cpu", gpus=gpus, gpu_kind=kind, memory_bytes=memory, machines=machines)
    return Order(name="zetadp-7f-01", job_id="7f", needs=needs, cpus=4, seconds=seconds, grace_seconds=25.0)


def kubernetes_settings(folder: Path, pod: dict[str, Any] = POD, **changes: Any) -> Settings:
    file = folder / "pod.yaml"
    file.write_text(yaml.safe_dump(pod))
    return Settings(**{"data_dir": folder, "launcher": "kubernetes", "kubernetes_pod": file, **changes})
