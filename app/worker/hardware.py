r"""The hardware of a worker's machine, without loading torch, and the jobs that its setting lets it run."""

from __future__ import annotations

import os
import re
from pathlib import Path

from zetadp.app.jobs.attempts import Device

_MODEL = re.compile(r"^Model:\s*(.+?)\s*$", re.MULTILINE)


def accelerators(proc: Path = Path("/proc"), devices: Path = Path("/dev")) -> list[str]:
    """Names of the NVIDIA accelerators, in the driver's order."""
    files = sorted((proc / "driver" / "nvidia" / "gpus").glob("*/information"))
    names = [found[1] for path in files if (found := _MODEL.search(path.read_text(errors="replace"))) is not None]
    # A container may see the devices and not the driver's files.
    return names or ["NVIDIA accelerator"] * len(list(devices.glob("nvidia[0-9]*")))


def devices_of(setting: str, found: list[str]) -> tuple[Device, ...]:
    """The devices whose jobs a worker with this setting runs.

    >>> devices_of("auto", []), devices_of("auto", ["NVIDIA H200"]), devices_of("cuda:1", ["NVIDIA H200"])
    (('auto', 'cpu'), ('auto', 'cpu', 'cuda'), ('auto', 'cuda'))
    """
    if setting == "auto":
        return ("auto", "cpu", "cuda") if found else ("auto", "cpu")
    return ("auto", "cpu") if setting == "cpu" else ("auto", "cuda")


def visible(setting: str) -> str | None:
    """``CUDA_VISIBLE_DEVICES`` of its children; None leaves the worker's value.

    >>> visible("cuda:1"), visible("cpu"), visible("auto")
    ('1', '', None)
    """
    if setting == "cpu":
        return ""
    return setting.partition(":")[2] or None


def described(setting: str, found: list[str]) -> str:
    """One line for people to read."""
    threads = f"{os.cpu_count() or 1} CPU threads"
    names = [] if setting == "cpu" else found
    return "; ".join([threads, *names])[:255]
