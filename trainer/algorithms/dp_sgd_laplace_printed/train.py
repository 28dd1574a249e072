r"""Training of the SPOF paper's Algorithm 2 as printed. Nothing that it outputs is private."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from mechanisms.sampling.source import NoiseSource
from trainer.engine.autoencoders.printed import PrintedSlopes, Sensed, algorithm_2_slopes
from trainer.engine.autoencoders.printed_run import train_printed
from trainer.specs.algorithms.dp_sgd_laplace_printed import DpSgdLaplacePrinted
from trainer.specs.base import RuntimeSpec
from trainer.specs.plans import UnprotectedPlan
from trainer.specs.report import RunReport, TrainingEvent


def train(
    spec: DpSgdLaplacePrinted,
    plan: UnprotectedPlan,
    runtime: RuntimeSpec,
    workdir: Path,
    *,
    report: Callable[[TrainingEvent], None],
    should_stop: Callable[[], bool],
) -> RunReport:
    r"""Runs ``plan`` to its end, from the checkpoint where there is one, and writes the model. Raises as ``run``."""

    def slopes_at(epsilon: float) -> PrintedSlopes:
        def slopes(seen: Sensed, rows: Tensor, source: NoiseSource[Tensor]) -> Tensor:
            return algorithm_2_slopes(seen, rows, epsilon, spec.clipping_bound, source)

        return slopes

    return train_printed(spec, plan, runtime, workdir, slopes_at, report=report, should_stop=should_stop)
