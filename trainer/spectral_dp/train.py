r"""Training of a Spectral-DP spec: all units live at one place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trainer.engine import Run, run_training
from trainer.plan import ExecutionPlan
from trainer.report import RunReport, TrainingEvent
from trainer.spec import RuntimeSpec
from trainer.spectral_dp.spec import SpectralDp
from trainer.zeta_dp_sgd.train import one_place


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
    Raises:
      InvalidParameter: plan and spec disagree, the network can't be trained privately, or the device isn't there.
      CheckpointRefused: the checkpoint belongs to something else.
      TrainingDiverged: the parameters stopped being finite.
      TrainingAborted: from any other error in a step, which counts as executed.
      TrainingStopped: on ``should_stop``, with the state in the checkpoint.
    """
    return run_training(Run(spec, plan, runtime, workdir, one_place, report, should_stop))
