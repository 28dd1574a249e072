r"""From an event's tree to a flat list of (sampled release, count): the only place that walks it and counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from zetadp.accountants.events.kinds import (
    LARGEST_GROUP,
    Composed,
    Event,
    FixedSizeSampled,
    Grouped,
    NonPrivate,
    PoissonSampled,
    RandomlyAllocated,
    RandomlyWeighted,
    Release,
    Repeated,
    RepeatedAndSelected,
    Sampled,
    Shuffled,
    TruncatedPoissonSampled,
)
from zetadp.accountants.events.turns import by_turn
from zetadp.accountants.leaf import Leaf, Selection, Sizes, Truncation, Weighting, by_coordinate, by_record
from zetadp.accountants.shared_sample import GaussianWithLaplace, combined
from zetadp.mechanisms import AnyAccounted
from zetadp.mechanisms.base import Mechanism
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.local import LocalRelease
from zetadp.mechanisms.numerics.rounding import rounded_up

SMALLEST_PROBABILITY = 1e-50
"""Products of nested sampling probabilities are rounded up to this."""

LARGEST_COUNT = 10**15
"""Most releases in one event, over all nested repetitions."""


def leaves(event: Event) -> Mapping[Leaf, int]:
    """``releases`` with exactly composing parts split up: everything that accountants see.

    A local release of n coordinates with independent noise, of all records, is n releases of one coordinate (proofs/pairs.md, row 7), and
    is listed as such unless there would be more than 10^15 of them: then it stays whole, which is looser.

    Raises:
      InvalidParameter: as ``releases``.
    """
    return _once("leaves", event, lambda: by_coordinate(releases(event), LARGEST_COUNT))


def releases(event: Event) -> Mapping[Leaf, int]:
    """The event as a multiset of sampled releases, in order of first appearance; equal ones are counted together.

    Sampling of a composition isn't a composition of samplings: the sample is shared, and its releases are one release (``combined``).

    Raises:
      InvalidParameter: a sampling over another kind of sampling, a group, or several releases not all of Gaussian or Laplace noise; turns
        of ``correlated_noise`` that the sampling doesn't fit; more than 10^15 releases, or a group of more than 10^6.
    """
    return _once("releases", event, lambda: _counted(event))


def _once(what: str, event: Event, found: Callable[[], Mapping[Leaf, int]]) -> Mapping[Leaf, int]:
    if isinstance(event, Release | NonPrivate):
        return found()
    if what not in event.flattened:
        event.flattened[what] = found()
    return event.flattened[what]


def _counted(event: Event, group: int = 1) -> dict[Leaf, int]:
    found: dict[Leaf, int] = {}
    for leaf, count in _walk(event, group, 1):
        found[leaf] = found.get(leaf, 0) + count
        if found[leaf] > LARGEST_COUNT:
            raise InvalidParameter("event", f"at most {LARGEST_COUNT:.0e} releases in total", f"{found[leaf]:.3e}")
    return found


def _walk(event: Event, group: int, count: int) -> Iterator[tuple[Leaf, int]]:
    match event:
        case Release():
            yield from by_record(Leaf(1.0, event.mechanism, group=group), count)
        case Repeated():
            yield from _walk(event.event, group, count * event.count)
        case Composed():
            for part in event.events:
                yield from _walk(part, group, count)
        case (
            PoissonSampled(probability=1.0)
            | RandomlyAllocated(steps=1)
            | Shuffled(steps=1)
            | RandomlyWeighted(shares=(1.0,), probabilities=(1.0,))
        ):
            yield from _walk(event.event, group, count)
        case PoissonSampled() | TruncatedPoissonSampled() | FixedSizeSampled() | RandomlyAllocated() | Shuffled() | RandomlyWeighted():
            for leaf, number in by_turn(_sampled(event, group), event.drawn if isinstance(event, RandomlyAllocated) else "each_epoch"):
                yield from by_record(leaf, count * number)
        case Grouped():
            if group * event.size > LARGEST_GROUP:
                raise InvalidParameter("event", f"groups of at most {LARGEST_GROUP} units in total", group * event.size)
            yield from _walk(event.event, group * event.size, count)
        case RepeatedAndSelected():
            # A group's guarantee for the best of K runs follows from its guarantee for one run.
            if base := tuple(by_coordinate(_counted(event.event, group), LARGEST_COUNT).items()):
                yield Leaf(1.0, Selection(event.runs, base)), count
        case NonPrivate():
            return


def _sampled(event: Sampled, group: int) -> Leaf:
    """The one leaf of a sampling: nested Poisson samplings multiply, and releases of one sample are one release of it."""
    in_steps = isinstance(event, RandomlyAllocated | Shuffled)
    probability, part = rounded_up(Fraction(1, event.steps)) if in_steps else event.probability, event.event
    while True:
        match part:
            case PoissonSampled() if isinstance(event, PoissonSampled):
                # At least the smallest, as 64 nested samplings would underflow: a larger probability is never more private.
                probability = max(rounded_up(Fraction(probability) * Fraction(part.probability)), SMALLEST_PROBABILITY)
                part = part.event
            case Repeated(count=1):
                part = part.event
            case Composed(events=(only,)):
                part = only
            case _:
                break
    one = (part.mechanism, 1) if isinstance(part, Release) else None
    mechanism, releases = one or combined(event.kind, _of_sample(event.kind, part, 1))
    if in_steps:
        if isinstance(mechanism, LocalRelease):
            return Leaf(1.0, mechanism, group=group)  # made once for each record, in whatever step
        scheme = "shuffled" if isinstance(event, Shuffled) else "random_allocation"
        return Leaf(probability, mechanism, scheme, group, steps=event.steps, releases=releases)
    if isinstance(event, RandomlyWeighted):
        if isinstance(mechanism, LocalRelease) or not isinstance(mechanism, Mechanism | GaussianWithLaplace):
            raise InvalidParameter("randomly_weighted.event", "noise that is added to what all records contribute", mechanism.kind)
        weighting = Weighting(event.shares, event.probabilities)
        return Leaf(probability, mechanism, "randomly_weighted", group, releases=releases, weighting=weighting)
    if isinstance(event, TruncatedPoissonSampled):
        cut = Truncation(event.largest_batch, event.population_size)
        return Leaf(probability, mechanism, "truncated_poisson", group, cut, releases=releases)
    if isinstance(event, PoissonSampled):
        return Leaf(probability, mechanism, "poisson", group, releases=releases)
    sizes = None if group == 1 else Sizes(event.sample_size, event.population_size)
    return Leaf(probability, mechanism, "fixed_size", group, sizes=sizes, releases=releases)


def _of_sample(kind: str, event: Event, count: int) -> Iterator[tuple[AnyAccounted, int]]:
    """The releases of one sample of this kind."""
    match event:
        case Release():
            yield event.mechanism, count
        case Repeated():
            yield from _of_sample(kind, event.event, count * event.count)
        case Composed():
            for part in event.events:
                yield from _of_sample(kind, part, count)
        case _:
            known = {
                "grouped": "not grouped (records are sampled; put grouped around the sampling)",
                "repeated_and_selected": "not the best of several runs (all of them would share the sample)",
                "non_private": "releases",
            }
            expected = known.get(event.kind, "not sampled in another way (two kinds of sampling can't be combined)")
            raise InvalidParameter(f"{kind}.event", expected, event.kind)
