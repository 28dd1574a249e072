r"""Training on records that were released one by one, with noise of their own: everything after that release is post-processing of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from accountants.events import Event, Grouped, Release
from app.certificates import wording
from app.certificates.decimals import upper
from app.certificates.kinds.base import Kind, Sentence, Setting, Training
from app.certificates.kinds.phrases import noise_phrase, sentence
from app.certificates.sections import LocalReleaseFacts, Sections
from mechanisms import LocalRelease
from trainer.plans import RecordReleasePlan

MEANING = (
    "every training record that is used was released once, by itself, with noise of its own, by the service, which held them all until "
    "then; from there on training saw nothing but the released records, and everything that it did is post-processing of them: any number "
    "of steps and epochs costs nothing more"
)

OF_ONE_ROW = "one {unit} is one row, and its one release is all that it spends"

OF_SEVERAL_ROWS = (
    "a {unit}'s rows share its budget equally: each was released by itself with the same noise, at most {count} of one {unit}, and the "
    "guarantee counts so many releases; further rows of the {unit} were never released, and how many rows a {unit} has isn't hidden"
)

PUBLIC_COUNTS = "how many rows each {unit} has is public: neighbours differ in what one {unit}'s rows say, never in how many there are"

CUSTODY = "in this run the service held the rows and released them, and is trusted with them"

RELEASED = "every training record that is used, once, each with noise of its own"

CHECKPOINT = "a checkpoint holds the released records or what follows from them, and the step count; no key and no raw record"

ARITHMETIC = "the run put records into the public box in float64"


def local_sections(plan: RecordReleasePlan, setting: Setting) -> Sections:
    """What a certificate says of this plan alone."""
    return Sections(
        local_release=LocalReleaseFacts(
            records_per_unit=plan.records_per_unit,
            epsilon_per_record=_per_record(plan.mechanism),
            budget=_budget(plan.records_per_unit, setting),
            meaning=MEANING,
        )
    )


@final
@dataclass(frozen=True)
class LocalReleases(Kind):
    """Records released once, each by itself."""

    facts: LocalReleaseFacts

    training_metrics = wording.FREE_METRICS
    custody = CUSTODY

    def released(self, setting: Setting) -> str:
        covered = wording.FREE if setting.guaranteed else wording.NOTHING_COVERED
        return f"{RELEASED}; {wording.RELEASED[setting.held_out]}; {covered}"

    def checkpoint(self) -> str:
        return CHECKPOINT

    def not_covered(self, setting: Setting) -> tuple[str, ...]:
        return wording.not_covered(setting.held_out, wording.SIDE_CHANNELS)

    def run_assumptions(self, setting: Setting) -> tuple[str, ...]:
        words = () if setting.records_per_unit is None else (wording.USER_ASSUMPTION, PUBLIC_COUNTS)
        users = (setting.named(line) for line in words)
        return (wording.PUBLIC_NUMBERS, wording.PUBLIC_BOX, *wording.RUN_ASSUMPTIONS, *users)

    def arithmetic(self, setting: Setting) -> str:
        return "; ".join((ARITHMETIC, *wording.variates(setting.mechanisms)))

    def sentences(self, setting: Setting) -> Iterator[Sentence]:
        yield "local_release.budget", self.facts.budget, _budget(self.facts.records_per_unit, setting)
        yield "local_release.meaning", self.facts.meaning, MEANING

    def problems(self, training: Training) -> Iterator[str]:
        found = _release(training.event)
        if found is None:
            yield "local_release: the event isn't one release of every record"
            return
        mechanism, most = found
        if self.facts.records_per_unit != most:
            yield f"local_release.records_per_unit: the certificate says {self.facts.records_per_unit}, its event has {most}"
        if self.facts.epsilon_per_record != _per_record(mechanism):
            yield (
                f"local_release.epsilon_per_record: the certificate says {self.facts.epsilon_per_record}, "
                f"its event gives {_per_record(mechanism)}"
            )
        yield from training.unsampled_problems()

    def lines(self, training: Training) -> Iterator[str]:
        for release in training.releases:
            yield f"Released once: {noise_phrase(release.mechanism)}. {sentence(self.facts.meaning)}"
        price = self.facts.epsilon_per_record
        pure = "" if price is None else f" One record's release costs epsilon {price} at delta 0."
        yield f"Budget: {self.facts.budget}.{pure}"
        yield f"Steps: {training.steps.released} of training on the released records{training.restarts}.{training.checkpoints}"


def _release(event: Event) -> tuple[LocalRelease, int] | None:
    """(mechanism, records of one unit) of an event that releases every record once; None for any other."""
    most = event.size if isinstance(event, Grouped) else 1
    inner = event.event if isinstance(event, Grouped) else event
    if isinstance(inner, Release) and isinstance(inner.mechanism, LocalRelease):
        return inner.mechanism, most
    return None


def _per_record(mechanism: LocalRelease) -> str | None:
    pure = mechanism.privacy_loss().pure_epsilon
    return None if pure is None else upper(pure)


def _budget(count: int, setting: Setting) -> str:
    words = OF_ONE_ROW if setting.records_per_unit is None else OF_SEVERAL_ROWS
    return setting.named(words).replace("{count}", str(count))
