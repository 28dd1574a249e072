r"""Training of a comparison's spec."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trainer.comparison.parts_run import run_parts
from trainer.comparison.spec import Comparison
from trainer.plans import ComparisonPlan
from trainer.report import RunReport, TrainingEvent
from trainer.spec import RuntimeSpec


def train(
    spec: Comparison,
    plan: ComparisonPlan,
    runtime: RuntimeSpec,
    workdir: Path,
    *,
    report: Callable[[TrainingEvent], None],
    should_stop: Callable[[], bool],
) -> RunReport:
    """Runs every part that hasn't ended, and puts their results side by side. Raises as ``run_parts``."""
    return run_parts(spec, plan, runtime, workdir, report=report, should_stop=should_stop)
