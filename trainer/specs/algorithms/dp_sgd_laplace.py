r"""The spec of DP-SGD with Laplace noise in its sound form: each unit's whole gradient is clipped, and the noise is on all weights.

The paper clips and perturbs the loss's derivative with respect to the logits and back-propagates that: every update is then a multiple of
the raw row (errata S31). Here the gradient of all weights is clipped, summed and released.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self, final

from pydantic import Field

from zetadp.accountants.calibration import calibrate_scale
from zetadp.mechanisms import Gaussian, Laplace
from zetadp.mechanisms.base import Adjacency, PrivacyUnit, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import DataSetFacts, DigitsImages
from zetadp.trainer.specs.autoencoder import AutoencoderTraining
from zetadp.trainer.specs.base import CalibratedPrivacy, PositiveInt
from zetadp.trainer.specs.descent import Adam
from zetadp.trainer.specs.execution_plan import ClippingBound, ExecutionPlan, FlatClipping, L1Clipping, clipped_sensitivity
from zetadp.trainer.specs.network_training import PublicHeldOut
from zetadp.trainer.specs.plan_base import Plan
from zetadp.trainer.specs.plans import AnyPlan
from zetadp.trainer.specs.sampling import PoissonSampling
from zetadp.trainer.specs.units import check_split


@final
class DescentPrivacy(CalibratedPrivacy):
    r"""The requested guarantee.

    Attributes:
      adjacency: which data sets are neighbours. Under replace_one two clipped gradients differ by up to twice the bound.
      (others): as in ``CalibratedPrivacy``; ``noise_multiplier`` is in units of the clipping bound.
    """

    adjacency: Adjacency


@final
class LaplaceMethod(Value):
    r"""Each unit's gradient is clipped in l1, and every coordinate of a sample's sum gets Laplace noise.

    Attributes:
      privacy: the guarantee.
      clipping_bound: C, on the l1 norm over all weights.
      expected_batch_size: units expected in a step's Poisson sample; the noisy sum is divided by it.
    """

    kind: Literal["laplace"] = "laplace"
    privacy: DescentPrivacy
    clipping_bound: ClippingBound
    expected_batch_size: PositiveInt

    def clipping(self) -> L1Clipping:
        """What the plan carries."""
        return L1Clipping(bound=self.clipping_bound)

    def mechanism(self, scale: float) -> Laplace:
        """Laplace noise of this scale b."""
        return Laplace(scale=scale, sensitivity=clipped_sensitivity(self.clipping(), self.privacy.adjacency, self.privacy.unit))


@final
class GaussianMethod(Value):
    r"""Each unit's gradient is clipped in l2, and every coordinate of a sample's sum gets Gaussian noise: the usual DP-SGD.

    Attributes:
      clipping_bound: C, on the l2 norm over all weights.
      (others): as in ``LaplaceMethod``.
    """

    kind: Literal["gaussian"] = "gaussian"
    privacy: DescentPrivacy
    clipping_bound: ClippingBound
    expected_batch_size: PositiveInt

    def clipping(self) -> FlatClipping:
        """What the plan carries."""
        return FlatClipping(bound=self.clipping_bound)

    def mechanism(self, scale: float) -> Gaussian:
        """Gaussian noise of this standard deviation."""
        return Gaussian(std=scale, sensitivity=clipped_sensitivity(self.clipping(), self.privacy.adjacency, self.privacy.unit))


@final
class DpSgdLaplace(AutoencoderTraining):
    r"""Train a distributed autoencoder with noise on its gradients.

    Attributes:
      method: what is clipped and perturbed, and how.
      steps: the number of noisy sums.
      declared_units: N, the assumed number of units of privacy in the training data: a public number, known without counting them. The
        sampling probability is method.expected_batch_size / N. None if the counted number is public.
      (others): as in ``AutoencoderTraining``.
    Raises:
      InvalidParameter: from ``plan``, where the spec doesn't fit the data set.
    """

    SUMMARY: ClassVar[str] = "DP-SGD with Laplace or Gaussian noise on all weight gradients of a distributed autoencoder."
    SOURCES: ClassVar[tuple[str, ...]] = (
        "Habib, Chou and Kim: Stabilization of Perturbed Loss Function: Differential Privacy without Gradient Noise, Algorithm 2",
        "Abadi et al. 2016, arXiv:1607.00133",
        "Dwork, McSherry, Nissim and Smith 2006",
    )
    ERRATA: ClassVar[tuple[str, ...]] = ("S16", "S28", "S29", "S30", "S31", "Z11", "Z22")
    TRUST: ClassVar[str] = "The party that runs the training is trusted with the data; everyone else sees only what is released."
    PLANS: ClassVar[tuple[str, ...]] = ("noisy_sums",)

    UNIT_FIELD: ClassVar[str] = "method.privacy.unit"

    algorithm: Literal["dp_sgd_laplace"] = "dp_sgd_laplace"
    method: Annotated[LaplaceMethod | GaussianMethod, Field(discriminator="kind")]
    steps: PositiveInt
    declared_units: PositiveInt | None = None

    @classmethod
    def example(cls) -> Self:
        """Digits' pixels. Its hyper-parameters were tuned on this same public data set, which no guarantee counts."""
        privacy = DescentPrivacy(adjacency=Adjacency.ADD_REMOVE, unit="record", delta=1e-5, epsilon=10.0)
        return cls(
            data=DigitsImages(split_seed=0, test_fraction=0.2),
            encoders=2,
            hidden=16,
            optimizer=Adam(learning_rate=0.05),
            method=LaplaceMethod(privacy=privacy, clipping_bound=3.0, expected_batch_size=1427),
            steps=100,
            evaluation=PublicHeldOut(),
        )

    @property
    def unit(self) -> PrivacyUnit:
        return self.method.privacy.unit

    @property
    def adjacency(self) -> Adjacency:
        return self.method.privacy.adjacency

    def check_fits(self, facts: DataSetFacts) -> None:
        _ = self.plan_with(facts, self.method.clipping_bound)

    def plan_for(self, facts: DataSetFacts) -> AnyPlan:
        privacy = self.method.privacy
        if privacy.noise_multiplier is not None:
            return self.plan_with(facts, privacy.noise_multiplier * self.method.clipping_bound)
        assert privacy.epsilon is not None  # checked at construction: exactly one of the two
        draft = self.plan_with(facts, self.method.clipping_bound)
        factor = calibrate_scale(draft.event, epsilon=privacy.epsilon, delta=privacy.delta)
        return self.plan_with(facts, factor * self.method.clipping_bound)

    def replanned(self, facts: DataSetFacts, plan: Plan) -> AnyPlan:
        multiplier = self.method.privacy.noise_multiplier
        return self.plan_with(facts, plan.noise_std if multiplier is None else multiplier * self.method.clipping_bound)

    def plan_with(self, facts: DataSetFacts, scale: float) -> ExecutionPlan:
        """The plan with noise of this scale. Raises InvalidParameter if spec and data don't fit."""
        _ = self.shape(facts)
        check_split(facts, self.method.privacy.adjacency)
        is_declared = self.declared_units is not None
        units, batch = self.declared_units or self.units(facts), self.method.expected_batch_size
        if batch > units:
            raise InvalidParameter("method.expected_batch_size", f"<= the {units} units of privacy ({self.unit!r})", batch)
        return ExecutionPlan(
            sampling=PoissonSampling(records=units, expected_batch_size=batch, is_declared=is_declared),
            clipping=self.method.clipping(),
            mechanism=self.method.mechanism(scale),
            steps=self.steps,
            delta=self.method.privacy.delta,
        )
