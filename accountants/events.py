r"""What was done to the data, as a tree: mechanisms released, samplings, repetitions and compositions. Pure data.

An event says everything an accountant needs, and its meaning never changes. Accountants see it only through ``leaves``: a flat list of
(sampled release, how often), so none of them walks the tree or counts by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self, final

from pydantic import Field, PrivateAttr, model_validator

from mechanisms import AnyMechanism
from mechanisms.base import Adjacency, Count, PrivacyUnit, Probability, Value
from mechanisms.errors import IncompatibleEvent, InvalidParameter

MAXIMUM_DEPTH = 64
"""Deepest nesting accepted: real events need 4, and a bound keeps every walk over the tree finite and cheap."""

SMALLEST_PROBABILITY = 1e-50
"""Products of nested sampling probabilities are rounded up to this."""

LARGEST_COUNT = 10**15
"""Most releases in one event, over all nested repetitions."""


@final
class Release(Value):
    """One output of a mechanism on the whole data set."""

    kind: Literal["release"] = "release"
    mechanism: AnyMechanism


class _Composite(Value):
    _depth: int = PrivateAttr(default=1)

    def _check_parts(self, parts: tuple[Event, ...]) -> None:
        self._depth = 1 + max(depth(part) for part in parts)
        if self._depth > MAXIMUM_DEPTH:
            raise InvalidParameter("event", f"nested at most {MAXIMUM_DEPTH} deep", f"{self._depth} levels")
        common = [neighbourhood(part) for part in parts]
        named = [pair for pair in common if pair is not None]
        for pair in named[1:]:
            for what, first, second in zip(("adjacency", "unit"), named[0], pair, strict=True):
                if first != second:
                    raise IncompatibleEvent(what, str(first), str(second))


@final
class PoissonSampled(_Composite):
    """The event runs on a random subset: each record joins independently with ``probability``, in (0, 1]."""

    kind: Literal["poisson_sampled"] = "poisson_sampled"
    probability: Probability
    event: Event

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_parts((self.event,))
        return self


@final
class Repeated(_Composite):
    """The event runs ``count`` times with fresh randomness, adaptively; 1 to 10^12 times."""

    kind: Literal["repeated"] = "repeated"
    count: Count
    event: Event

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_parts((self.event,))
        return self


@final
class Composed(_Composite):
    """All of the events run, adaptively, in any order; 1 to 10000 of them."""

    kind: Literal["composed"] = "composed"
    events: Annotated[tuple[Event, ...], Field(min_length=1, max_length=10_000)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_parts(self.events)
        return self


@final
class NonPrivate(Value):
    """Something was done that has no guarantee: the whole event then has none."""

    kind: Literal["non_private"] = "non_private"
    reason: str = Field(min_length=1, max_length=1000)


Event = Annotated[Release | PoissonSampled | Repeated | Composed | NonPrivate, Field(discriminator="kind")]

for _model in (PoissonSampled, Repeated, Composed):
    _model.model_rebuild()


@final
class Leaf(Value):
    """A mechanism released once on a Poisson sample (``probability`` 1: on all of the data)."""

    probability: Probability
    mechanism: AnyMechanism


def depth(event: Event) -> int:
    """Levels of the tree; a release has 1."""
    return event._depth if isinstance(event, _Composite) else 1  # pyright: ignore[reportPrivateUsage]


def children(event: Event) -> tuple[Event, ...]:
    """The direct parts of an event."""
    match event:
        case PoissonSampled() | Repeated():
            return (event.event,)
        case Composed():
            return event.events
        case _:
            return ()


def neighbourhood(event: Event) -> tuple[Adjacency, PrivacyUnit] | None:
    """Adjacency and unit that the whole event speaks of (parts always agree); None where only ``non_private`` parts exist."""
    if isinstance(event, Release):
        return event.mechanism.sensitivity.adjacency, event.mechanism.sensitivity.unit
    return next((pair for part in children(event) if (pair := neighbourhood(part)) is not None), None)


def non_private_reason(event: Event) -> str | None:
    """Why the event has no guarantee at all, or None."""
    if isinstance(event, NonPrivate):
        return event.reason
    return next((reason for part in children(event) if (reason := non_private_reason(part)) is not None), None)


def leaves(event: Event) -> dict[Leaf, int]:
    """The event as a multiset of sampled releases, in order of first appearance; equal leaves are counted together.

    Sampling of a composition isn't a composition of samplings (the sample is shared), so only a single release may be sampled.

    Raises:
      InvalidParameter: a sampling over more than one release, or more than 10^15 releases.
    """
    found: dict[Leaf, int] = {}
    for leaf, count in _walk(event, 1.0, 1):
        found[leaf] = found.get(leaf, 0) + count
        if found[leaf] > LARGEST_COUNT:
            raise InvalidParameter("event", f"at most {LARGEST_COUNT:.0e} releases in all", f"{found[leaf]:.3e}")
    return found


def _walk(event: Event, probability: float, count: int) -> Iterator[tuple[Leaf, int]]:
    match event:
        case Release():
            yield Leaf(probability=probability, mechanism=event.mechanism), count
        case PoissonSampled():
            if not _is_single_release(event.event):
                raise InvalidParameter(
                    "poisson_sampled.event", "a single release (a sample shared by several isn't supported)", event.event.kind
                )
            # Rounded up where 64 nested samplings would underflow: more sampling is never more private.
            yield from _walk(event.event, max(probability * event.probability, SMALLEST_PROBABILITY), count)
        case Repeated():
            yield from _walk(event.event, probability, count * event.count)
        case Composed():
            for part in event.events:
                yield from _walk(part, probability, count)
        case NonPrivate():
            return


def _is_single_release(event: Event) -> bool:
    match event:
        case Release():
            return True
        case PoissonSampled():
            return _is_single_release(event.event)
        case Repeated():
            return event.count == 1 and _is_single_release(event.event)
        case Composed():
            return len(event.events) == 1 and _is_single_release(event.events[0])
        case NonPrivate():
            return False


def scaled(event: Event, factor: float) -> Event:
    """The same event with every mechanism's noise multiplied by ``factor``."""
    match event:
        case Release():
            return Release(mechanism=event.mechanism.scaled(factor))
        case PoissonSampled():
            return PoissonSampled(probability=event.probability, event=scaled(event.event, factor))
        case Repeated():
            return Repeated(count=event.count, event=scaled(event.event, factor))
        case Composed():
            return Composed(events=tuple(scaled(part, factor) for part in event.events))
        case NonPrivate():
            return event
