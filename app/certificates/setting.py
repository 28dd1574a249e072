r"""Whether what a certificate says of the training's setting is what its event contains: clipping, nodes, sampling, held-out releases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

from accountants.events import Composed, Event, Release, Repeated, leaves
from app.certificates.decimals import exact, fraction
from app.certificates.facts import ReleaseFacts
from app.certificates.statement import PrivacyCertificate
from app.certificates.training import ClippingFacts, EvaluationFacts
from mechanisms import Gaussian, Sensitivity
from mechanisms.base import Adjacency
from trainer.report import FRACTIONS

COUNT_SENSITIVITY = 1.0
"""One held-out record changes the number of right answers by at most 1."""

JOINT_SENSITIVITY = 1.0
"""Of the vector that adaptive clipping releases: sum over bound, and count, each with its share."""


@final
@dataclass(frozen=True)
class _Parts:
    """A training, and after it ``count`` counts of right answers among all held-out records, each with ``noise``."""

    training: Event
    count: int
    noise: Gaussian


def training_part(predicate: PrivacyCertificate) -> Event | None:
    """The event without the private evaluation's releases; None where they were claimed and aren't there."""
    evaluation = predicate.scope.evaluation
    if evaluation is None or evaluation.kind != "private":
        return predicate.event
    parts = _parts(predicate.event)
    return None if parts is None else parts.training


def evaluation_problems(predicate: PrivacyCertificate) -> Iterator[str]:
    """What is said of the held-out records, against the event and against itself."""
    scope, evaluation = predicate.scope, predicate.scope.evaluation
    if (scope.test_accuracy is None) == (evaluation is None):
        yield "scope: test_accuracy or evaluation must be stated, and not both"
    if evaluation is None:
        return
    if (evaluation.metrics is None) != (evaluation.kind == "none"):
        yield f"scope.evaluation.metrics: stated exactly where something was measured, got kind {evaluation.kind!r}"
    for name, value in (evaluation.metrics or {}).items():
        if name in FRACTIONS and not 0 <= fraction(value) <= 1:
            yield f"scope.evaluation.metrics.{name} must be in [0, 1], got {value}"
    stated = evaluation.counts, evaluation.noise_std, evaluation.every_steps
    if evaluation.kind != "private":
        if stated != (None, None, None):
            yield f"scope.evaluation: counts, noise_std and every_steps are of a private evaluation, got kind {evaluation.kind!r}"
        return
    yield from _private_problems(predicate, evaluation)


def _private_problems(predicate: PrivacyCertificate, evaluation: EvaluationFacts) -> Iterator[str]:
    found = _parts(predicate.event)
    if found is None:
        yield "scope.evaluation: private counts are stated, and the event doesn't end with their releases"
        return
    count, noise = found.count, found.noise
    if (evaluation.counts, evaluation.noise_std) != (count, exact(noise.std)):
        yield (
            f"scope.evaluation: the certificate says {evaluation.counts} counts with noise {evaluation.noise_std}, "
            f"its event has {count} with {exact(noise.std)}"
        )
    if noise.sensitivity.l2 != COUNT_SENSITIVITY:
        yield f"scope.evaluation: a count moves by {COUNT_SENSITIVITY}, the event's sensitivity is for {noise.sensitivity.l2}"
    every, released, planned = evaluation.every_steps, predicate.steps.released, predicate.steps.planned
    if every is None:
        yield "scope.evaluation.every_steps: must be stated for a private evaluation"
    elif count != released // every + (released == planned and released % every > 0):
        yield f"scope.evaluation.every_steps: {released} steps with a count after every {every} and the last don't make {count} counts"


def _parts(event: Event) -> _Parts | None:
    """Where the event is a training followed by counts; None where it isn't."""
    if not (isinstance(event, Composed) and len(event.events) == 2):
        return None
    training, last = event.events
    if not (isinstance(last, Repeated) and isinstance(last.event, Release) and isinstance(last.event.mechanism, Gaussian)):
        return None
    return _Parts(training, last.count, last.event.mechanism)


def clipping_problems(predicate: PrivacyCertificate, training: Event) -> Iterator[str]:
    """The stated bound, against the sensitivity that every release of the training was accounted with."""
    clipping = predicate.clipping
    yield from _adaptive_problems(clipping)
    for leaf in leaves(training):
        covered = _clipping_bound(leaf.mechanism.sensitivity)
        if covered is None:
            continue
        if clipping.kind == "adaptive":
            if covered != JOINT_SENSITIVITY:
                yield f"clipping: the adaptive vector moves by {JOINT_SENSITIVITY}, the event's sensitivity is for {exact(covered)}"
        elif exact(covered) != clipping.bound:
            yield f"clipping.bound: the certificate says {clipping.bound}, the event's sensitivity is for {exact(covered)}"


def _adaptive_problems(clipping: ClippingFacts) -> Iterator[str]:
    stated = clipping.quantile, clipping.learning_rate, clipping.count_share
    if (clipping.kind == "adaptive") != (None not in stated) or (clipping.kind != "adaptive" and any(part is not None for part in stated)):
        yield f"clipping: quantile, learning_rate and count_share are stated exactly for adaptive clipping, got kind {clipping.kind!r}"
    for name, text in (("quantile", clipping.quantile), ("count_share", clipping.count_share)):
        if text is not None and not 0 < fraction(text) < 1:
            yield f"clipping.{name} must be in (0, 1), got {text}"


def _clipping_bound(sensitivity: Sensitivity) -> float | None:
    """The largest clipping bound that this sensitivity covers; of two clipped terms that replace each other, the difference is twice it."""
    if sensitivity.l2 is None:
        return None
    bound = sensitivity.l2 / 2.0 if sensitivity.adjacency is Adjacency.REPLACE_ONE else sensitivity.l2
    return bound if sensitivity.l2_contribution is None else min(bound, sensitivity.l2_contribution)


def sampling_problems(predicate: PrivacyCertificate, releases: Sequence[ReleaseFacts]) -> Iterator[str]:
    """Expected batch and units, against the probability that every release was accounted with."""
    data, federation = predicate.data, predicate.federation
    name, units = ("training_records", data.training_records) if data.units is None else ("units", data.units)
    if federation is not None:
        if sum(federation.nodes) != units:
            yield f"federation.nodes: the nodes have {sum(federation.nodes)} units, data.{name} is {units}"
        # The smallest node's units: all nodes sample with one probability, which is the expected batch over its size.
        name, units = "the smallest node", min(federation.nodes)
    probability = exact(data.expected_batch_size / units)
    for sampling in (release.sampling for release in releases):
        if sampling.kind == "poisson" and sampling.probability != probability:
            yield f"expected_batch_size / {name} is {probability}, the event samples with {sampling.probability}"
        sizes = sampling.sample_size, sampling.population_size
        if sampling.kind == "fixed_size" and sizes != (data.expected_batch_size, units):
            yield (
                f"expected_batch_size and {name} are {data.expected_batch_size} and {units}, the event samples "
                f"{sampling.sample_size} of {sampling.population_size}"
            )
