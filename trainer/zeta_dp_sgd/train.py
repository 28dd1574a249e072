r"""Training of a zeta-DP-SGD spec: all units live at one place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from trainer.data.splits import Keys
from trainer.engine import Run, run_training
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
    Raises:
      InvalidParameter: plan and spec disagree, the network can't be trained privately, or the device isn't there.
      CheckpointRefused: the checkpoint belongs to something else.
      TrainingDiverged: the parameters stopped being finite.
      TrainingAborted: from any other error in a step, which counts as executed.
      TrainingStopped: on ``should_stop``, with the state in the checkpoint.
    """
    return run_training(Run(spec, plan, runtime, workdir, one_place, report, should_stop))


def one_place(units: int, _keys: Callable[[], Keys]) -> tuple[Tensor, ...]:
    """All units."""
    return (torch.arange(units),)
