r"""delta and epsilon of releases that rarely have a large loss, from the parts with so many jumps each. proofs/contour.md (J)

Estimates on a coarse grid choose where a jump begins, where P ends, how many jumps matter and each part's tilt. Nothing proved rests on
them: parts that aren't computed are bounded by Chernoff's inequality, and more jumps by their probability.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants import deadline
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities.loops import Ratio
from zetadp.accountants.densities.transforms import TransformUnavailable
from zetadp.accountants.densities.windowed import REACH, Cut, Windowed
from zetadp.accountants.grids.layout import Estimates
from zetadp.accountants.pairs import Pair
from zetadp.accountants.routes.contour.ends import Ends, agreed, around
from zetadp.accountants.routes.contour.parts import LARGEST_GAP, Aim, Jumps, Part, Releases, log_beyond, log_binomial
from zetadp.mechanisms.numerics.logspace import log_add

Floats = NDArray[np.float64]

_MOST_JUMPS = 40
"""In one part of its own."""

_NODES, _TILTS = 2400, 64
_SHARES = np.array([0.0, 0.1, 0.25, 0.5, 0.75, 1.0])
_STEEPER = np.array([1.0, 2.0, 5.0, 12.0, 30.0])
_CENTRES, _FINER = 24, np.array([-0.8, -0.55, -0.35, -0.18, 0.18, 0.35, 0.55, 0.8])
_NEAR = np.array([-1.5, -1.0, -0.7, -0.5, -0.35, -0.25, -0.17, -0.1, -0.05])
_BEYOND_NATS = 19.0
"""-log of the share of delta that may come from beyond the end of P, or from parts that aren't computed."""
_FURTHER = 20.0
_DEEP, _SHALLOW = 38.0, 25.0
_EASY, _PLENTY = 6.0, 12.0
"""Parts whose moments outweigh delta by no more than this, as a logarithm, are as good as any."""
_FALLEN, _FEW_POINTS, _MOST_POINTS = 40.0, 300.0, 1e6
_MOST_TRIALS, _ROUNDS = 4, 3
_LEAST_TOLERANCE = 1e-13
_DEEPEST = 1e4

ENOUGH = 1e-6
"""A bracket as narrow as this share of epsilon isn't laid again."""

Pairs = tuple[tuple[Pair, int], ...]


@final
class Piece(NamedTuple):
    """A part as planned."""

    jumps: Jumps
    tilt: float
    end: float
    gap: float


@dataclass(frozen=True)
class _Plan:
    """Where jumps begin, the pieces that matter, those of fewer and of at least so many jumps, and the epsilon."""

    centre: float
    steepness: float
    pieces: tuple[Piece, ...]
    below: tuple[Piece, ...]
    above: Piece | None
    epsilon: float
    score: float


@final
class Survey:
    """One direction's releases on a coarse grid, down to deltas of e^log_delta."""

    def __init__(self, releases: Releases, log_delta: float) -> None:
        self._releases, self._log_delta = releases, log_delta
        self._log_count = math.log(releases.count)
        top = releases.upper.shifts[-1] + math.sqrt(2.0 * (60.0 - log_delta + self._log_count))
        self._x = np.linspace(-REACH, top, _NODES)
        above, below = releases.upper.log(self._x), releases.lower.log(self._x)
        self._loss = above - below
        self._log_density = above - 0.5 * self._x**2 - 0.5 * math.log(2.0 * math.pi)
        self._spacing = float(self._x[1] - self._x[0])
        log_mass = self._log_density + math.log(self._spacing)
        self._beyond = np.logaddexp.accumulate(log_mass[::-1])[::-1] + self._log_count
        self._enough = int(np.argmax(self._beyond < log_delta - _BEYOND_NATS)) or _NODES - 1
        largest = float(self._loss[self._enough])
        if not largest > 0.0:
            raise TransformUnavailable("its losses are all below 0")
        self._tilts = np.geomspace(3e-3, 2e4, _TILTS) / largest
        exponent = log_mass + self._tilts[:, None] * self._loss
        self._before = np.logaddexp.accumulate(exponent, axis=1)
        ends = self._enough + np.argmin(exponent[:, self._enough :], axis=1)
        self._ends = ends
        exponent[np.arange(_NODES) > ends[:, None]] = -math.inf
        self._at_end = exponent[np.arange(_TILTS), ends] - math.log(self._spacing)
        self._peak = exponent.max(axis=1)
        self._terms = np.exp(exponent - self._peak[:, None])
        self._slope = np.gradient(self._loss, self._x)
        self._rate = -np.gradient(self._log_density, self._x)

    def plans(self, epsilon: float) -> list[_Plan]:
        """Plans in the order in which they are worth a trial, for an epsilon of about the survey's delta."""
        high = float(self._x[self._enough])
        # One jump that exceeds epsilon by itself: where losses are as rare as they are large, everything else is below.
        alone = float(np.interp(epsilon, self._loss, self._x))
        found = self._planned(np.concatenate([np.linspace(min(1.5, 0.3 * high), high, _CENTRES), alone + _NEAR]), epsilon)
        if not found:
            return []
        best, step = min(found, key=lambda plan: plan.score).centre, high / _CENTRES
        finer = best + step * _FINER
        found += self._planned(finer[finer > 0.0], epsilon)
        return sorted(found, key=lambda plan: plan.score)

    def _planned(self, centres: Floats, epsilon: float) -> list[_Plan]:
        deadline.check()
        rates = np.repeat(np.interp(centres, self._x, self._rate), len(_STEEPER))
        centres = np.repeat(centres, len(_STEEPER))
        steep = np.maximum(2.5, np.minimum(np.maximum(centres, 2.5), np.maximum(10.0, 1.3 * rates + 1.0)))
        steep *= np.tile(_STEEPER, len(centres) // len(_STEEPER))
        turned = np.clip(steep * (self._x[:, None] - centres), -700.0, 700.0)
        window = 1.0 / (1.0 + np.exp(-turned))
        # What has no jump ends earlier: its window falls as well.
        ends = np.argmax(self._beyond[:, None] - np.logaddexp(0.0, turned) < self._log_delta - _BEYOND_NATS - _FURTHER, axis=0)
        with np.errstate(divide="ignore"):
            jumps, bulk = (np.log(self._terms @ side) + self._peak[:, None] for side in (window, 1.0 - window))
        alone = self._alone(centres, steep, ends)
        found = list[_Plan]()
        for place, (centre, steepness) in enumerate(zip(centres.tolist(), steep.tolist(), strict=True)):
            columns = bulk[:, place], jumps[:, place], alone[:, place]
            plan = self._plan(Cut(centre, steepness, float(self._x[ends[place]])), columns, epsilon)
            if plan is not None:
                found.append(plan)
        return found

    def _alone(self, centres: Floats, steep: Floats, ends: NDArray[np.int64]) -> Floats:
        """log of the moments of what has no jump, up to these ends; infinite where what is beyond them would matter."""
        firsts = np.searchsorted(self._x, centres)
        # What is before the centre, and a few places after it: the sum over jumps would hide both.
        places = np.minimum(firsts + np.rint(np.maximum(ends - firsts, 0) * _SHARES[:, None]).astype(np.int64), _NODES - 1)
        fall = np.logaddexp(0.0, steep * (self._x[places] - centres))
        after = self._at(places) - fall + np.log(np.maximum(self._x[ends] - centres, self._spacing))
        found = np.logaddexp(self._before[:, np.maximum(firsts - 1, 0)], after.max(axis=1))
        return np.where(after[:, -1] < found - _SHALLOW - self._log_count, found, math.inf)

    def _at(self, places: NDArray[np.int64]) -> Floats:
        """log of P's density times e^{tilt loss} at these nodes, for each tilt."""
        return self._log_density[places] + np.multiply.outer(self._tilts, self._loss[places])

    def _plan(self, short: Cut, columns: tuple[Floats, Floats, Floats], epsilon: float) -> _Plan | None:
        bulk, jumps, alone = columns
        count = self._releases.count
        numbers = np.arange(min(_MOST_JUMPS, count) + 1)
        # What is left at the end of P must be nothing beside the moments; else such a tilt is none.
        fine = (self._at_end < np.minimum(jumps, bulk + self._log_count) - _DEEP) & np.isfinite(jumps) & np.isfinite(bulk)
        if not fine.any() or jumps[0] == -math.inf:
            return None
        jumps, bulk = np.where(fine, jumps, -700.0), np.where(np.isfinite(bulk), bulk, 0.0)
        logs = np.array([0.0, *np.cumsum([math.log(count - k) - math.log(k + 1.0) for k in numbers[:-1].tolist()])])
        sizes = np.where(fine, logs[:, None] + (count - numbers)[:, None] * bulk + numbers[:, None] * jumps, math.inf)
        sizes[0] = count * alone
        any_size = np.where(fine, Jumps(None).log_size(count, bulk, jumps), math.inf)
        sizes = np.vstack([sizes, any_size])
        sizes = sizes - np.log(self._tilts) - np.log1p(self._tilts)

        places, bounds = _least(sizes - self._tilts * epsilon, self._tilts)
        return self._chosen(short, places, bounds, epsilon)

    def _chosen(self, short: Cut, places: NDArray[np.int64], bounds: Floats, epsilon: float) -> _Plan | None:
        log_delta = self._log_delta
        gaps = bounds - log_delta

        def piece(row: int, jumps: Jumps) -> Piece:
            place = int(places[row])
            end = float(self._x[self._ends[place]]) if row else short.end
            return Piece(jumps, float(self._tilts[place]), end, float(gaps[row]))

        needed = np.flatnonzero(bounds[:-1] > log_delta - _BEYOND_NATS)
        if len(needed) == 0:
            return None
        first, last = int(needed[0]), int(needed[-1])
        above = None
        if gaps[-1] > _PLENTY and first <= last < len(bounds) - 2:
            pieces = [piece(k, Jumps(k)) for k in range(first, last + 1)]
            above = piece(last + 1, Jumps(last + 1))
        elif gaps[-1] > _PLENTY and last == self._releases.count:
            pieces = [piece(k, Jumps(k)) for k in range(first, last + 1)]
        else:
            first = min(first, 1)
            pieces = [*([piece(0, Jumps(0))] if first == 0 else []), piece(-1, Jumps(None))]
        below = tuple(piece(k, Jumps(k)) for k in range(first))
        gap = max(one.gap for one in pieces)
        if not gap < LARGEST_GAP:
            return None
        cost = sum(self._points(short, one) for one in pieces)
        score = max(gap - _EASY, 0.0) + max(math.log(cost / _FEW_POINTS), 0.0) + 0.2 * len(pieces)
        if not cost < _MOST_POINTS:
            return None
        return _Plan(short.centre, short.steepness, tuple(pieces), below, above, epsilon, score)

    def _points(self, cut: Cut, piece: Piece) -> float:
        """About how many points a contour takes until what bounds the moment function has fallen: where losses hardly rise it is slow."""
        span, below, count = max(self._releases.upper.span, self._releases.lower.span), self._releases.lower.span, self._releases.count
        narrow = math.sqrt(40.0 / (piece.tilt + 1.0)) / below if below > 0.0 else math.inf
        y = 0.8 * min(3.0, 0.5 * math.pi / span, 2.6 / cut.steepness, narrow)
        inside = self._x <= piece.end
        slopes, need = np.maximum(self._slope[inside], 0.0), _FALLEN + max(piece.gap, 0.0)
        sign = -1.0 if piece.jumps.number == 0 else 1.0
        sizes = (self._log_density + piece.tilt * self._loss - np.logaddexp(0.0, -sign * cut.steepness * (self._x - cut.centre)))[inside]
        sizes -= float(np.max(sizes))
        if piece.jumps.number == 0:
            y = min(y, 1.0 / math.sqrt(count))
            heights = np.geomspace(1.0, 1e7, 30) * piece.tilt
            weights = np.exp(sizes) / np.exp(sizes).sum()
            fallen = -count * np.log(np.maximum(np.exp(-heights[:, None] * slopes * y) @ weights, 1e-300))
            good = np.flatnonzero(fallen > need)
            height = float(heights[good[0]]) if len(good) else math.inf
        else:
            height = float(np.max(np.maximum(sizes + need, 0.0) / np.maximum(slopes * y, 1e-300)))
        points = height * _FALLEN / (2.0 * math.pi * piece.tilt)
        # A bulk that decays so late is one loss that nearly all outcomes have.
        return points if piece.jumps.number != 0 or points < _MOST_POINTS / 60.0 else math.inf


def _least(heights: Floats, tilts: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Of each row: the place of the least height, and about the logarithm of the integral of moduli there."""
    places = np.argmin(heights, axis=1)
    return places, heights[np.arange(len(heights)), places] + np.log(tilts[places])


@final
class Split:
    """The parts of one direction's delta around an epsilon, and bounds on what isn't computed."""

    def __init__(self, releases: Releases, plan: _Plan, log_delta: float, tolerance: float) -> None:
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
    survey = Survey(releases, log_delta)
    guess = Estimates.for_delta(pairs, log_delta)[1].epsilon
    low, high, tolerance = 0.0, math.inf, 1e-7
    for _ in range(_ROUNDS):
        try:
            split = _laid(releases, survey.plans(guess), log_delta, tolerance)
        except TransformUnavailable:
            if high == math.inf:
                raise
            break  # the wider bracket stands
        root = split.solve(log_delta)
        if not 0.0 < root < math.inf:
            raise TransformUnavailable("its parts are below delta at every epsilon")
        before = high - low
        low, high = agreed("epsilon", (low, high), around(split, root, log_delta))
        if high - low <= ENOUGH * high or high - low > 0.5 * before:
            break
        guess, tolerance = root, min(max(3e-8 * root * -split.estimate(root)[1], _LEAST_TOLERANCE), 1e-7)
    return low, high


def log_delta(pairs: Pairs, epsilon: float) -> Ends:
    """(lower, upper) of log delta(epsilon) in one direction. Raises TransformUnavailable. Arguments as those of ``epsilon``."""
    releases = _releases(pairs)
    guess = Estimates.for_epsilon(pairs, epsilon)[1].log_delta
    low, high = -math.inf, 0.0
    for _ in range(_ROUNDS):
        if not -_DEEPEST < guess < 0.0:
            raise TransformUnavailable("its delta is nearly 1, or beyond the range of floats")
        split = _laid(releases, Survey(releases, guess).plans(epsilon), guess, 1e-7)
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


def _laid(releases: Releases, plans: list[_Plan], log_delta: float, tolerance: float) -> Split:
    """The first plan's parts that can be laid."""
    refusal = TransformUnavailable("no cut separates its jumps from the rest")
    for plan in plans[:_MOST_TRIALS]:
        deadline.check()
        try:
            return Split(releases, plan, log_delta, tolerance)
        except TransformUnavailable as refused:
            refusal = refused
    raise refusal
