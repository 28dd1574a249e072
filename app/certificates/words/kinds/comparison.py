r"""Several trainings on one data set, all of them released: the guarantee is for all of them together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from zetadp.app.certificates.facts import wording
from zetadp.app.certificates.facts.phrases import sentence
from zetadp.app.certificates.facts.statement import PartFacts, PartGuarantee
from zetadp.app.certificates.facts.wording import ArithmeticName
from zetadp.app.certificates.words.kinds.base import History, Kind, Setting
from zetadp.app.certificates.words.kinds.single import single_kind
from zetadp.app.certificates.words.kinds.unprotected import NO_ROWS
from zetadp.trainer.specs.plans import ComparisonPlan

_TABLE = "The metrics stated here are those of the first part; the table has those of all parts"

_MEANING = (
    "all parts are released, so the guarantee is for all of them together, and choosing among them by their results costs nothing more: "
    "every part is counted, whichever is kept. A part's own figures hold for someone who sees only that part's releases; they are no "
    "guarantee of this run. " + _TABLE
)

_NOTHING = (
    "all parts are released, and nothing is guaranteed for them together. A part's own figures are what its releases alone would guarantee "
    "against someone who saw only these; they are no guarantee of this run. " + _TABLE
)

RELEASED = "for every part {released}; the table and the plots that compare the parts"

COVERED = (
    "the guarantee of the whole holds against someone who sees everything that any part released, except the running times and the memory "
    "in the table and the plots"
)

RUNNING = (
    "running time and memory, which the table and the plots show for every part: they depend on how many records a step drew; and every "
    "other side channel of the machine"
)

SELECTION = (
    "hyper-parameter search beyond the parts named here: if other runs on the same data were used to choose these, they cost "
    "additional privacy (choosing among the parts doesn't: all of them are counted)"
)


@final
@dataclass(frozen=True)
class Comparison(Kind):
    """All parts together; ``facts``: the facts of each in addition to its plan, in the plan's order."""

    plan: ComparisonPlan
    facts: tuple[PartFacts, ...]

    def released(self, setting: Setting) -> str:
        covered = COVERED if setting.guaranteed else wording.NOTHING_COVERED
        averaged = f"; {setting.averages('a model')}" if setting.averaged else ""
        return f"{RELEASED.replace('{released}', wording.RELEASED[setting.held_out])}; {covered}{averaged}"

    def other_rows(self, setting: Setting) -> str:
        return super().other_rows(setting) if setting.guaranteed else NO_ROWS

    def checkpoint(self) -> str:
        held = dict.fromkeys(kind.checkpoint() for kind in self._kinds())
        return f"the results of finished parts, and of the running part: {'; '.join(held)}"

    def not_covered(self, setting: Setting) -> tuple[str, ...]:
        return (SELECTION, *wording.not_covered(setting.held_out, RUNNING)[1:])

    def run_assumptions(self, setting: Setting) -> tuple[str, ...]:
        return tuple(dict.fromkeys(line for kind in self._kinds() for line in kind.run_assumptions(setting)))

    def arithmetic(self) -> tuple[ArithmeticName, ...]:
        return tuple(dict.fromkeys(name for kind in self._kinds() for name in kind.arithmetic()))

    def lines(self, setting: Setting, history: History) -> Iterator[str]:
        yield f"Parts: {len(self.facts)}. {sentence(_MEANING if setting.guaranteed else _NOTHING)}"
        for facts, part, kind in zip(self.facts, self.plan.parts, self._kinds(), strict=True):
            yield f"  {facts.name} ({facts.algorithm}): {_own(facts.by_itself)}."
            of_part = History(part.plan.steps, history.test_records)
            yield from (f"    {line}" for line in kind.lines(setting, of_part))

    def _kinds(self) -> list[Kind]:
        return [single_kind(part.plan) for part in self.plan.parts]


def _own(by_itself: PartGuarantee) -> str:
    if by_itself.epsilon is None:
        return f"no guarantee: {by_itself.reason}"
    pure = "" if by_itself.pure_epsilon is None else f", or epsilon {by_itself.pure_epsilon} at delta 0"
    return f"by itself epsilon {by_itself.epsilon} at delta {by_itself.delta}{pure} (no guarantee of this run)"
