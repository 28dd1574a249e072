r"""Training of a Spectral-DP spec: all units live at one place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trainer.engine import NoisyGradients
from trainer.engine.run import run
from trainer.engine.units import at_one_place
from trainer.plan import ExecutionPlan
from trainer.report import RunReport, TrainingEvent
from trainer.spec import RuntimeSpec
from trainer.spectral_dp.spec import SpectralDp


def train(
    spec: SpectralDp,
    plan: ExecutionPlan,
    runtime: RuntimeSpec,
    workdir: Path,
    *,
    report: Callable[[TrainingEvent], None],
    should_stop: Callable[[], bool],
) -> RunReport:
    r"""Runs ``plan`` to its end, as ``zeta_dp_sgd``'s ``train`` does, with the same files.

    Args:
      plan: as calibrated when the job was submitted; training runs from exactly it, its projection included.
      report: receives every event as it happens.
      should_stop: asked after every step.
    Raises: as ``run``.
    """
    algorithm = NoisyGradients(spec, plan, at_one_place)
    return run(algorithm, runtime, workdir, report=report, should_stop=should_stop)
