r"""The root finder: the least safe position that is still safe, in few evaluations, and always from the safe side.

Positions u are logarithms of the parameter, signed so that larger is safer. A trial's excess is log(guaranteed mu / target mu), <= 0 if
the target is met. Against the forecast's safety w(u) = -log mu it is nearly a straight line of slope -1, so a secant in w converges in
a few steps from the forecast alone. A bracket guards the secant and is halved when steps stop helping (jumps, plateaus).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

import scipy

from zetadp.accountants import deadline

MOST_EVALUATIONS = 64
"""Every search ends by then; usual targets take 3 to 5 evaluations, a whole number at a jump up to 50."""

_ENOUGH_EVALUATIONS = 12
_LATE_SLACK = 500.0
"""After this many evaluations an answer this many times less tight is good enough: odd targets would need minutes for the last digits."""

_FIRST_REACH = math.log(30.0)
_MOST_SECANTS, _SETTLED, _FLATTEST_RISE = 12, 1e-15, 1e-6
"""Secants in a forecast: how many are tried, the relative step at which they have settled, and a slope on which they never would."""

_STEEPEST, _FLATTEST = -1e3, -1e-4
"""Slopes beyond these come from jumps and plateaus, and would make steps that are far too short or too long."""


@final
@dataclass(frozen=True)
class Problem:
    """The problem that a search solves.

    Attributes:
      low, high: the least and the most safe position.
      value: the parameter at a position; whole numbers are rounded to the safe side.
      position: its inverse.
      safety: the forecast, which rises with the position.
      excess: log(guaranteed mu / target mu) at a value of the parameter; infinite if the accountant has no answer.
      whole: whether the parameter is a whole number; the answer is then the last one that is safe.
      tightness: slack that may otherwise remain in log(parameter).
    """

    low: float
    high: float
    value: Callable[[float], float]
    position: Callable[[float], float]
    safety: Callable[[float], float]
    excess: Callable[[float], float]
    whole: bool
    tightness: float


@final
@dataclass(frozen=True)
class Trial:
    """One evaluation: position, the forecast's safety there, and the excess."""

    position: float
    value: float
    safety: float
    excess: float


@final
@dataclass(frozen=True)
class Found:
    """Where a search ended: the best safe trial and the nearest unsafe one, if they exist."""

    good: Trial | None
    bad: Trial | None
    evaluations: int
    slope: float


@final
@dataclass
class Search:
    """A search in progress. ``slope`` is the excess per unit of the forecast's safety; it starts as the caller's estimate."""

    problem: Problem
    slope: float = -1.0
    good: Trial | None = None
    bad: Trial | None = None
    trials: list[Trial] = field(default_factory=list[Trial])
    _reach: float = _FIRST_REACH
    _hop: float = 1.0

    def run(self, safety: float) -> Found:
        """Searches from the position where the forecast has this safety."""
        problem = self.problem
        position = inverted(problem.safety, safety, problem.low, problem.high, 0.0)
        while len(self.trials) < MOST_EVALUATIONS:
            deadline.check()
            self._try(position)
            if self._ended():
                break
            position = self._next()
        return Found(self.good, self.bad, len(self.trials), self.slope)

    def _try(self, position: float) -> None:
        problem = self.problem
        value = problem.value(position)
        # A limit is met exactly, not up to the rounding of a logarithm.
        position = position if position in (problem.low, problem.high) else problem.position(value)
        trial = Trial(position, value, problem.safety(position), problem.excess(value))
        if self.trials and math.isfinite(trial.excess):
            self._learn(trial, self.trials[-1])
        self.trials.append(trial)
        if trial.excess > 0.0:
            self.bad = trial if self.bad is None or position > self.bad.position else self.bad
        else:
            self.good = trial if self.good is None or position < self.good.position else self.good

    def _learn(self, trial: Trial, last: Trial) -> None:
        run, rise = trial.safety - last.safety, trial.excess - last.excess
        # Closer points say more about rounding than about the slope.
        if math.isfinite(rise) and abs(run) > 1e-9 and rise / run < 0.0:
            self.slope = min(max(rise / run, _STEEPEST), _FLATTEST)

    def _ended(self) -> bool:
        problem, good, bad = self.problem, self.good, self.bad
        if good is None:
            return bad is not None and bad.position >= problem.high
        if good.position <= problem.low:
            return True
        if problem.whole:
            return bad is not None and bad.value - good.value <= 1.0
        late = len(self.trials) >= _ENOUGH_EVALUATIONS
        if bad is not None and good.position - bad.position <= problem.tightness * (_LATE_SLACK if late else 1.0):
            return True
        # The excess shows how near the root is only if the slope is known: with more slack, a plateau would pass for the root.
        return good is self.trials[-1] and good.excess >= problem.tightness * self._steepness(good.position)

    def _steepness(self, position: float) -> float:
        """The excess per unit of position; < 0."""
        low, high = max(position - 1e-4, self.problem.low), min(position + 1e-4, self.problem.high)
        return self.slope * (self.problem.safety(high) - self.problem.safety(low)) / (high - low) if low < high else 0.0

    def _next(self) -> float:
        problem, last = self.problem, self.trials[-1]
        bracketed = self.good is not None and self.bad is not None
        if not math.isfinite(last.excess) or self._stalled():
            aim = self._middle() if bracketed else last.position + math.copysign(self._reach, last.excess)
        else:
            slack = 0.0 if problem.whole else 0.5 * problem.tightness * self._steepness(last.position)
            aim = inverted(problem.safety, self._root(slack), problem.low, problem.high, last.position)
        if not bracketed:
            aim = min(max(aim, last.position - self._reach), last.position + self._reach)
            self._reach *= 2.0
        aim = min(max(aim, problem.low), problem.high)
        return self._between_whole(aim) if problem.whole else self._between(aim)

    def _stalled(self) -> bool:
        """Whether the last step did not halve the excess."""
        if len(self.trials) < 3:
            return False
        return abs(self.trials[-1].excess) > 0.5 * min(abs(trial.excess) for trial in self.trials[-3:-1])

    def _root(self, slack: float) -> float:
        """The safety where the excess is expected to be ``slack``: the secant, bent by a third point where that is a small correction."""
        last = self.trials[-1]
        secant = (slack - last.excess) / self.slope
        finite = [trial for trial in self.trials[-3:] if math.isfinite(trial.excess)]
        if len(finite) < 3:
            return last.safety + secant
        (w2, f2), (w1, f1), (w0, f0) = ((trial.safety, trial.excess) for trial in finite)
        if len({f0, f1, f2}) < 3:
            return last.safety + secant
        first, second = (w0 - w1) / (f0 - f1), (w1 - w2) / (f1 - f2)
        bend = (slack - f0) * (slack - f1) * (first - second) / (f0 - f2)
        return last.safety + secant + (bend if abs(bend) < 0.3 * abs(secant) else 0.0)

    def _middle(self) -> float:
        assert self.good is not None  # called only with a bracket
        assert self.bad is not None
        return 0.5 * (self.good.position + self.bad.position)

    def _between(self, aim: float) -> float:
        """The aim if it is inside the bracket, otherwise the bracket's middle."""
        low = -math.inf if self.bad is None else self.bad.position
        high = math.inf if self.good is None else self.good.position
        return aim if low < aim < high else self._middle()

    def _between_whole(self, aim: float) -> float:
        """The same for whole numbers, with steps of 1, 2, 4, ... if the aim is a number already tried."""
        value = self.problem.value(aim)
        most = math.inf if self.bad is None else self.bad.value - 1.0
        least = -math.inf if self.good is None else self.good.value + 1.0
        if not least <= value <= most:
            value = min(max(value, least + self._hop - 1.0), most - (0.0 if value < least else self._hop - 1.0))
            self._hop *= 2.0
        return self.problem.position(min(max(value, least), most))


def inverted(rising: Callable[[float], float], value: float, low: float, high: float, start: float) -> float:
    """Where a rising function has this value, between ``low`` and ``high`` or at the nearer of them. ``start``: where it may be."""
    if (found := _by_secants(rising, value, low, high, min(max(start, low), high))) is not None:
        return found
    below, above = rising(low) - value, rising(high) - value
    if below >= 0.0:
        return low
    if above <= 0.0:
        return high
    return float(scipy.optimize.brentq(lambda x: rising(x) - value, low, high, xtol=1e-15, rtol=1e-15))


def _by_secants(rising: Callable[[float], float], value: float, low: float, high: float, x: float) -> float | None:
    """The same by a few secants, for functions that are nearly straight; None where they don't settle within the limits."""
    excess, slope = rising(x) - value, 1.0
    for _ in range(_MOST_SECANTS):
        moved = x - excess / slope
        if not low < moved < high:
            return None
        if abs(moved - x) <= _SETTLED * max(1.0, abs(moved)):
            return moved
        last, excess = excess, rising(moved) - value
        slope, x = (excess - last) / (moved - x), moved
        if excess == 0.0:
            return x
        if not _FLATTEST_RISE < slope < math.inf:
            return None
    return None
