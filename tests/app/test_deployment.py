r"""The Compose file and the Helm chart: what they make is what Docker and Kubernetes take, and every container has a health check.

The renderers are the real ones: Compose's own program and Helm's own library, each from a Python package of ``make test-all``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.app.kubernetes_harness import (
    RELEASES,
    api_server,
    check_schema,
    dry_run,
    kubectl_missing,
    order,
    schema_missing,
)
from zetadp.app.cli import app
from zetadp.app.kit.settings import Settings
from zetadp.version import VERSION

ROOT = Path(__file__).parents[2]
COMPOSE_FILE, GPU_FILE = ROOT / "deploy" / "compose.yaml", ROOT / "deploy" / "compose.gpu.yaml"
CHART = ROOT / "deploy" / "helm" / "zetadp"
SECRETS = {"environment": "zetadp", "adminKey": "zetadp-admin-key"}
COMPOSE = shutil.which("docker-compose", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
HELM = find_spec("helm_python")
needs_compose = pytest.mark.skipif(COMPOSE is None, reason="docker-compose isn't installed")
needs_helm = pytest.mark.skipif(HELM is None, reason="the Python package helm-python-sdk isn't installed")
needs_schemas = pytest.mark.skipif(schema_missing() is not None, reason=str(schema_missing()))
BUCKET = {"storage": {"url": "s3://bucket/zetadp", "endpoint": "https://s3.example", "region": "eu"}}
VALUES: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "accelerators": {"worker": {"gpus": 2, "nodeSelector": {"pool": "gpu"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}},
    "launcher alone": {"launcher": {"enabled": True}, "worker": {"replicas": 0}},
    "queue of Kueue": {"launcher": {"enabled": True, "queue": "ward-3", "priority": "research"}, "image": {"pullSecrets": ["registry"]}},
    "bucket": {**BUCKET, "secrets": {"signingKeys": "zetadp-keys"}, "api": {"replicas": 3}, "launcher": {"enabled": True}},
    "own volumes": {
        "storage": {"volume": {"existingClaim": "shared"}, "dataSetsClaim": "data-sets"},
        "settings": {"ZETADP_LEASE_SECONDS": "10"},
    },
    "open to others": {
        "api": {
            "ingress": {
                "enabled": True,
                "hosts": ["zetadp.example"],
                "className": "nginx",
                "tlsSecret": "tls",
                "annotations": {"a/b": "c"},
            }
        },
        "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}]},
    },
}


def compose(*files: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """What Compose makes of the files, without an engine."""
    assert COMPOSE is not None
    named = [f"--file={file}" for file in files]
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **variables}
    return subprocess.run(
        [COMPOSE, *named, "config", "--format=json"], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


GIVEN = {"POSTGRES_PASSWORD": "secret", "ZETADP_ADMIN_KEY": "zdp_key"}


@needs_compose
@pytest.mark.parametrize("files", [(COMPOSE_FILE,), (COMPOSE_FILE, GPU_FILE)], ids=["cpu", "gpu"])
def test_compose_takes_its_file_and_every_service_has_a_health_check(files: tuple[Path, ...]) -> None:
    done = compose(*files, **GIVEN)
    assert (done.returncode, done.stderr) == (0, "")
    services = json.loads(done.stdout)["services"]
    assert set(services) == {"database", "api", "worker"}
    for service in services.values():
        assert service["healthcheck"]["test"][0] == "CMD"
    assert services["worker"]["healthcheck"]["test"][1:] == ["zetadp", "alive"]
    for name in ("api", "worker"):
        assert services[name]["depends_on"]["database"]["condition"] == "service_healthy"
        Settings.model_validate(
            {
                key.removeprefix("ZETADP_").lower(): value
                for key, value in services[name]["environment"].items()
                if key.startswith("ZETADP_") and key != "ZETADP_ADMIN_KEY"
            }
        )
    assert "ZETADP_ADMIN_KEY" not in services["worker"]["environment"]
    assert services["api"]["ports"][0]["host_ip"] == "127.0.0.1"


@needs_compose
@pytest.mark.parametrize("missing", GIVEN)
def test_compose_refuses_to_start_without_a_secret(missing: str) -> None:
    done = compose(COMPOSE_FILE, **{name: value for name, value in GIVEN.items() if name != missing})
    assert done.returncode != 0
    assert f"set {missing}" in done.stderr


@needs_compose
def test_compose_refuses_what_it_doesnt_know(tmp_path: Path) -> None:
    broken = tmp_path / "compose.yaml"
    broken.write_text(COMPOSE_FILE.read_text().replace("healthcheck:", "healthchek:"))
    done = compose(broken, **GIVEN)
    assert done.returncode != 0
    assert "healthchek" in done.stderr


def test_both_images_have_a_health_check_that_the_command_line_understands() -> None:
    text = (ROOT / "Dockerfile").read_text()
    targets = {part.split("\n", 1)[0].split()[-1]: part for part in text.split("\nFROM ")[1:]}
    found = {name: re.search(r"^HEALTHCHECK .*CMD (\[.*\])$", part, re.MULTILINE) for name, part in targets.items() if name != "base"}
    commands = {name: json.loads(match[1]) for name, match in found.items() if match is not None}
    assert set(commands) == {"api", "worker"}
    assert commands["worker"][0] == "zetadp"
    assert CliRunner().invoke(app, [*commands["worker"][1:], "--help"]).exit_code == 0
    compile(commands["api"][2], "health check", "exec")
    user = re.findall(r"^USER (.+)$", text, re.MULTILINE)
    assert user == ["10001:10001"] * 2  # the chart's runAsUser


def rendered(name: str, **values: Any) -> list[dict[str, Any]]:
    """Every manifest that Helm makes, with the secrets given."""
    import helm_python

    given = {**values, "secrets": {**SECRETS, **values.get("secrets", {})}}
    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema(given)
        made = chart.render(given, name=name, namespace="ward")
    texts = [text for path, text in made.items() if path.endswith(".yaml")]
    return [one for text in texts for one in yaml.safe_load_all(text) if one is not None]


def of_kind(manifests: list[dict[str, Any]], kind: str, ending: str = "") -> dict[str, Any]:
    [found] = [one for one in manifests if one["kind"] == kind and one["metadata"]["name"].endswith(ending)]
    return found


def container(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["spec"]["template"]["spec"]["containers"][0]


@needs_helm
@needs_schemas
@pytest.mark.parametrize("case", VALUES)
def test_every_manifest_of_the_chart_has_the_form_that_kubernetes_takes(case: str, tmp_path: Path) -> None:
    manifests = rendered("zetadp", **VALUES[case])
    assert len(manifests) >= 3
    for manifest in manifests:
        for release in RELEASES:
            check_schema(manifest, release)
    names = [(one["kind"], one["metadata"]["name"]) for one in manifests]
    assert len(set(names)) == len(names)


@needs_helm
@pytest.mark.skipif(kubectl_missing() is not None, reason=str(kubectl_missing()))
def test_kubectl_takes_every_manifest_of_the_chart(tmp_path: Path) -> None:
    manifests = [one for case in VALUES for one in rendered("zetadp", **VALUES[case])]
    with api_server(tmp_path):
        done = dry_run(tmp_path, manifests)
    assert done.returncode == 0, done.stderr
    assert len(list(yaml.safe_load_all(done.stdout))) == len(manifests)


@needs_helm
@pytest.mark.parametrize("case", VALUES)
def test_every_container_has_probes_limits_and_no_rights(case: str) -> None:
    for manifest in rendered("zetadp", **VALUES[case]):
        if manifest["kind"] != "Deployment":
            continue
        pod = manifest["spec"]["template"]["spec"]
        assert (pod["securityContext"]["runAsNonRoot"], pod["enableServiceLinks"]) == (True, False)
        for one in (*pod["containers"], *pod.get("initContainers", [])):
            assert one["securityContext"]["allowPrivilegeEscalation"] is False
            assert one["securityContext"]["readOnlyRootFilesystem"] is True
            assert one["resources"]["limits"]["memory"]
        probed = pod["containers"][0]
        if probed["name"] == "api":
            assert [probed[kind]["httpGet"]["path"] for kind in ("livenessProbe", "readinessProbe")] == ["/livez", "/readyz"]
        else:
            assert probed["livenessProbe"]["exec"]["command"] == ["zetadp", "alive"]


@needs_helm
def test_only_the_api_gets_the_admin_key_and_all_get_the_database_from_the_secret() -> None:
    manifests = rendered("zetadp", launcher={"enabled": True})
    for ending in ("-api", "-worker", "-launcher"):
        environment = {one["name"]: one for one in container(of_kind(manifests, "Deployment", ending))["env"]}
        assert environment["ZETADP_DATABASE_URL"]["valueFrom"]["secretKeyRef"] == {"name": "zetadp", "key": "ZETADP_DATABASE_URL"}
        assert ("ZETADP_ADMIN_KEY" in environment) is (ending == "-api")
        plain = {name.removeprefix("ZETADP_").lower(): one["value"] for name, one in environment.items() if "value" in one}
        Settings.model_validate({name: value for name, value in plain.items() if name in Settings.model_fields})
        assert {name for name in plain if not name.startswith("aws_")} - {"home"} <= Settings.model_fields.keys()
    assert "secretKeyRef" in yaml.safe_dump(of_kind(manifests, "ConfigMap"))
    assert "ZETADP_ADMIN_KEY" not in yaml.safe_dump(of_kind(manifests, "ConfigMap"))


@needs_helm
def test_accelerators_are_limits_and_don_t_bring_one_resource_into_the_other() -> None:
    resources = container(of_kind(rendered("zetadp", worker={"gpus": 2}), "Deployment", "-worker"))["resources"]
    assert resources == {"requests": {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": 2}, "limits": {"memory": "8Gi", "nvidia.com/gpu": 2}}


@needs_helm
@needs_schemas
@pytest.mark.parametrize("case", ["queue of Kueue", "bucket"])
def test_the_launcher_can_use_the_pod_and_the_rights_that_the_chart_gives_it(case: str, tmp_path: Path) -> None:
    from zetadp.app.launching.kubernetes.manifests import PodTemplate

    manifests = rendered("zetadp", **VALUES[case])
    file = tmp_path / "pod.yaml"
    file.write_text(of_kind(manifests, "ConfigMap")["data"]["pod.yaml"])
    job = PodTemplate(Settings(data_dir=tmp_path, kubernetes_pod=file)).job(order(gpus=1, memory=2**31), [])
    check_schema(job, RELEASES[-1])
    assert job["spec"]["template"]["spec"]["containers"][0]["image"] == f"zetadp-worker:{VERSION}"
    rights = {
        (group, kind): set(rule["verbs"])
        for rule in of_kind(manifests, "Role")["rules"]
        for group in rule["apiGroups"]
        for kind in rule["resources"]
    }
    assert rights["batch", "jobs"] == {"create", "delete", "list"}
    assert (rights["", "pods"], rights["", "services"], rights["", "events"]) == ({"list"}, {"create"}, {"list"})
    assert (("kueue.x-k8s.io", "workloads") in rights) is (case == "queue of Kueue")
    assert of_kind(manifests, "ClusterRole")["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]


@needs_helm
def test_with_a_bucket_pods_share_no_volume_and_copy_the_signing_keys() -> None:
    manifests = rendered("zetadp", **VALUES["bucket"])
    assert "PersistentVolumeClaim" not in {one["kind"] for one in manifests}
    for ending in ("-api", "-worker", "-launcher"):
        pod = of_kind(manifests, "Deployment", ending)["spec"]["template"]["spec"]
        assert {"name": "signing-keys", "secret": {"secretName": "zetadp-keys"}} in pod["volumes"]
        assert "install -m 600" in pod["initContainers"][0]["command"][2]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"secrets": {"environment": ""}}, "secrets/environment"),
    (BUCKET, "secrets.signingKeys is needed"),
    ({"worker": {"replicas": 0}}, "nobody would run a job"),
    ({"api": {"replicas": 2}, "storage": {"volume": {"accessMode": "ReadWriteOnce"}}}, "api.replicas above 1"),
    ({"launcher": {"enabled": True, "priority": "high"}}, "needs launcher.queue"),
    ({"api": {"ingress": {"enabled": True}}}, "api.ingress.hosts is needed"),
    ({"settings": {"ZETADP_DATABASE_URL": "sqlite:////data/zetadp.sqlite"}}, "invalid propertyName 'ZETADP_DATABASE_URL'"),
    ({"wroker": {"replicas": 3}}, "wroker"),
]


@needs_helm
@pytest.mark.parametrize(("values", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_values_that_cant_work_are_refused(values: dict[str, Any], words: str) -> None:
    import helm_python

    with pytest.raises(helm_python.HelmError, match=words):
        rendered("zetadp", **values)


@needs_helm
def test_helm_finds_nothing_to_complain_about() -> None:
    import helm_python

    told = helm_python.lint(CHART, {"secrets": SECRETS}, strict=True)
    assert told["errors"] == []
    assert [one["error"] for one in told["messages"] if one["severity"] > 1] == []


def test_the_chart_has_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    assert set(yaml.safe_load((CHART / "values.yaml").read_text())) <= set(
        json.loads((CHART / "values.schema.json").read_text())["properties"]
    )
