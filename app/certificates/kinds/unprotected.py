r"""Training without any guarantee: a baseline, or an algorithm as it was printed. Nothing here may sound like a promise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from accountants.events import NonPrivate
from app.certificates import wording
from app.certificates.kinds.base import Kind, Sentence, Setting, Training
from app.certificates.sections import Sections, UnprotectedFacts
from trainer.plans import UnprotectedPlan

NOT_COVERED = (
    "anything: nothing in this run limits what the released files tell of any record",
    "the files beside this certificate: treat each of them as if it held the training data themselves",
)

CHECKPOINT = "a checkpoint holds whatever the run needs to go on, and nothing keeps the records out of it"

NO_ROWS = "no row is protected"

TEST_METRICS = {
    "none": wording.TEST_METRICS["none"],
    "public": "not covered: they were declared public, and nothing of this run is covered",
    "private": wording.NOT_COVERED,
    "encoded": wording.NOT_COVERED,
}

ARITHMETIC = "no noise is claimed of this run, whatever it drew"


def unprotected_sections(plan: UnprotectedPlan) -> Sections:
    """What a certificate says of this plan alone."""
    return Sections(unprotected=UnprotectedFacts(unit=plan.unit, reason=plan.reason))


@final
@dataclass(frozen=True)
class Unprotected(Kind):
    """No guarantee."""

    facts: UnprotectedFacts

    training_metrics = wording.UNPROTECTED_METRICS

    def released(self, setting: Setting) -> str:
        return f"{wording.RELEASED[setting.held_out]}; {wording.NOTHING_COVERED}"

    def test_metrics(self, setting: Setting) -> str:
        return TEST_METRICS[setting.held_out]

    def other_rows(self, setting: Setting) -> str:
        del setting
        return NO_ROWS

    def checkpoint(self) -> str:
        return CHECKPOINT

    def not_covered(self, setting: Setting) -> tuple[str, ...]:
        del setting
        return NOT_COVERED

    def run_assumptions(self, setting: Setting) -> tuple[str, ...]:
        del setting
        return ()

    def arithmetic(self, setting: Setting) -> str:
        del setting
        return ARITHMETIC

    def floating_point(self, setting: Setting) -> str:
        del setting
        return ARITHMETIC

    def sentences(self, setting: Setting) -> Iterator[Sentence]:
        del setting
        return iter(())

    def problems(self, training: Training) -> Iterator[str]:
        event = training.event
        if not isinstance(event, NonPrivate):
            yield "unprotected: the certificate says that nothing is protected, and its event is of private releases"
        elif event.reason != self.facts.reason:
            yield "unprotected.reason: the certificate and its event give different reasons"
        yield from training.unsampled_problems()

    def lines(self, training: Training) -> Iterator[str]:
        yield f"Protection: none. {self.facts.reason[0].upper()}{self.facts.reason[1:]}."
        yield f"Steps: {training.steps.released} of {training.steps.planned} planned{training.restarts}.{training.checkpoints}"
