r"""How much memory the processes of a job use, from ``/proc``. Linux only.

Counted is what would be free without them: their own memory and what they share, in memory or swapped out; not the pages of files that are
mapped into memory, which the system drops when it needs room, and not an accelerator's memory. A limit on the address space would be
simpler, but CUDA reserves far more addresses than it uses memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_FIELD = re.compile(rb"^(RssAnon|RssShmem|VmSwap):\s*(\d+) kB$", re.MULTILINE)


def used_bytes(process: int, proc: Path = Path("/proc")) -> int:
    """Bytes that this process and its descendants use; of those that have ended, none. What they share counts once, as the largest's."""
    own, shared = 0, 0
    for one in _family(process, proc):
        try:
            found = {name: int(size) * 1024 for name, size in _FIELD.findall((proc / str(one) / "status").read_bytes())}
        except OSError:
            continue
        own += found.get(b"RssAnon", 0) + found.get(b"VmSwap", 0)
        shared = max(shared, found.get(b"RssShmem", 0))
    return own + shared


def _family(process: int, proc: Path) -> Iterator[int]:
    yield process
    for listed in (proc / str(process) / "task").glob("*/children"):
        try:
            children = listed.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from _family(int(child), proc)


def exceeds(process: int, allowed: int | None, asked: int | None) -> str | None:
    r"""What to say of a job whose processes use more than they may; None if they don't.

    Args:
      allowed: bytes, by the worker's setting; None for no limit.
      asked: bytes, by the job's own words; None if it didn't say.
    """
    if allowed is None and asked is None:
        return None
    used = used_bytes(process)
    if asked is not None and used > asked:
        return f"its processes used {used} bytes of memory; it asked for {asked} (resources.memory_bytes)"
    if allowed is not None and used > allowed:
        return f"its processes used {used} bytes of memory; the worker allows {allowed} (ZETADP_TRAINING_BYTES)"
    return None
