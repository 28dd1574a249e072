r"""Starts: CPU seconds until the command line has printed its help, the service's application is made, and a training child can begin.

    python -m benchmarks.start

Each as our own commands start it, in an interpreter of its own, in turn with one that does nothing; user and system time, medians. What a
start imports follows from the code alone, so the ratio to the bare interpreter moves little with the machine. The goals are of a quiet
machine.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.compare import Ratio, goal, line

ROUNDS = 7
APPLICATION = """
import zetadp.app.__main__
from zetadp.process import starting
with starting():
    from zetadp.app.main import create_app
    create_app()
"""
"""As ``zetadp serve`` makes it."""
STARTS = (
    ("command line, --help", ("-m", "zetadp", "--help"), 0.3),
    ("the service's application", ("-c", APPLICATION), 1.2),
    ("training child, before its work", ("-m", "zetadp.process", "zetadp.trainer.child", "--help"), 2.0),
)
"""Name, arguments of the interpreter, and CPU seconds at most."""


def run() -> Iterator[str]:
    """The report's lines."""
    for name, arguments, most in STARTS:
        _start_seconds(arguments)  # once uncounted: it may compile what changed
        pairs = [(_start_seconds(arguments), _start_seconds(("-c", "pass"))) for _ in range(ROUNDS)]
        ours, bare = statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)
        yield line(name, "bare interpreter", Ratio(statistics.median(b / a for a, b in pairs), ours, bare), f"{ours / bare:.1f} times bare")
        yield goal(name, ours, most, "s", at_most=True)


def _start_seconds(arguments: tuple[str, ...]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL, check=True)  # noqa: S603 (our own commands)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    for row in run():
        sys.stdout.write(row + "\n")
