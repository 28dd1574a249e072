r"""The trade-off curve's supporting lines: what delta as a function of epsilon says about every test between two neighbours.

Each (epsilon, delta) holds for all tests at once, so any epsilon gives a sound line. For each alpha a search looks for a good one; missing
it only costs tightness. Proof: proofs/conversions.md, sections 1 and 2.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import final

import scipy

from zetadp.accountants import deadline
from zetadp.mechanisms.errors import NumericalFloor
from zetadp.mechanisms.numerics import logspace
from zetadp.mechanisms.numerics.gdp import gdp_log_delta

_LARGEST_EPSILON = 709.0
"""Beyond it e^epsilon overflows; a line with such a slope only says something about alpha < 1e-308."""

_SMALLEST_LOG_DELTA = -700.0
_GRID_RATIO = 1.6
_EDGE_STEPS = 16
_MOST_ROUNDS = 30
_GAUSSIAN_TURNS = 2
_RESOLVED = 0.1
_TOLERANCE = 1e-7
"""The search ends when concavity leaves no larger relative gain than this."""


@final
@dataclass(frozen=True)
class Line:
    r"""beta >= 1 - delta - e^epsilon alpha, for a signed epsilon: below 0 it is the mirror image, by the symmetry of neighbours.

    H_{e^-e}(P || Q) = 1 - e^-e (1 - H_{e^e}(Q || P)) turns the line of -e into beta >= e^-e (1 - delta(e) - alpha).

    Attributes:
      epsilon: log of the slope's size, |epsilon| <= 709.
      log_delta: upper end of log delta(|epsilon|).
    """

    epsilon: float
    log_delta: float

    def false_negative_rate(self, alpha: float) -> float:
        """Lower bound on beta at this alpha, rounded down; may be negative, in which case the line says nothing."""
        if self.epsilon > 0.0:
            kept = _down(-math.expm1(self.log_delta))
            return _down(kept - _up(logspace.exp_up(self.epsilon) * alpha))
        rest = self._rest(alpha)
        return _down((logspace.exp_down(self.epsilon) if rest > 0.0 else logspace.exp_up(self.epsilon)) * rest)

    def true_positive_rate(self, alpha: float) -> float:
        """Upper bound on 1 - beta, rounded up; keeps its digits far below 1. May exceed 1, in which case the line says nothing."""
        delta = logspace.exp_up(self.log_delta)
        if self.epsilon > 0.0:
            return _up(delta + _up(logspace.exp_up(self.epsilon) * alpha))
        rest = max(0.0, _up(_up(1.0 - alpha) - math.exp(self.log_delta) * (1.0 - 1e-15)))
        extra = _up(_up(-math.expm1(self.epsilon)) * rest)
        return _up(_up(alpha + delta) + extra)

    def _rest(self, alpha: float) -> float:
        """1 - alpha - delta, rounded down; 1 - alpha itself is exact from 1/2 on."""
        complement = 1.0 - alpha
        if 1.0 - complement != alpha:
            complement = _down(complement)
        return _down(complement - logspace.exp_up(self.log_delta)) if self.log_delta > -math.inf else complement


def _up(value: float) -> float:
    return math.nextafter(value, math.inf)


def _down(value: float) -> float:
    return math.nextafter(value, -math.inf)


@final
class SupportingLines:
    """Finds the best line for an alpha. The answer depends only on alpha and the profile, not on earlier queries."""

    def __init__(self, log_delta: Callable[[float], float]) -> None:
        """``log_delta``: upper end of log delta(epsilon) for epsilon >= 0; may raise NumericalFloor if it has none."""
        self._log_delta = log_delta

    def best(self, alpha: float) -> Line:
        """The best or nearly the best line for a test of false positive rate ``alpha``, in [0, 1].

        Raises:
          NumericalFloor: not even delta(0) is known.
        """
        # beta far below 1 is compared as beta, beta near 1 as 1 - beta: each keeps the digits of the small number.
        small = min(line.true_positive_rate(alpha) for line in self._grid) < 0.5
        return _Search(self.line, alpha, small=small).run(self._grid)

    @property
    def known(self) -> tuple[Line, ...]:
        """Lines at epsilon >= 0, rising, from 0 up to where delta vanishes or is no longer known."""
        return tuple(line for line in self._grid if line.epsilon >= 0.0)

    def line(self, epsilon: float) -> Line:
        """The line of this signed epsilon. If its delta isn't known, a smaller epsilon of the grid replaces it: delta only falls."""
        stand_in = next(line.log_delta for line in reversed(self._grid) if 0.0 <= line.epsilon <= abs(epsilon))
        return self._known(epsilon) or Line(epsilon, stand_in)

    def _known(self, epsilon: float) -> Line | None:
        deadline.check()
        try:
            return Line(epsilon, self._log_delta(abs(epsilon)))
        except NumericalFloor:
            return None

    @cached_property
    def _grid(self) -> tuple[Line, ...]:
        """Lines at 0 and +-step ratio^k, up to where delta vanishes or is no longer known; step is set by the advantage."""
        first = Line(0.0, self._log_delta(0.0))
        advantage = min(math.exp(first.log_delta), 1.0 - 1e-12)
        # mu of the Gaussian pair with this advantage: the scale on which delta falls, up to a factor that the geometric grid covers.
        step = 0.5 * float(scipy.special.ndtri(0.5 + 0.5 * advantage))
        positive = [first]
        while positive[-1].log_delta > _SMALLEST_LOG_DELTA and 0.0 < step <= _LARGEST_EPSILON:
            line = self._known(step)
            positive += self._edge(positive[-1], step) if line is None else [line]
            if line is None:
                break
            step *= _GRID_RATIO
        # delta only falls: this gives two more lines at no cost, so that a maximum at the last one is inside a bracket.
        last = max(positive[-1].epsilon, 1e-3)
        positive += [Line(last * factor, positive[-1].log_delta) for factor in (1.5, 2.0) if last * factor <= _LARGEST_EPSILON]
        return (*(Line(-line.epsilon, line.log_delta) for line in reversed(positive[1:])), *positive)

    def _edge(self, known: Line, unknown: float) -> list[Line]:
        """Lines on the way from the last epsilon with a delta towards the first without one, by bisection."""
        found = [known]
        for _ in range(_EDGE_STEPS):
            middle = 0.5 * (found[-1].epsilon + unknown)
            line = self._known(middle)
            if line is None:
                unknown = middle
            else:
                found.append(line)
        return found[1:]


@final
@dataclass(frozen=True, order=True)
class _Point:
    """A line with its rate at alpha: height = -(1 - beta) or beta, concave in e^epsilon, and score = its logarithm, for comparisons."""

    epsilon: float
    height: float
    score: float
    line: Line


@final
class _Search:
    """Maximises a line's bound over epsilon: three points with the best inside bracket the maximum."""

    def __init__(self, line_at: Callable[[float], Line], alpha: float, *, small: bool) -> None:
        self._line_at = line_at
        self._alpha = alpha
        self._small = small

    def _point(self, line: Line) -> _Point:
        if self._small:
            rate = line.true_positive_rate(self._alpha)
            return _Point(line.epsilon, -rate, -math.log(rate) if rate > 0.0 else math.inf, line)
        rate = line.false_negative_rate(self._alpha)
        return _Point(line.epsilon, rate, math.log(rate) if rate > 0.0 else -math.inf, line)

    def run(self, grid: tuple[Line, ...]) -> Line:
        points = [self._point(line) for line in grid]
        for turn in range(_MOST_ROUNDS):
            best = max(range(len(points)), key=lambda k: points[k].score)
            if not 2 <= best < len(points) - 2:
                break
            corner = _corner(points, best)
            if corner is None or corner[0] - points[best].height <= _TOLERANCE * abs(points[best].height):
                break
            bracket = points[best - 1 : best + 2]
            gaussian = _gaussian_guess(points[best].line, self._alpha) if turn < _GAUSSIAN_TURNS else math.nan
            guess = gaussian if bracket[0].epsilon < gaussian < bracket[2].epsilon else _guess(bracket, corner[1], turn)
            if any(point.epsilon == guess for point in points):
                break
            insort(points, self._point(self._line_at(guess)))
        return max(points, key=lambda point: point.score).line


def _gaussian_guess(line: Line, alpha: float) -> float:
    """The best epsilon if the profile were that of mu-GDP with this line's delta: many compositions nearly are."""
    low, high = math.log(1e-12), math.log(1e3)
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if gdp_log_delta(math.exp(middle), abs(line.epsilon)) < line.log_delta else (low, middle)
    mu = math.exp(low)
    return -mu * float(scipy.special.ndtri(alpha)) - 0.5 * mu * mu


def _guess(bracket: list[_Point], corner: float, turn: int) -> float:
    """Where to look next: a parabola follows smooth curves, secants on either side find the corners of laws with atoms."""
    a, b, c = bracket
    left, right = b.epsilon - a.epsilon, c.epsilon - b.epsilon
    middle = b.epsilon - 0.5 * left if left > right else b.epsilon + 0.5 * right
    if turn % 2 == 1 and b.score - min(a.score, c.score) > _RESOLVED:
        return middle
    rise, fall = (b.score - a.score) / left, (b.score - c.score) / right
    bend = (rise + fall) / (left + right)
    guess = corner
    if turn % 4 < 2 and 0.0 < bend < math.inf:
        # Within this distance of its vertex the parabola loses less than the tolerance; the bracket is then tightened to show this.
        close = 0.5 * math.sqrt(_TOLERANCE / bend)
        vertex = b.epsilon + 0.5 * (rise * right - fall * left) / (rise + fall)
        inward = b.epsilon - close if left > right else b.epsilon + close
        guess = vertex if abs(vertex - b.epsilon) > close else inward
    return guess if a.epsilon < guess < c.epsilon and guess != b.epsilon else middle


def _corner(points: list[_Point], best: int) -> tuple[float, float] | None:
    """(height, epsilon) of the highest point that a concave curve through the points can reach, with straight lines in e^epsilon."""
    meetings = [_meeting(*points[k : k + 4]) for k in (best - 2, best - 1)]
    return max((meeting for meeting in meetings if meeting is not None), default=None)


def _meeting(a: _Point, b: _Point, c: _Point, d: _Point) -> tuple[float, float] | None:
    """(height, epsilon) where the line through a and b, as functions of e^epsilon, meets the one through c and d; None if they don't."""
    rise = (b.height - a.height) / -math.expm1(a.epsilon - b.epsilon)
    if d.epsilon - b.epsilon < _LARGEST_EPSILON:
        fall = (d.height - c.height) / (math.exp(c.epsilon - b.epsilon) * math.expm1(d.epsilon - c.epsilon))
        gap = math.expm1(c.epsilon - b.epsilon)
    elif c.epsilon - b.epsilon < _LARGEST_EPSILON:
        fall, gap = 0.0, math.expm1(c.epsilon - b.epsilon)
    else:
        return None
    # In units of e^b: b.height + rise t = c.height + fall (t - gap).
    if not rise > fall:
        return None
    t = (c.height - b.height - fall * gap) / (rise - fall)
    return (b.height + rise * t, b.epsilon + math.log1p(t)) if -1.0 < t < math.inf else None
