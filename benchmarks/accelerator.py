r"""``python -m benchmarks.accelerator``: a private step on an accelerator against PyTorch's own non-private step of the same model there.

Wall time in turn, waits for the device, and the peak of its memory, for lots of some sizes; then what noise costs the processor.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from benchmarks.compare import goal
from benchmarks.networks import CASES, Case
from benchmarks.training import native_step, private_step
from zetadp.mechanisms import RandomStream
from zetadp.trainer.engine.noise.torch_source import TorchSource

ROUNDS, CALLS, WARM_UP = 9, 10, 3
LOTS = (None, 4096)
"""Records of a step; None: the case's own batch."""
MICROBATCH = 2048
WAITS_TARGET = 1


def run(device: torch.device) -> Iterator[str]:
    """The report's lines."""
    yield f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    for case in CASES:
        for lot in LOTS:
            yield from _steps(case, lot or case.batch, device)
    yield from _waits(CASES[0], device)
    yield from _noise(device)


def _steps(case: Case, lot: int, device: torch.device) -> Iterator[str]:
    native = native_step(case, lot, device)
    private, beside = (private_step(case, lot, MICROBATCH, device, prefetch=prefetch) for prefetch in (False, True))
    peaks = [_peak(work, device) for work in (native, private)]
    seconds = [[_seconds(work, device) for work in (native, private, beside)] for _ in range(ROUNDS)]
    usual, ours, ahead = (statistics.median(column) for column in zip(*seconds, strict=True))
    yield (
        f"{case.name}, {lot}: private step {1e3 * ours:.3f} ms, {1e3 * ahead:.3f} with the noise drawn beside it, non-private "
        f"{1e3 * usual:.3f}: {ours / usual:.2f} and {ahead / usual:.2f}; memory {peaks[1] / 2**20:.0f} and {peaks[0] / 2**20:.0f} MiB: "
        f"{peaks[1] / peaks[0]:.2f}"
    )


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    for _ in range(CALLS):
        work()
    torch.cuda.synchronize(device)
    return (time.perf_counter() - start) / CALLS


def _peak(work: Callable[[], object], device: torch.device) -> int:
    """Of the memory that tensors take on the device, what a step adds included."""
    for _ in range(WARM_UP):
        work()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work()
    return torch.cuda.max_memory_allocated(device) - before


def _waits(case: Case, device: torch.device) -> Iterator[str]:
    """Where a step waits for the device, by torch's own warnings."""
    work = private_step(case, case.batch, MICROBATCH, device)
    for _ in range(WARM_UP):
        work()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            for _ in range(CALLS):
                work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    waits = [one for one in warned if "synchronizing CUDA operation" in str(one.message)]
    found = Counter(f"{Path(one.filename).name}:{one.lineno}" for one in waits)
    for where, times in found.most_common():
        yield f"  waits {times / CALLS:g} times a step: {where}"
    yield goal(f"{case.name}: waits for the device, a step", found.total() / CALLS, WAITS_TARGET, "", at_most=True)


def _noise(device: torch.device) -> Iterator[str]:
    """Nanoseconds for a number of normal noise: the processor's, which draws it, and until it is on the device."""
    stream, count = RandomStream.from_operating_system(), 2**22
    source, room = TorchSource(stream, device), np.empty(count)
    drawn = _seconds(lambda: stream.grid_normal(count, into=room), device) / count
    there = _seconds(lambda: source.standard_normal((count,)), device) / count
    yield f"a number of noise: {1e9 * drawn:.3f} ns drawn, {1e9 * there:.3f} ns on the device"


def main() -> int:
    """Prints the report. Exit code 1 without an accelerator."""
    if not torch.cuda.is_available():
        print("benchmarks.accelerator needs a CUDA device, and this machine has none", file=sys.stderr)  # noqa: T201
        return 1
    for one in run(torch.device("cuda")):
        print(one, flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
