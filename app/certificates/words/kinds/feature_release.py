r"""Features of held-out records that were clipped, got Gaussian noise and were rotated: the sound form of complex-feature obfuscation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from zetadp.app.certificates.facts import wording
from zetadp.app.certificates.facts.decimals import exact, upper
from zetadp.app.certificates.facts.phrases import sentence
from zetadp.app.certificates.facts.wording import ArithmeticName
from zetadp.app.certificates.words.kinds.base import History, Kind, Setting
from zetadp.app.certificates.words.releases import noise_phrase
from zetadp.trainer.specs.plans import FeatureReleasePlan

MEANING = (
    "the feature of every held-out record was scaled down to l2 norm C if it was longer (one that wasn't finite counted as zero), and "
    "each query of it, {queries} in all, added fresh Gaussian noise to every coordinate; two clipped features are at most 2 C apart, so "
    "one query is Gaussian differentially private with mu = 2 C over the noise's standard deviation, and q queries with root q times "
    "that"
)

ROTATION = (
    "rotating the noisy feature by a secret angle, the counterpart beside it with or without noise, and the critic that the network was "
    "trained against are post-processing: they add no privacy, and the figures are those of the same noise sent without them, with the "
    "angle known"
)

PUBLIC = "the training records, on which the network and the attackers were trained: whoever submitted the job treats them as public"

NOT_COVERED = (
    PUBLIC,
    "that a record was sent, when, and how often",
    "further queries: only those named here are counted, and every other encoding of the same record adds to their cost",
    "what a record's owner does with the answer",
)

RELEASED = (
    "noisy encodings of every held-out record, {queries} of each, with their angles; the network, its checkpoints and what attacks "
    "found, which depend on the public training records alone; {covered}"
)

CHECKPOINT = "a checkpoint holds the network and its optimizers, which depend on public training records and on no held-out record"

TEST_METRICS = "covered: nothing about them left the run but those encodings, and no label of theirs was used"

ASSUMED = "the clipping norm, the noise and the network were fixed without looking at the held-out records"


@final
@dataclass(frozen=True)
class FeatureReleases(Kind):
    """Noisy features of held-out records."""

    plan: FeatureReleasePlan

    @property
    def proofs(self) -> tuple[str, ...]:
        return ("feature_release.md",)

    protected = "held-out data"

    def released(self, setting: Setting) -> str:
        covered = "the encodings are covered" if setting.guaranteed else wording.NOTHING_COVERED
        return _with(RELEASED, self.plan.queries).replace("{covered}", covered)

    def checkpoint(self) -> str:
        return CHECKPOINT

    def checkpoints(self, setting: Setting) -> str:
        del setting
        return f"not covered, and there is nothing to cover: {CHECKPOINT}"

    def not_covered(self, setting: Setting) -> tuple[str, ...]:
        return (*NOT_COVERED, *wording.not_covered(setting.held_out, wording.SIDE_CHANNELS))

    def test_metrics(self, setting: Setting) -> str:
        return TEST_METRICS if setting.guaranteed else wording.NOT_COVERED

    def run_assumptions(self, setting: Setting) -> tuple[str, ...]:
        del setting
        return (wording.PUBLIC_NUMBERS, ASSUMED, *wording.RUN_ASSUMPTIONS)

    def arithmetic(self) -> tuple[ArithmeticName, ...]:
        return ("float32_features", *wording.variates(self.plan.mechanisms))

    def lines(self, setting: Setting, history: History) -> Iterator[str]:
        del setting
        plan = self.plan
        mu = upper(plan.mechanism.sensitivity.stated_l2 / plan.mechanism.std)
        yield (
            f"Released: {plan.queries} noisy feature{'' if plan.queries == 1 else 's'} of each of {plan.records} held-out records, "
            f"{noise_phrase(plan.mechanism)}, C {exact(plan.clipping_norm)}: mu {mu} a query."
        )
        yield sentence(_with(MEANING, plan.queries))
        yield sentence(ROTATION)
        yield f"Steps: {history.released} of training on public records{history.restarts}.{history.checkpoints}"


def _with(words: str, queries: int) -> str:
    return words.replace("{queries}", str(queries))
