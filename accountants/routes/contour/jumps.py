r"""delta and epsilon of releases that rarely have a large loss, from the parts with so many jumps each. proofs/contour.md (J)

``survey`` plans where a jump begins, where P ends, how many jumps matter and each part's tilt, on which nothing proved rests: parts that
aren't computed are bounded by Chernoff's inequality, and more jumps by their probability.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import final

import numpy as np

from zetadp.accountants import deadline
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities.loops import Ratio
from zetadp.accountants.densities.moments.windowed import Cut, Windowed
from zetadp.accountants.densities.transforms import TransformUnavailable
from zetadp.accountants.grids.layout import Estimates
from zetadp.accountants.pairs import Pair
from zetadp.accountants.routes.contour.ends import Ends, agreed, around
from zetadp.accountants.routes.contour.parts import Aim, Part, Releases, SlowDecay, log_beyond, log_binomial
from zetadp.accountants.routes.contour.ranking import GOOD_GAP, Piece, Plan
from zetadp.accountants.routes.contour.survey import ROOMS, Survey
from zetadp.mechanisms.numerics.logspace import log_add

_ROUNDS = 3
_LEAST_TOLERANCE = 1e-13
_DEEPEST = 1e4

ENOUGH = 1e-6
"""A bracket as narrow as this share of epsilon isn't laid again."""

_KEPT = 8.0
"""Or one this many times as wide by another survey: it takes as long again."""

_NEAR = 0.01
_ROUNDED, _NEAR_NATS = 20.0, 0.5
"""A bracket so many tolerances wide is rounding's, and no other plan this near has less."""

Pairs = tuple[tuple[Pair, int], ...]


class _Hopeless(TransformUnavailable):
    """Good plans all decay too slowly, as another survey's would."""


@final
class Split:
    """The parts of one direction's delta around an epsilon, and bounds on what isn't computed."""

    def __init__(self, releases: Releases, plan: Plan, log_delta: float, tolerance: float) -> None:
        self._releases, self._plan = releases, plan
        self.centre = plan.epsilon
        self._parts: list[Part] = []
        self._left_out = -math.inf
        for piece in plan.pieces:
            cut = Cut(plan.centre, plan.steepness, piece.end)
            aim = Aim(piece.tilt, plan.epsilon, log_delta, tolerance / len(plan.pieces))
            self._parts.append(Part(releases, cut, piece.jumps, aim))
            self._left_out = log_add(self._left_out, log_beyond(releases, cut, piece.jumps))
        self._bounds = self._others()

    def _others(self) -> list[tuple[float, float]]:
        """(size, tilt) of bounds e^{size - tilt epsilon} on what no part computes: fewer jumps and more. (J6)"""
        plan, found = self._plan, list[tuple[float, float]]()
        if plan.above is not None:
            found.append(self._bound(plan.above, more=True))
        for piece in plan.below:
            found.append(self._bound(piece, more=False))
        return found

    def _bound(self, piece: Piece, *, more: bool) -> tuple[float, float]:
        """Chernoff's bound on so many jumps, or on at least so many."""
        plan, count, number = self._plan, self._releases.count, piece.jumps.number
        assert number is not None
        cut, tilts = Cut(plan.centre, plan.steepness, piece.end), np.array([piece.tilt])
        self._left_out = log_add(self._left_out, log_beyond(self._releases, cut, piece.jumps))
        nats = math.log(2e3 * count)
        sides = (False, True) if number or more else (False,)
        found = [Windowed(self._releases.upper, self._releases.lower, cut, side, nats).uppers(tilts).log_moments for side in sides]
        bulk, jumps = float(found[0][0]), float(found[-1][0])
        if not max(bulk, jumps) < math.inf:
            raise TransformUnavailable("moments of what isn't computed exceed what a float can hold")
        # At least m: binom(T, k) <= binom(T, m) binom(T - m, k - m).
        rest = log_add(bulk, jumps) if more else bulk
        size = log_binomial(count, number) + (count - number) * rest + number * jumps
        size += 64.0 * UNIT * (1.0 + abs(size) + count * abs(rest) + number * (abs(jumps) + math.log(count + 2.0)))
        return size - piece.tilt * math.log1p(1.0 / piece.tilt) - math.log1p(piece.tilt) + 1e-14 * (
            2.0 + math.log1p(piece.tilt)
        ), piece.tilt

    @property
    def period(self) -> float:
        """Distance of the aliases of the part that has the nearest ones."""
        return min(part.period for part in self._parts)

    def estimate(self, epsilon: float) -> tuple[float, float]:
        """(log, slope of the log) of all parts; (-inf, 0) if they aren't positive."""
        found = [part.estimate(epsilon) for part in self._parts]
        whole = -math.inf
        for value, _ in found:
            whole = log_add(whole, value)
        if whole == -math.inf:
            return whole, 0.0
        return whole, math.fsum(slope * math.exp(value - whole) for value, slope in found if value > -math.inf)

    def bracket(self, epsilon: float) -> Ends:
        """Proved (log lower, log upper) of delta(epsilon) in this direction."""
        low, high = -math.inf, self._left_out
        for part in self._parts:
            least, most = part.bracket(epsilon)
            low, high = log_add(low, least), log_add(high, most)
        for size, tilt in self._bounds:
            high = log_add(high, size - tilt * epsilon + 4.0 * UNIT * (abs(size) + tilt * epsilon))
        slack = 64.0 * UNIT * (1.0 + abs(high))
        return low - 64.0 * UNIT * (1.0 + abs(low)) if low > -math.inf else low, min(high + slack, 0.0)

    def solve(self, log_delta: float) -> float:
        """The epsilon >= 0 at which the parts' estimates are e^log_delta."""
        low, high, epsilon = -math.inf, math.inf, self.centre
        reach = 0.25 * self.period
        for _ in range(60):
            value, slope = self.estimate(epsilon)
            low, high = (epsilon, high) if value > log_delta else (low, epsilon)
            step = (log_delta - value) / slope if slope < 0.0 and math.isfinite(value) else reach if value > log_delta else -reach
            moved = epsilon + min(max(step, -reach), reach)
            if abs(moved - epsilon) <= 1e-13 * abs(moved):
                return moved
            epsilon = moved if low < moved < high else 0.5 * (low + high)
        return epsilon


def epsilon(pairs: Pairs, log_delta: float) -> Ends:
    """(lower, upper) of the epsilon of one direction at this delta. Raises TransformUnavailable.

    Args:
      pairs: in the order of this direction; one kind of Gaussian mixtures, or it is unavailable.
    """
    releases = _releases(pairs)
    guess = Estimates.for_delta(pairs, log_delta)[1].epsilon

    found, refusal = (0.0, math.inf), TransformUnavailable("nothing was planned")
    survey = Survey(releases, log_delta, ROOMS[0])
    for room, is_own in ((ROOMS[0], False), (ROOMS[1], False), (ROOMS[1], True)):
        survey = survey if is_own or room == ROOMS[0] else Survey(releases, log_delta, room)
        # Where the losses on a lattice mislead, the survey's own bounds may not.
        start = survey.epsilon(guess) if is_own else guess
        if is_own and (start == guess or _is_near(found)):
            break
        try:
            found = _from(releases, survey, (start, log_delta), found)
        except _Hopeless as refused:
            refusal = refused
            break
        except TransformUnavailable as refused:
            refusal = refused
        if found[1] - found[0] <= _KEPT * ENOUGH * found[1] < math.inf:
            break
        guess = 0.5 * sum(found) if _is_near(found) else guess
    if found == (0.0, math.inf):
        raise refusal
    return found


def _is_near(found: Ends) -> bool:
    """Whether a bracket's middle is a better guess than one by losses on a lattice."""
    return found[1] - found[0] <= _NEAR * found[1] < math.inf


def _from(releases: Releases, survey: Survey, start: tuple[float, float], found: Ends) -> Ends:
    """A narrower bracket of epsilon than the one found, beginning with a guess of it; and log delta."""
    (guess, log_delta), (low, high), tolerance = start, found, 1e-7
    for number in range(_ROUNDS):
        try:
            split = _laid(releases, survey.plans(guess), log_delta, tolerance)
        except TransformUnavailable:
            if number == 0:
                raise
            break  # the wider bracket stands
        root = split.solve(log_delta)
        if not 0.0 < root < math.inf:
            break  # its parts are below delta at every epsilon
        before = high - low
        low, high = agreed("epsilon", (low, high), around(split, root, log_delta))
        slope = -split.estimate(root)[1]
        is_rounding = (high - low) * slope > _ROUNDED * tolerance and abs(root - guess) * slope < _NEAR_NATS
        if high - low <= ENOUGH * high < math.inf or is_rounding or (number and high - low > 0.5 * before):
            break
        guess, tolerance = root, min(max(3e-8 * root * slope, _LEAST_TOLERANCE), 1e-7)
    return low, high


def log_delta(pairs: Pairs, epsilon: float) -> Ends:
    """(lower, upper) of log delta(epsilon) in one direction. Raises TransformUnavailable. Arguments as those of ``epsilon``."""
    releases = _releases(pairs)
    guess = Estimates.for_epsilon(pairs, epsilon)[1].log_delta
    found, refusal = (-math.inf, 0.0), TransformUnavailable("nothing was planned")
    for room in ROOMS:
        try:
            found = _at(releases, room, (epsilon, guess), found)
        except _Hopeless as refused:
            refusal = refused
            break
        except TransformUnavailable as refused:
            refusal = refused
        if found[1] - found[0] <= _KEPT * ENOUGH * max(1.0, -found[1]):
            break
    if found == (-math.inf, 0.0):
        raise refusal
    return found


def _at(releases: Releases, room: float, start: tuple[float, float], found: Ends) -> Ends:
    """A narrower bracket of log delta than the one found, at an epsilon and from a guess."""
    (epsilon, guess), (low, high) = start, found
    for number in range(_ROUNDS):
        if not -_DEEPEST < guess < 0.0:
            if number == 0:
                raise TransformUnavailable("its delta is nearly 1, or beyond the range of floats")
            break
        try:
            split = _laid(releases, Survey(releases, guess, room).plans(epsilon), guess, 1e-7)
        except TransformUnavailable:
            if number == 0:
                raise
            break  # the wider bracket stands
        low, high = agreed("log delta", (low, high), split.bracket(epsilon))
        if high - low <= ENOUGH:
            break
        guess = split.estimate(epsilon)[0]
    return low, high


def _releases(pairs: Pairs) -> Releases:
    (pair, count), *others = pairs
    # Noise whose whole releases compose as Gaussians do is Gaussian.
    is_gaussian = pair.family.has_transform and pair.family.mixes and pair.family.gdp_mu(pair.distance) is not None
    if others or pair.is_whole or not is_gaussian or pair.crowded is not None:
        raise TransformUnavailable("jumps are told apart only where all releases are alike")
    return Releases(Ratio(pair.upper), Ratio(pair.lower), count)


def _laid(releases: Releases, plans: Iterator[Plan], log_delta: float, tolerance: float) -> Split:
    """The first plan's parts that can be laid. Where one part for any jumps decays too slowly, parts by their numbers may not."""
    refusal, gap, are_slow = TransformUnavailable("no cut separates its jumps from the rest"), math.inf, True
    try:
        for plan in plans:
            deadline.check()
            gap = max(piece.gap for piece in plan.pieces) if gap == math.inf else gap
            try:
                return Split(releases, plan, log_delta, tolerance)
            except TransformUnavailable as refused:
                refusal, are_slow = refused, are_slow and isinstance(refused, SlowDecay)
    except SlowDecay as refused:
        raise _Hopeless(refused.reason) from refused
    if are_slow and gap < GOOD_GAP:
        raise _Hopeless(refusal.reason)
    raise refusal
