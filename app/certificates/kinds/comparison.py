r"""Several trainings on one data set, all of them released: what all together cost is what is guaranteed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

from accountants.events import Composed, Event, NonPrivate, neighbourhood, releases
from app.certificates import wording
from app.certificates.comparison import ComparisonFacts, PartFacts, PartGuarantee
from app.certificates.facts import releases_of
from app.certificates.kinds.base import Kind, Sentence, Setting, Training
from app.certificates.kinds.phrases import sentence
from app.certificates.kinds.single import single_kind
from app.certificates.kinds.unprotected import NO_ROWS

_TABLE = "The metrics stated here are those of the first part; those of all are in the table"

_MEANING = (
    "all parts are released, so what is guaranteed is all of them together, and choosing among them by their results costs nothing more: "
    "every part is counted, whichever is kept. A part's own figures are for someone who sees that part's releases and nothing of the "
    "others, and no guarantee of this run. " + _TABLE
)

_NOTHING = (
    "all parts are released, and nothing is guaranteed of them together. What stands at a part is what its releases alone would guarantee "
    "to someone who saw nothing of the others, and no guarantee of this run. " + _TABLE
)

RELEASED = "of every part {released}; the table and the plots that compare them"

COVERED = (
    "the guarantee of the whole holds for someone who sees everything that any part released, but for the times and the memory that the "
    "table and the plots tell"
)

RUNNING = (
    "running time and memory, which the table and the plots tell of every part: what a step takes depends on how many records it drew; and "
    "every other side channel of the machine"
)

SELECTION = (
    "hyper-parameter search beyond the parts named here: if other runs on the same data were used to choose these, they cost privacy of "
    "their own (choosing among the parts doesn't: all of them are counted)"
)


def meaning(setting: Setting) -> str:
    """What the parts' own figures are, and what is paid for."""
    return _MEANING if setting.guaranteed else _NOTHING


@final
@dataclass(frozen=True)
class Comparison(Kind):
    """All parts together."""

    facts: ComparisonFacts

    def released(self, setting: Setting) -> str:
        covered = COVERED if setting.guaranteed else wording.NOTHING_COVERED
        return f"{RELEASED.replace('{released}', wording.RELEASED[setting.held_out])}; {covered}"

    def other_rows(self, setting: Setting) -> str:
        return super().other_rows(setting) if setting.guaranteed else NO_ROWS

    def checkpoint(self) -> str:
        held = dict.fromkeys(kind.checkpoint() for _, kind in self._kinds())
        return f"the results of finished parts, and of the one that is running: {'; '.join(held)}"

    def not_covered(self, setting: Setting) -> tuple[str, ...]:
        return (SELECTION, *wording.not_covered(setting.held_out, RUNNING)[1:])

    def run_assumptions(self, setting: Setting) -> tuple[str, ...]:
        return tuple(dict.fromkeys(line for part, kind in self._kinds() for line in kind.run_assumptions(_setting(part, setting))))

    def arithmetic(self, setting: Setting) -> str:
        return "; ".join(dict.fromkeys(kind.arithmetic(_setting(part, setting)) for part, kind in self._kinds()))

    def sentences(self, setting: Setting) -> Iterator[Sentence]:
        yield "comparison.meaning", self.facts.meaning, meaning(setting)
        for part, kind in self._kinds():
            yield from ((f"comparison.{part.name}.{path}", stated, ours) for path, stated, ours in kind.sentences(_setting(part, setting)))

    def problems(self, training: Training) -> Iterator[str]:
        names = [part.name for part in self.facts.parts]
        if len(set(names)) != len(names):
            yield "comparison.parts: two have one name"
        if not _is_composed_of([part.event for part in self.facts.parts], training.event):
            yield "comparison.parts: the event isn't that of all parts together"
        for what, stated, added in (
            ("planned", training.steps.planned, sum(part.steps.planned for part in self.facts.parts)),
            ("released", training.steps.released, sum(part.steps.released for part in self.facts.parts)),
        ):
            if stated != added:
                yield f"steps.{what}: the certificate says {stated}, its parts have {added}"
        yield from training.unsampled_problems()
        for part in self.facts.parts:
            kind = single_kind(part)
            found = ("its sections aren't those of one kind of training",) if kind is None else kind.problems(_training(part, training))
            yield from (f"part {part.name}: {problem}" for problem in found)
            if part.steps.released > part.steps.planned:
                yield f"part {part.name}: {part.steps.released} steps were released of {part.steps.planned} planned"
            if (part.by_itself.epsilon is None) == (part.by_itself.reason is None):
                yield f"part {part.name}: by_itself has either an epsilon or a reason why there is none"

    def lines(self, training: Training) -> Iterator[str]:
        yield f"Parts: {len(self.facts.parts)}. {sentence(self.facts.meaning)}"
        for part, kind in self._kinds():
            yield f"  {part.name} ({part.algorithm}): {_own(part.by_itself)}."
            yield from (f"    {line}" for line in kind.lines(_training(part, training)))

    def _kinds(self) -> Iterator[tuple[PartFacts, Kind]]:
        """Of the parts that can be read."""
        return ((part, kind) for part in self.facts.parts if (kind := single_kind(part)) is not None)


def _own(by_itself: PartGuarantee) -> str:
    if by_itself.epsilon is None:
        return f"no guarantee: {by_itself.reason}"
    pure = "" if by_itself.pure_epsilon is None else f", or epsilon {by_itself.pure_epsilon} at delta 0"
    return f"by itself epsilon {by_itself.epsilon} at delta {by_itself.delta}{pure} (no guarantee of this run)"


def _setting(part: PartFacts, whole: Setting) -> Setting:
    return Setting(
        mechanisms=tuple(leaf.mechanism for leaf in releases(part.event)),
        unit=whole.unit,
        records_per_unit=whole.records_per_unit,
        held_out=whole.held_out,
        precision=whole.precision,
        guaranteed=whole.guaranteed,
        is_declared=whole.is_declared,
    )


def _training(part: PartFacts, whole: Training) -> Training:
    return Training(
        event=part.event,
        steps=part.steps,
        releases=releases_of(part.event),
        unit=whole.unit,
        units_name=whole.units_name,
        units=whole.units,
        expected_batch_size=part.expected_batch_size,
        counts=part.counts,
        test_records=whole.test_records,
    )


def _is_composed_of(parts: Sequence[Event], whole: Event) -> bool:
    meanings = {pair for event in parts if (pair := neighbourhood(event)) is not None}
    # Guarantees for different neighbours don't add up, so nothing may be claimed of such parts together.
    return whole == Composed(events=tuple(parts)) if len(meanings) <= 1 else isinstance(whole, NonPrivate)
