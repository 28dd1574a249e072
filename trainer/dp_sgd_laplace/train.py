r"""Training of a DP-SGD spec for a distributed autoencoder."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from trainer.dp_sgd_laplace.noisy_sums import noisy_descent
from trainer.dp_sgd_laplace.spec import DpSgdLaplace
from trainer.engine.autoencoders import AutoencoderAlgorithm
from trainer.engine.run import run
from trainer.plan import ExecutionPlan
from trainer.report import RunReport, TrainingEvent
from trainer.spec import RuntimeSpec


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
