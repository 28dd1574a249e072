r"""A private selection: of a secret number of runs the best one is released, and nothing of the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from zetadp.app.certificates.facts import wording
from zetadp.app.certificates.facts.decimals import exact
from zetadp.app.certificates.facts.wording import ArithmeticName
from zetadp.app.certificates.words.kinds.base import History, Kind, Setting
from zetadp.app.certificates.words.kinds.gradient_sums import GradientSums
from zetadp.mechanisms.declared.runs import AnyRuns
from zetadp.trainer.specs.algorithms.selection_plan import SelectionPlan

RELEASED = {
    "public": "of the most accurate run the final model, its candidate's name, and metrics on public held-out records",
    "private": "of the most accurate run the final model, its candidate's name, and the last noisy count of its correct answers",
}

COVERED = "the guarantee counts that it is the best of all runs; nothing else of any run came out, not even how many there were"

NO_CHECKPOINT = "none was kept: all runs were deleted once the best one's model was written"

CANDIDATES = "the candidates were chosen without looking at the data; choosing among them is counted"

DRAWN_BEFORE = (
    "the number of runs was drawn before the first one from the stated law, up to 2^-255 for each number, and each run's candidate "
    "uniformly; a run that failed counts as the least accurate (selected.md)"
)

SELECTION = (
    "hyper-parameter search beyond the candidates named here: if other runs on the same data were used to choose these, they cost "
    "additional privacy (choosing among the candidates doesn't: it is counted)"
)

RUNNING = "the running time of the whole, from which the number of runs can be guessed; and every other side channel of the machine"

TESTED = (
    "Every run tested the noise and the samples that it drew; had one not been as claimed, nothing would have come out. What the tests "
    "counted isn't stated, since it would tell of the runs."
)

LAWS = {
    "poisson": "Poisson",
    "geometric": "geometric",
    "logarithmic": "logarithmic",
    "truncated_negative_binomial": "truncated negative binomial",
}


@final
@dataclass(frozen=True)
class PrivateSelections(Kind):
    """The best of several runs of noisy sums."""

    plan: SelectionPlan

    @property
    def proofs(self) -> tuple[str, ...]:
        return ("selected.md", *self._one_run.proofs)

    @property
    def _one_run(self) -> GradientSums:
        return GradientSums(self.plan.one_run)

    def released(self, setting: Setting) -> str:
        covered = COVERED if setting.guaranteed else wording.NOTHING_COVERED
        averaged = f"; {setting.averages('a model')}" if setting.averaged else ""
        return f"{RELEASED[setting.held_out]}; {covered}{averaged}"

    def checkpoint(self) -> str:
        return NO_CHECKPOINT

    def checkpoints(self, setting: Setting) -> str:
        del setting
        return NO_CHECKPOINT

    def run_assumptions(self, setting: Setting) -> tuple[str, ...]:
        own = (CANDIDATES if one == wording.RUN_ASSUMPTIONS[0] else one for one in self._one_run.run_assumptions(setting))
        return (*own, DRAWN_BEFORE)

    def not_covered(self, setting: Setting) -> tuple[str, ...]:
        return (SELECTION, *wording.not_covered(setting.held_out, RUNNING)[1:])

    def arithmetic(self) -> tuple[ArithmeticName, ...]:
        found = (GradientSums(candidate.plan).arithmetic() for candidate in self.plan.candidates)
        return tuple(dict.fromkeys(name for names in found for name in names))

    def lines(self, setting: Setting, history: History) -> Iterator[str]:
        names = ", ".join(candidate.name for candidate in self.plan.candidates)
        yield (
            f"Private selection: a secret number of runs, of {_law(self.plan.runs)}, each with one of {len(self.plan.candidates)} "
            f"candidates, drawn uniformly: {names}.{history.checkpoints}"
        )
        yield f"Outcome: {_outcome(history)}{history.restarts}. {TESTED}"
        yield "A run with the candidate that has the least noise for what it bounds, as all runs are counted:"
        of_one = History(self.plan.steps, history.test_records)
        yield from (f"  {line}" for line in self._one_run.lines(setting, of_one))


def _outcome(history: History) -> str:
    if history.selected is None or history.selected.candidate is None:
        return "no model; there was no run, or all runs failed, and which of the two isn't told"
    return f"the model of a run with {history.selected.candidate}"


def _law(runs: AnyRuns) -> str:
    shape = f" of shape {exact(runs.shape)}" if runs.kind == "truncated_negative_binomial" else ""
    return f"{LAWS[runs.kind]} law{shape} with mean {exact(runs.mean)}"
