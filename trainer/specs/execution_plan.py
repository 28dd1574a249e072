r"""The execution plan: the one object that training runs from and whose event is accounted.

The loop draws its samples from ``sampling``, clips with ``clipping`` and releases through ``mechanism``; ``event`` is computed from
exactly these parts, so there is no second sigma anywhere.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal, Self, final

from pydantic import Field, Strict, model_validator

from zetadp.accountants.events import Composed, Event, Release, Repeated
from zetadp.mechanisms import AnyMechanism, ComplexGaussian, Gaussian, Laplace
from zetadp.mechanisms.base import Adjacency, Count, OpenProbability, Positive, PrivacyUnit, Sensitivity, Value, is_absent
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.specs.algorithms.aggregation import SecureAggregation
from zetadp.trainer.specs.descent import FallingSchedule
from zetadp.trainer.specs.plan_base import Plan
from zetadp.trainer.specs.projection import MOST_LAYERS, LayerName, SpectralProjection
from zetadp.trainer.specs.sampling import FederatedSampling, InTurns, Sampling
from zetadp.trainer.specs.strategy import AnyStrategy, Strategy

SMALLEST_BOUND, LARGEST_BOUND = 1e-10, 1e30
# Gradients are float32: outside this range so much of their squares vanishes or overflows that clipping misses the bound (clipped_sum.md).
ClippingBound = Annotated[float, Strict(), Field(ge=SMALLEST_BOUND, le=LARGEST_BOUND, allow_inf_nan=False)]


class ClippingRule(Value, ABC):
    """How one unit's gradient is bounded."""

    norm: ClassVar[Literal["l1", "l2"]] = "l2"
    """The norm that is bounded."""
    IN_BOUNDS: ClassVar[bool] = False
    """Whether a step releases in units of its own bound, so that a unit moves what is released by at most 1 in each."""

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """The most that one unit moves the released vector, in that norm."""


@final
class FlatClipping(ClippingRule):
    """Each unit's whole gradient, as one vector of real pairs, is scaled down to l2 norm ``bound`` where it is longer."""

    kind: Literal["flat"] = "flat"
    bound: ClippingBound

    @property
    def sensitivity(self) -> float:
        """l2 norm that one unit moves the released vector by, at most."""
        return self.bound


@final
class PerLayerClipping(ClippingRule):
    """Each layer's part of a unit's gradient is scaled down to norm bound / sqrt(layers): the whole then has at most norm ``bound``."""

    kind: Literal["per_layer"] = "per_layer"
    bound: ClippingBound

    @property
    def sensitivity(self) -> float:
        """l2 norm that one unit moves the released vector by, at most: sqrt(layers * bound^2 / layers)."""
        return self.bound


@final
class AdaptiveClipping(ClippingRule):
    r"""Flat clipping to a bound C_t that follows a quantile of the units' gradient norms, privately (Andrew et al. 2021).

    One vector is released in each step, with s = ``count_share`` and b_i = 1 where unit i's norm is at most C_t, else 0:

        [ sqrt(1 - s) * (sum of clipped gradients) / C_t ;  sqrt(s) * 2 * sum_i (b_i - 1/2) ].

    A unit's part has l2 norm at most sqrt((1 - s) + s) = 1, whatever C_t is, so ``mechanism`` covers both with one release. Then
    C_{t+1} = C_t exp(-learning_rate (f - quantile)), f = 1/2 + (noisy count / (2 sqrt(s))) / expected batch: post-processing.

    Attributes:
      initial_bound: C_1.
      quantile: the quantile of the norms that C_t moves to; in (0, 1).
      learning_rate: > 0.
      count_share: s, the share of the budget (of the squared sensitivity) that the count takes; in (0, 1).
    Sources: Andrew, Thakkar, McMahan and Ramaswamy 2021, Algorithm 1; the joint vector makes their two noises one.
    """

    IN_BOUNDS = True

    kind: Literal["adaptive"] = "adaptive"
    initial_bound: ClippingBound
    quantile: OpenProbability
    learning_rate: Positive
    count_share: OpenProbability

    @property
    def bound(self) -> float:
        """The first step's bound."""
        return self.initial_bound

    @property
    def sensitivity(self) -> float:
        """l2 norm that one unit moves the released vector by, at most."""
        return 1.0


@final
class ScheduledClipping(ClippingRule):
    r"""Flat clipping to a bound B_t that is a public function of the step: initial_bound times the schedule's factor.

    Step t releases (sum of clipped gradients) / B_t, which one unit moves by at most 1, so that the noise on the sum is B_t times the
    mechanism's, and every step costs the same. Multiplying by B_t afterwards is post-processing.

    Attributes:
      initial_bound: B_1.
      schedule: of the bound; never rises.
      steps: of the whole run, over which the schedule is, also where a run ends before.
    Raises:
      ValidationError: the last step's bound is below 1e-10.
    """

    IN_BOUNDS = True

    kind: Literal["scheduled"] = "scheduled"
    initial_bound: ClippingBound
    schedule: FallingSchedule
    steps: Count

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.bound_in(self.steps) >= SMALLEST_BOUND:
            raise InvalidParameter("clipping.schedule", f"one whose bounds are at least {SMALLEST_BOUND}", self.bound_in(self.steps))
        return self

    def bound_in(self, step: int) -> float:
        """B_t of the step, from 1; after the last it stays."""
        return self.initial_bound * self.schedule.factor(min(step, self.steps), self.steps)

    @property
    def bound(self) -> float:
        """The first step's bound, the largest."""
        return self.bound_in(1)

    @property
    def sensitivity(self) -> float:
        """l2 norm that one unit moves the released vector by, at most."""
        return 1.0


@final
class LayerBound(Value):
    """One layer's part of a unit's gradient is scaled down to l2 norm ``bound`` where it is longer."""

    layer: LayerName
    bound: ClippingBound


@final
class LayerBoundsClipping(ClippingRule):
    r"""Each layer has its own bound C_l: the whole then has at most norm C = sqrt(sum C_l^2), which the noise is for (errata P15).

    Attributes:
      layers: every trained layer of the network, in its order.
    Raises:
      ValidationError: a layer is named twice.
    """

    kind: Literal["layer_bounds"] = "layer_bounds"
    layers: Annotated[tuple[LayerBound, ...], Field(min_length=1, max_length=MOST_LAYERS)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.names)) != len(self.names):
            raise InvalidParameter("clipping.layers", "a list that names each layer once", list(self.names))
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the layers."""
        return tuple(layer.layer for layer in self.layers)

    @property
    def bound(self) -> float:
        """C, rounded up: a bound on the norm of a unit's whole gradient."""
        # hypot is correct to one unit in the last place.
        return math.nextafter(math.hypot(*(layer.bound for layer in self.layers)), math.inf)

    @property
    def sensitivity(self) -> float:
        """l2 norm that one unit moves the released vector by, at most."""
        return self.bound


@final
class L1Clipping(ClippingRule):
    """Each unit's whole gradient is scaled down to l1 norm ``bound`` where it is longer: for Laplace noise."""

    norm = "l1"

    kind: Literal["l1"] = "l1"
    bound: ClippingBound

    @property
    def sensitivity(self) -> float:
        """l1 norm of what one unit contributes to the released vector, at most."""
        return self.bound


Clipping = Annotated[
    FlatClipping | PerLayerClipping | AdaptiveClipping | ScheduledClipping | LayerBoundsClipping | L1Clipping, Field(discriminator="kind")
]


def clipped_sensitivity(clipping: Clipping, adjacency: Adjacency, unit: PrivacyUnit) -> Sensitivity:
    r"""The sensitivity of a sum of clipped terms, one for each unit.

    Adding or removing a unit moves it by that unit's term; under replace_one two terms differ by at most twice the bound, and Poisson
    samples, which leave a unit out, need the bound of one term too.
    """
    bound, replaces = clipping.sensitivity, adjacency is Adjacency.REPLACE_ONE
    move, contribution = (2.0 * bound, bound) if replaces else (bound, None)
    if clipping.norm == "l1":
        return Sensitivity(l1=move, l1_contribution=contribution, adjacency=adjacency, unit=unit)
    return Sensitivity(l2=move, l2_contribution=contribution, adjacency=adjacency, unit=unit)


@final
class PrivateEvaluation(Value):
    r"""The number of correctly classified held-out units, released with noise every ``every_steps`` steps and after the last one.

    One held-out unit changes the count by at most 1, so ``mechanism`` has l2 sensitivity 1; the divisor ``units`` is public.

    Attributes:
      mechanism: real Gaussian noise of its ``std`` on the count.
      units: held-out units, each of one record.
      every_steps: >= 1.
    """

    mechanism: Gaussian
    units: Count
    every_steps: Count

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.mechanism.sensitivity.l2 != 1.0:
            raise InvalidParameter(
                "evaluation.mechanism.sensitivity.l2", "1.0 (one unit changes a count by 1)", self.mechanism.sensitivity.l2
            )
        return self

    def is_due(self, step: int, steps: int) -> bool:
        """Whether a count is released after ``step`` of ``steps``."""
        return step % self.every_steps == 0 or step == steps

    def releases(self, step: int, steps: int) -> int:
        """Counts released up to and including ``step`` of ``steps``."""
        return step // self.every_steps + (1 if step == steps and steps % self.every_steps else 0)


@final
class ExecutionPlan(Plan):
    """What training does, step by step; ``event`` is what it costs.

    Attributes:
      mechanism: the mechanism that releases every noisy sum; its sensitivity is the clipping's.
      steps: how many noisy sums are released; in a federation, by each node.
      delta: the delta at which epsilon is reported.
      evaluation: the budgeted releases about held-out units; None where there are none.
      projection: which coordinates of the gradient are released; None for all of them.
      strategy: how the noise is correlated along the steps; None for independent noise. With bands, the releases in which a unit's turn
        shows are together one release of ``mechanism``; with buffers all releases of the run are.
      aggregation: of a federation whose nodes' vectors become known as their sum alone: then ``mechanism`` is what the least number of
        honest nodes' shares are together (proofs/shared_noise.md); None where every node adds its whole noise.
    """

    kind: Literal["noisy_sums"] = "noisy_sums"
    sampling: Sampling
    clipping: Clipping
    mechanism: Annotated[ComplexGaussian | Gaussian | Laplace, Field(discriminator="kind")]
    steps: Count
    delta: OpenProbability
    # Left out of JSON where absent: certificates stay short.
    evaluation: PrivateEvaluation | None = Field(default=None, exclude_if=is_absent)
    projection: SpectralProjection | None = Field(default=None, exclude_if=is_absent)
    strategy: AnyStrategy | None = Field(default=None, exclude_if=is_absent)
    aggregation: SecureAggregation | None = Field(default=None, exclude_if=is_absent)

    @model_validator(mode="after")
    def _check(self) -> Self:
        stated = self.mechanism.sensitivity
        needed = clipped_sensitivity(self.clipping, stated.adjacency, stated.unit)
        if isinstance(self.mechanism, Laplace) != (self.clipping.norm == "l1"):
            raise InvalidParameter("mechanism", "laplace if and only if the clipping norm is l1", self.mechanism.kind)
        what = "the sensitivity in units of the step's bound," if self.clipping.IN_BOUNDS else "the clipping bound"
        for name in ("l2", "l1", "l2_contribution", "l1_contribution"):
            if getattr(needed, name) is not None and getattr(stated, name) != getattr(needed, name):
                raise InvalidParameter(f"mechanism.sensitivity.{name}", f"{what} {getattr(needed, name)!r}", getattr(stated, name))
        bounded = self.clipping.names if isinstance(self.clipping, LayerBoundsClipping) else None
        filtered = [] if self.projection is None else [layer.layer for layer in self.projection.layers]
        if bounded is not None and not set(filtered) <= set(bounded):
            raise InvalidParameter("projection.layers", f"among the layers that have a bound, {list(bounded)}", filtered)
        if isinstance(self.clipping, ScheduledClipping) and self.steps > self.clipping.steps:
            raise InvalidParameter("steps", f"<= {self.clipping.steps}, those of the bound's schedule", self.steps)
        if self.strategy is not None:
            _check_strategy(self.strategy, self.sampling, self.mechanism, self.steps)
        if self.aggregation is not None:
            self._check_aggregation(self.aggregation)
        _ = self.event  # an evaluation for another unit or adjacency doesn't compose
        return self

    def _check_aggregation(self, aggregation: SecureAggregation) -> None:
        """Raises InvalidParameter where proofs/shared_noise.md doesn't cover the plan."""
        if not isinstance(self.sampling, FederatedSampling):
            raise InvalidParameter("sampling", "federated_poisson with secure aggregation", self.sampling.kind)
        aggregation.check(self.sampling.nodes)
        if not _is_circular(self.mechanism):
            raise InvalidParameter("mechanism", "gaussian, or circular complex_gaussian, with secure aggregation", self.mechanism.kind)
        if self.clipping.IN_BOUNDS:
            raise InvalidParameter("clipping", "of a bound that stays the same, with secure aggregation", self.clipping.kind)

    @property
    def mechanisms(self) -> tuple[AnyMechanism, ...]:
        """The mechanisms of the noisy sums, and of the counts if there are any."""
        return (self.mechanism,) if self.evaluation is None else (self.mechanism, self.evaluation.mechanism)

    @property
    def unit(self) -> PrivacyUnit:  # pyright: ignore[reportIncompatibleVariableOverride] (see ``Stated``)
        """The unit of privacy, one of which the guarantee protects."""
        return self.mechanism.sensitivity.unit

    @property
    def units(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride] (see ``Stated``)
        """Units of privacy in the training data, the number that the probability was computed from."""
        return self.sampling.records

    @property
    def noise_std(self) -> float:
        """Standard deviation of each real component of what is released; Laplace's scale b."""
        return self.mechanism.noise_scale

    @property
    def counts(self) -> PrivateEvaluation | None:
        return self.evaluation

    @property
    def initial_bound(self) -> float:
        return self.clipping.bound

    @property
    def sampling_probability(self) -> float:
        return self.sampling.probability

    @property
    def declared_units(self) -> int | None:
        return self.sampling.records if self.sampling.is_declared else None

    def cut_to(self, steps: int) -> ExecutionPlan:
        """The plan of a run that ends after so many of its steps, >= 1: what a run that stopped early did release."""
        # A buffered strategy for more steps has the smaller weight, which serves fewer.
        return self if steps == self.steps else ExecutionPlan.model_validate(dict(self) | {"steps": steps})

    def event_after(self, steps: int) -> Event:
        r"""The event of the first ``steps`` steps, >= 1, for the worst placed unit.

        With private evaluations it is both, composed. A training unit is touched by the noisy sums alone: given those, the counts are
        functions of others' data. A held-out unit is touched by the counts alone. Whichever unit it is, its loss is at most that of
        all the releases together.
        """
        release = Release(mechanism=self.mechanism)
        training = self.sampling.event(release, steps)
        if self.strategy is not None and self.strategy.is_one_release:
            training = release
        counts = 0 if self.evaluation is None else self.evaluation.releases(steps, self.steps)
        if self.evaluation is None or counts == 0:
            return training
        return Composed(events=(training, Repeated(count=counts, event=Release(mechanism=self.evaluation.mechanism))))


def _check_strategy(strategy: Strategy, sampling: Sampling, mechanism: AnyMechanism, steps: int) -> None:
    """Raises InvalidParameter where proofs/banded_sums.md doesn't cover the strategy."""
    least = strategy.least_groups
    if not isinstance(sampling, InTurns) or sampling.groups < least:
        got = f"{sampling.kind} with {sampling.groups} groups" if isinstance(sampling, InTurns) else sampling.kind
        raise InvalidParameter(
            "sampling", f"of a minimum separation, cyclic_poisson or cyclic_allocation with at least {least} groups", got
        )
    strategy.check(steps, sampling.groups)
    if not _is_circular(mechanism):
        raise InvalidParameter("mechanism", "gaussian, or circular complex_gaussian, for correlated noise", mechanism.kind)


def _is_circular(mechanism: AnyMechanism) -> bool:
    """Whether all real components of what is released have the same normal noise, independent of each other."""
    return mechanism.is_circular if isinstance(mechanism, ComplexGaussian) else isinstance(mechanism, Gaussian)
