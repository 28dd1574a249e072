r"""Training of SPOF's Algorithm 1 as printed. Nothing that it outputs is private."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from zetadp.mechanisms.sampling.source import NoiseSource
from zetadp.trainer.engine.autoencoders.printed import PrintedSlopes, Sensed, algorithm_1_slopes
from zetadp.trainer.engine.autoencoders.printed_run import train_printed
from zetadp.trainer.specs.algorithms.spof_printed import SpofPrinted
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.plans import UnprotectedPlan
from zetadp.trainer.specs.report import RunReport, TrainingEvent


def train(
    spec: SpofPrinted,
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
            return algorithm_1_slopes(seen, rows, epsilon, spec.stabilisation, source)

        return slopes

    return train_printed(spec, plan, runtime, workdir, slopes_at, report=report, should_stop=should_stop)
