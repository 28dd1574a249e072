r"""``python -m benchmarks.tricks [--runs 3] [NAME ...]``: what each way to train better gives at the same epsilon, on two small networks.

Every row is the first of its table with one thing changed, trained to the same epsilon by the service's own ``train``; accuracy on held-out
records that are public. Rates and bounds are the first row's, unless the row says so: those were tuned on these records, and none for its
row. Minutes: not in ``make bench``.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.recipes import private_run
from zetadp.mechanisms.analysis.banded import optimal_coefficients
from zetadp.trainer import ZetaDpSgd

EPSILON = 1.0
Changes = dict[str, Any]

ADAM = {"kind": "adam", "learning_rate": 0.005}
SGD = {"kind": "sgd", "learning_rate": 0.25, "momentum": 0.9}
COSINE = {"kind": "cosine"}
POOL = {"kind": "max_pool", "kernel": 2, "stride": 2}


def _bands(bands: int, steps: int) -> Changes:
    coefficients = optimal_coefficients(bands, steps)
    norm = math.hypot(*coefficients)
    return {
        "noise": {"kind": "given_bands", "coefficients": [math.floor(one / norm * 2**20) / 2**20 for one in coefficients]},
        "sampling": {"kind": "cyclic_poisson", "groups": bands, "seed": 0},
    }


SLOW: Changes = {"optimizer": {"kind": "sgd", "learning_rate": 4.0}, "expected_batch_size": 100}
BACK: Changes = {"noise": {"kind": "lambda_cgd", "decay": 0.5}, "sampling": {"kind": "cyclic_poisson", "groups": 7, "seed": 0}}

PAIRS: Changes = dict(ZetaDpSgd.example().model_dump(mode="json"))
"""Digits as phase pairs, one hidden complex layer: the demonstration's network."""


def _convolutions(*, normalised: bool = True, standardised: bool = False) -> Changes:
    def block(outputs: int) -> list[Changes]:
        convolution = {"kind": "convolution", "outputs": outputs, "kernel": 3, "padding": 1, "standardised": standardised}
        return [convolution, *([{"kind": "group_norm", "groups": 4}] if normalised else []), {"kind": "activation", "name": "relu"}]

    layers = [*block(16), POOL, *block(32), POOL, {"kind": "flatten"}]
    return {"kind": "sequential", "numbers": "real", "head": "none", "layers": [*layers, {"kind": "linear", "outputs": 10}]}


IMAGES: Changes = PAIRS | {
    "data": {"kind": "digits", "split_seed": 0, "test_fraction": 0.2},
    "model": _convolutions(),
    "privacy": PAIRS["privacy"] | {"unit": "image"},
    "optimizer": SGD,
    "expected_batch_size": 300,
    "steps": 200,
    "clipping_bound": 0.5,
}
"""Digits as images, two small convolutions with group norm."""

TABLES: dict[str, tuple[Changes, dict[str, Changes]]] = {
    "phase pairs": (
        PAIRS,
        {
            "as it is: Adam, lots of 200, 400 steps": {},
            "averaging, decay .98": {"averaging": {"kind": "exponential", "decay": 0.98}},
            "cosine schedule, twice the rate": {"optimizer": ADAM | {"learning_rate": 0.01, "schedule": COSINE}},
            "Adam without the noise's variance": {"optimizer": {"kind": "corrected_adam", "learning_rate": 0.005, "floor": 0.01}},
            "lots of 400, 200 steps": {"expected_batch_size": 400, "steps": 200},
            "all records, 100 steps": {"expected_batch_size": 710, "steps": 100},
            "bound .3": {"clipping_bound": 0.3},
            "a bound for each layer": {"clipping": {"kind": "per_layer"}},
            "SGD at 4, lots of 100": SLOW,
            "SGD at 4, lots of 100, 4 bands of noise": SLOW | _bands(4, 400),
            "SGD at 4, lots of 100, noise taken back by .5": SLOW | BACK,
        },
    ),
    "images": (
        IMAGES,
        {
            "as it is: SGD at .25, momentum .9, lots of 300, 200 steps": {},
            "without group norm": {"model": _convolutions(normalised=False)},
            "standardised weights": {"model": _convolutions(standardised=True)},
            "averaging, decay .95": {"averaging": {"kind": "exponential", "decay": 0.95}},
            "cosine schedule, twice the rate": {"optimizer": SGD | {"learning_rate": 0.5, "schedule": COSINE}},
            "4 copies, shifted by up to 1": {"augmentation": {"copies": 4, "shift": 1}},
            "lots of 700, 100 steps": {"expected_batch_size": 700, "steps": 100},
            "standardised, averaged, lots of 700": {
                "model": _convolutions(standardised=True),
                "averaging": {"kind": "exponential", "decay": 0.95},
                "expected_batch_size": 700,
                "steps": 100,
            },
        },
    ),
}


def rows(name: str, runs: int) -> Iterator[str]:
    """One table's lines."""
    base, tricks = TABLES[name]
    yield f"{name}, epsilon {EPSILON:g} at delta {base['privacy']['delta']:g}, {runs} runs"
    first: float | None = None
    for trick, changes in tricks.items():
        spec = ZetaDpSgd.model_validate(base | changes | {"privacy": base["privacy"] | {"epsilon": EPSILON}})
        found = [private_run(spec)[0]["accuracy"] for _ in range(runs)]
        mean = statistics.mean(found)
        first = mean if first is None else first
        spread = f" +- {statistics.stdev(found):.3f}" if runs > 1 else ""
        yield f"  {trick:56} {mean:.3f}{spread}   {100 * (mean - first):+5.1f} points"


def main(arguments: list[str]) -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tricks", description="What each way to train better gives.")
    parser.add_argument("names", nargs="*", default=list(TABLES), help=", ".join(TABLES))
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for name in options.names:
        for row in rows(name, options.runs):
            sys.stdout.write(row + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
