r"""The machine a run runs on: threads, device, versions."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import torch

from mechanisms.errors import InvalidParameter
from mechanisms.version import VERSION
from trainer.spec import RuntimeSpec


def prepare_torch(runtime: RuntimeSpec) -> torch.device:
    r"""Sets torch's threads and returns the device.

    Raises:
      InvalidParameter: a CUDA device was asked for and there is none.
    """
    if runtime.device == "cuda" and not torch.cuda.is_available():
        raise InvalidParameter("runtime.device", "'cpu' on this machine, which has no CUDA device", runtime.device)
    if runtime.threads:
        torch.set_num_threads(runtime.threads)
    return torch.device(runtime.device)


def versions() -> dict[str, str]:
    """Of what computed the result."""
    return {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__, "zetadp": VERSION}


def hardware(device: torch.device) -> str:
    """Processor or accelerator, and how many threads were used."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{_processor()}, {threads} thread{'' if threads == 1 else 's'}"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
