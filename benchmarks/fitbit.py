r"""``python -m benchmarks.fitbit [--repetitions 20] [--parts paper held_out ...]``: the SPOF paper's experiment, all trainings together.

Scores are 1 - MSE, mean +- standard deviation over repetitions, beside those of all-zero and column-mean outputs: a model below the
column means has learned nothing of use. In the paper's scaling each column is divided by its own maximum, and the rows that are trained on
are scored: for a benchmark on a public data set only, since a maximum is a release that no guarantee counts (errata S9). The other table is
of public bounds and held-out days, as a job would have it. A guarantee is for one row, at delta 1e-4; the printed trainings have none.

Needs ZETADP_DATA_SETS_DIR. About a quarter of an hour on one core: not in ``make bench``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from benchmarks.fitbit_runs import Result, Table, functional, local, noisy_descent, plain, printed
from zetadp.mechanisms.sampling.source import NoiseSource
from zetadp.trainer.data import data_set_facts
from zetadp.trainer.data.base import DataSetFacts
from zetadp.trainer.data.files.location import folder_of
from zetadp.trainer.engine.autoencoders.printed import Sensed, algorithm_1_slopes, algorithm_2_slopes
from zetadp.trainer.recipes import fitbit
from zetadp.trainer.specs.algorithms.dp_sgd_laplace import DpSgdLaplace
from zetadp.trainer.specs.algorithms.dp_sgd_laplace_printed import DpSgdLaplacePrinted
from zetadp.trainer.specs.algorithms.functional_mechanism import FunctionalMechanism
from zetadp.trainer.specs.algorithms.spof import Spof
from zetadp.trainer.specs.algorithms.spof_printed import SpofPrinted
from zetadp.trainer.specs.base import TrainingSpec
from zetadp.trainer.specs.descent import Sgd
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.plans import RecordReleasePlan, StatisticReleasePlan

EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
PARTS = {"paper": (2, 0.0), "sensors": (2, 5.0), "encoders": (4, 0.0), "both": (4, 5.0)}
"""Encoders and the sensors' noise of each table in the paper's scaling."""
SWEEP = (0.0, 0.625, 1.25, 1.875, 2.5)
RATES = (1e-2, 1e-3, 1e-4, 1e-5)
EPOCHS = 5
"""Of the printed algorithms; the paper tells neither these nor a learning rate."""

RATE_1, RATE_2 = 1e-5, 1e-3
"""Learning rates of Algorithms 1 and 2: the largest of ``RATES`` at which few repetitions diverge at most epsilons."""

Method = Callable[[Table, float], Result]

Spec = TypeVar("Spec", bound=TrainingSpec)


def changed(spec: Spec, **changes: object) -> Spec:
    """The spec with other values, validated; of nested fields by their dotted names with __ for the dot."""
    document = spec.model_dump(mode="json", exclude_none=True)
    for path, value in changes.items():
        *outer, name = path.split("__")
        inner = document
        for part in outer:
            inner = inner[part]
        inner[name] = value
    return type(spec).model_validate(document)


def sound_spof(mechanism: str, facts: DataSetFacts, table: Table, epsilon: float) -> Result:
    """Each row released once."""
    spec = changed(_spof(), encoders=table.encoders, method__mechanism=mechanism, method__privacy__epsilon=epsilon)
    plan = spec.plan_for(facts)
    assert isinstance(plan, RecordReleasePlan)
    return local(table, spec, plan)


def sums(noise: str, hidden: int, facts: DataSetFacts, table: Table, epsilon: float) -> Result:
    """The functional mechanism."""
    spec = fitbit.FITBIT_FUNCTIONAL_MECHANISM.spec
    assert isinstance(spec, FunctionalMechanism)
    spec = changed(spec, noise=noise, hidden=hidden, privacy__epsilon=epsilon)
    plan = spec.plan_for(facts)
    assert isinstance(plan, StatisticReleasePlan)
    return functional(table, spec, plan)


def gradients(noise: str, facts: DataSetFacts, table: Table, epsilon: float) -> Result:
    """DP-SGD on all weights."""
    spec = (fitbit.FITBIT_DP_SGD_LAPLACE if noise == "laplace" else fitbit.FITBIT_DP_SGD_GAUSSIAN).spec
    assert isinstance(spec, DpSgdLaplace)
    spec = changed(spec, encoders=table.encoders, method__privacy__epsilon=epsilon)
    plan = spec.plan_for(facts)
    assert isinstance(plan, ExecutionPlan)
    return noisy_descent(table, spec, plan)


def algorithm_1(c: float, rate: float, table: Table, epsilon: float) -> Result:
    """SPOF as printed."""
    spec = fitbit.FITBIT_SPOF_PRINTED.spec
    assert isinstance(spec, SpofPrinted)
    spec = changed(spec, encoders=table.encoders, stabilisation=c, environmental_noise_std=table.sensors)
    spec = changed(spec, optimizer=Sgd(learning_rate=rate).model_dump(mode="json"))

    def slopes(seen: Sensed, rows: Tensor, source: NoiseSource[Tensor]) -> Tensor:
        return algorithm_1_slopes(seen, rows, epsilon, c, source)

    return printed(table, spec, slopes, EPOCHS)


def algorithm_2(rate: float, table: Table, epsilon: float) -> Result:
    """DP-SGD as printed."""
    spec = fitbit.FITBIT_DP_SGD_PRINTED.spec
    assert isinstance(spec, DpSgdLaplacePrinted)
    spec = changed(spec, encoders=table.encoders, environmental_noise_std=table.sensors)
    spec = changed(spec, optimizer=Sgd(learning_rate=rate).model_dump(mode="json"))
    bound = spec.clipping_bound

    def slopes(seen: Sensed, rows: Tensor, source: NoiseSource[Tensor]) -> Tensor:
        return algorithm_2_slopes(seen, rows, epsilon, bound, source)

    return printed(table, spec, slopes, EPOCHS)


def _spof() -> Spof:
    spec = fitbit.FITBIT_SPOF.spec
    assert isinstance(spec, Spof)
    return spec


def sound_methods(facts: DataSetFacts) -> dict[str, Method]:
    """Of a proven guarantee."""
    return {
        "SPOF, Laplace rows": partial(sound_spof, "local_laplace", facts),
        "SPOF, Duchi rows": partial(sound_spof, "duchi_linf", facts),
        "functional, Laplace": partial(sums, "laplace", fitbit.HIDDEN, facts),
        "functional, Gaussian": partial(sums, "gaussian", fitbit.HIDDEN, facts),
        "functional, Laplace, l = 1": partial(sums, "laplace", 1, facts),
        "DP-SGD, Laplace": partial(gradients, "laplace", facts),
        "DP-SGD, Gaussian": partial(gradients, "gaussian", facts),
    }


def printed_methods() -> dict[str, Method]:
    """Of no guarantee, whatever epsilon they are given."""
    return {
        "Algorithm 1 as printed, c = 0": partial(algorithm_1, 0.0, RATE_1),
        "Algorithm 1 as printed, c = 2.5": partial(algorithm_1, 2.5, RATE_1),
        "Algorithm 2 as printed": partial(algorithm_2, RATE_2),
    }


def paper_rows() -> Tensor:
    """The paper's 456 rows, each column divided by its maximum."""
    path = folder_of("fitbit") / "spof_fitbit_456x14.json"
    rows = np.array(json.loads(path.read_text()), dtype=np.float64)
    return torch.from_numpy(rows / rows.max(axis=0)).float()


def trivial(rows: Tensor, name: str) -> str:
    """What needs no network."""
    zero, means = 1.0 - rows.square().mean().item(), 1.0 - (rows - rows.mean(dim=0)).square().mean().item()
    return f"{name}: {len(rows)} rows scored; all-zero outputs {zero:.4f}, column means {means:.4f}"


def noise_alone(table: Table) -> Result:
    """An autoencoder that saw no data: trained on rows around 1/2, drawn without any."""
    made_up = (0.5 + 0.2 * torch.randn(table.training.shape)).clamp(0.0, 1.0)
    return plain(Table(made_up, table.test, table.encoders, 0.0, table.repetitions), changed(_spof(), encoders=table.encoders))


def cell(result: Result, sensors: float) -> str:
    """Mean +- deviation; with sensors' noise, of rows without and with it; and how many diverged."""
    if not len(result.scores):
        return "diverged"
    parts = [_spread(result.scores)] + ([_spread(result.sensed)] if sensors else [])
    return " / ".join(parts) + (f" ({result.diverged} div)" if result.diverged else "")


def _spread(scores: Tensor) -> str:
    deviation = scores.std().item() if len(scores) > 1 else math.nan
    return f"{scores.mean().item():.4f}+-{deviation:.4f}"


def rows_of(methods: dict[str, Method], table: Table, epsilons: Sequence[float]) -> Iterator[str]:
    """One line a method, one cell an epsilon."""
    yield f"  {'epsilon':32s} " + "  ".join(f"{epsilon:<14g}" for epsilon in epsilons)
    for name, method in methods.items():
        start = time.perf_counter()
        cells = [cell(method(table, epsilon), table.sensors) for epsilon in epsilons]
        yield f"  {name:32s} " + "  ".join(f"{text:14s}" for text in cells) + f"  [{time.perf_counter() - start:.0f} s]"


def head(table: Table, name: str) -> Iterator[str]:
    """What a block of lines is of."""
    yield ""
    yield trivial(table.test, name)
    yield f"  m = {table.encoders}, sensors' noise {table.sensors:g}, {table.repetitions} repetitions" + (
        "; scored on clean rows / on sensed ones" if table.sensors else ""
    )
    yield f"  {'without privacy':32s} {cell(plain(table, changed(_spof(), encoders=table.encoders, steps=2000)), table.sensors)}"
    yield f"  {'trained on noise, no data':32s} {cell(noise_alone(table), 0.0)}"


def lines(repetitions: int, part: str, epsilons: Sequence[float]) -> Iterator[str]:
    """Of one part of the report."""
    rows, facts = paper_rows(), data_set_facts(_spof().data)
    match part:
        case "held_out":
            data = _spof().data.read()
            features, test = torch.from_numpy(data.training_features), torch.from_numpy(data.test_features)
            table, name = Table(features, test, 2, 0.0, repetitions), "public bounds, held-out days"
        case "sweeps":
            yield from sweeps(Table(rows, rows, 2, 0.0, repetitions))
            return
        case _:
            table, name = Table(rows, rows, *PARTS[part], repetitions), "the paper's scaling"
    yield from head(table, name)
    yield from rows_of(sound_methods(facts) | printed_methods(), table, epsilons)


def sweeps(table: Table) -> Iterator[str]:
    """Algorithm 1's constant at epsilon 10, and both algorithms' learning rates at epsilon 1."""
    yield ""
    yield "Algorithm 1 as printed, epsilon 10: " + "  ".join(f"c = {c:g} {cell(algorithm_1(c, RATE_1, table, 10.0), 0.0)}" for c in SWEEP)
    for name, method in (("1, c = 0", partial(algorithm_1, 0.0)), ("1, c = 2.5", partial(algorithm_1, 2.5)), ("2", algorithm_2)):
        cells = "  ".join(f"rate {rate:g} {cell(method(rate, table, 1.0), 0.0)}" for rate in RATES)
        yield f"Algorithm {name} as printed, epsilon 1: {cells}"


def main(arguments: list[str]) -> None:
    """Writes the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fitbit", description="The SPOF paper's experiment.")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--parts", nargs="+", default=[*PARTS, "held_out", "sweeps"], choices=[*PARTS, "held_out", "sweeps"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for part in options.parts:
        for text in lines(options.repetitions, part, options.epsilons):
            sys.stdout.write(text + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
