r"""Where to place the lattice: tilt, step, ends of the leaves' laws and window of the composed law. No bound depends on these estimates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants.grids.grid import Floats
from zetadp.accountants.grids.losses import Losses, losses_of, spread
from zetadp.accountants.grids.powers import Both, power_of_both, product_of_both
from zetadp.accountants.largest_loss import least_loss
from zetadp.accountants.pairs import Pair

REACH, WIDE_REACH = 2.0, 4.0
"""How far from epsilon to both sides delta is computed, over the tilt: for one answer, or for many."""

_COARSE_POINTS = 4096
_FAR = 10.0
"""How many of its lengths a tilted law is from 0 that is composed apart from it."""

_SPARE_NATS = 14.0
_FAR_NATS = 22.0
"""How far, as a logarithm, the whole tilted law may be above what matters of it before its rounding hides that."""

_BULK_NATS = 25.0
"""-log of the share of delta that may come without a jump."""

_FEWER = 3.0
"""By how much losses have to become shorter, if they are to end early."""

_GAIN_NATS = 1.0
"""By how much less there has to be of what is composed, if it is only what has a jump."""

_JUMPS = np.geomspace(0.9, 0.01, 24)
"""Losses to count as jumps, as shares of epsilon; the largest is best."""

_STARTS = ((-1.0, 4), (-50.0, 6), (-150.0, 6), (-400.0, 6))
"""Of the search for the delta at an epsilon: its logarithm, and how often it may move."""

_LARGEST_LOG_DELTA, _SMALLEST_LOG_DELTA, _HALVINGS = -1.0, -1e6, 20
"""Where the delta of an epsilon is sought between others, and how often its logarithm's range is halved."""

_MORE_ROOM = 1.0, 3.0, 10.0, 30.0, 100.0
"""Shares of the least possible sum, downwards, by which windows for many answers may reach further."""

_SMALLER_TILTS, _MORE_NATS = (0.7, 0.5, 0.35, 0.25), 10.0
"""Where jumps larger than epsilon would outweigh those that matter."""

_BULK_TILTS = np.geomspace(1.0, 60.0, 16)

_FLATTEST, _HARDLY = 0.03, 3.0
"""The least tilt over the losses' scale, if the tilted law is at most so far above delta as a logarithm: where a few jumps decide, delta is
a staircase, flat between two numbers of jumps, and the window for a tilt as small as its slope would be far longer than all losses."""

Before: TypeAlias = Callable[[Floats, Floats], NDArray[np.bool_]]

_LOG_CUT = math.log(1e-8)

_EDGE_NATS = 21.0
"""-log of the share of delta that may come from beyond each edge of the window, or from beyond the kernel."""


@final
@dataclass(frozen=True)
class Saddle:
    """A tilt, an epsilon that it suits, the approximate log delta there (over the scale of losses that are all tiny) and its slope; of the
    tilted composed law spread, mean, log of the mass, and the same for the part that is composed."""

    tilt: float
    epsilon: float
    log_delta: float
    spread: float
    slope: float
    mean: float
    log_moment: float
    size: float

    @property
    def kernel(self) -> float:
        """Beyond this distance from epsilon what is composed, times e^{-tilt distance}, is negligible compared with delta."""
        return (_EDGE_NATS + max(self.size - self.tilt * self.epsilon - self.log_delta, 0.0)) / self.tilt

    def is_near(self, epsilon: float) -> bool:
        """Whether it suits this epsilon as well."""
        return abs(self.epsilon - epsilon) <= 0.5 / self.tilt + 0.01 * epsilon

    @property
    def excess(self) -> float:
        """log of the tilted bound on delta over delta: how much less than the whole tilted law matters."""
        return max(self.log_moment - self.tilt * self.epsilon - self.log_delta, 0.0)


@final
@dataclass(frozen=True)
class Edge:
    """A loss that the tilted composed law hardly exceeds, and the further tilt that shows this."""

    loss: float
    tilt: float


@final
@dataclass(frozen=True)
class Split:
    """A loss of one release from which on it is a jump, and the tilt that shows how little comes without one."""

    jump: float
    tilt: float


@final
class Estimates:
    """One direction of a composition: the losses of its pairs with their counts, cut where they no longer matter at some delta."""

    def __init__(self, leaves: tuple[tuple[Losses, int], ...], is_infinitesimal: bool = False) -> None:
        self.leaves, self._is_infinitesimal = leaves, is_infinitesimal
        # A tilt other than the saddle's makes rounding, which grows with the releases, larger relative to delta.
        self._room = math.inf
        many = math.log(sum(count for _, count in leaves))
        self._spare, self._far = max(_SPARE_NATS - 1.25 * many, 1.0), max(_FAR_NATS - many, _SPARE_NATS)
        reach = sum(count * max(abs(float(leaf.losses[0])), abs(float(leaf.losses[-1]))) for leaf, count in leaves)
        self.scale = max(math.sqrt(sum(count * leaf.cumulants(0.0)[2] for leaf, count in leaves)), 1e-6 * reach)
        # A delta of losses that are all tiny is compared with their scale.
        self.log_unit = math.log(self.scale) if is_infinitesimal else 0.0
        self.window_reach = WIDE_REACH if is_infinitesimal else REACH

    def split(self, excess: float, epsilon: float, log_delta: float) -> Split | None:
        """Jumps without which epsilon is reached with a small share of delta; None if there are none, or the whole law isn't far away.

        Args:
          excess: log of the tilted bound on delta over delta.
        """
        if not (excess > self._far and 0.0 < epsilon < math.inf):
            return None
        jumps, tilts = epsilon * _JUMPS, (_BULK_NATS - log_delta) / epsilon * _BULK_TILTS
        sizes = sum(count * leaf.without_jumps(tilts, jumps) for leaf, count in self.leaves) - (tilts * epsilon)[:, None]
        best = np.argmin(sizes, axis=0)
        good = np.flatnonzero(sizes[best, np.arange(len(jumps))] < log_delta - _BULK_NATS)
        return Split(float(jumps[good[0]]), float(tilts[best[good[0]]])) if len(good) else None

    def _size(self, tilt: float, log_moment: float, epsilon: float, log_delta: float) -> float | None:
        """log of what is composed of the tilted law: all of it, or what has a jump; None if neither is near epsilon."""
        excess = log_moment - tilt * epsilon - log_delta
        if excess <= self._spare:
            return log_moment
        split = self.split(excess, epsilon, log_delta)
        if split is None:
            return None
        without = rise = 0.0
        for leaf, count in self.leaves:
            first = int(np.searchsorted(leaf.losses, split.jump))
            bulk = float(leaf.without_jumps(np.array([tilt]), np.array([split.jump]))[0, 0])
            jumps = float(np.logaddexp.reduce(leaf.log_weights[first:] + tilt * leaf.losses[first:], initial=-math.inf))
            without, rise = without + count * bulk, rise + count * float(np.logaddexp(0.0, jumps - bulk))
        size = without + (rise if rise > 30.0 else math.log(math.expm1(rise)) if rise > 0.0 else -math.inf)
        return size if size < log_moment - _GAIN_NATS else None

    @classmethod
    def for_delta(cls, pairs: tuple[tuple[Pair, int], ...], log_delta: float) -> tuple[Estimates, Saddle]:
        """Estimates for a delta, with the tilt and the epsilon at which to centre the lattice."""
        found = cls._cut(pairs, log_delta)
        saddle = found._located(found.saddle_for_delta(log_delta), lambda curve, _: curve > log_delta)
        ended = found._ended(pairs, 2.0 * saddle.epsilon)
        if ended is not None:
            nearer = ended._located(saddle, lambda curve, _: curve > log_delta)
            if ended._reaches(nearer):
                return ended, nearer
        return found, saddle

    @classmethod
    def for_epsilon(cls, pairs: tuple[tuple[Pair, int], ...], epsilon: float, guess: float | None = None) -> tuple[Estimates, Saddle]:
        """The same for an epsilon. Where delta is that of rare jumps, the search for it may need to start near it, such as at a guess."""
        first: tuple[Estimates, Saddle] | None = None
        for log_delta, rounds in _STARTS if guess is None else ((guess, 6), *_STARTS):
            found, saddle, is_good = cls._searched(pairs, epsilon, log_delta, rounds)
            if is_good and saddle.is_near(epsilon):
                return found, saddle
            if first is None:
                first = found, saddle
                if (between := cls._between(pairs, epsilon)) is not None:
                    return between
        assert first is not None
        return first

    @classmethod
    def _between(cls, pairs: tuple[tuple[Pair, int], ...], epsilon: float) -> tuple[Estimates, Saddle] | None:
        """Estimates for the delta whose epsilon this is, between deltas with a smaller and a larger one; None if it isn't found."""
        low, high = _LARGEST_LOG_DELTA, 64.0 * _LARGEST_LOG_DELTA
        while cls.for_delta(pairs, high)[1].epsilon < epsilon:
            low, high = high, 4.0 * high
            if high < _SMALLEST_LOG_DELTA:
                return None
        for _ in range(_HALVINGS):
            middle = -math.sqrt(low * high)
            found, saddle = cls.for_delta(pairs, middle)
            if saddle.is_near(epsilon):
                return found, saddle
            low, high = (middle, high) if saddle.epsilon < epsilon else (low, middle)
        return None

    @classmethod
    def _searched(
        cls, pairs: tuple[tuple[Pair, int], ...], epsilon: float, log_delta: float, rounds: int
    ) -> tuple[Estimates, Saddle, bool]:
        """(estimates, saddle, whether its delta is the one at which they were cut)."""
        while True:
            found = cls._cut(pairs, log_delta)
            saddle = found._located(found.saddle_for_epsilon(epsilon), lambda _, losses: losses < epsilon)
            for room in found._rooms(pairs, epsilon):
                ended = found._ended(pairs, room)
                if ended is None:
                    continue
                nearer = ended._located(saddle, lambda _, losses: losses < epsilon)
                if ended._reaches(nearer):
                    found, saddle = ended, nearer
                    break
            rounds -= 1
            is_found = abs(saddle.log_delta - log_delta) < 2.0
            if is_found or rounds == 0:
                return found, saddle, is_found or saddle.excess <= found._spare
            log_delta = saddle.log_delta

    @classmethod
    def _cut(cls, pairs: tuple[tuple[Pair, int], ...], log_delta: float) -> Estimates:
        total = sum(count for _, count in pairs)
        leaves = tuple((losses_of(pair).cut(log_delta + _LOG_CUT - math.log(total)), count) for pair, count in pairs)
        return cls(leaves, any(pair.family.is_infinitesimal for pair, _ in pairs))

    def _rooms(self, pairs: tuple[tuple[Pair, int], ...], epsilon: float) -> list[float]:
        """Epsilons up to which a window may reach if losses are ended; more than one where one window is to serve many answers."""
        reserve = -sum(count * least_loss(pair) for pair, count in pairs)
        more = [2.0 * epsilon + share * reserve for share in _MORE_ROOM] if self._is_infinitesimal and reserve < math.inf else []
        return [2.0 * epsilon, *more]

    def _ended(self, pairs: tuple[tuple[Pair, int], ...], room: float) -> Estimates | None:
        """The same with losses ended where larger ones decide alone that ``room`` is exceeded; None if that shortens them little. (4.9)"""
        reserve = -sum(count * least_loss(pair) for pair, count in pairs)
        end = room + 1.1 * reserve
        if not (room > 0.0 and _FEWER * end < max(float(leaf.losses[-1]) for leaf, _ in self.leaves)):
            return None
        found = Estimates(tuple((leaf.ended(end), count) for leaf, count in self.leaves), self._is_infinitesimal)
        found._room = room
        return found

    def _reaches(self, saddle: Saddle) -> bool:
        """Whether the losses that were ended are still beyond what the window for this saddle needs."""
        return saddle.epsilon + (self.window_reach + 0.1) / saddle.tilt < self._room

    def _located(self, saddle: Saddle, before: Before) -> Saddle:
        """The saddle corrected by composing a coarse law: few or sparse releases are far from the approximation."""
        for _ in range(4):
            losses, curve = self._coarse(saddle)
            inside = np.flatnonzero((losses >= 0.0) & np.isfinite(curve))
            if len(inside) < 8:
                return saddle
            losses, curve = losses[inside], curve[inside]
            place = int(np.clip(np.count_nonzero(before(curve, losses)), 3, len(inside) - 4))
            epsilon, log_delta = float(losses[place]), float(curve[place])
            slope = (curve[place - 3] - curve[place + 3]) / (losses[place + 3] - losses[place - 3])
            if not slope > 0.0:
                # delta is 1 up to rounding here, so there is nothing to correct the approximation with.
                return saddle
            tilt = steepest = self._tilt_of(float(slope), epsilon, log_delta)
            value, _, variance = self.cumulants(tilt)
            size = self._size(tilt, value, epsilon, log_delta)
            for share in _SMALLER_TILTS:
                if size is None or size - tilt * epsilon - log_delta <= self._spare + (0.0 if size == value else _MORE_NATS):
                    break
                tilt = share * steepest
                value, _, variance = self.cumulants(tilt)
                size = self._size(tilt, value, epsilon, log_delta)
            else:
                size = None
            if size is None:
                # The tilted law would be elsewhere: take the tilt that moves its mean there.
                found = self._with_mean(epsilon)
                tilt, variance, value, size = found.tilt, found.spread**2, found.log_moment, found.log_moment
            moved = self._gentlest(Saddle(tilt, epsilon, min(log_delta, 0.0), math.sqrt(variance), float(slope), epsilon, value, size))
            if abs(math.log(moved.slope / saddle.slope)) < 0.3 and abs(epsilon - saddle.epsilon) < 0.5 / tilt:
                return moved
            saddle = moved
        return saddle

    def _tilt_of(self, slope: float, epsilon: float, log_delta: float) -> float:
        """The tilt that is delta's slope, or ``_FLATTEST`` where it is hardly worse."""
        tilt, flattest = min(max(slope, 1e-4 / self.scale), 1e7 / self.scale), _FLATTEST / self.scale
        return flattest if tilt < flattest and self.cumulants(flattest)[0] - flattest * epsilon < log_delta + _HARDLY else tilt

    def _gentlest(self, saddle: Saddle) -> Saddle:
        """The same with the tilt, out of a few, that needs the shortest window: a strong tilt raises far tails of sparse releases."""
        best, shortest = saddle, math.inf
        for share in (1.0, 0.7, 0.5, 0.35):
            tilt = share * saddle.tilt
            value, _, variance = self.cumulants(tilt)
            size = self._size(tilt, value, saddle.epsilon, saddle.log_delta)
            if share < 1.0 and (size is None or size - tilt * saddle.epsilon - saddle.log_delta > self._spare):
                break
            size = value if size is None else size
            one = Saddle(tilt, saddle.epsilon, saddle.log_delta, math.sqrt(variance), saddle.slope, saddle.mean, value, size)
            left, right = self.edges(one)
            length = max(right.loss - one.epsilon, one.epsilon + one.kernel - left.loss)
            if length < 0.9 * shortest:
                best, shortest = one, length
        return best

    def _coarse(self, saddle: Saddle) -> tuple[Floats, Floats]:
        """(losses, approximate log delta at them), on a lattice of a few thousand points."""
        left, right = (edge.loss for edge in self.edges(saddle))
        low, high = min(left, -0.1 * (right - left)), max(right, saddle.epsilon + 20.0 / saddle.tilt)
        if left > _FAR * (right - left):
            # A tilted law that is so narrow, and so far from 0, would be within few steps.
            low = min(left, saddle.epsilon - 20.0 / saddle.tilt)
        step = (high - low) / _COARSE_POINTS
        split = self.split(saddle.excess, saddle.epsilon, saddle.log_delta)
        start = scale = 0.0
        both: Both | None = None
        for leaf, count in self.leaves:
            log_moment = leaf.cumulants(saddle.tilt)[0]
            weights = np.exp(leaf.log_weights + saddle.tilt * leaf.losses - log_moment)
            places, first = (leaf.losses - leaf.losses[0]) / step, 0 if split is None else int(np.searchsorted(leaf.losses, split.jump))
            # Without a split everything is a jump: the whole law then is what its jumps add.
            parts = (np.fft.rfft(spread(places[part], weights[part], _COARSE_POINTS)) for part in (slice(0, first), slice(first, None)))
            found = power_of_both((next(parts), next(parts)), count)
            both = found if both is None else product_of_both(both, found)
            start += count * float(leaf.losses[0])
            scale += count * log_moment
        assert both is not None
        product = both[1]
        offset = math.ceil((low - start) / step)
        values = np.roll(np.fft.irfft(product, _COARSE_POINTS), -(offset % _COARSE_POINTS))
        places = step * np.arange(1, _COARSE_POINTS + 1)
        kernel = np.exp(-saddle.tilt * places) * -np.expm1(-places)
        double = 2 * _COARSE_POINTS
        sums = np.fft.irfft(np.fft.rfft(values, double) * np.conj(np.fft.rfft(kernel, double)), double)
        sums = np.append(sums[1:_COARSE_POINTS], 0.0)
        losses: Floats = np.asarray(start + step * (offset + np.arange(_COARSE_POINTS)), dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            curve = np.log(np.where(sums > 1e-13 * sums.max(), sums, 0.0)) + scale - saddle.tilt * losses - self.log_unit
        return losses, curve

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        """log M of the composed loss, and its first two derivatives."""
        parts = [(count, leaf.cumulants(tilt)) for leaf, count in self.leaves]
        return tuple(sum(count * part[i] for count, part in parts) for i in range(3))  # type: ignore[return-value]

    def saddle(self, tilt: float) -> Saddle:
        """The saddle point approximation at a tilt."""
        value, mean, variance = self.cumulants(tilt)
        epsilon = mean - 1.0 / tilt - 1.0 / (1.0 + tilt)
        curvature = variance + 1.0 / tilt**2 + 1.0 / (1.0 + tilt) ** 2
        log_delta = value - tilt * epsilon - math.log(tilt) - math.log1p(tilt) - 0.5 * math.log(2.0 * math.pi * curvature)
        log_delta = min(log_delta - self.log_unit, 0.0)
        return Saddle(tilt, epsilon, log_delta, math.sqrt(variance), tilt, mean, value, value)

    def saddle_for_delta(self, log_delta: float) -> Saddle:
        """The saddle where delta is about e^log_delta, or at epsilon 0 if delta is already smaller there."""
        found = self._solve(lambda saddle: saddle.log_delta > log_delta)
        return found if found.epsilon >= 0.0 else self.saddle_for_epsilon(0.0)

    def _with_mean(self, epsilon: float) -> Saddle:
        found = self._solve(lambda saddle: saddle.mean < epsilon)
        # Near the untilted mean this tilt is close to 0, and the kernel's reach, 1 / tilt, is far beyond the law.
        return self.saddle(max(found.tilt, 0.5 / found.spread)) if found.spread > 0.0 else found

    def saddle_for_epsilon(self, epsilon: float) -> Saddle:
        """The saddle at which the tilted composed law is centred around epsilon."""
        return self._solve(lambda saddle: saddle.epsilon < epsilon)

    def _solve(self, before: Callable[[Saddle], bool]) -> Saddle:
        low, high = math.log(1e-4 / self.scale), math.log(1e7 / self.scale)
        for _ in range(40):
            middle = 0.5 * (low + high)
            if before(self.saddle(math.exp(middle))):
                low = middle
            else:
                high = middle
            if high - low < 0.01:
                break
        return self.saddle(math.exp(low))

    def edges(self, saddle: Saddle) -> tuple[Edge, Edge]:
        """Losses between which the tilted composed law is, by Chernoff's bound."""
        base = saddle.log_moment - _EDGE_NATS - saddle.excess
        largest = max(float(leaf.losses[-1]) for leaf, _ in self.leaves)
        tilts = np.geomspace(0.3, 40.0, 14) / max(saddle.spread, 0.03 / saddle.tilt)
        # Rare losses far beyond the spread need tilts of their own size.
        tilts = np.append(tilts, np.geomspace(2.0, 60.0, 8) / largest) if largest > 20.0 * saddle.spread else tilts
        turned = np.concatenate((-tilts, tilts))
        losses = (sum(count * leaf.log_moments(saddle.tilt + turned) for leaf, count in self.leaves) - base) / turned
        left, right = int(np.argmax(losses[: len(tilts)])), len(tilts) + int(np.argmin(losses[len(tilts) :]))
        return Edge(float(losses[left]), float(turned[left])), Edge(float(losses[right]), float(turned[right]))
