r"""THE REGISTRY of training specs, free of torch. To add an algorithm: a folder with spec.py and train.py, and one name here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Protocol, cast

from pydantic import Field

from trainer.federated.spec import FederatedZetaDpSgd
from trainer.plan import ExecutionPlan
from trainer.report import RunReport, TrainingEvent
from trainer.spec import RuntimeSpec, TrainingSpec
from trainer.zeta_dp_sgd.spec import ZetaDpSgd

AnyTrainingSpec = Annotated[ZetaDpSgd | FederatedZetaDpSgd, Field(discriminator="algorithm")]
ALGORITHMS: tuple[type[TrainingSpec], ...] = (ZetaDpSgd, FederatedZetaDpSgd)


class Train(Protocol):
    """What ``train.py`` of every algorithm offers."""

    def __call__(
        self,
        spec: AnyTrainingSpec,
        plan: ExecutionPlan,
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
    "AnyTrainingSpec",
    "ExecutionPlan",
    "FederatedZetaDpSgd",
    "RuntimeSpec",
    "Train",
    "TrainingSpec",
    "ZetaDpSgd",
    "load_train",
]
