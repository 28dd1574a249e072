r"""The kinds of events, and what a tree of them says without being flattened."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple, Self, TypeAlias, cast, final, get_args

from pydantic import Field, Strict, model_validator

from zetadp.accountants.leaf import Draw, Leaf
from zetadp.mechanisms import AnyAccounted
from zetadp.mechanisms.base import DEFERRED, Adjacency, Count, PrivacyUnit, Probability, Value
from zetadp.mechanisms.declared.correlated import CorrelatedNoise
from zetadp.mechanisms.declared.runs import AnyRuns
from zetadp.mechanisms.errors import IncompatibleEvent, InvalidParameter
from zetadp.mechanisms.numerics.rounding import rounded_up

MAXIMUM_DEPTH = 64
"""The deepest accepted nesting: real events need 4, and a bound keeps every walk over the tree finite and cheap."""

LARGEST_NUMBER_OF_SHARES = 1000
"""Different shares of a contribution: each is a component of a mixture."""

_SUM_ERROR = 1e-12
"""Probabilities may sum to this much more than 1: they were rounded."""

LARGEST_GROUP = 10**6
"""Most units of the event that one unit of the guarantee may hold, over all nested groups."""


def _is_each_epoch(drawn: object) -> bool:
    """Whether it is what JSON leaves out."""
    return drawn == "each_epoch"


@final
class Release(Value):
    """One output of a mechanism on the whole data set, or what is declared of it."""

    kind: Literal["release"] = "release"
    mechanism: AnyAccounted


@final
class _Shape(NamedTuple):
    """Levels of a tree, its ``neighbourhood``, and why it has no guarantee at all, or None."""

    depth: int
    neighbourhood: tuple[Adjacency, PrivacyUnit] | None
    non_private_reason: str | None


class _Composite(Value):
    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        _ = self._shape
        return self

    @cached_property
    def _shape(self) -> _Shape:
        """Of what was made once and never changes: checked as soon as it is made, and looked up later."""
        deepest, named, reason = 1, None, None
        for part in children(self._event):
            deepest = max(deepest, depth(part))
            found, reason = neighbourhood(part), reason or non_private_reason(part)
            if named is None:
                named = found
            elif found is not None and found != named:
                first, second, what = (named[0], found[0], "adjacency") if found[0] != named[0] else (named[1], found[1], "unit")
                raise IncompatibleEvent(what, str(first), str(second))
        if deepest >= MAXIMUM_DEPTH:
            raise InvalidParameter("event", f"nested at most {MAXIMUM_DEPTH} deep", f"{deepest + 1} levels")
        if isinstance(self, Grouped) and named is not None:
            named = named[0], self.unit
        return _Shape(deepest + 1, named, reason)

    @property
    def _event(self) -> Event:
        return cast("Event", self)  # all of its subclasses are

    @cached_property
    def flattened(self) -> dict[str, Mapping[Leaf, int]]:
        """What ``flattening`` found once: an event never changes."""
        return {}


@final
class PoissonSampled(_Composite):
    """The event runs on a random subset: each record joins independently with ``probability``, in (0, 1].

    Of ``correlated_noise`` with a band it joins anew, by a coin of its own, at each of its turns.
    """

    kind: Literal["poisson_sampled"] = "poisson_sampled"
    probability: Probability
    event: Event


@final
class TruncatedPoissonSampled(_Composite):
    """As ``poisson_sampled``, but at most ``largest_batch`` records are used: a larger sample is cut to a uniform part of that size.

    Attributes:
      probability: with which each record joins the sample before it is cut; in (0, 1).
      largest_batch: records used at most.
      population_size: records in the largest data set whose records are protected: the more there are, the more often samples are cut.
      event: a release, or several of the same sample; not sampled in another way.
    """

    kind: Literal["truncated_poisson_sampled"] = "truncated_poisson_sampled"
    probability: Probability
    largest_batch: Count
    population_size: Count
    event: Event

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.probability == 1.0:
            raise InvalidParameter("probability", "below 1 (with 1 the sample has a fixed size: fixed_size_sampled)", self.probability)
        return self


@final
class RandomlyAllocated(_Composite):
    """The event runs ``steps`` times, and each record takes part in exactly one of them, chosen uniformly, each by itself (balls in bins).

    Of ``correlated_noise`` with a band: ``steps`` turns of a record in a row are an epoch, for which it draws one of ``steps`` places, and
    takes part in the turn of that place, if there is such a turn.

    Attributes:
      steps: of one epoch, 1 to 10^6.
      event: a release, or several of the same records; not sampled.
      drawn: of ``correlated_noise``: ``each_epoch``, or ``once``: the record draws one of ``steps`` bins for the whole run, and takes part
        in all of bin j's steps j, j + steps, j + 2 steps, ...; then the noise's ``min_separation`` is ``steps``.
    """

    kind: Literal["randomly_allocated"] = "randomly_allocated"
    steps: Annotated[int, Strict(), Field(ge=1, le=10**6)]
    event: Event
    drawn: Draw = Field(default="each_epoch", exclude_if=_is_each_epoch)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.drawn == "each_epoch":
            return self
        noise = self.event.mechanism if isinstance(self.event, Release) else None
        if not isinstance(noise, CorrelatedNoise):
            got = self.event.kind if noise is None else noise.kind
            raise InvalidParameter("drawn", "each_epoch, but for a release of correlated_noise, which holds all epochs", got)
        if noise.min_separation != self.steps:
            expected = f"the noise's min_separation, {noise.min_separation}: a record is in every steps-th step from its bin's on"
            raise InvalidParameter("steps", expected, self.steps)
        return self


@final
class Shuffled(_Composite):
    """An epoch: all records, in a uniformly random order, are cut into ``steps`` batches of public sizes; the event runs once on each.

    No amplification by the order is proved: the guarantee is that of one whole release an epoch. Fields as in ``randomly_allocated``.
    """

    kind: Literal["shuffled"] = "shuffled"
    steps: Annotated[int, Strict(), Field(ge=1, le=10**6)]
    event: Event


@final
class RandomlyWeighted(_Composite):
    """The event runs on data in which each record, by itself, has a random, secret share of its contribution, or none.

    Attributes:
      shares: of what one record adds at most, in every norm; ascending, in (0, 1].
      probabilities: with which a record adds at most each of these shares; with what they leave of 1 it adds nothing. If they sum to 1, the
        first is what the others leave.
      event: a release of Gaussian or Laplace noise, or several of the same data; not sampled in another way.
    """

    kind: Literal["randomly_weighted"] = "randomly_weighted"
    shares: Annotated[tuple[Probability, ...], Field(min_length=1, max_length=LARGEST_NUMBER_OF_SHARES)]
    probabilities: Annotated[tuple[Probability, ...], Field(min_length=1, max_length=LARGEST_NUMBER_OF_SHARES)]
    event: Event

    @model_validator(mode="after")
    def _check(self) -> Self:
        if any(not a < b for a, b in pairwise(self.shares)):
            raise InvalidParameter("shares", "ascending", self.shares)
        if len(self.probabilities) != len(self.shares):
            raise InvalidParameter("probabilities", f"as many as shares, {len(self.shares)}", len(self.probabilities))
        # Where they sum to more than 1 by rounding, the first has less, and something is left of it.
        if not (math.fsum(self.probabilities) <= 1.0 + _SUM_ERROR and sum(map(Fraction, self.probabilities[1:]), Fraction(0)) < 1):
            raise InvalidParameter("probabilities", "at most 1 in all", math.fsum(self.probabilities))
        return self

    @property
    def probability(self) -> float:
        """That one record adds anything, rounded up."""
        return rounded_up(min(sum(map(Fraction, self.probabilities), Fraction(0)), Fraction(1)))


@final
class FixedSizeSampled(_Composite):
    """The event runs on a random subset of a fixed, public size: ``sample_size`` records out of all, uniformly, without replacement.

    Attributes:
      sample_size: records in the sample.
      population_size: records in the smallest data set whose records are protected; >= sample_size.
      event: a release, or several of the same sample; not sampled in another way.
    """

    kind: Literal["fixed_size_sampled"] = "fixed_size_sampled"
    sample_size: Count
    population_size: Count
    event: Event

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.sample_size > self.population_size:
            raise InvalidParameter("sample_size", f"at most population_size = {self.population_size}", self.sample_size)
        return self

    @property
    def probability(self) -> float:
        """sample_size / population_size, rounded up: the probability that one record is in the sample."""
        return rounded_up(Fraction(self.sample_size, self.population_size))


@final
class Grouped(_Composite):
    """The same event, with the guarantee stated for a larger unit that holds at most ``size`` of the event's units.

    For example, users who contribute at most 20 records each. Sampling still takes single records: records join one by one.

    Attributes:
      size: the bound; 1 to 10^6. It must be enforced on the data, for every unit.
      unit: the larger unit, by its own name.
    """

    kind: Literal["grouped"] = "grouped"
    size: Annotated[int, Strict(), Field(ge=1, le=LARGEST_GROUP)]
    unit: PrivacyUnit
    event: Event

    @model_validator(mode="after")
    def _check(self) -> Self:
        inner = neighbourhood(self.event)
        if inner is not None and inner[1] == self.unit:
            raise InvalidParameter("grouped.unit", f"a unit other than the event's own, {inner[1]!r}", self.unit)
        return self


@final
class Repeated(_Composite):
    """The event runs ``count`` times with fresh randomness, adaptively; 1 to 10^12 times."""

    kind: Literal["repeated"] = "repeated"
    count: Count
    event: Event


@final
class RepeatedAndSelected(_Composite):
    """The event runs K times, and only the best run's output is released: private selection, such as a search for hyper-parameters.

    Every run is of the same event on the same data, with fresh randomness (what is tried is drawn afresh in each run, or is part of the
    event). The best one has the highest score, computed from its output alone. K is drawn beforehand, and neither it nor anything of the
    other runs is released.

    Attributes:
      runs: the law of K.
      event: one run.
    """

    kind: Literal["repeated_and_selected"] = "repeated_and_selected"
    runs: AnyRuns
    event: Event


@final
class Composed(_Composite):
    """All of the events run, adaptively, in any order; 1 to 10000 of them."""

    kind: Literal["composed"] = "composed"
    events: Annotated[tuple[Event, ...], Field(min_length=1, max_length=10_000)]


@final
class NonPrivate(Value):
    """Something without a guarantee was done: then the whole event has none."""

    kind: Literal["non_private"] = "non_private"
    reason: str = Field(min_length=1, max_length=1000)


Sampled: TypeAlias = PoissonSampled | TruncatedPoissonSampled | FixedSizeSampled | RandomlyAllocated | Shuffled | RandomlyWeighted
Event = Annotated[Release | Sampled | Grouped | Repeated | RepeatedAndSelected | Composed | NonPrivate, Field(discriminator="kind")]

if not DEFERRED:
    for _model in (*get_args(Sampled), Grouped, Repeated, RepeatedAndSelected, Composed):
        _model.model_rebuild()


def depth(event: Event) -> int:
    """Levels of the tree; a release has 1."""
    return event._shape.depth if isinstance(event, _Composite) else 1  # pyright: ignore[reportPrivateUsage]


def children(event: Event) -> tuple[Event, ...]:
    """The direct parts of an event."""
    match event:
        case Release() | NonPrivate():
            return ()
        case Composed():
            return event.events
        case _:
            return (event.event,)


def neighbourhood(event: Event) -> tuple[Adjacency, PrivacyUnit] | None:
    """Adjacency and unit of the whole event (parts always agree); None if only ``non_private`` parts exist."""
    if isinstance(event, Release):
        return event.mechanism.neighbours
    return None if isinstance(event, NonPrivate) else event._shape.neighbourhood  # pyright: ignore[reportPrivateUsage]


def non_private_reason(event: Event) -> str | None:
    """Why the event has no guarantee at all, or None."""
    if isinstance(event, NonPrivate):
        return event.reason
    return event._shape.non_private_reason if isinstance(event, _Composite) else None  # pyright: ignore[reportPrivateUsage]
