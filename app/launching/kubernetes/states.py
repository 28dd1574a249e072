r"""What Jobs and their pods say, as the states of workers, with a reason that a person can read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

from pydantic import Field

from zetadp.app.launching.interface import Found, LaunchState
from zetadp.app.launching.kubernetes.api import Answer

JOB_LABEL = "batch.kubernetes.io/job-name"
"""The label of a pod with the name of its Job."""


@final
class Condition(Answer):
    """One of an object's."""

    type: str
    status: str
    reason: str = ""
    message: str = ""

    @property
    def holds(self) -> bool:
        """Whether it is so."""
        return self.status == "True"


@final
class Owner(Answer):
    """The object to which another one belongs."""

    uid: str


@final
class Meta(Answer):
    """An object's name and what belongs to it."""

    name: str
    uid: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    owner_references: tuple[Owner, ...] = ()


@final
class _JobSpec(Answer):
    suspend: bool = False
    completions: int | None = None


@final
class _Conditions(Answer):
    conditions: tuple[Condition, ...] = ()


@final
class Job(Answer):
    """A worker, or one on each of several machines."""

    metadata: Meta
    spec: _JobSpec = _JobSpec()
    status: _Conditions = _Conditions()

    @property
    def machines(self) -> int:
        """On how many it runs."""
        return self.spec.completions or 1

    @property
    def end(self) -> Condition | None:
        """The condition that says that all of it is over."""
        return next((one for one in self.status.conditions if one.type in ("Complete", "Failed") and one.holds), None)


@final
class Workload(Answer):
    """What Kueue has in its queue for a Job."""

    metadata: Meta
    status: _Conditions = _Conditions()


@final
class _Waiting(Answer):
    reason: str = ""
    message: str = ""


@final
class _Terminated(Answer):
    exit_code: int
    reason: str = ""
    message: str = ""


@final
class _ContainerState(Answer):
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


@final
class _Container(Answer):
    state: _ContainerState = _ContainerState()


@final
class _PodStatus(Answer):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    init_container_statuses: tuple[_Container, ...] = ()
    container_statuses: tuple[_Container, ...] = ()


@final
class Pod(Answer):
    """One machine's."""

    metadata: Meta
    status: _PodStatus = _PodStatus()

    @property
    def job(self) -> str:
        """The name of its Job."""
        return self.metadata.labels.get(JOB_LABEL, "")


def found_of(job: Job, pods: Sequence[Pod], held: str | None) -> Found:
    r"""A worker's state.

    Args:
      pods: the Job's.
      held: why it has no pods, if somebody says that: its queue, or a quota.
    """
    end = job.end
    if end is not None:
        return Found(state=LaunchState.ENDED, reason=_ended(end, pods))
    running = [pod for pod in pods if pod.status.phase == "Running"]
    alive = [pod for pod in pods if pod.status.phase in ("Pending", "Running")]
    if running and (job.spec.suspend or len(running) >= len(alive)):
        return Found(state=LaunchState.RUNNING)
    if job.spec.suspend:
        return Found(state=LaunchState.WAITING, reason=held or "suspended")
    said = next((words for pod in alive for words in _pending(pod)), None)
    return Found(state=LaunchState.WAITING, reason=said or held or ("Pending" if alive else "no pod yet"))


def held_back(workload: Workload) -> str | None:
    """Why Kueue doesn't let a Job start; None if it does."""
    for kind in ("QuotaReserved", "Admitted"):
        for one in workload.status.conditions:
            if one.type == kind and not one.holds:
                return _words(one.reason or kind, one.message)
    return None


def _pending(pod: Pod) -> Iterator[str]:
    """Why a pod doesn't run yet, the most telling first."""
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = container.state.waiting
        if waiting is not None and waiting.reason not in ("", "ContainerCreating", "PodInitializing"):
            yield _words(waiting.reason, waiting.message)
    for one in pod.status.conditions:
        if one.type == "PodScheduled" and not one.holds:
            yield _words(one.reason, one.message)
    for container in pod.status.container_statuses:
        if container.state.waiting is not None:
            yield container.state.waiting.reason or "Pending"


def _ended(end: Condition, pods: Sequence[Pod]) -> str:
    if end.type == "Complete":
        return "completed"
    said = list(dict.fromkeys(words for pod in pods if pod.status.phase == "Failed" for words in _failed(pod)))
    return f"failed: {'; '.join(said) or _words(end.reason, end.message)}"


def _failed(pod: Pod) -> Iterator[str]:
    """Why a pod failed: what was done to it, or how its containers ended."""
    status = pod.status
    for one in status.conditions:
        if one.type == "DisruptionTarget" and one.holds:
            yield _words(one.reason, one.message)
            return
    if status.reason:
        yield _words(status.reason, status.message)
        return
    for container in (*status.init_container_statuses, *status.container_statuses):
        ended = container.state.terminated
        if ended is not None and ended.exit_code:
            yield _words(f"{ended.reason or 'Error'}, exit code {ended.exit_code}", ended.message)


def _words(reason: str, message: str) -> str:
    return f"{reason}: {message}" if reason and message else reason or message
