r"""Two pieces of work in turn, A B A B ..., and the median ratio of their CPU times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def ratio(ours: Callable[[], object], theirs: Callable[[], object], rounds: int = 5) -> tuple[float, float, float]:
    """(median of theirs / ours, median seconds of ours, median seconds of theirs), after one uncounted round of each."""
    ours(), theirs()
    pairs = [(_seconds(ours), _seconds(theirs)) for _ in range(rounds)]
    return statistics.median(b / a for a, b in pairs), statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def line(name: str, peer: str, measured: tuple[float, float, float], note: str = "") -> str:
    """One row of the report."""
    factor, ours, theirs = measured
    return f"{name:44s} {peer:34s} {factor:9.2f} x   ours {ours * 1e3:10.3f} ms   peer {theirs * 1e3:10.3f} ms   {note}"


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
