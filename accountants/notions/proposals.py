r"""Where a tangent of ``tangents.py`` should touch, found in floats: a grid of orders, then parabolas. Any answer is sound.

Each tangent of order 1 + k is identified by one place, d or u. One constraint stands for RDP, and all of k >= 0 with value
(1 + k) rho for zCDP. Everything works on logarithms, and differences that cancel are written without their cancellation.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

_ORDERS = 16
_FIRST_WIDTH, _LAST_WIDTH, _NARROWING, _MOST_ROUNDS = 0.12, 0.006, 0.05, 12
"""Half widths of the parabolas around the best order, in steps of the grid: each is wider than the error of the one before."""

_FIRST_TURNS, _TURNS, _NEWTON_TURNS, _MOST_TURNS = 1, 1, 3, 60
_NEWTON_STEPS, _WARM_STEPS = 4, 1
_SETTLED = 1e-3
_LAST_TURNS, _LAST_SETTLED = 6, 1e-5
_LAST_STEP = 0.04
"""Half width of the last parabola, likewise."""
NARROW = 1e-5
"""Below this width logarithms near 1 hide it, and a derivative is off by a square of it, over 24 and more: less than roundings."""
_SMALLEST = 1e-320
_LOG_SMALLEST = -736.0


@final
@dataclass(frozen=True)
class Touch:
    """A proposal: the order is 1 + k, and the place is d or u, whichever was requested."""

    k: float
    place: float
    found: bool = True
    """False where floats failed: the numbers are in range, and sound as any are, but not the best ones."""


@final
@dataclass(frozen=True)
class RenyiBounds:
    """What to choose a constraint from: ``rho`` for zCDP, (``k``, ``value``) for one Renyi order; ``epsilon`` is randomised response's."""

    epsilon: float
    rho: float | None = None
    k: float = 0.0
    value: float = 0.0

    def value_at(self, k: Floats) -> Floats:
        """The bound on the divergence of order 1 + k."""
        return (1.0 + k) * self.rho if self.rho is not None else np.full_like(k, self.value)


class Search(ABC):
    """A question to Renyi bounds: which order's tangent, at its best place, answers it best."""

    def __init__(self, bounds: RenyiBounds, largest: float) -> None:
        """``largest``: no larger order than 1 + this is looked at."""
        self.bounds = bounds
        rho = bounds.rho
        # k = scale (e^t - 1), and t is reflected at 0, where the order is 1 and the constraints end.
        self._scale = 0.0 if rho is None else (0.1 if rho < 1.0 else 0.0) + 0.1 / math.sqrt(rho)
        self._largest = 0.0 if rho is None else math.log1p(largest / self._scale)

    @abstractmethod
    def cost(self, k: Floats, place: Floats) -> Floats:
        """What is to be small; infinity where a tangent says nothing."""

    @abstractmethod
    def settled(self, k: Floats, place: Floats | None) -> Floats:
        """The best place of each order, from a near one or from scratch."""

    def run(self) -> Touch:
        """The best order and place."""
        with np.errstate(all="ignore"):
            if self.bounds.rho is None:
                k = np.array([self.bounds.k])
                place = self.settled(k, None)
                for _ in range(_LAST_TURNS):
                    place, last = self.settled(k, place), place
                    if abs(float(place[0] - last[0])) < _LAST_SETTLED * float(last[0]):
                        break
                return self._touch(self.bounds.k, float(place[0]))
            ts = np.linspace(0.0, self._largest, _ORDERS)
            places = self.settled(self._order(ts), None)
            values = self._values(ts, places)
            i, step = int(np.argmin(values)), float(ts[1])
            near = values[[abs(i - 1), i, min(i + 1, _ORDERS - 1)]]
            best, place = (float(values[i]), float(ts[i])), float(places[i])
            vertex = best[1] + step * _vertex(near)
            h = _FIRST_WIDTH * step
            for _ in range(_MOST_ROUNDS):
                t = np.array([vertex - h, vertex, vertex + h])
                places = self.settled(self._order(t), np.full(3, place))
                values = self._values(t, places)
                j = int(np.argmin(values))
                if values[j] <= best[0]:
                    best, place = (float(values[j]), float(t[j])), float(places[j])
                if not np.isfinite(values).all():
                    vertex, h = best[1], 0.3 * h
                    continue
                move = _vertex(values)
                vertex += h * move
                # Narrower only where the lowest point was inside.
                if abs(move) < 1.0:
                    if h <= _LAST_WIDTH * step:
                        break
                    h = max(_NARROWING * h, _LAST_WIDTH * step)
            return self._finished(np.array([best[1], vertex]), np.full(2, place), _LAST_STEP * step)

    def _finished(self, t: Floats, places: Floats, h: float) -> Touch:
        """From the better of these orders one more parabola, now through settled places, whose errors don't move its vertex."""
        places = self._at_rest(t, places)
        values = self._values(t, places)
        j = int(np.argmin(values))
        beside = np.array([t[j] - h, t[j] + h])
        low, high = self._values(beside, self._at_rest(beside, np.full(2, places[j])))
        move = _vertex(np.array([low, values[j], high]))
        t = np.array([t[j], t[j] + h * move])
        places = self._at_rest(t, np.full(2, places[j]))
        j = int(np.argmin(self._values(t, places)))
        return self._touch(float(self._order(t)[j]), float(places[j]))

    def _at_rest(self, t: Floats, places: Floats) -> Floats:
        """The place of each of these orders, settled until it rests."""
        for _ in range(_LAST_TURNS):
            places, last = self.settled(self._order(t), places), places
            if bool(np.all(np.abs(places - last) < _LAST_SETTLED * last)):
                break
        return places

    def _touch(self, k: float, place: float) -> Touch:
        """Any numbers in range are sound; these are so where floats have failed."""
        found = 0.0 <= k < math.inf and 0.0 < place < math.inf
        return Touch(k, place) if found else Touch(k if 0.0 <= k < math.inf else 0.0, self.bounds.epsilon, found=False)

    def _order(self, t: Floats) -> Floats:
        return self._scale * np.expm1(np.abs(t))

    def _values(self, t: Floats, places: Floats) -> Floats:
        values = self.cost(self._order(t), places)
        return np.where(np.isnan(values), math.inf, values)


@final
class DeltaSearch(Search):
    """For delta at an epsilon: the least intercept among tangents of slope e^epsilon. The place is d."""

    def __init__(self, bounds: RenyiBounds, epsilon: float) -> None:
        super().__init__(bounds, 0.0 if bounds.rho is None else 2.0 * epsilon / bounds.rho + 2.0)
        self._epsilon = epsilon
        self._width = _Widths()

    def cost(self, k: Floats, place: Floats) -> Floats:
        return _log_intercept(k, self.bounds.value_at(k), self.reach(k, place), place)

    def settled(self, k: Floats, place: Floats | None) -> Floats:
        return _settled(self.bounds, k, place, self.reach)

    def reach(self, k: Floats, d: Floats) -> Floats:
        """u of the tangent with this slope and d."""
        return self._width(k, self._epsilon + d) - d


@final
class EpsilonSearch(Search):
    """For epsilon at a delta: the least slope among tangents of intercept delta. The place is d."""

    def __init__(self, bounds: RenyiBounds, log_delta: float) -> None:
        super().__init__(bounds, 0.0 if bounds.rho is None else 4.0 * math.sqrt((1.0 - log_delta) / bounds.rho) + 4.0)
        self._log_delta = log_delta

    def cost(self, k: Floats, place: Floats) -> Floats:
        u = self._reach(k, place)
        return np.where(u > 0.0, _log_slope(k, u + place, place), math.inf)

    def settled(self, k: Floats, place: Floats | None) -> Floats:
        return _settled(self.bounds, k, place, self._reach)

    def _reach(self, k: Floats, d: Floats) -> Floats:
        log_limit = k * self.bounds.value_at(k) + np.log(_shrunk(k, self.bounds.value_at(k)))
        log_c = np.logaddexp(log_limit, np.log(_rest(k, d))) - np.log1p(k) - self._log_delta
        log_kc = np.log(k) + log_c
        small = np.log1p(np.exp(log_kc) - k * _shrunk(k, d)) / k
        return np.where(k > 0.0, np.where(log_kc < 0.0, small, np.logaddexp(-k * d, log_kc) / k), np.exp(log_c) - d)


@final
class MissSearch(Search):
    """For the largest p at q = alpha. The place is d, and Newton's method for a convex function comes to it from above."""

    def __init__(self, bounds: RenyiBounds, alpha: float) -> None:
        super().__init__(bounds, 0.0 if bounds.rho is None else 4.0 * math.sqrt((1.0 - math.log(alpha)) / bounds.rho) + 4.0)
        self._alpha = alpha

    def _rates(self, k: Floats, d: Floats) -> tuple[Floats, Floats]:
        """Upper bound on p and lower bound on 1 - p, neither by a difference of near numbers."""
        alpha = self._alpha
        u = np.log1p((1.0 - alpha) * -np.expm1(-d) / alpha)
        gained, fallen = _shrunk(k, u), np.exp(-k * u) * _shrunk(k, d)
        limit = _scaled_limit(k, self.bounds.value_at(k), u)
        whole, share = (1.0 + k) * (gained + fallen), k / (1.0 + k)
        missed = (1.0 - alpha) * np.exp(-d)
        return (alpha + (1.0 - alpha) * -np.expm1(-d)) * share + (fallen + limit) / whole, missed * share + (gained - limit) / whole

    def cost(self, k: Floats, place: Floats) -> Floats:
        p, missed = self._rates(k, place)
        return np.where(missed > 0.0, np.log(p) - np.log(missed), math.inf)

    def settled(self, k: Floats, place: Floats | None) -> Floats:
        alpha, d = self._alpha, self._highest(k) if place is None else place
        for _ in range(_MOST_TURNS if place is None else _NEWTON_TURNS):
            p, missed = self._rates(k, d)
            better = np.where(missed > 0.5, -np.log1p(-(p - alpha) / (1.0 - alpha)), -np.log(missed / (1.0 - alpha)))
            d, last = np.where(better > 0.0, np.minimum(better, self.bounds.epsilon), d), d
            if place is None and bool(np.all(d > last * (1.0 - _SETTLED))):
                break
        return d

    def _highest(self, k: Floats) -> Floats:
        """d of randomised response, or where (1 - p) is left out of the divergence."""
        alpha, bounds = self._alpha, self.bounds
        p = np.exp(np.minimum(k * (bounds.value_at(k) + math.log(alpha)) / (1.0 + k), 0.0))
        gain = np.clip(p - alpha, _SMALLEST, (1.0 - alpha) * -math.expm1(-bounds.epsilon))
        return -np.log1p(-gain / (1.0 - alpha))


@final
class MirroredMissSearch(Search):
    """For the least q at p = 1 - alpha. The place is u, with Newton's method again, from where the other outcome is left out."""

    def __init__(self, bounds: RenyiBounds, alpha: float) -> None:
        self._alpha, self._p = alpha, 1.0 - alpha
        self._farthest = -math.log(self._p)
        super().__init__(bounds, 0.0 if bounds.rho is None else 4.0 * math.sqrt((1.0 + self._farthest) / bounds.rho) + 4.0)

    def cost(self, k: Floats, place: Floats) -> Floats:
        p, alpha = self._p, self._alpha
        d = np.log1p(p * -np.expm1(-place) / alpha)
        limit = _scaled_limit(k, self.bounds.value_at(k), place)
        residue = p * _shrunk(k, place) - alpha * np.exp(-k * place) * _shrunk(k, d) - limit
        share = p + residue / -np.expm1(-(1.0 + k) * (place + d))
        return np.where(share > 0.0, place - np.log(share), math.inf)

    def settled(self, k: Floats, place: Floats | None) -> Floats:
        u = np.minimum(self.bounds.value_at(k) + self._farthest / np.maximum(k, 1e-300), self._reach()) if place is None else place
        for _ in range(_MOST_TURNS if place is None else _NEWTON_TURNS):
            better = self.cost(k, u) - self._farthest
            # From scratch u starts above the root, and only comes down.
            highest = u if place is None else 1.5 * u
            u, last = np.where(better < math.inf, np.clip(better, 1e-3 * u, highest), u), u
            if place is None and bool(np.all(np.abs(u - last) < last * _SETTLED)):
                break
        return u

    def _reach(self) -> float:
        bounds = self.bounds
        reach = math.inf if bounds.rho is None else bounds.rho + 2.0 * math.sqrt(bounds.rho * self._farthest)
        # No test gains more than randomised response's advantage.
        gained = math.tanh(0.5 * bounds.epsilon) / self._p
        return min(reach, -math.log1p(-gained)) if gained < 1.0 else reach


def _settled(bounds: RenyiBounds, k: Floats, place: Floats | None, reach: Callable[[Floats, Floats], Floats]) -> Floats:
    """The d at which the tangent touches the set, for each order: p from u and d, d from p and u, and secants towards agreement."""
    value = bounds.value_at(k)

    def answered(log_d: Floats) -> tuple[Floats, Floats]:
        """By how much log d is answered with another one, and q."""
        d = np.exp(log_d)
        u = np.maximum(reach(k, d), _SMALLEST)
        lost = np.where(d > 1e-290, np.exp(-d) * _shrunk(k, d) / -np.expm1(-d), 1.0)
        gap = _shrunk(k, u) + np.expm1(-u) * lost * np.exp(-k * u)
        gap = np.where((1.0 + k) * (u + d) < 1e-5, 0.5 * (1.0 + k) * u * (u + d), gap)
        p = np.clip(_scaled_limit(k, value, u) / gap, _SMALLEST, 1.0 - 1e-12)
        q = p * np.exp(-u)
        new = np.log(np.clip(-np.log1p(p * np.expm1(-u) / (1.0 - q)), _SMALLEST, bounds.epsilon)) - log_d
        return np.where(np.isnan(new), 0.0, new), q

    highest = math.log(bounds.epsilon)
    if place is None:
        last = np.full_like(k, _LOG_SMALLEST)
        x = np.minimum(last + answered(last)[0], highest)
    else:
        x = np.log(place)
    move, q = answered(x)
    # A change of d is answered by one of about -q / (1 - q) times it; this weight takes the two together.
    for _ in range(_FIRST_TURNS if place is None else _TURNS):
        last, last_move = x, move
        x = np.minimum(x + (1.0 - q) * move, highest)
        move, q = answered(x)
        slope = (move - last_move) / (x - last)
        good = (slope < -0.3) & (slope > -4.0)
        x = np.minimum(np.where(good, x - move / np.where(good, slope, -1.0), x), highest)
    return np.exp(x)


@final
class _Widths:
    """The w at which the slope, but for its factor e^-d, has a given logarithm: Newton's steps for a function convex in w."""

    def __init__(self) -> None:
        self._last: Floats | None = None

    def __call__(self, k: Floats, log_slope: Floats) -> Floats:
        zero, last = np.zeros_like(log_slope), self._last
        # From above, or from what was found for near ones.
        warm = last is not None and last.size == log_slope.size
        w = last if warm and last is not None else np.minimum(2.0 * log_slope, log_slope + np.log1p(1.0 / k))
        for _ in range(_WARM_STEPS if warm else _NEWTON_STEPS):
            aw = (1.0 + k) * w
            steep = np.where(k > 0.0, k / np.expm1(k * w), 1.0 / w)
            rise = np.where(aw < 1e-4, 0.5 + aw / 12.0, 1.0 + (1.0 + k) / np.expm1(aw) - steep)
            if float(w.min()) < NARROW:
                z = (k + 0.5) * w
                rise = np.where(w < NARROW, 1.0 + _bent(z) + z * _bent_slope(z), rise)
            w = w - (_log_slope(k, w, zero) - log_slope) / rise
        self._last = w
        return w


def _vertex(values: Floats) -> float:
    """Where the parabola through three values is lowest, in steps from the middle one, at most 1.5 away; 1 away if it bends down."""
    below, here, above = (float(value) for value in values)
    bend = above - 2.0 * here + below
    if 0.0 < bend < math.inf:
        return max(-1.5, min(1.5, 0.5 * (below - above) / bend))
    return 0.0 if abs(bend) < 1e-15 * abs(here) else math.copysign(1.0, below - above)


def _shrunk(k: Floats, z: Floats) -> Floats:
    """(1 - e^{-kz}) / k, and z at k = 0."""
    return np.where(k > 0.0, -np.expm1(-k * z) / k, z)


def _scaled_limit(k: Floats, value: Floats, u: Floats) -> Floats:
    return np.exp(k * (value - u)) * _shrunk(k, value)


def _rest(k: Floats, d: Floats) -> Floats:
    """(1 - e^{-kd}) / k - e^{-kd} (1 - e^-d), which is (1 + k) d^2 / 2 for small d."""
    return np.where((1.0 + k) * d < 1e-5, 0.5 * (1.0 + k) * d * d, _shrunk(k, d) - np.exp(-k * d) * -np.expm1(-d))


def _bent(z: Floats) -> Floats:
    """1 / (e^z - 1) - 1 / z, the derivative of log((1 - e^-z) / z): from -1/2 to 0."""
    return np.where(z < 1e-3, -0.5 + z / 12.0, 1.0 / np.expm1(z) - 1.0 / z)


def _bent_slope(z: Floats) -> Floats:
    """Its own derivative, from 1/12 to 0."""
    half = 0.5 * z
    return np.where(z < 1e-2, 1.0 / 12.0 - z * z / 240.0, 1.0 / (z * z) - 0.25 / np.sinh(half) ** 2)


def _log_slope(k: Floats, w: Floats, d: Floats) -> Floats:
    """With g(z) = log((1 - e^-z) / z) it is w + g((1 + k) w) - g(k w) - d; for a narrow w that is w (1 + g'((k + 1/2) w)) - d."""
    if float(w.min()) < NARROW:
        narrow = w * (1.0 + _bent((k + 0.5) * w)) - d
        return np.where(w < NARROW, narrow, _wide_log_slope(k, w, d))
    return _wide_log_slope(k, w, d)


def _wide_log_slope(k: Floats, w: Floats, d: Floats) -> Floats:
    shrunk, aw = _shrunk(k, w), (1.0 + k) * w
    if float(aw.min()) >= 1.0:
        return (w - d) + (np.log(-np.expm1(-aw)) - np.log((1.0 + k) * shrunk))
    near = np.log1p((np.exp(-k * w) * -np.expm1(-w) - shrunk) / ((1.0 + k) * shrunk))
    return (w - d) + np.where(aw < 1.0, near, np.log(-np.expm1(-aw)) - np.log((1.0 + k) * shrunk))


def _log_intercept(k: Floats, value: Floats, u: Floats, d: Floats) -> Floats:
    log_limit = k * (value - u) + np.log(_shrunk(k, value))
    log_rest = np.log(_rest(k, d)) - k * u
    return np.logaddexp(log_limit, log_rest) - np.log((1.0 + k) * (_shrunk(k, u) + np.exp(-k * u) * _shrunk(k, d)))
