r"""Training of a zeta-DP-SGD spec: all units live at one place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trainer.engine import NoisyGradients
from trainer.engine.run import run
from trainer.engine.units import at_one_place
from trainer.plan import ExecutionPlan
from trainer.report import RunReport, TrainingEvent
from trainer.spec import RuntimeSpec
from trainer.zeta_dp_sgd.spec import ZetaDpSgd


def train(
    spec: ZetaDpSgd,
    plan: ExecutionPlan,
    runtime: RuntimeSpec,
    workdir: Path,
    *,
    report: Callable[[TrainingEvent], None],
    should_stop: Callable[[], bool],
) -> RunReport:
    r"""Runs ``plan`` to its end, from the checkpoint in ``workdir`` where there is one, and writes ``artifacts/model.safetensors`` there.

    Args:
      plan: as calibrated when the job was submitted; training runs from exactly it.
      report: receives every event as it happens.
      should_stop: asked after every step.
    Raises: as ``run``.
    """
    algorithm = NoisyGradients(spec, plan, at_one_place)
    return run(algorithm, runtime, workdir, report=report, should_stop=should_stop)
