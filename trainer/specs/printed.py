r"""Specs of algorithms as a paper prints them, which aren't private at any epsilon: for comparison and demonstration. Free of torch."""

from __future__ import annotations

from abc import ABC
from typing import Annotated, ClassVar, Self

from pydantic import Strict, model_validator

from zetadp.mechanisms.base import NonNegative, OpenProbability, Positive, PrivacyUnit
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import DataSetFacts
from zetadp.trainer.specs.autoencoder import AutoencoderDescent
from zetadp.trainer.specs.base import PositiveInt
from zetadp.trainer.specs.plans import UnprotectedPlan

REPORTED_DELTA = 1e-5
"""Used where a spec states none: epsilon is infinite at every delta."""


class PrintedTraining(AutoencoderDescent, ABC):
    r"""A distributed autoencoder, trained by an algorithm of the SPOF paper as printed. Nothing is guaranteed to anybody.

    The paper's mini-batch is one row of each user, and each user's update touches that user's encoder and decoder block alone: that is
    ``batch_size`` 1. A larger batch takes the mean of its rows' gradients.

    Attributes:
      epsilon: the printed noise is computed from it; no guarantee.
      environmental_noise_std: std of the sensors' noise on every feature that enters an encoder, drawn anew whenever a row is used; the
        targets of the loss stay the rows themselves, and the metrics are of rows without it (SPOF paper, section VI).
      batch_size: rows of one step; each row is used once in an epoch, whose last batch may be smaller.
      steps: the number of batches.
      delta: progress and comparisons state it with an epsilon, which here is infinite at every delta.
      data_unit: what one row is, or the user whose rows they are; a comparison counts these units.
      recovery_demonstration: also show, in ``demonstration.json``, how a record is recovered from one update; with a synthetic record,
        never the job's data.
      optimizer: the paper's is ``sgd``.
      (others): as in ``AutoencoderDescent``.
    """

    REASON: ClassVar[str]
    """Why nothing is guaranteed, as the certificate states it."""

    epsilon: Positive
    environmental_noise_std: NonNegative = 0.0
    batch_size: PositiveInt = 1
    steps: PositiveInt
    delta: OpenProbability = REPORTED_DELTA
    data_unit: PrivacyUnit
    recovery_demonstration: Annotated[bool, Strict()] = False

    @model_validator(mode="after")
    def _check_stabilisation(self) -> Self:
        if self.stabilisation < 0.0:
            raise InvalidParameter("stabilisation", ">= 0 (Proposition 3 covers nothing else)", self.stabilisation)
        return self

    @property
    def unit(self) -> PrivacyUnit:
        return self.data_unit

    @property
    def adjacency(self) -> None:
        return None

    def plan_for(self, facts: DataSetFacts) -> UnprotectedPlan:
        _ = self.shape(facts)
        return UnprotectedPlan(reason=self.REASON, unit=self.unit, units=self.units(facts), steps=self.steps, delta=self.delta)
