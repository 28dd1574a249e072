r"""Predictions of costs against what answers took: an answer is refused at once where its prediction exceeds the limit by a factor.

Questions are drawn at random, each kind with few and many points, in sizes for which a cost is predicted at all. The goal is the largest
share of its true cost that any prediction reached: what was refused at a factor f would have taken at least f / share times the limit.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from benchmarks.compare import goal

MOST_SHARE = 1.0
LONGEST_SECONDS = 10.0
"""An answer that takes longer counts as if it were there by then."""
SEED = 20261125


def run() -> Iterator[str]:
    """The report's lines."""
    # Only this part needs the application.
    from zetadp.accountants.deadline import time_limit
    from zetadp.app.calculators.forecasts import FACTOR, predicted
    from zetadp.app.calculators.profiles import compute_profile
    from zetadp.app.calculators.schemas import ProfileRequest
    from zetadp.mechanisms.errors import TimeLimitReached

    largest = 0.0
    draw = random.Random(SEED)  # noqa: S311 - nothing is kept secret with it
    for kind, (event, points) in _questions(draw).items():
        request = ProfileRequest.model_validate({"event": event, **points})
        begun = time.thread_time()
        expected = predicted(request)
        forecast = time.thread_time()
        with suppress(TimeLimitReached), time_limit(LONGEST_SECONDS):
            compute_profile(request)
        used = time.thread_time() - forecast
        largest = max(largest, expected / used)
        told = f"predicted {expected:7.2f} s in {forecast - begun:.2f} s"
        yield f"cost of {kind:40s} {told}, took {used:7.2f} s of processor time: {expected / used:.2f}"
    yield goal("costs, largest prediction / true cost", largest, MOST_SHARE, at_most=True)
    yield f"     what is refused would take at least {FACTOR / largest:.1f} times its limit, by these questions"


def _questions(draw: random.Random) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    deltas = [10.0 ** (-1.5 - 3.1 * k) for k in range(40)]
    epsilons = [2.0**k for k in range(-10, 10)]
    near = [1e-5 * draw.uniform(1.0, 1.01) for _ in range(1000)]
    found: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for how, probability in (("rarely", 1e-3), ("sometimes", 0.01), ("often", 0.3)):
        found[f"500 {how} sampled, {len(deltas)} deltas"] = (_composed(500, lambda q=probability: _training(draw, q)), {"deltas": deltas})
        found[f"800 {how} sampled, {len(epsilons)} epsilons"] = (
            _composed(800, lambda q=probability: _training(draw, q)),
            {"epsilons": epsilons},
        )
        found[f"500 {how} sampled, a false positive rate"] = (_composed(500, lambda q=probability: _training(draw, q)), {"alphas": [0.1]})
    return found | {
        "2500 often sampled, 1000 near deltas": (_composed(2500, lambda: _training(draw, 0.3)), {"deltas": near}),
        "500 with Laplace noise, 40 deltas": (_mixed(draw, 500), {"deltas": deltas}),
        "2500 sampled, a delta": (_composed(2500, lambda: _training(draw, 0.01)), {"deltas": [1e-5]}),
        "10 random allocations, a delta": (_composed(10, lambda: _allocated(draw)), {"deltas": [1e-5]}),
    }


def _release(noise: str, scale: float) -> dict[str, Any]:
    sensitivity = {"l1": 1.0, "l2": 1.0, "adjacency": "add_remove", "unit": "record"}
    return {"kind": "release", "mechanism": {"kind": noise, "std" if noise == "gaussian" else "scale": scale, "sensitivity": sensitivity}}


def _sampled(event: dict[str, Any], probability: float, count: int) -> dict[str, Any]:
    return {"kind": "repeated", "count": count, "event": {"kind": "poisson_sampled", "probability": probability, "event": event}}


def _training(draw: random.Random, probability: float) -> dict[str, Any]:
    return _sampled(_release("gaussian", draw.uniform(0.8, 4.0)), probability, draw.randint(10, 1000))


def _mixed(draw: random.Random, count: int) -> dict[str, Any]:
    """Laplace noise, whose moments the contour takes where a Gaussian release stands beside it."""
    return _composed(count, lambda: _sampled(_release("laplace", draw.uniform(2.0, 8.0)), 0.01, 100), _release("gaussian", 5.0))


def _allocated(draw: random.Random) -> dict[str, Any]:
    return {"kind": "randomly_allocated", "steps": draw.randint(2, 20), "event": _release("gaussian", draw.uniform(3.0, 6.0))}


def _composed(count: int, part: Callable[[], dict[str, Any]], *more: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "composed", "events": [*more, *(part() for _ in range(count))]}
