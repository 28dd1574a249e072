r"""The spec of ordinary training: no clipping, no noise, no guarantee. The baseline for private results."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self, final

from pydantic import Field

from zetadp.mechanisms.base import PrivacyUnit
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import DataSetFacts, DigitsPhasePairs
from zetadp.trainer.specs.base import PositiveInt, TrainingSpec
from zetadp.trainer.specs.descent import Adam, Optimizer
from zetadp.trainer.specs.models.model_spec import ComplexMlp
from zetadp.trainer.specs.models.named_networks import ModelSpec, given_weights_of
from zetadp.trainer.specs.models.shapes import check_model
from zetadp.trainer.specs.network_training import HELD_OUT, NoEvaluation, PublicHeldOut
from zetadp.trainer.specs.plans import UnprotectedPlan
from zetadp.trainer.specs.report import HeldOut

REASON = "it was trained on the data as they are, without clipping and without noise: the model may reveal anything about them"

REPORTED_DELTA = 1e-5
"""Epsilon is infinite at every delta, but progress reports need one."""


@final
class NonPrivateTraining(TrainingSpec):
    r"""Gradient descent on the mean loss of ordinary batches.

    Attributes:
      model: the network.
      optimizer: how the gradient updates the weights.
      batch_size: records in each batch; epochs are shuffled, and every record is used once in each.
      steps: the number of batches.
      unit: what one row is, or the user whose rows they are; a comparison counts these units. Nothing is guaranteed to either.
      records_per_user: if ``unit`` is the user: how many of a user's first records are used, as in a private training for users.
      evaluation: how the held-out records are used.
    """

    READS_SAMPLES: ClassVar[bool] = True
    SUMMARY: ClassVar[str] = "Ordinary training without privacy, as a baseline."
    SOURCES: ClassVar[tuple[str, ...]] = ("Robbins and Monro 1951, A stochastic approximation method",)
    ERRATA: ClassVar[tuple[str, ...]] = ()
    TRUST: ClassVar[str] = "Anyone who sees the model, a checkpoint or a metric is trusted with the data."
    PLANS: ClassVar[tuple[str, ...]] = ("unprotected",)

    algorithm: Literal["non_private"] = "non_private"
    model: ModelSpec
    optimizer: Optimizer
    batch_size: PositiveInt
    steps: PositiveInt
    unit: PrivacyUnit
    records_per_user: PositiveInt | None = None
    evaluation: Annotated[NoEvaluation | PublicHeldOut, Field(discriminator="kind")] = NoEvaluation()

    @classmethod
    def example(cls) -> Self:
        return cls(
            data=DigitsPhasePairs(split_seed=0, test_fraction=0.2),
            model=ComplexMlp(hidden=(64,), activation="cardioid", head="real_part"),
            optimizer=Adam(learning_rate=0.003),
            batch_size=64,
            steps=200,
            unit="record",
            evaluation=PublicHeldOut(),
        )

    @property
    def given_weights(self) -> tuple[str, ...]:
        return given_weights_of(self.model)

    @property
    def runs_alone(self) -> str:
        return "training without privacy"

    def plan_for(self, facts: DataSetFacts) -> UnprotectedPlan:
        check_model(self.model, facts)
        if self.batch_size > facts.training_records:
            raise InvalidParameter("batch_size", f"<= the {facts.training_records} training records", self.batch_size)
        return UnprotectedPlan(reason=REASON, unit=self.unit, units=self._units(facts), steps=self.steps, delta=REPORTED_DELTA)

    @property
    def held_out(self) -> HeldOut:
        return HELD_OUT[self.evaluation.kind]

    @property
    def records_per_unit(self) -> int | None:
        return self.records_per_user

    def _units(self, facts: DataSetFacts) -> int:
        if self.unit == facts.unit:
            if self.records_per_user is not None:
                raise InvalidParameter("records_per_user", f"absent where the unit is one row ({facts.unit!r})", self.records_per_user)
            return facts.training_records
        if self.unit != facts.user_unit or facts.users is None:
            rows = f"{facts.unit!r} (one row of this data set)"
            raise InvalidParameter("unit", rows if facts.user_unit is None else f"{rows} or {facts.user_unit!r}", self.unit)
        if self.records_per_user is None:
            raise InvalidParameter("records_per_user", f"given where the unit is {self.unit!r}, who may have several records", None)
        return facts.users
