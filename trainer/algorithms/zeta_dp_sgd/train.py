r"""Training of a zeta-DP-SGD spec: all units are in one place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from zetadp.trainer.engine import NoisyGradients
from zetadp.trainer.engine.membership import at_one_place
from zetadp.trainer.engine.run import run
from zetadp.trainer.specs.algorithms.zeta_dp_sgd import ZetaDpSgd
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.report import RunReport, TrainingEvent


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
      should_stop: called after every step.
    Raises: as ``run``.
    """
    algorithm = NoisyGradients(spec, plan, at_one_place)
    return run(algorithm, runtime, workdir, report=report, should_stop=should_stop)
