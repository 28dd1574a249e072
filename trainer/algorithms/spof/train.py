r"""Training of a SPOF spec."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from zetadp.trainer.algorithms.spof.row_release import descent_on_released_rows
from zetadp.trainer.engine.autoencoders import AutoencoderAlgorithm
from zetadp.trainer.engine.run import run
from zetadp.trainer.specs.algorithms.spof import Spof
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.plans import RecordReleasePlan
from zetadp.trainer.specs.report import RunReport, TrainingEvent


def train(
    spec: Spof,
    plan: RecordReleasePlan,
    runtime: RuntimeSpec,
    workdir: Path,
    *,
    report: Callable[[TrainingEvent], None],
    should_stop: Callable[[], bool],
) -> RunReport:
    r"""Runs ``plan`` to its end, from the checkpoint where there is one, and writes the model. Raises as ``run``."""
    algorithm = AutoencoderAlgorithm(spec, plan, partial(descent_on_released_rows, spec, plan))
    return run(algorithm, runtime, workdir, report=report, should_stop=should_stop)
