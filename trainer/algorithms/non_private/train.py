r"""Ordinary training of a network, with the checkpoints, events and report of every other training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from zetadp.trainer.algorithms.non_private.algorithm import NonPrivateDescent
from zetadp.trainer.engine.run import run
from zetadp.trainer.specs.algorithms.non_private import NonPrivateTraining
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.plans import UnprotectedPlan
from zetadp.trainer.specs.report import RunReport, TrainingEvent


def train(
    spec: NonPrivateTraining,
    plan: UnprotectedPlan,
    runtime: RuntimeSpec,
    workdir: Path,
    *,
    report: Callable[[TrainingEvent], None],
    should_stop: Callable[[], bool],
) -> RunReport:
    """Runs ``plan`` to its end, from the checkpoint where there is one, and writes the model. Raises as ``run``."""
    return run(NonPrivateDescent(spec, plan), runtime, workdir, report=report, should_stop=should_stop)
