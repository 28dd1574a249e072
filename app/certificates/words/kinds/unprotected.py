r"""Training without any guarantee: a baseline, or an algorithm as it was printed. Nothing here may sound like a promise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from zetadp.app.certificates.facts import wording
from zetadp.app.certificates.facts.phrases import sentence
from zetadp.app.certificates.facts.wording import ArithmeticName
from zetadp.app.certificates.words.kinds.base import History, Kind, Setting
from zetadp.trainer.specs.plans import UnprotectedPlan

NOT_COVERED = (
    "everything: nothing in this run limits what the released files reveal about any record",
    "the files beside this certificate: treat each of them as if it contained the training data",
)

CHECKPOINT = "a checkpoint holds everything that the run needs to continue, and nothing keeps the records out of it"

NO_ROWS = "no row is protected"

TEST_METRICS = {
    "none": wording.TEST_METRICS["none"],
    "public": f"not covered: {wording.NO_HELD_OUT}, and nothing else in this run is covered",
    "private": wording.NOT_COVERED,
    "encoded": wording.NOT_COVERED,
}


@final
@dataclass(frozen=True)
class Unprotected(Kind):
    """No guarantee."""

    plan: UnprotectedPlan

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

    def arithmetic(self) -> tuple[ArithmeticName, ...]:
        return ("unclaimed",)

    def lines(self, setting: Setting, history: History) -> Iterator[str]:
        del setting
        yield f"Protection: none. {sentence(self.plan.reason)}"
        yield f"Steps: {history.released} of {self.plan.steps} planned{history.restarts}.{history.checkpoints}"
