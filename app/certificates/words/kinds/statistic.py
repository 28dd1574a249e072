r"""Training on one noisy vector of sums over all records (the functional mechanism): everything after that release is post-processing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from zetadp.app.certificates.facts import wording
from zetadp.app.certificates.facts.phrases import sentence
from zetadp.app.certificates.facts.wording import ArithmeticName
from zetadp.app.certificates.words.kinds.base import History, Kind, Setting
from zetadp.app.certificates.words.releases import release_phrase, releases_of
from zetadp.trainer.specs.plans import StatisticReleasePlan

MEANING = (
    "one vector of {numbers} sums over all training records was released once, with noise on every sum; after that, training read only "
    "this vector and no record, so that any number of steps costs nothing more"
)

RELEASED = "one noisy vector of {numbers} sums over all training records"

CHECKPOINT = "a checkpoint holds the released vector or what is computed from it, and the step count, but no key and no record"


@final
@dataclass(frozen=True)
class StatisticRelease(Kind):
    """One noisy vector."""

    plan: StatisticReleasePlan

    @property
    def proofs(self) -> tuple[str, ...]:
        return ("functional_mechanism.md",)

    def released(self, setting: Setting) -> str:
        covered = wording.FREE if setting.guaranteed else wording.NOTHING_COVERED
        return f"{_with(RELEASED, self.plan.numbers)}; {wording.RELEASED[setting.held_out]}; {covered}"

    def checkpoint(self) -> str:
        return CHECKPOINT

    def not_covered(self, setting: Setting) -> tuple[str, ...]:
        return wording.not_covered(setting.held_out, wording.SIDE_CHANNELS)

    def run_assumptions(self, setting: Setting) -> tuple[str, ...]:
        users = () if setting.records_per_unit is None else (setting.named(wording.USER_ASSUMPTION),)
        return (wording.PUBLIC_NUMBERS, wording.PUBLIC_BOX, *wording.RUN_ASSUMPTIONS, *users)

    def arithmetic(self) -> tuple[ArithmeticName, ...]:
        return ("float64_sums", *wording.variates(self.plan.mechanisms))

    def lines(self, setting: Setting, history: History) -> Iterator[str]:
        for release in releases_of(self.plan.event):
            yield f"Noise: {release_phrase(release, setting.unit)}. {sentence(_with(MEANING, self.plan.numbers))}"
        yield f"Steps: {history.released} of training on the released vector{history.restarts}.{history.checkpoints}"


def _with(words: str, numbers: int) -> str:
    return words.replace("{numbers}", str(numbers))
