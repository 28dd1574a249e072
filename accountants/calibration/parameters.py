r"""What a calibration may change in an event: noise, sampling probability, sample size, number of steps or clipping bound.

Each kind knows which part of the event it applies to, the limits of its value, which direction is safer, and how to put a value into the
event. The reasons why a direction is safer: more noise is the same release with noise added, a smaller sensitivity allows fewer
neighbours, fewer steps are a part of the steps, and a smaller sample is a random part of a larger one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeVar, final

from pydantic import Field, StringConstraints

from zetadp.accountants.calibration.scaling import scaled
from zetadp.accountants.events import Event, FixedSizeSampled, PoissonSampled, Release, Repeated, TruncatedPoissonSampled, children
from zetadp.mechanisms import AnyAccounted, Mechanism
from zetadp.mechanisms.base import LARGEST_SCALE, SMALLEST_SCALE, Sensitivity, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.local import LocalRelease

LARGEST_STEPS = 10**12
"""The most repetitions that one ``Repeated`` takes."""

NO_NOISE_MU = 1e9
"""If even the noisiest selected release has a mu (or pure epsilon) larger than this, there is practically no noise left to remove."""

_Kind = TypeVar("_Kind", FixedSizeSampled, Repeated)

Pointer = Annotated[str, StringConstraints(strict=True, max_length=1024, pattern=r"^(/event|/events/(0|[1-9][0-9]{0,3}))*$")]
"""A JSON pointer (RFC 6901) from the event's JSON to one of its parts: ``/events/0/event``, or empty for the whole event."""


class Limits(NamedTuple):
    """The smallest and the largest value of a parameter in a search."""

    low: float
    high: float


class _Parameter(Value, ABC):
    at: Pointer = ""

    more_is_safer: ClassVar[bool] = False
    """Whether larger values are safer (noise) or smaller ones (all others)."""
    whole: ClassVar[bool] = False
    """Whether values are whole numbers only."""
    attains_limit: ClassVar[bool] = True
    """Whether the least safe limit is a valid answer (every record sampled) or only represents infinity (no noise at all)."""
    noun: ClassVar[str]
    """Its name in failure messages."""
    meaning: ClassVar[str]
    """What a solution's value means."""

    def part(self, event: Event) -> Event:
        """The selected part. Raises InvalidParameter if the pointer leads nowhere."""
        for index in _path(event, self.at):
            event = children(event)[index]
        return event

    def applied(self, event: Event, value: float) -> Event:
        """The event with this value in its selected part."""
        return _replaced(event, _path(event, self.at), lambda part: self._applied(part, value))

    @abstractmethod
    def limits(self, event: Event) -> Limits:
        """Raises InvalidParameter if the selected part has no such parameter, or more than one."""

    @abstractmethod
    def _applied(self, part: Event, value: float) -> Event: ...


@final
class NoiseScale(_Parameter):
    """The least common factor on every noise scale of the selected part; the ratios between its parts' noise stay."""

    kind: Literal["noise_scale"] = "noise_scale"
    more_is_safer = True
    attains_limit = False
    noun = "noise"
    meaning = "least common factor on every noise scale that meets the target"

    def limits(self, event: Event) -> Limits:
        noisy = {one: scale for one in _mechanisms(self.part(event)) if (scale := one.noise_scale) is not None}
        if not noisy:
            raise InvalidParameter("parameter.at", "a part of the event with noise in it (bare guarantees have none)", self.at)
        least = min(_size(mechanism) for mechanism in noisy) / NO_NOISE_MU
        low = max(one.SCALES[0] / scale for one, scale in noisy.items())
        return Limits(max(least, low), min(one.SCALES[1] / scale for one, scale in noisy.items()))

    def _applied(self, part: Event, value: float) -> Event:
        return scaled(part, value)


@final
class ClippingBound(_Parameter):
    """The largest common factor on every sensitivity of the selected part, at its noise; clip to that many times the bounds given."""

    kind: Literal["clipping_bound"] = "clipping_bound"
    attains_limit = False
    noun = "clipping bound"
    meaning = "largest common factor on every sensitivity that meets the target"

    def limits(self, event: Event) -> Limits:
        found = _mechanisms(self.part(event))
        mechanisms = [mechanism for mechanism in found if isinstance(mechanism, Mechanism)]
        if (declared := next((one for one in found if not isinstance(one, Mechanism)), None)) is not None:
            raise InvalidParameter(
                "parameter.at", "a part without what is only declared (nothing says how it would be clipped)", declared.kind
            )
        if (local := next((m for m in mechanisms if isinstance(m, LocalRelease)), None)) is not None:
            raise InvalidParameter(
                "parameter.at", "a part without local releases (their box determines how far a record moves them)", local.kind
            )
        most = NO_NOISE_MU / min(_size(mechanism) for mechanism in mechanisms)
        bounds = [bound for mechanism in mechanisms for bound in _bounds(mechanism.sensitivity).values() if bound > 0.0]
        return Limits(SMALLEST_SCALE / min(bounds), min(most, LARGEST_SCALE / max(bounds)))

    def _applied(self, part: Event, value: float) -> Event:
        return _clipped(part, value)


@final
class SamplingProbability(_Parameter):
    """The largest probability for all Poisson samplings of the selected part: one value, whatever they had."""

    kind: Literal["sampling_probability"] = "sampling_probability"
    noun = "sampling probability"
    meaning = "largest sampling probability that meets the target"

    def limits(self, event: Event) -> Limits:
        found = [type(part) for part, _ in _walk(self.part(event), self.at)]
        if TruncatedPoissonSampled in found:
            return Limits(SMALLEST_SCALE, math.nextafter(1.0, 0.0))
        if PoissonSampled not in found:
            raise InvalidParameter("parameter.at", "a part of the event with poisson_sampled or truncated_poisson_sampled in it", self.at)
        return Limits(SMALLEST_SCALE, 1.0)

    def _applied(self, part: Event, value: float) -> Event:
        if isinstance(part, PoissonSampled):
            return PoissonSampled(probability=value, event=self._applied(part.event, value))
        if isinstance(part, TruncatedPoissonSampled):
            return TruncatedPoissonSampled(
                probability=value, largest_batch=part.largest_batch, population_size=part.population_size, event=part.event
            )
        return with_children(part, tuple(self._applied(child, value) for child in children(part)))


@final
class SampleSize(_Parameter):
    """The largest sample of the one fixed-size sampling in the selected part, at its population."""

    kind: Literal["sample_size"] = "sample_size"
    whole = True
    noun = "sample size"
    meaning = "largest sample size that meets the target"

    def limits(self, event: Event) -> Limits:
        part = self.part(event)
        _, sampling = _only(FixedSizeSampled, part, self.at)
        return Limits(1.0, float(sampling.population_size))

    def _applied(self, part: Event, value: float) -> Event:
        pointer, sampling = _only(FixedSizeSampled, part, "")
        changed = FixedSizeSampled(sample_size=int(value), population_size=sampling.population_size, event=sampling.event)
        return _replaced(part, _path(part, pointer), lambda _: changed)


@final
class Steps(_Parameter):
    """The largest count of the selected repetition, or of the only one inside; a part with none in it is repeated as a whole."""

    kind: Literal["steps"] = "steps"
    whole = True
    noun = "number of steps"
    meaning = "largest number of steps that meets the target"

    def limits(self, event: Event) -> Limits:
        part = self.part(event)
        if not isinstance(part, Repeated) and any(isinstance(found, Repeated) for found, _ in _walk(part, "")):
            _only(Repeated, part, self.at)
        return Limits(1.0, float(LARGEST_STEPS))

    def _applied(self, part: Event, value: float) -> Event:
        pointer = self._pointer(part)
        return _replaced(part, _path(part, pointer), lambda found: _repeated(found, int(value)))

    def _pointer(self, part: Event) -> str:
        if isinstance(part, Repeated) or not any(isinstance(found, Repeated) for found, _ in _walk(part, "")):
            return ""
        return _only(Repeated, part, "")[0]


Parameter = Annotated[NoiseScale | ClippingBound | SamplingProbability | SampleSize | Steps, Field(discriminator="kind")]


def _path(event: Event, pointer: str) -> tuple[int, ...]:
    """The pointer as indices into ``children``."""
    if not pointer:
        return ()
    tokens, path = pointer.split("/")[1:], list[int]()
    while tokens:
        name, parts = tokens.pop(0), children(event)
        index = int(tokens.pop(0)) if name == "events" else 0
        if name not in type(event).model_fields or index >= len(parts):
            raise InvalidParameter("parameter.at", "a JSON pointer to a part of the event", pointer)
        path.append(index)
        event = parts[index]
    return tuple(path)


def with_children(event: Event, parts: tuple[Event, ...]) -> Event:
    """The same event with other parts, of the same number."""
    if not parts:
        return event
    changed = {"events": parts} if "events" in type(event).model_fields else {"event": parts[0]}
    return type(event).model_validate(_fields(event) | changed)


def _replaced(event: Event, path: tuple[int, ...], change: Callable[[Event], Event]) -> Event:
    if not path:
        return change(event)
    parts = list(children(event))
    parts[path[0]] = _replaced(parts[path[0]], path[1:], change)
    return with_children(event, tuple(parts))


def _walk(event: Event, pointer: str) -> Iterator[tuple[Event, str]]:
    """Every part of the event, itself first, with the pointer to it."""
    yield event, pointer
    many = "events" in type(event).model_fields
    for index, part in enumerate(children(event)):
        yield from _walk(part, f"{pointer}/events/{index}" if many else f"{pointer}/event")


def _only(kind: type[_Kind], part: Event, at: str) -> tuple[str, _Kind]:
    """The pointer from the part to the only event of this kind in it, and that event."""
    found = [(pointer, inner) for inner, pointer in _walk(part, "") if isinstance(inner, kind)]
    if len(found) != 1:
        name = kind.model_fields["kind"].default
        there = ", ".join(repr(at + pointer) for pointer, _ in found[:10]) or "none"
        raise InvalidParameter("parameter.at", f"a part of the event with exactly one {name} in it (found: {there})", at)
    return found[0]


def _repeated(part: Event, count: int) -> Event:
    return Repeated(count=count, event=part.event if isinstance(part, Repeated) else part)


def _mechanisms(part: Event) -> list[AnyAccounted]:
    found = [release.mechanism for release, _ in _walk(part, "") if isinstance(release, Release)]
    if not found:
        raise InvalidParameter("parameter.at", "a part of the event with a release in it", "")
    return found


def _size(mechanism: AnyAccounted) -> float:
    """mu of a Gaussian mechanism, epsilon of others: the larger, the less noise."""
    return mechanism.privacy_loss().distance


def _bounds(sensitivity: Sensitivity) -> dict[str, float]:
    """The sensitivity's bounds that are given, by name."""
    return {name: value for name, value in _fields(sensitivity).items() if isinstance(value, float)}


def _clipped(part: Event, factor: float) -> Event:
    if not isinstance(part, Release):
        return with_children(part, tuple(_clipped(child, factor) for child in children(part)))
    mechanism = part.mechanism
    assert isinstance(mechanism, Mechanism)  # checked with the limits
    bounds = {name: factor * bound for name, bound in _bounds(mechanism.sensitivity).items()}
    sensitivity = Sensitivity.model_validate(_fields(mechanism.sensitivity) | bounds)
    return Release(mechanism=type(mechanism).model_validate(_fields(mechanism) | {"sensitivity": sensitivity}))


def _fields(value: Value) -> dict[str, object]:
    return {name: getattr(value, name) for name in type(value).model_fields}
