r"""The machine a run runs on: threads, device, precision, versions."""

from __future__ import annotations

import platform
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import nn

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.engine.products import SETTINGS, put
from zetadp.trainer.layers.convolution import PlanarConvolution
from zetadp.trainer.layers.linear import PlanarLinear
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.version import VERSION


def prepare_torch(runtime: RuntimeSpec, here: int = 1) -> torch.device:
    r"""Sets torch's threads, turns off its shortcuts in matrix products, and returns the device.

    ``auto`` is CUDA where there is a device for each of the run's processes on this machine.

    Args:
      here: how many of its processes run on this machine.
    Raises:
      InvalidParameter: CUDA was requested and there are too few devices.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if runtime.device == "cuda" and not count:
        raise InvalidParameter("runtime.device", "'cpu' or 'auto' on this machine, which has no CUDA device", runtime.device)
    if runtime.device == "cuda" and count < here:
        raise InvalidParameter("runtime.processes", f"at most {count} on this machine, one for each CUDA device", here)
    there = count >= here
    # For all that isn't inside a clip, which sees to it itself: the same last bits each time.
    put(SETTINGS)
    if runtime.threads:
        torch.set_num_threads(runtime.threads)
    if runtime.device == "auto":
        return torch.device("cuda" if there else "cpu")
    return torch.device(runtime.device)


def autocast(runtime: RuntimeSpec, network: nn.Module) -> AbstractContextManager[None]:
    r"""The context for the network's forward pass, in the requested precision.

    In ``bfloat16`` torch's real matrix products and convolutions, those on planes too, run in half precision; the parameters stay in
    float32. Only the forward pass belongs inside: norms, clipped sums and noise in half precision would break the clipping bound.

    Raises:
      InvalidParameter: half precision for a layer that multiplies complex numbers; torch has no kernels for them.
    """
    if runtime.precision == "float32":
        return nullcontext()
    for name, module in network.named_modules():
        own = module.parameters(recurse=False)
        if not isinstance(module, PlanarConvolution | PlanarLinear) and any(parameter.is_complex() for parameter in own):
            where = f"complex parameters in half precision ({name or 'the network'}: {type(module).__name__})"
            raise InvalidParameter("runtime.precision", "'float32' for this network", where)
    device = next(network.parameters()).device.type
    return cast("AbstractContextManager[None]", torch.autocast(device, dtype=torch.bfloat16))


def versions() -> dict[str, str]:
    """The versions of the software that computed the result."""
    return {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__, "zetadp": VERSION}


def hardware(device: torch.device) -> str:
    """The processor or accelerator, and the number of threads used."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{_processor()}, {threads} thread{'' if threads == 1 else 's'}"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
