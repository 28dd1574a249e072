"""Plans for parts with so many jumps, and which of them are worth a trial first. Nothing proved rests on them: proofs/contour.md (J)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, final

from zetadp.accountants.routes.contour.parts import Jumps, SlowDecay

GOOD_GAP = 4.0
"""Plans whose moments outweigh delta by less, as a logarithm, are as good as another survey's."""

_MOST_TRIALS, _STEEPER_BY = 3, 1.5
"""Plans of each kind that are worth a trial, and a factor of steepness: where one fails, so do those that are nearer to it."""

TOO_LONG = 1000.0
"""What is added to the score of a plan that would take too long."""


@final
class Piece(NamedTuple):
    """A part as planned, with the distance that its aliases need."""

    jumps: Jumps
    tilt: float
    end: float
    gap: float
    period: float


@dataclass(frozen=True)
class Plan:
    """Where jumps begin, the pieces that matter, those of fewer and of at least so many jumps, and the epsilon."""

    centre: float
    steepness: float
    pieces: tuple[Piece, ...]
    below: tuple[Piece, ...]
    above: Piece | None
    epsilon: float

    @property
    def is_numbered(self) -> bool:
        """Whether each part has its number of jumps, or the last one any."""
        return self.pieces[-1].jumps.number is not None


@final
class Candidate(NamedTuple):
    """A plan, its score without what it costs, and that: lower scores are better."""

    score: float
    plan: Plan
    cost: Callable[[], float]


@final
class Ranking:
    """Candidates by their scores, of which only the best ones' costs are found."""

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        self._heap: list[tuple[float, int, Candidate | Plan]] = []
        self._number = 0
        self.add(candidates)

    def add(self, candidates: Iterable[Candidate]) -> None:
        """More of them."""
        for one in candidates:
            self._push(one.score, one)

    def _push(self, score: float, one: Candidate | Plan) -> None:
        self._number += 1
        heapq.heappush(self._heap, (score, self._number, one))

    def first(self) -> Plan | None:
        """The best one, were time of no account."""
        while self._heap:
            one = self._heap[0][2]
            if isinstance(one, Plan):
                return one
            self._price()
        return None

    def unlike(self, apart: float) -> Iterator[Plan]:
        """The best ones in their order, ``_MOST_TRIALS`` of each kind, without those that are much like an earlier one.

        Raises:
          SlowDecay: all would take too long, even good ones.
        """
        found: dict[bool, list[Plan]] = {False: [], True: []}
        while self._heap and self._heap[0][0] < TOO_LONG:
            one = self._heap[0][2]
            plan = one if isinstance(one, Plan) else one.plan
            same = found[plan.is_numbered]
            if len(same) == _MOST_TRIALS or any(_is_like(plan, other, apart) for other in same):
                heapq.heappop(self._heap)
            elif isinstance(one, Plan):
                heapq.heappop(self._heap)
                same.append(plan)
                yield plan
            else:
                self._price()
        if not any(found.values()) and any(_is_good(one) for _, _, one in self._heap):
            raise SlowDecay("its jumps' moment function would take too many points")

    def _price(self) -> None:
        """Puts the first candidate where its cost belongs."""
        score, _, one = heapq.heappop(self._heap)
        assert isinstance(one, Candidate)
        if (cost := one.cost()) < math.inf:
            self._push(score + cost, one.plan)


def _is_good(one: Candidate | Plan) -> bool:
    """Whether another survey would hardly have better ones."""
    plan = one if isinstance(one, Plan) else one.plan
    return max(piece.gap for piece in plan.pieces) < GOOD_GAP


def _is_like(one: Plan, other: Plan, apart: float) -> bool:
    is_near = abs(one.centre - other.centre) < apart and len(one.pieces) == len(other.pieces)
    return is_near and abs(math.log(one.steepness / other.steepness)) <= math.log(_STEEPER_BY)
