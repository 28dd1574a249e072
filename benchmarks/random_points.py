r"""Random questions about Poisson-sampled Gaussian training, by the route that answers: how many, how long, how wide.

``python -m benchmarks.random_points 1000`` asks the first thousand.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.compare import goal
from zetadp.accountants import PoissonSampled, Release, Repeated, profile
from zetadp.mechanisms import Adjacency, Gaussian, Sensitivity
from zetadp.mechanisms.errors import PrivacyError

SEED = 20240601
COUNT = 1000


class Question(NamedTuple):
    """What is epsilon at delta after ``count`` steps with this sampling probability and noise multiplier?"""

    probability: float
    multiplier: float
    count: int
    delta: float


def questions(count: int = COUNT) -> Iterator[Question]:
    """q in 1e-6..1, multiplier in 0.3..50, steps in 1..10^6, delta in 1e-15..1e-3, each uniform in its logarithm."""
    generator = random.Random(SEED)  # noqa: S311 - no secret
    for _ in range(count):
        probability = 10.0 ** generator.uniform(-6.0, 0.0)
        multiplier = 0.3 * (50.0 / 0.3) ** generator.uniform(0.0, 1.0)
        yield Question(probability, multiplier, round(10.0 ** generator.uniform(0.0, 6.0)), 10.0 ** generator.uniform(-15.0, -3.0))


def event(question: Question) -> Repeated:
    """The event asked about, under add_remove."""
    noise = Gaussian(std=question.multiplier, sensitivity=Sensitivity(l2=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record"))
    return Repeated(count=question.count, event=PoissonSampled(probability=question.probability, event=Release(mechanism=noise)))


def run(count: int = COUNT) -> Iterator[str]:
    """The report's lines."""
    times: dict[str, list[float]] = defaultdict(list)
    widths: dict[str, list[float]] = defaultdict(list)
    refusals: list[str] = []
    for question in questions(count):
        start = time.process_time()
        try:
            bound = profile(event(question)).epsilon(question.delta)
        except (PrivacyError, ArithmeticError) as error:
            refusals.append(f"  no answer to {tuple(question)}: {error!r}")
            continue
        route = bound.route.split("(", maxsplit=1)[0]
        times[route].append(1e3 * (time.process_time() - start))
        widths[route].append((bound.upper - bound.lower) / bound.upper if bound.upper > 0.0 else 0.0)
    answered = sum(len(of_route) for of_route in times.values())
    for route in sorted(times, key=lambda name: -len(times[name])):
        narrow = sum(width <= 1e-6 for width in widths[route])
        yield (
            f"random points by {route:12s} {100.0 * len(times[route]) / count:5.1f} %   CPU ms: {_spread(times[route], '9.2f')}"
            f"   width / epsilon: {_spread(widths[route], '.0e')}; {narrow} of {len(times[route])} at most 1e-6"
        )
    yield goal("random points answered", 100.0 * answered / count, 100.0, "%")
    yield from refusals


def _spread(values: list[float], form: str) -> str:
    high = sorted(values)[int(0.95 * (len(values) - 1))]
    return f"median {statistics.median(values):{form}}, p95 {high:{form}}, largest {max(values):{form}}"


if __name__ == "__main__":
    for line in run(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT):
        sys.stdout.write(line + "\n")
