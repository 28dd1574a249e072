r"""A process that mustn't outlive the one that started it. Linux only; free of torch."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1
"""linux/prctl.h: the signal a process gets when its parent dies."""


def die_with_parent(parent: int, number: signal.Signals) -> bool:
    r"""Asks the kernel for a signal when the parent's thread ends.

    Args:
      parent: process id of the expected parent.
      number: SIGKILL to be gone at once, SIGTERM to stop in good order.
    Returns:
      False where the parent was gone before that: the signal will never come.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    return os.getppid() == parent
