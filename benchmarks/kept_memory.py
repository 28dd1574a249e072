"""Freed memory stays with the process, as in the service's training child: else page faults take much of a step's time."""

from __future__ import annotations

import os
import sys


def keep_memory(module: str) -> None:
    """Starts this module anew where glibc wasn't told: it reads what it is told when a process starts."""
    from zetadp.app.kit.child_environment import MEMORY_KEPT  # loads NumPy, which asks the environment for its threads when it is loaded

    if MEMORY_KEPT.keys() - os.environ.keys():
        os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], {**MEMORY_KEPT, **os.environ})  # noqa: S606
