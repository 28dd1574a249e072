r"""A process of our own: ``python -m zetadp.process MODULE ARGUMENT...`` ends with what the module's ``main`` returns.

A start makes a few hundred thousand objects that live as long as the process. Python would go through them again and again while they are
made, and once more before it ends: two fifths of the processor time of a short process.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module


@contextmanager
def starting() -> Generator[None]:
    """Nothing looks for garbage while that is made which lives as long as the process, nor ever at it later."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def child_command(module: str, *arguments: str) -> list[str]:
    """The command line of a child of this process, whose id it learns: it must not outlive it."""
    return [sys.executable, "-m", "zetadp.process", module, *arguments, "--parent", str(os.getpid())]


def main(arguments: list[str]) -> int:
    """Runs a module's ``main`` with the arguments after its name."""
    atexit.register(gc.freeze)
    with starting():
        of_module = import_module(arguments[0]).main
    return of_module(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
