r"""The hardware of a worker's machine, without loading torch, and the jobs that its setting lets it run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from zetadp.app.jobs.needs import Capacity
from zetadp.mechanisms.errors import InvalidParameter

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The accelerators that a process may see: numbers, or the ids of accelerators or their parts."""
_MODEL = re.compile(r"^Model:\s*(.+?)\s*$", re.MULTILINE)
_MEMORY = re.compile(r"^MemTotal:\s*(\d+) kB$", re.MULTILINE)


def accelerators(proc: Path = Path("/proc"), devices: Path = Path("/dev")) -> list[str]:
    """Names of the NVIDIA accelerators, in the driver's order."""
    files = sorted((proc / "driver" / "nvidia" / "gpus").glob("*/information"))
    names = [found[1] for path in files if (found := _MODEL.search(path.read_text(errors="replace"))) is not None]
    # A container may see the devices and not the driver's files.
    return names or ["NVIDIA accelerator"] * len(list(devices.glob("nvidia[0-9]*")))


def chosen(setting: str, found: list[str], environment: Mapping[str, str]) -> list[str]:
    r"""Names of the accelerators that the worker's children may use.

    Args:
      setting: ``ZETADP_DEVICE``.
      found: those of the machine.
      environment: in which ``CUDA_VISIBLE_DEVICES`` may leave some of them out, as a cluster does.
    Raises:
      InvalidParameter: the setting names one that isn't there.

    >>> chosen("cuda:1", ["NVIDIA H200", "NVIDIA L4"], {}), chosen("auto", ["NVIDIA H200"] * 4, {"CUDA_VISIBLE_DEVICES": "0,3"})
    (['NVIDIA L4'], ['NVIDIA H200', 'NVIDIA H200'])
    >>> chosen("cuda:MIG-5c6e", ["NVIDIA H200"], {}), chosen("cpu", ["NVIDIA H200"], {})
    (['MIG part of NVIDIA H200'], [])
    """
    if setting == "cpu":
        return []
    listed = setting.partition(":")[2] or environment.get(VISIBLE)
    if listed is None:
        return found
    names: list[str] = []
    for item in filter(None, (one.strip() for one in listed.split(","))):
        if item.isdecimal():
            # Without any names the driver's files can't be seen: then nobody knows how many there are.
            if found and int(item) >= len(found):
                raise InvalidParameter("ZETADP_DEVICE", f"accelerators below {len(found)}, which this machine has", item)
            names.append(found[int(item)] if found else "NVIDIA accelerator")
        elif item.startswith("MIG-"):
            names.append("MIG part of " + _common(found))
        elif item.startswith("GPU-"):
            names.append(_common(found))
        else:
            break  # as CUDA does: -1, or anything else that it doesn't know, ends the list
    return names


def _common(found: list[str]) -> str:
    """What is known of an accelerator that is named by its id: all of a machine's kinds."""
    return " or ".join(dict.fromkeys(found)) or "NVIDIA accelerator"


def capacity_of(setting: str, names: list[str], memory_bytes: int | None, machines: int = 1) -> Capacity:
    """What a worker with this setting has for a job.

    >>> capacity_of("auto", [], None).devices, capacity_of("cuda:1", ["NVIDIA H200"], 2**34).gpus
    (('auto', 'cpu'), 1)
    """
    if setting == "auto":
        devices = ("auto", "cpu", "cuda") if names else ("auto", "cpu")
    else:
        devices = ("auto", "cpu") if setting == "cpu" else ("auto", "cuda")
    kinds = tuple(name[:100] for name in dict.fromkeys(names))
    return Capacity(devices=devices, gpus=len(names), gpu_names=kinds, memory_bytes=memory_bytes, machines=machines)


def visible(setting: str) -> str | None:
    """``CUDA_VISIBLE_DEVICES`` of its children; None leaves the worker's value.

    >>> visible("cuda:1,3"), visible("cpu"), visible("auto")
    ('1,3', '', None)
    """
    if setting == "cpu":
        return ""
    return setting.partition(":")[2] or None


def described(names: list[str]) -> str:
    """One line for people to read."""
    threads = f"{len(os.sched_getaffinity(0))} CPU threads"
    return "; ".join([threads, *names])[:255]


def memory_there(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes of memory that this process's jobs may use: the machine's, or less where a container or a cluster's job has a limit."""
    try:
        total = _MEMORY.search((proc / "meminfo").read_text())
        own = (proc / "self" / "cgroup").read_text().rpartition("::")[2].strip()
    except OSError:
        return None
    limits = [] if total is None else [int(total[1]) * 1024]
    group = groups / own.lstrip("/")
    while group.is_relative_to(groups):
        try:
            text = (group / "memory.max").read_text().strip()
        except OSError:
            text = "max"
        if text.isdecimal():
            limits.append(int(text))
        group = group.parent
    return min(limits, default=None)
