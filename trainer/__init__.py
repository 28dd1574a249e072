r"""THE REGISTRY of training specs, free of torch. To add an algorithm: a folder with spec.py and train.py, and one name here."""

from __future__ import annotations

from trainer.plan import ExecutionPlan
from trainer.spec import RuntimeSpec, TrainingSpec
from trainer.zeta_dp_sgd.spec import ZetaDpSgd

# With a second algorithm this becomes a union discriminated by ``algorithm``.
AnyTrainingSpec = ZetaDpSgd
ALGORITHMS: tuple[type[TrainingSpec], ...] = (ZetaDpSgd,)

__all__ = ["ALGORITHMS", "AnyTrainingSpec", "ExecutionPlan", "RuntimeSpec", "TrainingSpec", "ZetaDpSgd"]
