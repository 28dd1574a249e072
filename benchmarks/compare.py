r"""Two pieces of work in turn, A B A B ..., and the median ratio of their CPU times."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

SHORTEST_SECONDS = 2e-2
"""What takes less is repeated until it takes about as much: a question right after another program's finds the processor's caches cold."""


class Ratio(NamedTuple):
    """Median of theirs / ours, and the median seconds of each."""

    factor: float
    ours: float
    theirs: float


def ratio(ours: Callable[[], object], theirs: Callable[[], object], rounds: int = 5) -> Ratio:
    """The two in turn, after one uncounted call of ours (a peer's call can take minutes, and has no need of it)."""
    ours()
    our_calls, their_calls = _calls(ours), 0
    pairs: list[tuple[float, float]] = []
    for _ in range(rounds):
        mine = seconds(ours, our_calls)
        if not their_calls:
            their_calls = _calls(theirs) if rounds > 3 else 1
        pairs.append((mine, seconds(theirs, their_calls)))
    return Ratio(statistics.median(b / a for a, b in pairs), statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs))


def seconds(work: Callable[[], object], calls: int = 1) -> float:
    """CPU seconds of one call, the mean of so many."""
    start = time.process_time()
    for _ in range(calls):
        work()
    return (time.process_time() - start) / calls


def geometric_mean(factors: list[float]) -> float:
    """The mean that ratios have."""
    return math.exp(statistics.fmean(math.log(factor) for factor in factors))


def line(name: str, peer: str, measured: Ratio, note: str = "") -> str:
    """One row of the report."""
    factor, ours, theirs = measured
    return f"{name:44s} {peer:34s} {factor:9.2f} x   ours {_time(ours)}   peer {_time(theirs)}   {note}"


def goal(name: str, value: float, target: float, unit: str = "x", at_most: bool = False) -> str:
    """A target beside what was reached."""
    reached = value <= target if at_most else value >= target
    sign = "<=" if at_most else ">="
    return f"  => {name}: {value:.4g} {unit}, target {sign} {target:g} {unit}: {'reached' if reached else 'MISSED'}"


def _calls(work: Callable[[], object]) -> int:
    return max(1, round(SHORTEST_SECONDS / max(seconds(work), 1e-7)))


def _time(duration: float) -> str:
    return f"{duration * 1e6:10.3f} us" if duration < 1e-3 else f"{duration * 1e3:10.3f} ms"
