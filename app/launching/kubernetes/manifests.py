r"""An order as a Job of Kubernetes: the operator's pod with what the launcher must set.

Credentials, volumes, service accounts and tolerations are the operator's: no job's spec reaches the manifest but for numbers and its id.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, final

import yaml
from pydantic import TypeAdapter, ValidationError

from zetadp.app.kit.settings import Settings
from zetadp.app.launching.interface import Order, words
from zetadp.app.launching.kubernetes.nodes import GPU, PRODUCT, WORKER_BYTES, Toleration
from zetadp.mechanisms.errors import InvalidParameter

CONTAINER = "worker"
"""The container of the operator's pod that becomes the worker; its only one may have another name."""
MEETING_PORT = 29500
KEPT_SECONDS = 3600
"""How long an ended Job stays, with its pods' logs, for people and for a launcher that is away."""
MANAGER = "zetadp-launcher"
MANAGED = "app.kubernetes.io/managed-by"
QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
GPU_TOLERATION = {"key": GPU, "operator": "Exists"}
"""Nodes with accelerators are usually tainted so that other pods keep off."""
SETTING = "ZETADP_KUBERNETES_POD"
OURS_IN_SPEC = ("restartPolicy", "hostname", "subdomain", "activeDeadlineSeconds")
OURS_IN_CONTAINER = ("command", "args")
Manifest = dict[str, Any]
"""As YAML has it."""
_T = TypeVar("_T")


@final
class PodTemplate:
    r"""The operator's pod.

    Raises:
      InvalidParameter: the file can't be read, isn't a pod, sets what is the launcher's, or nobody names an image.
    """

    def __init__(self, settings: Settings) -> None:
        self._queue = settings.kubernetes_queue
        self._priority = settings.kubernetes_priority
        self._command = words("ZETADP_LAUNCH_COMMAND", settings.launch_command)
        self._pod = {} if settings.kubernetes_pod is None else _read(settings.kubernetes_pod)
        spec: Manifest = self._pod.setdefault("spec", {})
        containers: list[Manifest] = spec.setdefault("containers", [{"name": CONTAINER}])
        worker = _worker(containers)
        for where, keys in ((spec, OURS_IN_SPEC), (worker, OURS_IN_CONTAINER)):
            for key in keys:
                if key in where:
                    raise InvalidParameter(SETTING, f"a pod without {key}, which the launcher sets", where[key])
        if settings.kubernetes_image:
            worker["image"] = settings.kubernetes_image
        if not worker.get("image"):
            raise InvalidParameter("ZETADP_KUBERNETES_IMAGE", "the worker's image, here or in the pod's file", "none")
        self.selector = _read_part(TypeAdapter(dict[str, str]), spec.get("nodeSelector") or {}, "nodeSelector")
        given = _read_part(TypeAdapter(list[Toleration]), spec.get("tolerations") or [], "tolerations")
        self.tolerations = (*given, Toleration.model_validate(GPU_TOLERATION))

    def job(self, order: Order, kinds: Sequence[str]) -> Manifest:
        r"""The Job of an order.

        Args:
          kinds: the names of the accelerators that it may have; any if empty.
        """
        machines = order.needs.machines
        labels = _labels(order)
        pod = self._of(order, kinds)
        pod["metadata"] = {**(meta := pod.get("metadata", {})), "labels": {**(meta.get("labels") or {}), **labels}}
        spec: Manifest = {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "completions": machines,
            "parallelism": machines,
            "template": pod,
        }
        if machines > 1:
            # If one is lost, so is the attempt: all end, and the launcher asks for all of them again.
            spec["completionMode"] = "Indexed"
        else:
            # A pod that was taken from its node is replaced, and goes on with the job from its checkpoint.
            disrupted = {"type": "DisruptionTarget", "status": "True"}
            spec["podFailurePolicy"] = {"rules": [{"action": "Ignore", "onPodConditions": [disrupted]}]}
            spec["podReplacementPolicy"] = "Failed"
        if self._queue:
            spec["suspend"] = True  # until Kueue lets it start
            labels = {**labels, QUEUE: self._queue, **({PRIORITY: self._priority} if self._priority else {})}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": order.name, "labels": labels}, "spec": spec}

    def _of(self, order: Order, kinds: Sequence[str]) -> Manifest:
        pod = copy.deepcopy(self._pod)
        pod = {key: pod[key] for key in ("metadata", "spec") if key in pod}
        spec: Manifest = pod["spec"]
        spec["restartPolicy"] = "Never"
        spec.setdefault("automountServiceAccountToken", False)
        # The variables of the namespace's Services: of one named zetadp, ZETADP_PORT would be read as a setting.
        spec.setdefault("enableServiceLinks", False)
        spec["terminationGracePeriodSeconds"] = max(_grace(order), int(spec.get("terminationGracePeriodSeconds") or 0))
        if order.seconds is not None:
            # Of the pod, not of the Job, whose time would begin while it waits. SIGTERM comes before the limit, by its grace.
            spec["activeDeadlineSeconds"] = max(1, order.seconds - _grace(order))
        worker = _worker(spec["containers"])
        worker["command"] = [_literal(word) for word in self._command] + _arguments(order)
        worker["resources"] = _resources(order, worker.get("resources") or {})
        if order.needs.machines > 1:
            spec["subdomain"] = order.name
        if order.needs.gpus:
            spec["tolerations"] = [*(spec.get("tolerations") or []), GPU_TOLERATION]
        if kinds:
            _require(spec, {"key": PRODUCT, "operator": "In", "values": list(kinds)})
        return pod


def meeting_place(name: str, uid: str) -> Manifest:
    """The headless Service through which the machines of a Job find the first one; it goes when the Job does."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "labels": {MANAGED: MANAGER},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}],
        },
        "spec": {
            "clusterIP": "None",
            "selector": {"batch.kubernetes.io/job-name": name},
            "ports": [{"name": "meeting", "port": MEETING_PORT}],
            # They meet before any of them is ready.
            "publishNotReadyAddresses": True,
        },
    }


def _labels(order: Order) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "zetadp-worker",
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/part-of": "zetadp",
        "app.kubernetes.io/instance": order.name,
        MANAGED: MANAGER,
        "zetadp/job-id": order.job_id,
    }


def _grace(order: Order) -> int:
    """Whole seconds that suffice."""
    return int(order.grace_seconds) + 1


def _arguments(order: Order) -> list[str]:
    arguments = ["--job", order.job_id]
    if (machines := order.needs.machines) > 1:
        # Kubernetes numbers the pods of an Indexed Job, and names the host of the first one after it.
        place = f"{order.name}-0.{order.name}:{MEETING_PORT}"
        arguments += ["--machines", str(machines), "--machine", "$(JOB_COMPLETION_INDEX)", "--meet", place]
    return arguments


def _literal(word: str) -> str:
    """So that Kubernetes puts no variable's value in it."""
    return word.replace("$(", "$$(")


def _resources(order: Order, given: Mapping[str, Any]) -> Manifest:
    """The order's, beside those that the operator gives for other resources."""
    ours: dict[str, str] = {"cpu": str(order.cpus)}
    if order.needs.memory_bytes is not None:
        ours["memory"] = str(order.needs.memory_bytes + WORKER_BYTES)
    if order.needs.gpus:
        ours[GPU] = str(order.needs.gpus)
    return {**given, **{key: {**(given.get(key) or {}), **ours} for key in ("requests", "limits")}}


def _require(spec: Manifest, expression: Manifest) -> None:
    """Nodes must fit this too; of the operator's terms one must hold, so it is added to each."""
    node: Manifest = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required: Manifest = node.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in required.setdefault("nodeSelectorTerms", [{}]):
        term["matchExpressions"] = [*(term.get("matchExpressions") or []), expression]


def _read(path: Path) -> Manifest:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidParameter(SETTING, "a YAML file with a pod", f"{path} ({type(error).__name__})") from None
    if not isinstance(found, dict) or not found.keys() <= {"apiVersion", "kind", "metadata", "spec"}:
        raise InvalidParameter(SETTING, "a YAML file with the metadata and the spec of a pod", f"{path}")
    for key in ("metadata", "spec"):
        if not isinstance(found.get(key, {}), dict):
            raise InvalidParameter(SETTING, f"an object as the pod's {key}", type(found[key]).__name__)
    return found


def _worker(containers: object) -> Manifest:
    """The container that becomes the worker."""
    listed = [one for one in containers if isinstance(one, dict)] if isinstance(containers, list) else []
    named = [one for one in listed if one.get("name") == CONTAINER]
    chosen = named or (listed if len(listed) == 1 else [])
    if not chosen:
        raise InvalidParameter(SETTING, f"one container, or one named {CONTAINER}", [one.get("name") for one in listed])
    chosen[0].setdefault("name", CONTAINER)
    return chosen[0]


def _read_part(kind: TypeAdapter[_T], found: object, name: str) -> _T:
    try:
        return kind.validate_python(found)
    except ValidationError:
        raise InvalidParameter(SETTING, f"{name} as Kubernetes has it", found) from None
