r"""Features of held-out records that were clipped, got Gaussian noise and were turned: the sound form of complex-feature obfuscation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from accountants.events import Event, Release, Repeated
from app.certificates import wording
from app.certificates.decimals import exact, upper
from app.certificates.kinds.base import Kind, Sentence, Setting, Training
from app.certificates.kinds.phrases import noise_phrase, sentence
from app.certificates.sections import FeatureReleaseFacts, Sections
from mechanisms import Gaussian
from mechanisms.base import Adjacency
from trainer.plans import FeatureReleasePlan

MEANING = (
    "the feature of every held-out record was scaled down to l2 norm C where it is longer (one that isn't finite counted as zero), and "
    "each query of it, {queries} in all, added fresh Gaussian noise to every coordinate; two clipped features are at most 2 C apart, so"
    " that one query is Gaussian differentially private with mu = 2 C over the noise's standard deviation, and q of them with root q "
    "times that"
)

ROTATION = (
    "turning the noisy feature by a secret angle, the counterpart beside it with or without noise, and the critic that the network was "
    "trained against are post-processing: they earn nothing, and the figures are those of the same noise sent without them, with the "
    "angle told"
)

PUBLIC = "the training records, which network and attackers were trained on: whoever submitted the job takes them for public"

NOT_COVERED = (
    PUBLIC,
    "that a record was sent, when, and how often",
    "further queries: this counts those named here, and every other encoding of the same record adds to them",
    "what a record's owner does with the answer",
)

RELEASED = (
    "noisy encodings of every held-out record, {queries} of each, with their angles; the network, its checkpoints and what attacks "
    "found, which follow from the public training records alone; {covered}"
)

CHECKPOINT = "a checkpoint holds the network and its optimizers, which follow from public training records; no held-out record touches it"

TEST_METRICS = "covered: nothing about them left the run but those encodings, and no label of theirs was used"

TRAINING_METRICS = "published where attacks were measured, on public training records that were set apart; outside the guarantee"

ARITHMETIC = (
    "features were computed in float32, scaled in float64 to 2^-20 below their bound, and got their noise before anything else was "
    "done with them"
)

ASSUMED = "the clipping norm, the noise and the network were fixed without looking at the held-out records"


def feature_sections(plan: FeatureReleasePlan) -> Sections:
    """What a certificate says of this plan alone."""
    return Sections(
        feature_release=FeatureReleaseFacts(
            clipping_norm=exact(plan.clipping_norm),
            records=plan.records,
            queries=plan.queries,
            mu_per_query=_mu(plan.mechanism),
            meaning=_with(MEANING, plan.queries),
            rotation=ROTATION,
        )
    )


@final
@dataclass(frozen=True)
class FeatureReleases(Kind):
    """Noisy features of held-out records."""

    facts: FeatureReleaseFacts

    training_metrics = TRAINING_METRICS
    proofs = ("feature_release.md",)
    protected = "held-out data"

    def released(self, setting: Setting) -> str:
        covered = "the encodings are covered" if setting.guaranteed else wording.NOTHING_COVERED
        return _with(RELEASED, self.facts.queries).replace("{covered}", covered)

    def checkpoint(self) -> str:
        return CHECKPOINT

    def checkpoints(self, setting: Setting) -> str:
        del setting
        return f"not covered, and nothing to cover: {CHECKPOINT}"

    def not_covered(self, setting: Setting) -> tuple[str, ...]:
        return (*NOT_COVERED, *wording.not_covered(setting.held_out, wording.SIDE_CHANNELS))

    def test_metrics(self, setting: Setting) -> str:
        return TEST_METRICS if setting.guaranteed else wording.NOT_COVERED

    def run_assumptions(self, setting: Setting) -> tuple[str, ...]:
        del setting
        return (wording.PUBLIC_NUMBERS, ASSUMED, *wording.RUN_ASSUMPTIONS)

    def arithmetic(self, setting: Setting) -> str:
        return "; ".join((ARITHMETIC, *wording.variates(setting.mechanisms)))

    def sentences(self, setting: Setting) -> Iterator[Sentence]:
        del setting
        yield "feature_release.meaning", self.facts.meaning, _with(MEANING, self.facts.queries)
        yield "feature_release.rotation", self.facts.rotation, ROTATION

    def problems(self, training: Training) -> Iterator[str]:
        found = _release(training.event)
        if found is None:
            yield "feature_release: the event isn't a number of Gaussian releases of one feature under replace_one"
            return
        mechanism, queries = found
        for name, stated, ours in (
            ("queries", self.facts.queries, queries),
            ("mu_per_query", self.facts.mu_per_query, _mu(mechanism)),
            ("records", self.facts.records, training.test_records),
        ):
            if stated != ours:
                yield f"feature_release.{name}: the certificate says {stated}, its event and scope have {ours}"
        if mechanism.sensitivity.l2 != 2.0 * float(self.facts.clipping_norm):
            yield f"feature_release.clipping_norm: C is {self.facts.clipping_norm}, the event's 2 C is {mechanism.sensitivity.l2!r}"
        yield from training.unsampled_problems()

    def lines(self, training: Training) -> Iterator[str]:
        for release in training.releases:
            yield (
                f"Released: {release.count} noisy feature{'' if release.count == 1 else 's'} of each of {self.facts.records} held-out "
                f"records, {noise_phrase(release.mechanism)}, C {self.facts.clipping_norm}: mu {self.facts.mu_per_query} a query."
            )
        yield sentence(self.facts.meaning)
        yield sentence(self.facts.rotation)
        yield f"Steps: {training.steps.released} of training on public records{training.restarts}.{training.checkpoints}"


def _release(event: Event) -> tuple[Gaussian, int] | None:
    """(mechanism, queries) of an event that is so many releases of one noisy feature; None for any other."""
    if not (isinstance(event, Repeated) and isinstance(event.event, Release)):
        return None
    mechanism = event.event.mechanism
    if not isinstance(mechanism, Gaussian) or mechanism.sensitivity.adjacency is not Adjacency.REPLACE_ONE:
        return None
    return mechanism, event.count


def _mu(mechanism: Gaussian) -> str:
    assert mechanism.sensitivity.l2 is not None  # a Gaussian's sensitivity is of l2
    return upper(mechanism.sensitivity.l2 / mechanism.std)


def _with(words: str, queries: int) -> str:
    return words.replace("{queries}", str(queries))
