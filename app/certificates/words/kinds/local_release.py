r"""Training on records that were released one by one, each with its own noise: everything after that release is post-processing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from zetadp.app.certificates.facts import wording
from zetadp.app.certificates.facts.decimals import upper
from zetadp.app.certificates.facts.phrases import sentence
from zetadp.app.certificates.facts.wording import ArithmeticName
from zetadp.app.certificates.words.kinds.base import History, Kind, Setting
from zetadp.app.certificates.words.releases import noise_phrase
from zetadp.trainer.specs.plans import RecordReleasePlan

MEANING = (
    "the service held all records, and released each training record that is used exactly once, separately and with its own noise; after "
    "that, training saw only the released records, so that any number of steps and epochs costs nothing more"
)

OF_ONE_ROW = "one {unit} is one row, and its one release is its whole privacy cost"

OF_SEVERAL_ROWS = (
    "a {unit}'s rows share its budget equally: each was released separately with the same noise, at most {count} of one {unit}, and the "
    "guarantee counts that many releases; further rows of the {unit} were never released, and the number of a {unit}'s rows isn't hidden"
)

PUBLIC_COUNTS = "the number of each {unit}'s rows is public: neighbours differ in the values of one {unit}'s rows, never in their number"

CUSTODY = "in this run the service held the rows and released them, and is trusted with them"

RELEASED = "each training record that is used, exactly once and with its own noise"

CHECKPOINT = "a checkpoint holds the released records or what is computed from them, and the step count, but no key and no raw record"


@final
@dataclass(frozen=True)
class LocalReleases(Kind):
    """Records released once, each on its own."""

    plan: RecordReleasePlan

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

    def arithmetic(self) -> tuple[ArithmeticName, ...]:
        return ("float64_boxes", *wording.variates(self.plan.mechanisms))

    def lines(self, setting: Setting, history: History) -> Iterator[str]:
        yield f"Released once, with {noise_phrase(self.plan.mechanism)}. {sentence(MEANING)}"
        price = self.plan.mechanism.privacy_loss().pure_epsilon
        pure = "" if price is None else f" One record's release costs epsilon {upper(price)} at delta 0."
        yield f"Budget: {_budget(self.plan.records_per_unit, setting)}.{pure}"
        yield f"Steps: {history.released} of training on the released records{history.restarts}.{history.checkpoints}"


def _budget(count: int, setting: Setting) -> str:
    words = OF_ONE_ROW if setting.records_per_unit is None else OF_SEVERAL_ROWS
    return setting.named(words).replace("{count}", str(count))
