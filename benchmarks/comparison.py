r"""Fifty random rows and the corner list, beside the peers and held against truths of 50 digits: the plan is docs/comparison.md."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from statistics import median

from benchmarks import peers, peers_apart, truths
from benchmarks.compare import Ratio, geometric_mean, goal, line
from benchmarks.compare import ratio as ratio_here
from benchmarks.peers_apart import Answer, Asked
from benchmarks.questions import CORNERS, Question, random_rows
from zetadp.accountants import profile
from zetadp.mechanisms.errors import PrivacyError

ESTIMATES = ("jax-privacy Monte Carlo",)
"""Whose answers aren't claimed to be upper bounds."""

SAMPLED_DELTA, SAMPLED_COUNT = 1e-4, 3000
"""The Monte Carlo accountant isn't asked for smaller deltas or more releases."""

OURS = "zetadp"

_serial = itertools.count(1)


@dataclass
class Score:
    """What one peer did on several questions."""

    factors: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    asked: int = 0
    widths: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unsafe: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Ours:
    """Our answer: the ends of a bracket of epsilon, or of delta where that was asked for."""

    lower: float
    upper: float
    route: str

    @property
    def width(self) -> float:
        return (self.upper - self.lower) / self.upper if self.upper > 0.0 else 0.0


def run() -> Iterator[str]:
    """The report's lines."""
    yield "ratio = peer's CPU time / ours, medians of work done in turn; above 1 we are faster"
    yield from compared("random rows", random_rows(), 1)
    yield from compared("corner list", CORNERS, 1)


def compared(name: str, questions: Iterable[Question], rounds: int) -> Generator[str, None, dict[str, Score]]:
    """The report of each question; returns what each accountant came to."""
    running = []
    for peer in peers_apart.PEERS:
        reason = peers_apart.missing(peer)
        if reason is None:
            running.append(Asked(peer))
        else:
            yield f"  {reason}"
    if not truths.is_installed():
        yield "  python-flint isn't installed, so nothing is held against a truth; make peers installs it"
    scores: dict[str, Score] = {}
    for number, question in enumerate(questions, 1):
        yield from _row(f"{name} {number}", question, rounds, running, scores)
    for asked in running:
        asked.close()
    for peer, score in scores.items():
        yield _summary(name, peer, score)
    own = scores[OURS]
    yield goal(f"{name}: unsafe answers of ours", len(own.unsafe), 0, "", at_most=True)
    yield goal(f"{name}: answers of ours", own.asked - len(own.refused), own.asked, "")
    return scores


def answered(question: Question) -> Ours:
    """Our bracket. Raises PrivacyError."""
    if question.epsilon is not None:
        found = profile(question.event()).delta(question.epsilon)
        return Ours(found.lower, found.upper, found.route)
    assert question.delta is not None
    bound = profile(question.event()).epsilon(question.delta)
    return Ours(bound.lower, bound.upper, bound.route)


def fresh(question: Question) -> Question:
    """The question with other last digits, never the same twice: whatever remembers answers has to compute this one."""
    return replace(question, multiplier=question.multiplier * (1.0 + 1e-12 * next(_serial)))


def _row(name: str, question: Question, rounds: int, running: list[Asked], scores: dict[str, Score]) -> Iterator[str]:
    own = scores.setdefault(OURS, Score())
    own.asked += 1
    try:
        bound = answered(question)
    except (PrivacyError, ArithmeticError) as refusal:
        own.refused.append(question.text())
        yield f"{name}: {question.text()}: refused: {refusal!r}"
        return
    own.widths.append(bound.width)
    truth = truths.find(question, 0.5 * (bound.lower + bound.upper)) if truths.is_installed() else None
    exact = None if truth is None else truth.exact
    yield f"{name}: {question.text()}: [{bound.lower:.17g}, {bound.upper:.17g}] by {bound.route}, width {bound.width:.1e}"
    if truth is not None:
        yield f"    truth {truth.value or truth.reason} ({truth.seconds:.1f} s){'' if exact is None else f': {_held(bound, exact)}'}"
    if exact is not None:
        own.errors.append(_error(bound.upper, exact))
        if _held(bound, exact) != "holds":
            own.unsafe.append(question.text())
    if question.is_plain:
        for peer, ask in _asked(question, running):
            yield _beside(peer, ask(question, rounds), exact, question, scores.setdefault(peer, Score()))


def _asked(question: Question, running: list[Asked]) -> Iterator[tuple[str, Callable[[Question, int], tuple[Ratio | None, Answer]]]]:
    for name, ask in ((peers.PLD_NAME, peers.loss_distribution), ("dp-accounting RDP", peers.renyi)):
        yield name, lambda asked, rounds, ask=ask: _here(ask, asked, rounds)
    for one in running:
        is_small = question.count <= SAMPLED_COUNT and (question.delta or 0.0) >= SAMPLED_DELTA
        if one.peer.name not in ESTIMATES or is_small:
            yield one.peer.name, lambda asked, rounds, one=one: _apart(one, asked, rounds)


def _here(ask: Callable[..., float], question: Question, rounds: int) -> tuple[Ratio | None, Answer]:
    assert question.delta is not None
    event, delta = peers.training(question.probability, question.multiplier, question.count), question.delta
    try:
        value = ask(event, delta)
    except Exception as error:
        return None, Answer(math.nan, f"{type(error).__name__}: {error}"[:120], math.nan)
    if not math.isfinite(value):
        return None, Answer(value, f"answers {value}", math.nan)
    measured = ratio_here(lambda: answered(fresh(question)), lambda: ask(event, delta), rounds)
    return measured, Answer(value, "", measured.theirs)


def _apart(one: Asked, question: Question, rounds: int) -> tuple[Ratio | None, Answer]:
    assert question.delta is not None
    row = question.probability, question.multiplier, question.count, question.delta
    return peers_apart.ratio(lambda: answered(fresh(question)), lambda: one.ask(*row), rounds)


def _beside(peer: str, found: tuple[Ratio | None, Answer], exact: Decimal | None, question: Question, score: Score) -> str:
    measured, answer = found
    score.asked += 1
    if measured is None:
        score.refused.append(question.text())
        return f"    {peer:34s} no answer: {answer.error}"
    score.factors.append(measured.factor)
    note = f"{answer.value:.10g}"
    if exact is not None:
        error = _error(answer.value, exact)
        score.errors.append(error)
        is_below = Decimal(answer.value) < exact
        if is_below and peer not in ESTIMATES:
            score.unsafe.append(question.text())
        note += f", error {error:+.1e}{', BELOW THE TRUTH' if is_below else ''}"
    return "    " + line("", peer, measured, note).lstrip()


def _held(bound: Ours, exact: Decimal) -> str:
    """Whether the bracket holds the truth, told with all digits."""
    if Decimal(bound.upper) < exact:
        return "UPPER END BELOW THE TRUTH"
    return "holds" if Decimal(bound.lower) <= exact else "LOWER END ABOVE THE TRUTH"


def _error(value: float, exact: Decimal) -> float:
    return float((Decimal(value) - exact) / exact) if exact else value


def _summary(name: str, peer: str, score: Score) -> str:
    speed = f"{geometric_mean(score.factors):9.2f} x" if score.factors else f"{'':11s}"
    sizes = sorted(abs(error) for error in score.errors)
    errors = f"|error| median {median(sizes):.1e}, largest {sizes[-1]:.1e}" if sizes else "no errors known"
    unsafe = f"unsafe {len(score.unsafe)} of {len(score.errors)}"
    claim = "an estimate" if peer in ESTIMATES else unsafe
    return f"  {name}: {peer:34s} {speed}   {errors}   {claim}   no answer {len(score.refused)} of {score.asked}"
