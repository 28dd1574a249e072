r"""The names of workers. One that isn't given a name is called after its machine and its device; the next one there has a number."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import socket
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from zetadp.app.jobs.errors import ExecutorBusy

LONGEST = 64
"""Characters of a name."""
MOST_NUMBERS = 99
"""Workers without a name of their own on one machine with one device."""
PATIENCE_SECONDS = 1.0
"""How long a worker waits for the name that it was given."""
_POLL_SECONDS = 0.02
_DIGITS = 8
_ROOM = LONGEST - len("-cuda-12345678") - len(f"-{MOST_NUMBERS}")
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def names(given: str | None, host: str, device: str) -> Iterator[str]:
    r"""The names that a worker may take, the first one first.

    Args:
      given: its own name, which is then the only one; None if it has none.
      host: of its machine or container; anything that isn't a letter, digit, dot, hyphen or underscore is replaced.
      device: as in its setting.

    >>> list(names(None, "ward-3.example", "cuda:1"))[:3]
    ['ward-3.example-cuda-1', 'ward-3.example-cuda-1-2', 'ward-3.example-cuda-1-3']
    >>> next(names(None, "ward-3", "cuda:0,1"))
    'ward-3-cuda-83b97b85'
    >>> list(names("left", "ward-3", "cuda:1"))
    ['left']
    """
    if given is not None:
        yield given
        return
    first = f"{_readable(host)}-{_short(device)}"
    yield first
    for number in range(2, MOST_NUMBERS + 1):
        yield f"{first}-{number}"


def _short(device: str) -> str:
    """The device in few characters: several accelerators, or one that is named by a long id, by digits of their digest."""
    kind, _, items = device.partition(":")
    if not items:
        return kind
    return f"{kind}-{items if items.isdecimal() else hashlib.sha256(items.encode()).hexdigest()[:_DIGITS]}"


def _readable(host: str) -> str:
    """The host's name in allowed characters. Where that changes it, digits of its digest keep it different from others."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "-", host).lstrip("_.-")
    if plain and plain == host and len(plain) <= _ROOM:
        return plain
    digest = hashlib.sha256(host.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]
    return f"{plain[: _ROOM - _DIGITS - 1] or 'host'}-{digest}"


@contextmanager
def sole_executor(data_dir: Path, name: str, patience_seconds: float) -> Generator[str]:
    r"""Hold this worker's name on this machine while it runs; yields what identifies the lock. A lease that was taken with the same lock
    is then known to be a dead worker's.

    Args:
      patience_seconds: how long to try. A process that a killed worker was just starting holds the lock until it runs its own program.
    Raises:
      ExecutorBusy: another process holds it.
    """
    deadline = time.monotonic() + patience_seconds
    # Not emptied before it is held: its time is the holder's last sign of life (``heartbeat.py``).
    with lock_file(data_dir, name).open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise ExecutorBusy(name) from None
                time.sleep(_POLL_SECONDS)
            else:
                break
        lock.truncate(0)
        lock.write(socket.gethostname())
        lock.flush()
        yield _identity(lock)


def lock_file(data_dir: Path, name: str) -> Path:
    """The file that a worker of this name locks, with its host's name in it."""
    return data_dir / f"worker-{name}.lock"


def _identity(lock: IO[str]) -> str:
    """The kernel and the file. Host names don't tell machines apart: containers often share one, and not the folder."""
    found = os.fstat(lock.fileno())
    return f"{_BOOT.read_text().strip()}:{found.st_dev}:{found.st_ino}"
