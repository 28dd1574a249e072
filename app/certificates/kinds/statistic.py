r"""Training on one noisy vector of sums over all records (the functional mechanism): everything after that release is post-processing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from accountants.events import Release
from app.certificates import wording
from app.certificates.kinds.base import Kind, Sentence, Setting, Training
from app.certificates.kinds.phrases import release_phrase, sentence
from app.certificates.sections import Sections, StatisticFacts
from mechanisms import LocalRelease
from trainer.plans import StatisticReleasePlan

MEANING = (
    "one vector of {numbers} sums over all training records was released once, with noise on every one of them; from then on nothing "
    "looked at the records, and everything that training did is post-processing of that vector: any number of steps costs nothing more"
)

RELEASED = "one noisy vector of {numbers} sums over all training records"

CHECKPOINT = "a checkpoint holds the released vector or what follows from it, and the step count; no key and no record"

ARITHMETIC = "the run computed the sums in float64"


def statistic_sections(plan: StatisticReleasePlan) -> Sections:
    """What a certificate says of this plan alone."""
    return Sections(statistic=StatisticFacts(numbers=plan.numbers, meaning=_with(MEANING, plan.numbers)))


@final
@dataclass(frozen=True)
class StatisticRelease(Kind):
    """One noisy vector."""

    facts: StatisticFacts

    training_metrics = wording.FREE_METRICS
    proofs = ("functional_mechanism.md",)

    def released(self, setting: Setting) -> str:
        covered = wording.FREE if setting.guaranteed else wording.NOTHING_COVERED
        return f"{_with(RELEASED, self.facts.numbers)}; {wording.RELEASED[setting.held_out]}; {covered}"

    def checkpoint(self) -> str:
        return CHECKPOINT

    def not_covered(self, setting: Setting) -> tuple[str, ...]:
        return wording.not_covered(setting.held_out, wording.SIDE_CHANNELS)

    def run_assumptions(self, setting: Setting) -> tuple[str, ...]:
        users = () if setting.records_per_unit is None else (setting.named(wording.USER_ASSUMPTION),)
        return (wording.PUBLIC_NUMBERS, wording.PUBLIC_BOX, *wording.RUN_ASSUMPTIONS, *users)

    def arithmetic(self, setting: Setting) -> str:
        return "; ".join((ARITHMETIC, *wording.variates(setting.mechanisms)))

    def sentences(self, setting: Setting) -> Iterator[Sentence]:
        del setting
        yield "statistic.meaning", self.facts.meaning, _with(MEANING, self.facts.numbers)

    def problems(self, training: Training) -> Iterator[str]:
        event = training.event
        if not isinstance(event, Release) or isinstance(event.mechanism, LocalRelease):
            yield "statistic: the event isn't one release of one vector"
        yield from training.unsampled_problems()

    def lines(self, training: Training) -> Iterator[str]:
        for release in training.releases:
            yield f"Noise: {release_phrase(release, training.unit)}. {sentence(self.facts.meaning)}"
        yield f"Steps: {training.steps.released} of training on the released vector{training.restarts}.{training.checkpoints}"


def _with(words: str, numbers: int) -> str:
    return words.replace("{numbers}", str(numbers))
