r"""THE UNION of plans: what every kind of training releases, and the event that is accounted for it. Free of torch.

An ``ExecutionPlan`` releases a noisy sum in every step, a ``SelectionPlan`` the best of several runs of such a plan. The plans here
release once, release nothing private, or are several plans in sequence. ``Plan`` says what they have in common.
"""

# pyright: reportIncompatibleVariableOverride=false
# What is a field of one plan is a property of another: see ``Stated``.

from __future__ import annotations

from typing import Annotated, Literal, Self, final

from pydantic import Field, StringConstraints, model_validator

from zetadp.accountants.events import Composed, Event, Grouped, NonPrivate, Release, Repeated, neighbourhood
from zetadp.mechanisms import AnyMechanism, DuchiLinf, Gaussian, Laplace, LocalGaussian, LocalLaplace
from zetadp.mechanisms.base import Adjacency, Count, OpenProbability, Positive, PrivacyUnit, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.specs.algorithms.selection_plan import SelectionPlan
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.plan_base import PartName, Plan, SingleReleasePlan


@final
class RecordReleasePlan(SingleReleasePlan):
    r"""Every training record is released once, separately, by a local mechanism; all training is post-processing of that.

    Attributes:
      mechanism: the mechanism for one record; its unit is what one row is.
      records: rows of the training data; all are released except those that ``records_per_unit`` leaves out.
      units: the number of units of privacy: rows, or users whose rows they are.
      unit: the unit of privacy, one of which the guarantee protects.
      records_per_unit: the most rows of one unit that are released; 1 if a unit is a row.
      steps: steps of post-processing; they cost nothing.
      delta: the delta at which epsilon is reported; a pure guarantee holds at any.
    Raises:
      ValidationError: several records of a unit that is one row.
    """

    kind: Literal["record_release"] = "record_release"
    mechanism: Annotated[LocalLaplace | LocalGaussian | DuchiLinf, Field(discriminator="kind")]
    records: Count
    units: Count
    unit: PrivacyUnit
    records_per_unit: Count
    steps: Count
    delta: OpenProbability

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.unit == self.mechanism.sensitivity.unit) and self.records_per_unit != 1:
            raise InvalidParameter("records_per_unit", f"1 where the unit is one row ({self.unit!r})", self.records_per_unit)
        _ = self.event  # groups have a largest size
        return self

    @property
    def mechanisms(self) -> tuple[AnyMechanism, ...]:
        """The single mechanism of all records."""
        return (self.mechanism,)

    @property
    def noise_std(self) -> float:
        """The mechanism's noise scale."""
        return self.mechanism.noise_scale

    @property
    def event(self) -> Event:
        """One release of each record; each of a unit's records counts as a release of that unit."""
        release = Release(mechanism=self.mechanism)
        return (
            release if self.unit == self.mechanism.sensitivity.unit else Grouped(size=self.records_per_unit, unit=self.unit, event=release)
        )

    @property
    def allows_half_precision(self) -> bool:
        return False


@final
class StatisticReleasePlan(SingleReleasePlan):
    r"""One noisy vector of sums over all records is released once; all training is post-processing of it (the functional mechanism).

    Attributes:
      mechanism: additive noise on the vector; its sensitivity is the bound on what one unit changes.
      numbers: coordinates of the vector.
      units: the number of units of privacy in the training data.
      steps: steps of post-processing; they cost nothing.
      delta: the delta at which epsilon is reported.
    """

    kind: Literal["statistic_release"] = "statistic_release"
    mechanism: Annotated[Laplace | Gaussian, Field(discriminator="kind")]
    numbers: Count
    units: Count
    steps: Count
    delta: OpenProbability

    @property
    def mechanisms(self) -> tuple[AnyMechanism, ...]:
        """The vector's mechanism."""
        return (self.mechanism,)

    @property
    def unit(self) -> PrivacyUnit:
        """What the guarantee protects one of."""
        return self.mechanism.sensitivity.unit

    @property
    def noise_std(self) -> float:
        """The mechanism's noise scale."""
        return self.mechanism.noise_scale

    @property
    def event(self) -> Event:
        """One release."""
        return Release(mechanism=self.mechanism)

    @property
    def allows_half_precision(self) -> bool:
        return False


@final
class FeatureReleasePlan(SingleReleasePlan):
    r"""Every held-out record's clipped feature is released ``queries`` times, each with fresh Gaussian noise; all else is post-processing.

    The network that computes the feature was trained on other, public records. Turning a noisy feature by an angle, adding a public
    counterpart to it, and processing it in a cloud cost nothing and earn nothing.

    Attributes:
      mechanism: the mechanism of one query; its sensitivity is 2 C under replace_one.
      clipping_norm: C, the largest l2 norm of a feature.
      records: held-out records that are encoded; the units of privacy.
      queries: encodings of each record.
      steps: steps of training on the public records; they cost the protected ones nothing.
      delta: the delta at which epsilon is reported.
    Raises:
      ValidationError: a sensitivity other than 2 C, or another adjacency.
    """

    kind: Literal["feature_release"] = "feature_release"
    mechanism: Gaussian
    clipping_norm: Positive
    records: Count
    queries: Count
    steps: Count
    delta: OpenProbability

    @model_validator(mode="after")
    def _check(self) -> Self:
        stated = self.mechanism.sensitivity
        if stated.adjacency is not Adjacency.REPLACE_ONE:
            raise InvalidParameter("mechanism.sensitivity.adjacency", "replace_one", stated.adjacency.value)
        if stated.l2 != 2.0 * self.clipping_norm:
            raise InvalidParameter("mechanism.sensitivity.l2", f"2 C = {2.0 * self.clipping_norm!r}", stated.l2)
        return self

    @property
    def mechanisms(self) -> tuple[AnyMechanism, ...]:
        """The mechanism of every query."""
        return (self.mechanism,)

    @property
    def unit(self) -> PrivacyUnit:
        """What the guarantee protects one of."""
        return self.mechanism.sensitivity.unit

    @property
    def units(self) -> int:
        """The number of held-out records."""
        return self.records

    @property
    def noise_std(self) -> float:
        """The noise on each coordinate of a released feature."""
        return self.mechanism.noise_scale

    @property
    def event(self) -> Event:
        """The event for one record: its queries."""
        return Repeated(count=self.queries, event=Release(mechanism=self.mechanism))

    @property
    def protects_held_out(self) -> bool:
        return True

    @property
    def allows_half_precision(self) -> bool:
        return False


@final
class UnprotectedPlan(SingleReleasePlan):
    r"""A training without any guarantee: a baseline, or an algorithm as printed that isn't private.

    Attributes:
      reason: why nothing is guaranteed, as the certificate states it.
      unit, units: what the data are about, and how many of them there are.
      steps: steps of the training.
      delta: without meaning here; every plan has one.
    """

    kind: Literal["unprotected"] = "unprotected"
    reason: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1000)]
    unit: PrivacyUnit
    units: Count
    steps: Count
    delta: OpenProbability

    @property
    def mechanisms(self) -> tuple[AnyMechanism, ...]:
        """No mechanism about which anything is claimed."""
        return ()

    @property
    def noise_std(self) -> float:
        """0: no noise about which anything is claimed."""
        return 0.0

    @property
    def event(self) -> Event:
        """An event without any guarantee."""
        return NonPrivate(reason=self.reason)

    @property
    def is_protected(self) -> bool:
        return False


PartPlan = Annotated[
    ExecutionPlan | RecordReleasePlan | StatisticReleasePlan | FeatureReleasePlan | UnprotectedPlan, Field(discriminator="kind")
]


@final
class ComparedPlan(Value):
    """One training of a comparison."""

    name: PartName
    plan: PartPlan


@final
class ComparisonPlan(Plan):
    r"""Several trainings on the same data, one after the other: the guarantee is for the cost of all of them together.

    Attributes:
      parts: trainings with different names, one unit of privacy and one delta.
    Raises:
      ValidationError: two parts have the same name, or different units or deltas.
    """

    kind: Literal["comparison"] = "comparison"
    parts: Annotated[tuple[ComparedPlan, ...], Field(min_length=1, max_length=256)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [part.name for part in self.parts]
        if len(set(names)) != len(names):
            raise InvalidParameter("parts", "trainings with different names", names)
        for what in ("unit", "units", "delta"):
            # A part that guarantees nothing guarantees nothing at any delta.
            counted = (part for part in self.parts if what != "delta" or part.plan.is_protected)
            found = list(dict.fromkeys(getattr(part.plan, what) for part in counted))
            if len(found) > 1:
                raise InvalidParameter(f"parts.{what}", "the same in all parts", found)
        return self

    @property
    def compared(self) -> tuple[ComparedPlan, ...]:
        return self.parts

    @property
    def mechanisms(self) -> tuple[AnyMechanism, ...]:
        """The mechanisms of all parts, each once."""
        return tuple(dict.fromkeys(one for part in self.parts for one in part.plan.mechanisms))

    @property
    def unit(self) -> PrivacyUnit:
        """What the guarantee protects one of."""
        return self.parts[0].plan.unit

    @property
    def units(self) -> int:
        """Units of privacy in the training data."""
        return self.parts[0].plan.units

    @property
    def delta(self) -> float:
        """The delta at which epsilon is reported."""
        deltas = (part.plan.delta for part in self.parts if part.plan.is_protected)
        return next(deltas, self.parts[0].plan.delta)

    @property
    def steps(self) -> int:
        """The steps of all parts."""
        return sum(part.plan.steps for part in self.parts)

    @property
    def noise_std(self) -> float:
        """0: every part has its own."""
        return 0.0

    @property
    def declared_units(self) -> int | None:
        found = {part.plan.declared_units for part in self.parts}
        return found.pop() if len(found) == 1 else None

    @property
    def event(self) -> Event:
        """All parts composed; nothing is claimed if parts have different notions of neighbours."""
        return _composed(tuple(part.plan.event for part in self.parts))

    def event_after(self, steps: int) -> Event:
        """The event of the parts that the first ``steps`` steps, >= 1, belong to; the last part counts as far as it has run."""
        events: list[Event] = []
        for part in self.parts:
            if steps <= 0:
                break
            events.append(part.plan.event_after(min(steps, part.plan.steps)))
            steps -= part.plan.steps
        return _composed(tuple(events))


def _composed(events: tuple[Event, ...]) -> Event:
    meanings = {pair for event in events if (pair := neighbourhood(event)) is not None}
    if len(meanings) > 1:
        adjacencies = " and ".join(sorted({adjacency.value for adjacency, _ in meanings}))
        return NonPrivate(reason=f"the parts have different notions of neighbours ({adjacencies}), so their guarantees don't add up")
    return Composed(events=events)


AnyPlan = Annotated[
    ExecutionPlan | RecordReleasePlan | StatisticReleasePlan | FeatureReleasePlan | UnprotectedPlan | ComparisonPlan | SelectionPlan,
    Field(discriminator="kind"),
]
