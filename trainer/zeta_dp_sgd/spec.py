r"""The spec of zeta-DP-SGD in its sound form (errata section 1: std sigma B on each real component, expected batch, Poisson)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self, final

from pydantic import Field, Strict, model_validator

from accountants.calibration import calibrate_scale
from accountants.events import PoissonSampled, Release, Repeated
from mechanisms import ComplexGaussian, Sensitivity
from mechanisms.base import Adjacency, Positive, Value
from mechanisms.errors import InvalidParameter
from trainer.data import DataSpec, data_set_facts
from trainer.plan import ExecutionPlan, FlatClipping, PoissonSampling
from trainer.spec import PositiveInt, PrivacyTarget, TrainingSpec

Width = Annotated[int, Strict(), Field(ge=1, le=65536)]
# Gradients are float32: outside this range they, or their squares, vanish or overflow.
ClippingBound = Annotated[float, Strict(), Field(ge=1e-30, le=1e30, allow_inf_nan=False)]
Momentum = Annotated[float, Strict(), Field(ge=0.0, lt=1.0, allow_inf_nan=False)]


@final
class ComplexMlp(Value):
    """Complex linear layers with an activation between, and a head from complex outputs to real class scores."""

    kind: Literal["complex_mlp"] = "complex_mlp"
    hidden: Annotated[tuple[Width, ...], Field(max_length=32)]
    activation: Literal["cardioid", "crelu"]
    head: Literal["magnitude", "real_part"]


@final
class Sgd(Value):
    """Gradient descent with momentum."""

    kind: Literal["sgd"] = "sgd"
    learning_rate: Positive
    momentum: Momentum = 0.0


@final
class Adam(Value):
    """Adam; its second moment is of |g|^2 of each complex coordinate's two real parts separately."""

    kind: Literal["adam"] = "adam"
    learning_rate: Positive
    beta1: Momentum = 0.9
    beta2: Momentum = 0.999


@final
class ZetaDpSgd(TrainingSpec):
    r"""Train a complex-valued network with per-record clipping and circular complex Gaussian noise.

    Attributes:
      data: which data set, and the seed of its public train/test split.
      model: the network.
      optimizer: what is done with the released gradient; post-processing.
      privacy: the guarantee asked for.
      clipping_bound: B, l2 norm over all parameters as real pairs; in [1e-30, 1e30].
      expected_batch_size: q N; at most the training records.
      steps: noisy gradients released.
      reproducible: the run's randomness comes from ``seed``: not private against someone who knows the seed.
      seed: required when reproducible, refused otherwise.
    Raises:
      InvalidParameter: from ``plan``, where ``privacy.unit`` isn't what one row of the data set is.
    """

    SUMMARY: ClassVar[str] = "Zeta-DP-SGD: differentially private gradient descent for complex-valued networks."
    SOURCES: ClassVar[tuple[str, ...]] = (
        "zeta-DP: complex-valued differential privacy and its applications to neural network training (anonymous, under review), "
        "Algorithm 1",
        "Riess, Ziller, Kolek, Rueckert, Schnabel and Kaissis 2024, Algorithm 1",
        "Abadi et al. 2016, arXiv:1607.00133",
    )
    ERRATA: ClassVar[tuple[str, ...]] = ("Z2", "Z10", "Z11", "Z12", "Z13", "Z15", "Z22")

    algorithm: Literal["zeta_dp_sgd"] = "zeta_dp_sgd"
    data: DataSpec
    model: ComplexMlp
    optimizer: Annotated[Sgd | Adam, Field(discriminator="kind")]
    privacy: PrivacyTarget
    clipping_bound: ClippingBound
    expected_batch_size: PositiveInt
    steps: PositiveInt
    reproducible: Annotated[bool, Strict()] = False
    seed: Annotated[int, Strict(), Field(ge=0, lt=2**63)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.reproducible and self.seed is None:
            raise InvalidParameter("seed", "given when reproducible is true", None)
        if not self.reproducible and self.seed is not None:
            raise InvalidParameter("seed", "absent unless reproducible is true (private noise never comes from a user's seed)", self.seed)
        return self

    @classmethod
    def example(cls) -> Self:
        """Digits as phase pairs. Its hyper-parameters were tuned on this very, public data set, which no guarantee counts."""
        return cls(
            data=DataSpec(split_seed=0, test_fraction=0.2),
            model=ComplexMlp(hidden=(64,), activation="cardioid", head="real_part"),
            optimizer=Adam(learning_rate=0.005),
            privacy=PrivacyTarget(adjacency=Adjacency.ADD_REMOVE, unit="record", delta=1e-5, epsilon=4.0),
            clipping_bound=1.0,
            expected_batch_size=200,
            steps=400,
        )

    def plan(self) -> ExecutionPlan:
        facts = data_set_facts(self.data)
        if self.privacy.unit != facts.unit:
            # A row of one pair of images sold as one "patient" would be a claim nobody checked.
            raise InvalidParameter("privacy.unit", f"{facts.unit!r} (what one row of this data set is)", self.privacy.unit)
        sampling = PoissonSampling(records=facts.training_records, expected_batch_size=self.expected_batch_size)
        sensitivity = Sensitivity(l2=self.clipping_bound, adjacency=self.privacy.adjacency, unit=self.privacy.unit)
        multiplier = self.privacy.noise_multiplier
        if multiplier is None:
            assert self.privacy.epsilon is not None  # checked at construction: exactly one of the two
            unit_noise = Release(mechanism=ComplexGaussian(std=self.clipping_bound, sensitivity=sensitivity))
            run = Repeated(count=self.steps, event=PoissonSampled(probability=sampling.probability, event=unit_noise))
            multiplier = calibrate_scale(run, epsilon=self.privacy.epsilon, delta=self.privacy.delta)
        return ExecutionPlan(
            sampling=sampling,
            clipping=FlatClipping(bound=self.clipping_bound),
            mechanism=ComplexGaussian(std=multiplier * self.clipping_bound, sensitivity=sensitivity),
            steps=self.steps,
            delta=self.privacy.delta,
        )
