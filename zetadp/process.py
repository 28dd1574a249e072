r"""A process of our own: ``python -m zetadp.process MODULE ARGUMENT...`` ends with what the module's ``main`` returns.

A start makes a few hundred thousand objects that live as long as the process. Python would go through them again and again while they are
made, and once more before it ends: two fifths of the processor time of a short process.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from importlib import import_module


def child_command(module: str, *arguments: str) -> list[str]:
    """The command line of a child of this process, whose id it learns: it must not outlive it."""
    return [sys.executable, "-m", "zetadp.process", module, *arguments, "--parent", str(os.getpid())]


def main(arguments: list[str]) -> int:
    """Runs a module's ``main`` with the arguments after its name."""
    gc.disable()
    atexit.register(gc.freeze)
    of_module = import_module(arguments[0]).main
    gc.freeze()
    gc.enable()
    return of_module(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
