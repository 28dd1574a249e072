r"""An event with its noise multiplied."""

from __future__ import annotations

from zetadp.accountants.events import Composed, Event, NonPrivate, PoissonSampled, Release, Repeated


def scaled(event: Event, factor: float) -> Event:
    """The same event with every mechanism's noise multiplied by ``factor``."""
    match event:
        case Release():
            return Release(mechanism=event.mechanism.scaled(factor))
        case Composed():
            return Composed(events=tuple(scaled(part, factor) for part in event.events))
        case Repeated():
            return Repeated(count=event.count, event=scaled(event.event, factor))
        case PoissonSampled():
            return PoissonSampled(probability=event.probability, event=scaled(event.event, factor))
        case NonPrivate():
            return event
        case _:
            fields = {name: getattr(event, name) for name in type(event).model_fields}
            return type(event).model_validate(fields | {"event": scaled(event.event, factor)})
