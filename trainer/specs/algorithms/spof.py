r"""The spec of SPOF, in its sound form: every row is released once by a local mechanism, and training sees nothing else (errata section 3).

The paper perturbs a loss's coefficients, each a function of one record alone, and trains on the raw records through the perturbed loss.
The coefficient that depends on the record is 1/2 - x: to release it is to release x. Here the encoders see the released row too.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self, final

from pydantic import model_validator

from zetadp.accountants.calibration import calibrate_scale
from zetadp.mechanisms import DuchiLinf, LocalGaussian, LocalLaplace
from zetadp.mechanisms.base import Adjacency, OpenProbability, Positive, PrivacyUnit, Sensitivity, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.local import LocalRelease
from zetadp.trainer.data import DataSetFacts, DigitsImages
from zetadp.trainer.specs.autoencoder import AutoencoderTraining
from zetadp.trainer.specs.base import PositiveInt
from zetadp.trainer.specs.denoising import Denoising, Shrunk
from zetadp.trainer.specs.descent import Adam
from zetadp.trainer.specs.network_training import PublicHeldOut
from zetadp.trainer.specs.plan_base import Plan
from zetadp.trainer.specs.plans import AnyPlan, RecordReleasePlan
from zetadp.trainer.specs.units import check_split

MechanismName = Literal["local_laplace", "local_gaussian", "duchi_linf"]
RowMechanism = LocalLaplace | LocalGaussian | DuchiLinf


@final
class LocalPrivacy(Value):
    r"""The requested guarantee: epsilon for the unit, or the noise of one row's release.

    Attributes:
      adjacency: replace_one: the contents of a unit's rows are protected. The number of rows, and of a user's rows, is visible.
      unit: what one row is, or the user whose rows they are.
      delta: the delta at which epsilon is reported and calibrated; in (0, 1). Gaussian noise has no guarantee at 0, the others do.
      epsilon: of the unit, for all its rows together.
      scale: Laplace's b or a Gaussian's std, in units of [0, 1]; for duchi_linf 1 / epsilon of one row.
    """

    adjacency: Literal[Adjacency.REPLACE_ONE]
    unit: PrivacyUnit
    delta: OpenProbability
    epsilon: Positive | None = None
    scale: Positive | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.scale is None) == (self.epsilon is None):
            raise InvalidParameter("privacy", "given exactly one of epsilon and scale", "neither" if self.scale is None else "both")
        return self


@final
class LocalReleaseMethod(Value):
    r"""Each row is released once, and inputs and targets are functions of the released rows: epochs cost nothing.

    Attributes:
      mechanism: the mechanism that releases a row of [0, 1]^n.
      privacy: the guarantee.
      denoising: how training processes the released rows.
    """

    kind: Literal["local_release"] = "local_release"
    mechanism: MechanismName
    privacy: LocalPrivacy
    denoising: Denoising = Shrunk()

    def row_release(self, features: int, row: PrivacyUnit, scale: float) -> RowMechanism:
        """The mechanism for one row of ``features`` features, with this noise scale."""
        if self.mechanism == "local_gaussian":
            return LocalGaussian.for_box(0.0, 1.0, features, scale, row)
        sensitivity = Sensitivity(l1=LocalRelease.least_l1(0.0, 1.0, features), adjacency=self.privacy.adjacency, unit=row)
        match self.mechanism:
            case "local_laplace":
                return LocalLaplace(lower=0.0, upper=1.0, dimension=features, scale=scale, sensitivity=sensitivity)
            case "duchi_linf":
                return DuchiLinf(lower=0.0, upper=1.0, dimension=features, epsilon=1.0 / scale, sensitivity=sensitivity)


@final
class Spof(AutoencoderTraining):
    r"""Train a distributed autoencoder on a perturbed loss.

    Attributes:
      method: how the rows are released and then processed.
      batch_size: rows of one step; each row is used once in an epoch, whose last batch may be smaller.
      steps: the number of batches.
      (others): as in ``AutoencoderTraining``.
    Raises:
      InvalidParameter: from ``plan``, where the spec doesn't fit the data set.
    """

    SUMMARY: ClassVar[str] = "SPOF: a distributed autoencoder trained on rows that were each released once, locally."
    SOURCES: ClassVar[tuple[str, ...]] = (
        "Habib, Chou and Kim: Stabilization of Perturbed Loss Function: Differential Privacy without Gradient Noise, Algorithm 1",
        "Kasiviswanathan et al. 2011, arXiv:0803.0924 (the local model)",
        "Duchi, Jordan and Wainwright 2018, arXiv:1604.02390",
    )
    ERRATA: ClassVar[tuple[str, ...]] = ("S1", "S2", "S3", "S7", "S9", "S14", "S15", "S16")
    TRUST: ClassVar[str] = (
        "Here one party read all rows and released each of them separately: this party is trusted with them; everyone else sees only what "
        "was released. Where each row's owner releases it, nobody else need be trusted: the training needs only what was released."
    )
    PLANS: ClassVar[tuple[str, ...]] = ("record_release",)

    UNIT_FIELD: ClassVar[str] = "method.privacy.unit"

    algorithm: Literal["spof"] = "spof"
    method: LocalReleaseMethod
    batch_size: PositiveInt
    steps: PositiveInt

    @classmethod
    def example(cls) -> Self:
        """Digits' pixels: a public data set; with this much noise little more than its column means can be learned."""
        privacy = LocalPrivacy(adjacency=Adjacency.REPLACE_ONE, unit="record", delta=1e-5, epsilon=10.0)
        return cls(
            data=DigitsImages(split_seed=0, test_fraction=0.2, split_by="position"),
            encoders=2,
            hidden=16,
            optimizer=Adam(learning_rate=0.01),
            method=LocalReleaseMethod(mechanism="duchi_linf", privacy=privacy),
            batch_size=64,
            steps=500,
            evaluation=PublicHeldOut(),
        )

    @property
    def unit(self) -> PrivacyUnit:
        return self.method.privacy.unit

    @property
    def adjacency(self) -> Adjacency:
        return self.method.privacy.adjacency

    def check_fits(self, facts: DataSetFacts) -> None:
        _ = self.plan_with(facts, 1.0)

    def plan_for(self, facts: DataSetFacts) -> AnyPlan:
        privacy = self.method.privacy
        if privacy.scale is not None:
            return self.plan_with(facts, privacy.scale)
        assert privacy.epsilon is not None  # checked at construction: exactly one of the two
        draft = self.plan_with(facts, 1.0)
        factor = calibrate_scale(draft.event, epsilon=privacy.epsilon, delta=privacy.delta)
        return self._plan(facts, draft.mechanism.scaled(factor))

    def replanned(self, facts: DataSetFacts, plan: Plan) -> AnyPlan:
        if self.method.privacy.scale is not None or not isinstance(plan, RecordReleasePlan):
            return self.plan_for(facts)
        calibrated, example = plan.mechanism, self.method.row_release(self.shape(facts).features, facts.unit, 1.0)
        # The event states its scale, whatever that is; but it must be the spec's mechanism for these rows.
        return self._plan(facts, calibrated if _without_scale(calibrated) == _without_scale(example) else example)

    def plan_with(self, facts: DataSetFacts, scale: float) -> RecordReleasePlan:
        """The plan with this noise scale of one row's release. Raises InvalidParameter if spec and data don't fit."""
        return self._plan(facts, self.method.row_release(self.shape(facts).features, facts.unit, scale))

    def _plan(self, facts: DataSetFacts, mechanism: RowMechanism) -> RecordReleasePlan:
        check_split(facts, self.method.privacy.adjacency)
        return RecordReleasePlan(
            mechanism=mechanism,
            records=facts.training_records,
            units=self.units(facts),
            unit=self.unit,
            records_per_unit=self.records_per_user or 1,
            steps=self.steps,
            delta=self.method.privacy.delta,
        )


def _without_scale(mechanism: RowMechanism) -> dict[str, object]:
    return mechanism.model_dump(exclude={"scale", "std", "epsilon"})
