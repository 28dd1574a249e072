r"""What the nodes of a cluster have for one worker, and what their accelerators are called."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import final

from pydantic import Field

from zetadp.app.jobs.needs import Capacity
from zetadp.app.launching.kubernetes.api import Answer

GPU = "nvidia.com/gpu"
"""The resource that NVIDIA's device plugin offers, and the usual taint of nodes that have it."""
PRODUCT = "nvidia.com/gpu.product"
"""The label of a node with the name of its accelerators, by NVIDIA's feature discovery."""
WORKER_BYTES = 2**29
"""Memory of the worker itself, beside its job's processes."""
_QUANTITY = re.compile(r"^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)(m|[kMGTPE]|[KMGTPE]i)?$")
_FACTORS = {"": Decimal(1), "m": Decimal("0.001")}
_FACTORS |= {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)}
_FACTORS |= {letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)}


@final
class Taint(Answer):
    """What keeps pods that don't tolerate it from a node."""

    key: str
    value: str = ""
    effect: str


@final
class Toleration(Answer):
    """A pod's; without a key every taint's."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def covers(self, taint: Taint) -> bool:
        """Whether a pod with it may run in spite of the taint."""
        if self.effect not in ("", taint.effect):
            return False
        if not self.key:
            return self.operator == "Exists"
        return self.key == taint.key and (self.operator == "Exists" or self.value == taint.value)


@final
class _Condition(Answer):
    type: str
    status: str


@final
class _Spec(Answer):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


@final
class _Status(Answer):
    allocatable: dict[str, str] = Field(default_factory=dict)
    conditions: tuple[_Condition, ...] = ()


@final
class _Meta(Answer):
    labels: dict[str, str] = Field(default_factory=dict)


@final
class Node(Answer):
    """A machine of the cluster."""

    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def takes(self, selector: dict[str, str], tolerations: Iterable[Toleration]) -> bool:
        """Whether workers may be scheduled on it: it is ready, carries these labels, and its taints are tolerated."""
        is_ready = any(condition.type == "Ready" and condition.status == "True" for condition in self.status.conditions)
        if self.spec.unschedulable or not is_ready:
            return False
        if any(self.metadata.labels.get(key) != value for key, value in selector.items()):
            return False
        hard = [taint for taint in self.spec.taints if taint.effect != "PreferNoSchedule"]
        return all(any(toleration.covers(taint) for toleration in tolerations) for taint in hard)

    @property
    def gpus(self) -> int:
        """Whole accelerators."""
        return quantity(self.status.allocatable.get(GPU, "0"))

    @property
    def product(self) -> str | None:
        """The name of its accelerators, if the cluster's feature discovery tells it."""
        return self.metadata.labels.get(PRODUCT)

    @property
    def memory_bytes(self) -> int:
        """For one job."""
        return max(0, quantity(self.status.allocatable.get("memory", "0")) - WORKER_BYTES)


def quantity(text: str) -> int:
    r"""A quantity of Kubernetes', rounded down; 0 for what isn't one.

    >>> quantity("65813488Ki"), quantity("8"), quantity("1500m"), quantity("1e3"), quantity("2G")
    (67393011712, 8, 1, 1000, 2000000000)
    """
    found = _QUANTITY.match(text)
    return 0 if found is None else int(Decimal(found[1]) * _FACTORS[found[2] or ""])


def capacity_of(nodes: Iterable[Node]) -> Capacity:
    """What one job may have at most on these nodes."""
    there = list(nodes)
    gpus = max((node.gpus for node in there), default=0)
    names = dict.fromkeys(node.product or "gpu" for node in there if node.gpus)
    return Capacity(
        devices=("auto", "cpu", "cuda") if gpus else ("auto", "cpu"),
        gpus=gpus,
        gpu_names=tuple(name[:100] for name in names),
        memory_bytes=max((node.memory_bytes for node in there), default=0) or None,
        machines=max(1, len(there)),
    )


def products(nodes: Iterable[Node], kind: str) -> list[str]:
    """The names, as the nodes carry them, of the accelerators in whose name this text in small letters stands."""
    return list(dict.fromkeys(node.product for node in nodes if node.gpus and node.product and kind in node.product.lower()))
