r"""Training specs and how they are run, free of torch. Algorithms are registered in ``trainer.specs.registry``."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Protocol, cast

from pydantic import Field

from zetadp.trainer.specs.algorithms.comparison import Comparison
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.algorithms.own_module import OwnModule
from zetadp.trainer.specs.algorithms.private_selection import PrivateSelection
from zetadp.trainer.specs.algorithms.zeta_dp_sgd import ZetaDpSgd
from zetadp.trainer.specs.base import RuntimeSpec, TrainingSpec
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.plans import AnyPlan
from zetadp.trainer.specs.registry import PARTS, AnyPartSpec
from zetadp.trainer.specs.report import RunReport, TrainingEvent

AnyTrainingSpec = Annotated[AnyPartSpec | Comparison | PrivateSelection, Field(discriminator="algorithm")]
ALGORITHMS: tuple[type[TrainingSpec], ...] = (*PARTS, Comparison, PrivateSelection)
CERTIFIED: tuple[type[TrainingSpec], ...] = (*ALGORITHMS, OwnModule)
"""What a certificate may be about: what a service runs, and what a caller's own program trained."""


class Train(Protocol):
    """What ``train.py`` of every algorithm offers."""

    def __call__(
        self,
        spec: AnyTrainingSpec,
        plan: AnyPlan,
        runtime: RuntimeSpec,
        workdir: Path,
        *,
        report: Callable[[TrainingEvent], None],
        should_stop: Callable[[], bool],
    ) -> RunReport: ...


def load_train(spec: TrainingSpec) -> Train:
    """The training function of the spec's algorithm: its folder in ``trainer.algorithms`` has the name of its spec's file. Loads torch."""
    name = type(spec).__module__.rpartition(".")[2]
    return cast("Train", import_module(f"zetadp.trainer.algorithms.{name}.train").train)


__all__ = [
    "ALGORITHMS",
    "CERTIFIED",
    "AnyPlan",
    "AnyTrainingSpec",
    "ExecutionPlan",
    "FederatedZetaDpSgd",
    "OwnModule",
    "RuntimeSpec",
    "Train",
    "TrainingSpec",
    "ZetaDpSgd",
    "load_train",
]
