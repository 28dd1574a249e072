r"""Training specs and how they are run, free of torch. Algorithms are registered in ``trainer.parts``."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Protocol, cast

from pydantic import Field

from trainer.comparison.spec import Comparison
from trainer.federated.spec import FederatedZetaDpSgd
from trainer.parts import PARTS, AnyPartSpec
from trainer.plan import ExecutionPlan
from trainer.plans import AnyPlan
from trainer.report import RunReport, TrainingEvent
from trainer.spec import RuntimeSpec, TrainingSpec
from trainer.zeta_dp_sgd.spec import ZetaDpSgd

AnyTrainingSpec = Annotated[AnyPartSpec | Comparison, Field(discriminator="algorithm")]
ALGORITHMS: tuple[type[TrainingSpec], ...] = (*PARTS, Comparison)


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
    """The training function of the spec's algorithm: ``train`` of the module beside its ``spec``. Loads torch."""
    return cast("Train", import_module(type(spec).__module__.removesuffix("spec") + "train").train)


__all__ = [
    "ALGORITHMS",
    "AnyPlan",
    "AnyTrainingSpec",
    "ExecutionPlan",
    "FederatedZetaDpSgd",
    "RuntimeSpec",
    "Train",
    "TrainingSpec",
    "ZetaDpSgd",
    "load_train",
]
