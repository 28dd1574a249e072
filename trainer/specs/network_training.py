r"""The settings that all private trainings of a network on a data set share, and the plan that follows from them. Free of torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, final

from pydantic import Field, Strict

from zetadp.accountants import AutoAccountant
from zetadp.accountants.calibration import NoiseScale, Target, calibrate_scale, solve
from zetadp.mechanisms import ComplexGaussian, Gaussian, Sensitivity
from zetadp.mechanisms.base import OpenProbability, Positive, PrivacyUnit, Value, is_absent
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import DataSetFacts, data_set_facts
from zetadp.trainer.specs.algorithms.aggregation import SecureAggregation
from zetadp.trainer.specs.augmentation import Augmentation
from zetadp.trainer.specs.base import PositiveInt, PrivacyTarget, TrainingSpec
from zetadp.trainer.specs.descent import AnyOptimizer, CorrectedAdam, ExponentialAveraging, FallingSchedule
from zetadp.trainer.specs.execution_plan import (
    AdaptiveClipping,
    Clipping,
    ClippingBound,
    ExecutionPlan,
    FlatClipping,
    PerLayerClipping,
    PrivateEvaluation,
    ScheduledClipping,
    clipped_sensitivity,
)
from zetadp.trainer.specs.findings.runs import AnyAudit
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.named_networks import ModelSpec, given_weights_of
from zetadp.trainer.specs.models.shapes import check_model
from zetadp.trainer.specs.plan_base import Plan
from zetadp.trainer.specs.plans import AnyPlan
from zetadp.trainer.specs.projection import SpectralProjection
from zetadp.trainer.specs.report import HeldOut
from zetadp.trainer.specs.samplers import AnySampler, PoissonSampler, check_turns, is_poisson
from zetadp.trainer.specs.sampling import InTurns, Sampling
from zetadp.trainer.specs.strategy import AnyNoise, IndependentNoise, Strategy, is_independent
from zetadp.trainer.specs.units import check_split, check_split_rule, check_unit


@final
class FlatMethod(Value):
    """A unit's whole gradient is clipped as one vector; ``clipping_bound`` is its bound, in the first step where it has a ``schedule``."""

    kind: Literal["flat"] = "flat"
    schedule: FallingSchedule | None = Field(default=None, exclude_if=is_absent)

    def clipping(self, bound: float, steps: int) -> FlatClipping | ScheduledClipping:
        """What the plan carries."""
        if self.schedule is None:
            return FlatClipping(bound=bound)
        return ScheduledClipping(initial_bound=bound, schedule=self.schedule, steps=steps)


@final
class PerLayerMethod(Value):
    """Every layer is clipped separately, to clipping_bound / sqrt(layers): the whole keeps the bound ``clipping_bound``."""

    kind: Literal["per_layer"] = "per_layer"

    def clipping(self, bound: float, _steps: int) -> PerLayerClipping:
        """What the plan carries."""
        return PerLayerClipping(bound=bound)


@final
class AdaptiveMethod(Value):
    """A bound that starts at ``clipping_bound`` and follows a quantile of the norms, for ``count_share`` of the budget. See the plan."""

    kind: Literal["adaptive"] = "adaptive"
    quantile: OpenProbability
    learning_rate: Annotated[float, Strict(), Field(gt=0.0, le=10.0, allow_inf_nan=False)]
    count_share: OpenProbability

    def clipping(self, bound: float, _steps: int) -> AdaptiveClipping:
        """What the plan carries."""
        return AdaptiveClipping(initial_bound=bound, quantile=self.quantile, learning_rate=self.learning_rate, count_share=self.count_share)


@final
class NoEvaluation(Value):
    """Nothing about held-out people leaves the process."""

    kind: Literal["none"] = "none"


@final
class PublicHeldOut(Value):
    """The submitter of the job declares the held-out records public: metrics on them are streamed, outside the guarantee."""

    kind: Literal["public_held_out"] = "public_held_out"


@final
class PrivateAccuracy(Value):
    r"""Accuracy on private held-out records, from a noisy count that the budget pays for.

    Attributes:
      noise_std: standard deviation of the noise on the count of correct answers, in records.
      every_steps: a count is released after this many steps each, and after the last.
    """

    kind: Literal["private_accuracy"] = "private_accuracy"
    noise_std: Positive
    every_steps: PositiveInt


HELD_OUT: dict[str, HeldOut] = {"none": "none", "public_held_out": "public", "private_accuracy": "private"}
"""How an evaluation uses the held-out records."""


class SampledTraining(TrainingSpec, ABC):
    r"""A data set, a guarantee, and how each step's sum is bounded and sampled, whatever network it is of.

    Attributes:
      privacy: the requested guarantee. Its unit is what one row of the data set is, or the user whose rows they are.
      expected_batch_size: units expected in one sample.
      steps: the number of noisy gradients released.
      sampling: how each step's units are drawn; Poisson samples unless it says otherwise.
      noise: how the steps' noise is correlated; not at all unless it says otherwise. A noise multiplier is that of a unit's whole turn.
      records_per_user: for a guarantee for users, and only there: how many of a user's first records, in the data set's order, are used.
        Who else is in the data doesn't change them.
      declared_units: N, the assumed number of units of privacy in the training data: a public number, known without counting them. The
        sampling probability is expected_batch_size / N. None if the counted number is public.
      evaluation: how the held-out records are used.
      audit: made-up units that bound epsilon from below; None for none.
      (others): as in ``TrainingSpec``.
    """

    privacy: PrivacyTarget
    expected_batch_size: PositiveInt
    steps: PositiveInt
    sampling: AnySampler = Field(default=PoissonSampler(), exclude_if=is_poisson)
    noise: AnyNoise = Field(default=IndependentNoise(), exclude_if=is_independent)
    records_per_user: PositiveInt | None = None
    declared_units: PositiveInt | None = None
    evaluation: Annotated[NoEvaluation | PublicHeldOut | PrivateAccuracy, Field(discriminator="kind")] = NoEvaluation()
    # Left out of JSON where absent: most runs have none.
    audit: AnyAudit | None = Field(default=None, exclude_if=is_absent)

    def planned_sampling(self, units: int, *, is_declared: bool) -> Sampling:
        """How a step's sample is drawn from this many units. Raises InvalidParameter if it can't be."""
        self._check_audit()
        return self.sampling.planned(units, self.expected_batch_size, self.privacy.adjacency, is_declared=is_declared)

    def _check_audit(self) -> None:
        """Raises InvalidParameter for an audit that sampling or noise leave no room for."""
        if self.audit is not None and self.sampling.kind == "truncated_poisson":
            raise InvalidParameter("audit", "absent with truncated_poisson samples, which canaries would crowd", self.audit.canaries)
        if self.audit is not None and self.audit.kind == "marks":
            if self.sampling.kind == "fixed_size":
                raise InvalidParameter("audit", "canaries with samples of a fixed size, which marks would crowd", self.audit.kind)
            if self.noise.kind != "independent":
                raise InvalidParameter("audit", "canaries with correlated noise", self.audit.kind)

    @abstractmethod
    def planned_clipping(self, facts: DataSetFacts) -> Clipping:
        """How one unit's gradient is bounded. Raises InvalidParameter if the spec doesn't fit the network or the data."""

    def planned_projection(self, facts: DataSetFacts) -> SpectralProjection | None:
        """Which coordinates of the gradient are released; None for all. Raises as ``planned_clipping``."""
        del facts
        return None

    @property
    def held_out(self) -> HeldOut:
        return HELD_OUT[self.evaluation.kind]

    @property
    def records_per_unit(self) -> int | None:
        return self.records_per_user

    @property
    @abstractmethod
    def is_complex(self) -> bool:
        """Whether the network has complex parameters, and so its release complex noise."""

    @abstractmethod
    def check_network(self, facts: DataSetFacts) -> None:
        """Raises InvalidParameter if the network doesn't fit the data."""

    def protects_users(self, facts: DataSetFacts) -> bool:
        r"""Whether the unit of privacy is the user, not the record.

        Raises:
          InvalidParameter: the unit is neither, or ``records_per_user`` doesn't fit it.
        """
        unit = self.privacy.unit
        if unit == facts.unit:
            if self.records_per_user is not None:
                raise InvalidParameter("records_per_user", f"absent where the unit is one row ({facts.unit!r})", self.records_per_user)
            return False
        if facts.user_unit is None or unit != facts.user_unit:
            # Presenting a row with one pair of images as one "patient" would be a claim that nobody checked.
            raise InvalidParameter("privacy.unit", _units(facts.unit, facts.user_unit), unit)
        if self.records_per_user is None:
            raise InvalidParameter("records_per_user", f"given where the unit is {unit!r}, who may have several records", None)
        return True

    def units(self, facts: DataSetFacts) -> int:
        """The number of units of privacy in the training data, declared or counted. Raises as ``protects_users`` does."""
        protects_users = self.protects_users(facts)
        if self.declared_units is not None:
            return self.declared_units
        if not protects_users:
            return facts.training_records
        assert facts.users is not None  # a data set with a user unit counts its users
        if self.expected_batch_size > facts.users:
            expected = f"<= the {facts.users} units of privacy ({self.privacy.unit!r})"
            raise InvalidParameter("expected_batch_size", expected, self.expected_batch_size)
        return facts.users

    def check_request(self) -> None:
        super().check_request()
        check_unit(self.privacy.unit, self.records_per_user, self.data, "privacy.unit")
        check_split_rule(self.data.split_rule(), self.privacy.adjacency)
        self._check_audit()
        self.sampling.check(self.expected_batch_size)
        check_turns(self.noise, self.sampling, self.steps)
        if self.declared_units is not None:
            _ = self.planned_sampling(self.declared_units, is_declared=True)

    def check_fits(self, facts: DataSetFacts) -> None:
        self.check_network(facts)
        _ = self.plan_with(facts, self.planned_clipping(facts).sensitivity)

    def plan(self) -> ExecutionPlan:
        return self.plan_for(data_set_facts(self.data))

    def plan_for(self, facts: DataSetFacts) -> ExecutionPlan:
        multiplier = self.privacy.noise_multiplier
        self.check_network(facts)
        sensitivity = self.planned_clipping(facts).sensitivity
        if multiplier is not None:
            return self.plan_with(facts, multiplier * sensitivity)
        assert self.privacy.epsilon is not None  # checked at construction: exactly one of the two
        draft = self.plan_with(facts, sensitivity)
        return self.plan_with(facts, _calibrated(draft, self.privacy.epsilon) * sensitivity)

    def replanned(self, facts: DataSetFacts, plan: Plan) -> AnyPlan:
        if not isinstance(plan, ExecutionPlan):
            return self.plan_for(facts)
        multiplier = self.privacy.noise_multiplier
        return self.plan_with(facts, plan.noise_std if multiplier is None else multiplier * plan.clipping.sensitivity)

    def check_plan(self, plan: Plan, facts: DataSetFacts) -> None:
        """Raises InvalidParameter, naming the first part of the plan that differs from the spec's own plan."""
        # Noise calibrated to an epsilon isn't calibrated again here: whatever it is, the event states it.
        expected = dict(_fields("plan", self.replanned(facts, plan)))
        got = dict(_fields("plan", plan))
        for name in dict.fromkeys((*expected, *got)):
            if expected.get(name) == got.get(name):
                continue
            if name in expected and expected[name] is not None:
                raise InvalidParameter(name, f"{expected[name]!r}, as the spec says", got.get(name))
            # For example a bound that clipping doesn't enforce.
            raise InvalidParameter(name, "absent, as the spec says", got.get(name))

    @property
    def audited_by(self) -> AnyAudit | None:
        return self.audit

    @property
    def runs_alone(self) -> str | None:
        return None if self.audit is None else "a run with canaries"

    def plan_with(self, facts: DataSetFacts, noise_std: float) -> ExecutionPlan:
        """The plan with this noise per real component of what is released. Raises InvalidParameter if spec and data don't fit."""
        check_split(facts, self.privacy.adjacency)
        sampling = self.planned_sampling(self.units(facts), is_declared=self.declared_units is not None)
        self.check_network(facts)
        clipping = self.planned_clipping(facts)
        mechanism = ComplexGaussian if self.is_complex else Gaussian
        return ExecutionPlan(
            sampling=sampling,
            clipping=clipping,
            mechanism=mechanism(std=noise_std, sensitivity=clipped_sensitivity(clipping, self.privacy.adjacency, self.privacy.unit)),
            steps=self.steps,
            delta=self.privacy.delta,
            evaluation=self._evaluation(facts),
            projection=self.planned_projection(facts),
            strategy=self._strategy(sampling),
            aggregation=self.planned_aggregation,
        )

    @property
    def planned_aggregation(self) -> SecureAggregation | None:
        """How the sums of several nodes become known as one; None where each one's does."""
        return None

    def _strategy(self, sampling: Sampling) -> Strategy | None:
        groups = sampling.groups if isinstance(sampling, InTurns) else 1  # with other samples the plan refuses all but one
        return self.noise.planned(self.steps, groups)

    def _evaluation(self, facts: DataSetFacts) -> PrivateEvaluation | None:
        asked = self.evaluation
        if not isinstance(asked, PrivateAccuracy):
            return None
        if facts.task != "classification":
            raise InvalidParameter(
                "evaluation", "none or public_held_out for a reconstruction (accuracy counts correct classes)", asked.kind
            )
        if self.protects_users(facts):
            # The number of held-out records of one user isn't bounded.
            raise InvalidParameter("evaluation", f"none or public_held_out where the unit is {self.privacy.unit!r}", asked.kind)
        sensitivity = Sensitivity(l2=1.0, adjacency=self.privacy.adjacency, unit=self.privacy.unit)
        return PrivateEvaluation(
            mechanism=Gaussian(std=asked.noise_std, sensitivity=sensitivity), units=facts.test_records, every_steps=asked.every_steps
        )


class NetworkTraining(SampledTraining, ABC):
    r"""A network that its spec describes.

    Attributes:
      model: the network.
      augmentation: of the training records; None for the records as they are.
      averaging: of the parameters over the steps, for the model that comes out; None for the last step's.
      (others): as in ``SampledTraining``.
    """

    READS_SAMPLES: ClassVar[bool] = True

    model: ModelSpec
    augmentation: Augmentation | None = Field(default=None, exclude_if=is_absent)
    averaging: ExponentialAveraging | None = Field(default=None, exclude_if=is_absent)

    @property
    @abstractmethod
    def descent(self) -> AnyOptimizer:
        """The optimizer that uses the released gradients."""

    @property
    def is_complex(self) -> bool:
        return not isinstance(self.model, Sequential) or self.model.numbers == "complex"

    def check_network(self, facts: DataSetFacts) -> None:
        check_model(self.model, facts)
        if self.augmentation is not None:
            self.augmentation.check(facts)

    @property
    def given_weights(self) -> tuple[str, ...]:
        return given_weights_of(self.model)

    @property
    def averages(self) -> bool:
        return self.averaging is not None


class BoundedTraining(NetworkTraining, ABC):
    r"""A network's training with one bound for each unit's whole gradient.

    Attributes:
      clipping_bound: B, l2 norm over all parameters as real pairs; in [1e-30, 1e30]. For what it bounds, see ``clipping``.
      clipping: how B is used.
      (others): as in ``NetworkTraining``.
    """

    clipping_bound: ClippingBound
    clipping: Annotated[FlatMethod | PerLayerMethod | AdaptiveMethod, Field(discriminator="kind")] = FlatMethod()

    def check_request(self) -> None:
        super().check_request()
        # Where a schedule has no bound for every step this says so.
        clipping = self.clipping.clipping(self.clipping_bound, self.steps)
        if clipping.IN_BOUNDS and isinstance(self.descent, CorrectedAdam):
            expected = "flat or per_layer without a schedule for corrected_adam, which knows one standard deviation of the noise"
            raise InvalidParameter("clipping", expected, clipping.kind)

    def planned_clipping(self, facts: DataSetFacts) -> Clipping:
        del facts
        return self.clipping.clipping(self.clipping_bound, self.steps)


def _calibrated(draft: ExecutionPlan, epsilon: float) -> float:
    """The factor on the training noise that keeps the whole run, with unchanged evaluations, at or below epsilon."""
    if draft.evaluation is None:
        return calibrate_scale(draft.event, epsilon=epsilon, delta=draft.delta)
    target = Target(epsilon=epsilon, delta=draft.delta)
    return solve(draft.event, NoiseScale(at="/events/0"), target, AutoAccountant()).value


def _units(row: PrivacyUnit, user: PrivacyUnit | None) -> str:
    of_row = f"{row!r} (one row of this data set)"
    return of_row if user is None else f"{of_row} or {user!r} (whose rows they are)"


def _fields(path: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Value):
        for name in type(value).model_fields:
            yield from _fields(f"{path}.{name}", getattr(value, name))
    else:
        yield path, value
