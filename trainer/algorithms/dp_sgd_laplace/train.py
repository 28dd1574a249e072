r"""Training of a DP-SGD spec for a distributed autoencoder."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from zetadp.trainer.algorithms.dp_sgd_laplace.noisy_sums import noisy_descent
from zetadp.trainer.engine.autoencoders import AutoencoderAlgorithm
from zetadp.trainer.engine.run import run
from zetadp.trainer.specs.algorithms.dp_sgd_laplace import DpSgdLaplace
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.report import RunReport, TrainingEvent


def train(
    spec: DpSgdLaplace,
    plan: ExecutionPlan,
    runtime: RuntimeSpec,
    workdir: Path,
    *,
    report: Callable[[TrainingEvent], None],
    should_stop: Callable[[], bool],
) -> RunReport:
    r"""Runs ``plan`` to its end, from the checkpoint where there is one, and writes the model. Raises as ``run``."""
    algorithm = AutoencoderAlgorithm(spec, plan, partial(noisy_descent, spec, plan))
    return run(algorithm, runtime, workdir, report=report, should_stop=should_stop)
