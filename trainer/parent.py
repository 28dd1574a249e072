r"""A process that mustn't outlive its parent or its folder. Linux only; free of torch."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
"""linux/prctl.h: the signal a process gets when its parent dies."""
LOOK_SECONDS = 1.0
FOLDER_TAKEN = 5
"""The exit status of a process whose folder was taken away."""


def die_with_parent(parent: int, number: signal.Signals) -> bool:
    r"""Asks the kernel for a signal when the parent's thread ends.

    Args:
      parent: process id of the expected parent.
      number: SIGKILL to end at once, SIGTERM to stop in an orderly way.
    Returns:
      False if the parent was gone before that: the signal will never come.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    return os.getppid() == parent


def end_with_folder(folder: Path) -> None:
    """Ends this process within seconds once the folder is no longer where it was: then another attempt of the job works in it, and this
    one's work can't be kept."""
    own = _identity(folder)

    def watch() -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            if _identity(folder) != own:
                os._exit(FOLDER_TAKEN)

    threading.Thread(target=watch, name="folder", daemon=True).start()


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        found = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
