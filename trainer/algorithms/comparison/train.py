r"""Training of a comparison's spec."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from zetadp.trainer.algorithms.comparison.parts_run import run_parts
from zetadp.trainer.specs.algorithms.comparison import Comparison
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.plans import ComparisonPlan
from zetadp.trainer.specs.report import RunReport, TrainingEvent


def train(
    spec: Comparison,
    plan: ComparisonPlan,
    runtime: RuntimeSpec,
    workdir: Path,
    *,
    report: Callable[[TrainingEvent], None],
    should_stop: Callable[[], bool],
) -> RunReport:
    """Runs every part that hasn't ended, and compares their results. Raises as ``run_parts``."""
    return run_parts(spec, plan, runtime, workdir, report=report, should_stop=should_stop)
