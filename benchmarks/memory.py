r"""The peak memory that some work adds, in a process of its own."""

from __future__ import annotations

import ctypes
import gc
import re
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import torch

REPEATS, PROCESSES = 5, 3

MMAP_THRESHOLD, PR_SET_THP_DISABLE = -3, 41
RETURNED_BYTES = 2**16
"""Blocks of at least this size are the system's again as soon as they are freed."""


def peak_bytes(prepare: Callable[[], Callable[[], object]]) -> int:
    """Of resident memory: the most while the prepared work ran five times, above what stood before the preparation. Linux.

    The middle one of three new processes: the system counts pages in batches, half a MiB for each processor.

    Args:
      prepare: can be pickled.
    """
    return sorted(_of_a_process(prepare) for _ in range(PROCESSES))[PROCESSES // 2]


def _of_a_process(prepare: Callable[[], Callable[[], object]]) -> int:
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(prepare, sender))
    process.start()
    added = receiver.recv()
    process.join()
    return added


def _measure(prepare: Callable[[], Callable[[], object]], sender: Connection) -> None:
    # Else the figure is what the heap's holes come to, by chance and by what ran before: 16 MiB or 37 of one and the same step.
    libc = ctypes.CDLL(None)
    libc.mallopt(MMAP_THRESHOLD, RETURNED_BYTES)
    libc.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
    torch.set_num_threads(1)
    for _ in range(2):
        prepare()()  # what libraries load on first use is no part of a step
    _return_freed()
    before = kibibytes("VmRSS")
    work = prepare()
    work()
    _return_freed()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    for _ in range(REPEATS):
        work()
    sender.send(1024 * (kibibytes("VmHWM") - before))
    sender.close()


def _return_freed() -> None:
    """To the system: what was freed would be used again without being counted."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def kibibytes(name: str, process: int | str = "self") -> int:
    """A figure of a process's status."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    assert found is not None  # Linux states all
    return int(found[1])
