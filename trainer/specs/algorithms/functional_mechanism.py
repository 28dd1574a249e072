r"""The spec of the functional mechanism: the coefficients of a decoder's quadratic loss, summed over all rows, released once with noise.

The encoder is public: random weights, drawn without the data. Then the loss is a polynomial of the decoder's weights alone, with sums over
the rows as coefficients. The SPOF paper says it is the functional mechanism at m = 1, but perturbs each row's coefficients and trains
the encoder on raw rows, which is neither that mechanism nor private (errata S14, S17).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self, final

from pydantic import Field, Strict

from zetadp.accountants.calibration import calibrate_scale
from zetadp.mechanisms import Gaussian, Laplace
from zetadp.mechanisms.analysis.functional_mechanism import MOST_RECORDS, Expansion, coefficient_count, l1_sensitivity, l2_sensitivity
from zetadp.mechanisms.base import Adjacency, NonNegative, Positive, PrivacyUnit, Sensitivity
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.local import multiple_up
from zetadp.trainer.data import DataSetFacts, DigitsImages
from zetadp.trainer.specs.autoencoder import AutoencoderSpec
from zetadp.trainer.specs.base import CalibratedPrivacy
from zetadp.trainer.specs.network_training import PublicHeldOut
from zetadp.trainer.specs.plan_base import Plan
from zetadp.trainer.specs.plans import AnyPlan, StatisticReleasePlan
from zetadp.trainer.specs.units import check_split


@final
class SumsPrivacy(CalibratedPrivacy):
    r"""The requested guarantee; that of Laplace noise holds at any delta, including 0.

    Attributes:
      adjacency: which data sets are neighbours.
      (others): as in ``CalibratedPrivacy``.
    """

    adjacency: Adjacency


@final
class FunctionalMechanism(AutoencoderSpec):
    r"""Release a decoder's quadratic loss once, and minimise it.

    Attributes:
      encoders: 1: the sums are over all rows, whichever user they belong to.
      hidden: l, units of the code; the first is constant, so 1 gives only the noisy column means. More units capture more of a row,
        but require noise on l n + l (l + 1) / 2 numbers.
      spread: standard deviation of the encoder's random weights, times sqrt(n).
      noise: the noise added to the sums.
      expansion: where the loss is approximated by a quadratic; post-processing.
      ridge: added to the quadratic's matrix, in units of the noise's standard deviation; post-processing.
      privacy: the guarantee.
      (others): as in ``AutoencoderSpec``.
    Raises:
      InvalidParameter: from ``plan``, where the spec doesn't fit the data set.
    """

    SUMMARY: ClassVar[str] = "The functional mechanism: a decoder's quadratic loss, summed over all rows and released once with noise."
    SOURCES: ClassVar[tuple[str, ...]] = (
        "Zhang, Zhang, Xiao, Yang and Winslett 2012, arXiv:1208.0219, Algorithm 1 and section 6",
        "Phan, Wang, Wu and Dou 2016 (the functional mechanism for autoencoders)",
        "Habib, Chou and Kim: Stabilization of Perturbed Loss Function: Differential Privacy without Gradient Noise, section V (m = 1)",
        "Jaakkola and Jordan 2000 (the quadratic bound)",
    )
    ERRATA: ClassVar[tuple[str, ...]] = ("S1", "S2", "S3", "S5", "S14", "S17")
    TRUST: ClassVar[str] = "The party that runs the training is trusted with the data; everyone else sees only what is released."
    PLANS: ClassVar[tuple[str, ...]] = ("statistic_release",)

    algorithm: Literal["functional_mechanism"] = "functional_mechanism"
    encoders: Annotated[int, Strict(), Field(ge=1, le=1)] = 1
    spread: Positive = 4.0
    noise: Literal["laplace", "gaussian"]
    expansion: Expansion = "column_means"
    ridge: NonNegative = 2.0
    privacy: SumsPrivacy

    @classmethod
    def example(cls) -> Self:
        """Digits' pixels."""
        return cls(
            data=DigitsImages(split_seed=0, test_fraction=0.2),
            hidden=4,
            noise="gaussian",
            privacy=SumsPrivacy(adjacency=Adjacency.ADD_REMOVE, unit="record", delta=1e-5, epsilon=4.0),
            evaluation=PublicHeldOut(),
        )

    @property
    def unit(self) -> PrivacyUnit:
        return self.privacy.unit

    @property
    def adjacency(self) -> Adjacency:
        return self.privacy.adjacency

    def check_fits(self, facts: DataSetFacts) -> None:
        _ = self.plan_with(facts, 1.0)

    def plan_for(self, facts: DataSetFacts) -> AnyPlan:
        if self.privacy.noise_multiplier is not None:
            return self.plan_with(facts, self.privacy.noise_multiplier)
        assert self.privacy.epsilon is not None  # checked at construction: exactly one of the two
        draft = self.plan_with(facts, 1.0)
        return self.plan_with(facts, calibrate_scale(draft.event, epsilon=self.privacy.epsilon, delta=self.privacy.delta))

    def replanned(self, facts: DataSetFacts, plan: Plan) -> AnyPlan:
        if self.privacy.noise_multiplier is not None:
            return self.plan_with(facts, self.privacy.noise_multiplier)
        return self._planned(facts, plan.noise_std)

    def plan_with(self, facts: DataSetFacts, noise_multiplier: float) -> StatisticReleasePlan:
        """The plan with this noise. Raises InvalidParameter if spec and data don't fit."""
        return self._planned(facts, noise_multiplier * self._move(facts))

    def sensitivity(self, facts: DataSetFacts) -> Sensitivity:
        r"""How far one unit moves the sums; a user moves them as far as all their rows together. Raises as ``plan_with``."""
        move, unit, adjacency = self._move(facts), self.unit, self.privacy.adjacency
        if self.noise == "laplace":
            return Sensitivity(l1=move, adjacency=adjacency, unit=unit)
        return Sensitivity(l2=move, adjacency=adjacency, unit=unit)

    def _move(self, facts: DataSetFacts) -> float:
        shape = self.shape(facts)
        one = (l1_sensitivity if self.noise == "laplace" else l2_sensitivity)(shape.features, shape.hidden, self.privacy.adjacency)
        # Not the largest number of rows of a user: that number depends on the data.
        rows = (self.records_per_user or 1) if self.protects_users(facts) else 1
        return multiple_up(rows, one)

    def _planned(self, facts: DataSetFacts, scale: float) -> StatisticReleasePlan:
        if facts.training_records > MOST_RECORDS:
            raise InvalidParameter("data", f"at most {MOST_RECORDS} training rows (sums of more aren't exact)", facts.training_records)
        check_split(facts, self.privacy.adjacency)
        shape, sensitivity = self.shape(facts), self.sensitivity(facts)
        return StatisticReleasePlan(
            mechanism=Laplace(scale=scale, sensitivity=sensitivity)
            if self.noise == "laplace"
            else Gaussian(std=scale, sensitivity=sensitivity),
            numbers=coefficient_count(shape.features, shape.hidden),
            units=self.units(facts),
            steps=1,
            delta=self.privacy.delta,
        )
