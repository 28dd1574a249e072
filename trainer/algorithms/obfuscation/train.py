r"""Training of a complex-feature obfuscation spec."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from zetadp.trainer.algorithms.obfuscation.algorithm import ObfuscationTraining
from zetadp.trainer.engine.run import run
from zetadp.trainer.specs.algorithms.obfuscation import Obfuscation
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.plans import FeatureReleasePlan, UnprotectedPlan
from zetadp.trainer.specs.report import RunReport, TrainingEvent


def train(
    spec: Obfuscation,
    plan: FeatureReleasePlan | UnprotectedPlan,
    runtime: RuntimeSpec,
    workdir: Path,
    *,
    report: Callable[[TrainingEvent], None],
    should_stop: Callable[[], bool],
) -> RunReport:
    """Runs ``plan`` to its end, from the checkpoint where there is one, and writes the model. Raises as ``run``."""
    return run(ObfuscationTraining(spec, plan), runtime, workdir, report=report, should_stop=should_stop)
