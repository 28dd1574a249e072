r"""What a job needs of a machine, and whether a worker or a cluster has it.

A job waits until a worker that has what it needs is free. What no living worker and no cluster of the service has is refused when it is
submitted, in the words of what there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, final

from pydantic import Field, Strict

from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import RuntimeSpec

Device = Literal["auto", "cpu", "cuda"]
"""What a job asks for; ``auto`` runs anywhere."""
LONGEST_SECONDS = 365 * 86_400
SMALLEST_MEMORY = 2**28


@final
class Resources(Value):
    r"""What a job needs besides its device.

    Attributes:
      gpus: accelerators, over all its machines: 0, or one for each process of ``runtime``. If absent 0, or with the device ``cuda`` one
        for each process.
      gpu_kind: text that stands in the accelerators' names, like ``H200``; case doesn't matter.
      memory_bytes: of the job's processes on each machine. One that uses more is ended, and fails.
      cpus: processor cores on each machine, of a cluster's; if absent, those that ``runtime`` uses: ``threads`` for each process, or 1.
      seconds: how long the cluster is asked to keep a worker for it at a time; the job goes on in another one. Permanent workers have no
        such limit.
      machines: over how many of a cluster's machines its processes are spread, as many on each.

    >>> Resources(gpus=4, gpu_kind="H200", machines=2).gpus
    4
    """

    gpus: Annotated[int, Strict(), Field(ge=0, le=64)] | None = None
    # No underscore: it would stand for any character where it is looked for.
    gpu_kind: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 .+-]{0,62}$")] | None = None
    memory_bytes: Annotated[int, Strict(), Field(ge=SMALLEST_MEMORY, le=2**50)] | None = None
    cpus: Annotated[int, Strict(), Field(ge=1, le=4096)] | None = None
    seconds: Annotated[int, Strict(), Field(ge=60, le=LONGEST_SECONDS)] | None = None
    machines: Annotated[int, Strict(), Field(ge=1, le=64)] = 1


@final
class Needs(Value):
    """What one machine must have for a job: ``gpus`` and ``memory_bytes`` are that machine's share."""

    device: Device
    gpus: int
    gpu_kind: str | None
    memory_bytes: int | None
    machines: int


@final
class Capacity(Value):
    r"""What a worker has for one job, or what a cluster has at most.

    Attributes:
      devices: whose jobs it runs.
      gpus: accelerators of one machine.
      gpu_names: the names of their kinds; empty where they aren't known.
      memory_bytes: of one machine; None where it isn't known.
      machines: how many machines one job may have.
    """

    devices: tuple[Device, ...] = ("auto", "cpu")
    gpus: int = 0
    gpu_names: tuple[str, ...] = ()
    memory_bytes: int | None = None
    machines: int = 1

    def lacks(self, needs: Needs) -> tuple[str, str, object] | None:
        """The first field that it doesn't suffice for, what it has, and what was asked; None if it suffices."""
        if needs.device not in self.devices:
            return "runtime.device", f"'{self.devices[-1]}' or 'auto'", needs.device
        if needs.machines > self.machines:
            return "resources.machines", f"at most {self.machines}", needs.machines
        if needs.gpus > self.gpus:
            each = " on each machine" if needs.machines > 1 else ""
            return "resources.gpus", f"at most {self.gpus}{each}", needs.gpus
        if needs.gpu_kind is not None and not any(needs.gpu_kind in name.lower() for name in self.gpu_names):
            return "resources.gpu_kind", f"one of {', '.join(self.gpu_names) or 'none'}", needs.gpu_kind
        if needs.memory_bytes is not None and needs.memory_bytes > (self.memory_bytes or 0):
            has = "null" if self.memory_bytes is None else f"at most {self.memory_bytes}"
            return "resources.memory_bytes", has, needs.memory_bytes
        return None


def needs_of(runtime: RuntimeSpec, resources: Resources) -> Needs:
    r"""What one machine must have.

    Raises:
      InvalidParameter: the two contradict each other.

    >>> needs_of(RuntimeSpec(device="cuda", processes=4), Resources(machines=2)).gpus
    2
    """
    processes, machines = runtime.processes, resources.machines
    if processes % machines:
        raise InvalidParameter("resources.machines", f"a divisor of runtime.processes, which is {processes}", machines)
    gpus = resources.gpus
    if gpus is None:
        gpus = processes if runtime.device == "cuda" else 0
    if runtime.device == "cpu" and gpus:
        raise InvalidParameter("resources.gpus", "0 with runtime.device 'cpu'", gpus)
    if gpus not in ((processes,) if runtime.device == "cuda" else (0, processes)):
        raise InvalidParameter("resources.gpus", f"{processes}, one for each process of runtime.processes", gpus)
    if resources.gpu_kind is not None and not gpus:
        raise InvalidParameter("resources.gpu_kind", "null without accelerators (resources.gpus)", resources.gpu_kind)
    return Needs(
        # Whoever asks for accelerators doesn't want a processor instead.
        device="cuda" if gpus else runtime.device,
        gpus=gpus // machines,
        gpu_kind=resources.gpu_kind and resources.gpu_kind.lower(),
        memory_bytes=resources.memory_bytes,
        machines=machines,
    )


def check_available(needs: Needs, there: Sequence[Capacity]) -> None:
    r"""Whether any of these suffices. Without any nothing is known, and the job waits.

    Raises:
      InvalidParameter: none does; it names what the one that comes nearest lacks.
    """
    found = [(capacity, capacity.lacks(needs)) for capacity in there]
    lacking = [(capacity, lack) for capacity, lack in found if lack is not None]
    if not found or len(lacking) < len(found):
        return
    order = ("runtime.device", "resources.machines", "resources.gpus", "resources.gpu_kind", "resources.memory_bytes")
    _, (field, has, asked) = max(lacking, key=lambda one: (order.index(one[1][0]), one[0].gpus, one[0].memory_bytes or 0))
    raise InvalidParameter(field, f"{has}, which is what the workers of this service have", asked)
