r"""A cluster that Kubernetes runs: each worker is a Job of its own name, and Kueue starts it where the settings name a queue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar, final

from pydantic import ValidationError

from zetadp.app.jobs.needs import Capacity
from zetadp.app.kit.settings import Settings
from zetadp.app.launching.interface import ClusterUnavailable, Found, LaunchRefused, LaunchState, Order
from zetadp.app.launching.kubernetes.api import Answer, Api, Json, RequestRefused
from zetadp.app.launching.kubernetes.manifests import MANAGED, MANAGER, PodTemplate, meeting_place
from zetadp.app.launching.kubernetes.nodes import Node, capacity_of, products
from zetadp.app.launching.kubernetes.states import Job, Pod, Workload, found_of, held_back
from zetadp.mechanisms.errors import InvalidParameter

KUEUE = "kueue.x-k8s.io"
CORE, BATCH = "v1", "batch/v1"
OURS = {"labelSelector": f"{MANAGED}={MANAGER}"}
_Object = TypeVar("_Object", bound=Answer)
PASSING_REFUSALS = ("exceeded quota", "object has been modified", "is being terminated")
"""In the words of a refusal, marks of what time mends: a quota that others use, or a name that is about to be free."""


@final
class Kubernetes:
    r"""The namespace and the cluster that the settings and the environment name.

    Raises:
      InvalidParameter: there is no configuration of a cluster, or the operator's pod can't be used.
    """

    def __init__(self, settings: Settings) -> None:
        self._template = PodTemplate(settings)
        self._queue = settings.kubernetes_queue
        self._api = Api(settings.kubernetes_namespace)
        self._jobs = self._api.place(BATCH, "jobs")
        self._have_met: set[str] = set()
        self._workloads: str | None = None

    def capacity(self) -> Capacity:
        """Of the nodes that take the operator's pod. Raises InvalidParameter if this account may not list them."""
        try:
            return capacity_of(self._nodes())
        except RequestRefused as refused:
            raise InvalidParameter("ZETADP_LAUNCHER", "an account that may list the cluster's nodes", str(refused)) from None

    def described(self) -> str:
        """Its size and its accelerators."""
        capacity = self.capacity()
        kinds = f", up to {capacity.gpus} accelerators on each ({', '.join(capacity.gpu_names)})" if capacity.gpus else ""
        return f"Kubernetes: {capacity.machines} machines{kinds}"

    def start(self, order: Order) -> None:
        """One Job, and for several machines the Service through which they meet."""
        kinds = self._kinds(order.needs.gpu_kind) if order.needs.gpu_kind is not None else []
        try:
            made = self._made(self._jobs, self._template.job(order, kinds))
        except RequestRefused as refused:
            raise _refusal(self._jobs, refused) from None
        if made is None or order.needs.machines == 1:
            return
        try:
            self._let_meet(_read(Job, [made])[0])
        except RequestRefused as refused:
            self.end(order.name)  # its machines would look for one another in vain
            raise _refusal("services", refused) from None

    def found(self, names: Sequence[str]) -> Mapping[str, Found]:
        """From the Jobs and their pods; for those that may not start yet, from Kueue and from events."""
        wanted = set(names)
        jobs = [job for job in self._listed(Job, self._jobs, OURS) if job.metadata.name in wanted]
        pods: dict[str, list[Pod]] = defaultdict(list)
        if jobs:
            for pod in self._listed(Pod, self._api.place(CORE, "pods"), OURS):
                pods[pod.job].append(pod)
        living = [job for job in jobs if job.end is None]
        self._have_met &= {job.metadata.name for job in living}
        reasons = self._reasons([job for job in living if not pods[job.metadata.name]])
        found = {job.metadata.name: found_of(job, pods[job.metadata.name], reasons.get(job.metadata.name)) for job in jobs}
        for job in living:
            if job.machines > 1 and job.metadata.name not in self._have_met:
                try:
                    self._let_meet(job)  # the launcher may have died, or had no answer, before
                except RequestRefused as refused:
                    said = f"its machines can't meet without a Service: {refused}"
                    found[job.metadata.name] = Found(state=LaunchState.WAITING, reason=said)
        return found

    def end(self, name: str) -> None:
        """The Job is deleted, and its pods get SIGTERM and their grace."""
        try:
            self._api.ask("DELETE", f"{self._jobs}/{name}", {"propagationPolicy": "Background"})
        except RequestRefused as refused:
            if refused.status != 404:
                raise ClusterUnavailable(f"DELETE {self._jobs}/{name}: {refused}") from None

    def close(self) -> None:
        """The cluster's Jobs go on."""
        self._api.close()

    def _nodes(self) -> list[Node]:
        nodes = _read(Node, self._api.every("/api/v1/nodes"))
        return [node for node in nodes if node.takes(self._template.selector, self._template.tolerations)]

    def _kinds(self, kind: str) -> list[str]:
        """The names of accelerators, as the nodes carry them, that hold this text."""
        try:
            nodes = self._nodes()
        except RequestRefused as refused:
            raise ClusterUnavailable(f"GET nodes: {refused}") from None
        fitting = products(nodes, kind)
        if not fitting:
            names = ", ".join(capacity_of(nodes).gpu_names) or "none"
            raise LaunchRefused(f"expected gpu_kind to be in one of the cluster's kinds ({names}), got {kind!r}")
        return fitting

    def _listed(self, kind: type[_Object], path: str, query: Mapping[str, str | int]) -> list[_Object]:
        try:
            return _read(kind, self._api.every(path, query))
        except RequestRefused as refused:
            raise ClusterUnavailable(f"GET {path}: {refused}") from None

    def _made(self, path: str, manifest: Json) -> Json | None:
        """What was made; None if there is one of this name."""
        try:
            return self._api.ask("POST", path, body=manifest)
        except RequestRefused as refused:
            if refused.status == 409 and refused.reason == "AlreadyExists":
                return None
            raise

    def _let_meet(self, job: Job) -> None:
        self._made(self._api.place(CORE, "services"), meeting_place(job.metadata.name, job.metadata.uid))
        self._have_met.add(job.metadata.name)

    def _reasons(self, jobs: Sequence[Job]) -> dict[str, str]:
        """Why these Jobs have no pods, by name, as far as this account may know it."""
        suspended = [job for job in jobs if job.spec.suspend]
        reasons = {job.metadata.name: f"its queue {self._queue} hasn't admitted it" for job in suspended if self._queue}
        # No Kueue, or not for this account's eyes: then the reasons are fewer.
        if len(suspended) < len(jobs):
            with suppress(RequestRefused):
                reasons |= self._failures_to_create()
        if suspended and self._queue:
            with suppress(RequestRefused):
                reasons |= self._reasons_of_queue({job.metadata.uid: job.metadata.name for job in suspended})
        return reasons

    def _failures_to_create(self) -> dict[str, str]:
        """Quotas and policies refuse pods, not Jobs: only events tell."""
        chosen = {"fieldSelector": "involvedObject.kind=Job,reason=FailedCreate"}
        found: dict[str, str] = {}
        for event in self._api.every(self._api.place(CORE, "events"), chosen):
            about = event.get("involvedObject")
            if isinstance(about, dict):
                found[str(about.get("name"))] = f"FailedCreate: {event.get('message')}"
        return found

    def _reasons_of_queue(self, names: Mapping[str, str]) -> dict[str, str]:
        if self._workloads is None:
            preferred = self._api.ask("GET", f"/apis/{KUEUE}").get("preferredVersion")
            version = preferred.get("groupVersion") if isinstance(preferred, dict) else None
            self._workloads = self._api.place(str(version or f"{KUEUE}/v1beta1"), "workloads")
        found: dict[str, str] = {}
        for workload in _read(Workload, self._api.every(self._workloads)):
            for owner in workload.metadata.owner_references:
                if owner.uid in names and (reason := held_back(workload)) is not None:
                    found[names[owner.uid]] = reason
        return found


def _refusal(what: str, refused: RequestRefused) -> Exception:
    if any(mark in str(refused) for mark in PASSING_REFUSALS):
        return ClusterUnavailable(f"POST {what}: {refused}")
    return LaunchRefused(str(refused))


def _read(kind: type[_Object], found: Iterable[Json]) -> list[_Object]:
    """Raises ClusterUnavailable for answers that aren't in Kubernetes' form."""
    try:
        return [kind.model_validate(one) for one in found]
    except ValidationError as invalid:
        raise ClusterUnavailable(f"an answer that isn't a list of {kind.__name__}: {invalid.errors()[0]['loc']}") from None
