r"""What is said of the held-out records, against the event: noisy counts are releases of it, and anything else is outside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from accountants.events import Composed, Event, Release, Repeated
from app.certificates.decimals import DecimalText, exact, fraction
from app.certificates.training import EvaluationFacts
from mechanisms import Gaussian
from mechanisms.base import Count, Value
from trainer.plan import PrivateEvaluation
from trainer.report import FRACTIONS

COUNT_SENSITIVITY = 1.0
"""One held-out record changes the number of right answers by at most 1."""


@final
class CountsFacts(Value):
    """Noisy counts of right answers on held-out records: how many, each one's exact deviation, and after how many steps."""

    counts: Count
    noise_std: DecimalText
    every_steps: Count


@final
@dataclass(frozen=True)
class _Parts:
    """A training, and after it ``count`` counts of right answers among all held-out records, each with ``noise``."""

    training: Event
    count: int
    noise: Gaussian


def counts_of(evaluation: PrivateEvaluation | None, released: int, planned: int) -> CountsFacts | None:
    """The counts that a run of so many steps released; None where none were planned."""
    if evaluation is None:
        return None
    return CountsFacts(
        counts=evaluation.releases(released, planned), noise_std=exact(evaluation.mechanism.std), every_steps=evaluation.every_steps
    )


def stated_counts(evaluation: EvaluationFacts | None) -> CountsFacts | None:
    """Those of a private evaluation; None where there is none, or where it doesn't state all of them."""
    if evaluation is None or evaluation.kind != "private":
        return None
    if evaluation.counts is None or evaluation.noise_std is None or evaluation.every_steps is None:
        return None
    return CountsFacts(counts=evaluation.counts, noise_std=evaluation.noise_std, every_steps=evaluation.every_steps)


def training_part(event: Event, counts: CountsFacts | None) -> Event | None:
    """The event without the private evaluation's releases; None where they are claimed and aren't there."""
    if counts is None:
        return event
    parts = _parts(event)
    return None if parts is None else parts.training


def evaluation_problems(evaluation: EvaluationFacts, event: Event, *, counts_in_parts: bool) -> Iterator[str]:
    r"""What is said of the held-out records against itself, and whether private counts are in the event at all.

    Args:
      counts_in_parts: of a comparison, whose parts state each their own.
    """
    if (evaluation.metrics is None) != (evaluation.kind in {"none", "encoded"}):
        yield f"scope.evaluation.metrics: stated exactly where something was measured, got kind {evaluation.kind!r}"
    for name, value in (evaluation.metrics or {}).items():
        if name in FRACTIONS and not 0 <= fraction(value) <= 1:
            yield f"scope.evaluation.metrics.{name} must be in [0, 1], got {value}"
    stated = evaluation.counts, evaluation.noise_std, evaluation.every_steps
    if evaluation.kind != "private" or counts_in_parts:
        if stated != (None, None, None):
            yield f"scope.evaluation: counts, noise_std and every_steps are of a private evaluation, got kind {evaluation.kind!r}"
    elif _parts(event) is None:
        yield "scope.evaluation: private counts are stated, and the event doesn't end with their releases"
    elif None in stated:
        yield "scope.evaluation: counts, noise_std and every_steps must be stated for a private evaluation"


def count_problems(event: Event, planned: int, released: int, counts: CountsFacts | None) -> Iterator[str]:
    """Stated counts against the releases that the event ends with."""
    if counts is None or (found := _parts(event)) is None:
        return
    count, noise = found.count, found.noise
    if (counts.counts, counts.noise_std) != (count, exact(noise.std)):
        yield (
            f"scope.evaluation: the certificate says {counts.counts} counts with noise {counts.noise_std}, "
            f"its event has {count} with {exact(noise.std)}"
        )
    if noise.sensitivity.l2 != COUNT_SENSITIVITY:
        yield f"scope.evaluation: a count moves by {COUNT_SENSITIVITY}, the event's sensitivity is for {noise.sensitivity.l2}"
    every = counts.every_steps
    if count != released // every + (released == planned and released % every > 0):
        yield f"scope.evaluation.every_steps: {released} steps with a count after every {every} and the last don't make {count} counts"


def _parts(event: Event) -> _Parts | None:
    """Where the event is a training followed by counts; None where it isn't."""
    if not (isinstance(event, Composed) and len(event.events) == 2):
        return None
    training, last = event.events
    if not (isinstance(last, Repeated) and isinstance(last.event, Release) and isinstance(last.event.mechanism, Gaussian)):
        return None
    return _Parts(training, last.count, last.event.mechanism)
