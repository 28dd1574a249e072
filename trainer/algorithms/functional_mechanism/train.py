r"""Training of a functional mechanism's spec."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from zetadp.trainer.algorithms.functional_mechanism.sums_release import minimisation
from zetadp.trainer.engine.autoencoders import AutoencoderAlgorithm
from zetadp.trainer.engine.run import run
from zetadp.trainer.specs.algorithms.functional_mechanism import FunctionalMechanism
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.plans import StatisticReleasePlan
from zetadp.trainer.specs.report import RunReport, TrainingEvent


def train(
    spec: FunctionalMechanism,
    plan: StatisticReleasePlan,
    runtime: RuntimeSpec,
    workdir: Path,
    *,
    report: Callable[[TrainingEvent], None],
    should_stop: Callable[[], bool],
) -> RunReport:
    """Runs ``plan``, which is one step, and writes the model. Raises as ``run``."""
    algorithm = AutoencoderAlgorithm(spec, plan, partial(minimisation, spec, plan))
    return run(algorithm, runtime, workdir, report=report, should_stop=should_stop)
