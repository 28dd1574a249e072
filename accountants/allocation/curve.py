r"""The curve of a random allocation, E[(S/t - gamma)_+] for a sum S of t ratios, in both orders: bounds at every epsilon >= 0.

It is laid out once for each number of steps and distance: a few composed laws of tiny losses, each around its own part of the curve.
proofs/allocation.md
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from threading import Lock
from typing import final

import numpy as np

from zetadp.accountants import deadline
from zetadp.accountants.allocation.derived import is_reversed
from zetadp.accountants.allocation.far import CallsBeyond
from zetadp.accountants.allocation.grid_part import STRETCH, GridPart, grid_part
from zetadp.accountants.allocation.series import calls_near, puts_near
from zetadp.accountants.allocation.series_part import SeriesPart, SharedRatio, shared_ratio
from zetadp.accountants.allocation.summand import ETA, LARGEST_SQUARE, LINEAR, Summand, beyond
from zetadp.accountants.arithmetic import UNIT, within_floats
from zetadp.accountants.densities import Calls, Density, Floats
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.grids.hockey_stick import reverse
from zetadp.accountants.pairs import Pair
from zetadp.mechanisms.errors import UnsupportedEvent

_DEPTH = -58.0
"""How far down the curve is laid out, as a logarithm over the sum's scale. Beyond, its last value bounds it."""

WHOLE = Mixture((1.0,), (1.0,))
"""The shares of a release of one record."""

_STARTS_DEPTH = _GRIDS_DEPTH = -50.0
"""The same where another end of the cut, or a grid, would be needed to go on from a series: what is there is hardly ever asked for."""

_BITS = 36
_MOST_PARTS = 100
_OVERLAP = 1e-3

_FIRST_SLOPE, _FIRST_NATS, _PUT_NATS = 1.25, 3.5, 14.0
"""Of puts, over the spread of their sum: how fast their logarithm falls at first; and how many times its inverse parts reach."""


@final
class OneOrder:
    """E[(S - t - level)_+], or E[(t - S - level)_+], at levels >= 0: parts from level 0 on, each after the other."""

    def __init__(self, pair: Pair, steps: int, shared: SharedRatio | None) -> None:
        self._parts = list[GridPart | SeriesPart]()
        self._pair, self._steps, self._shared, self._is_forward = pair, steps, shared, not is_reversed(pair.upper)
        self._is_complete, self._lock = False, Lock()
        self._beyond: CallsBeyond | None = None

    def _reach(self, level: float) -> None:
        """Lays parts up to a level, or to the end. Each follows from the one before it, so that they don't depend on what was asked."""
        with self._lock:
            while not (self._is_complete or self._is_laid(level)):
                deadline.check()
                start, guess = (self._parts[-1].last, self._parts[-1].log_delta) if self._parts else (0.0, None)
                if len(self._parts) >= _MOST_PARTS or (guess is not None and not guess > _DEPTH):
                    self._is_complete = True
                    break
                found = self._next(start, guess)
                # A part that doesn't go on is the end: there is no room for another one.
                if found is not None and found.last > start * (1.0 + 1e-9):
                    self._parts.append(found)
                else:
                    self._is_complete = True

    def _is_laid(self, level: float) -> bool:
        """Whether all parts that say something there are laid: of grids the next one does, too."""
        if not self._parts:
            return False
        last = self._parts[-1]
        return level < (last.centre if isinstance(last, GridPart) else last.last)

    def _next(self, level: float, guess: float | None) -> GridPart | SeriesPart | None:
        """The part from a level on, where the curve is about e^guess over its scale; None where the curve ends."""
        if self._shared is not None:
            with within_floats("random allocation"):
                found = self._calls(self._shared, level, guess) if self._is_forward else self._puts(self._shared, level)
            if found is not None:
                return found
        if guess is not None and guess < _GRIDS_DEPTH and isinstance(self._parts[-1], SeriesPart):
            return None
        try:
            with within_floats("random allocation"):
                return grid_part(self._pair, self._steps, level, guess)
        except UnsupportedEvent:
            if not self._parts:
                raise
            return None

    def _calls(self, shared: SharedRatio, level: float, guess: float | None) -> SeriesPart | None:
        if guess is None:
            piece = calls_near(shared.ratio, self._steps)
        else:
            piece = None if self._beyond is None else next(self._beyond, None)
            if piece is None and guess > _STARTS_DEPTH:
                size = math.log(self._scale)
                # A little more than what is wanted, so that two parts meet.
                k = self._steps + level * (1.0 - _OVERLAP)
                self._beyond = CallsBeyond(shared.ratio, self._steps, k, guess + size, _DEPTH + size)
                piece = next(self._beyond, None)
        return None if piece is None else SeriesPart(piece, shared, self._steps, True, self._scale)

    def _puts(self, shared: SharedRatio, level: float) -> SeriesPart | None:
        last = self._parts[-1] if self._parts else None
        if last is not None and not isinstance(last, SeriesPart):
            return None
        slope, high = (_FIRST_SLOPE / self._scale, float(self._steps)) if last is None else (last.slope, self._steps - level)
        low = max(high - (_FIRST_NATS if last is None else _PUT_NATS) / slope, 1e-3 * high)
        # A little more than what is wanted, so that two parts meet.
        found = puts_near(shared.ratio, self._steps, -slope, low, high + 1e-3 / slope)
        return None if found is None else SeriesPart(found, shared, self._steps, False, self._scale)

    @cached_property
    def _scale(self) -> float:
        assert self._shared is not None
        return math.sqrt(self._steps * self._shared.ratio.variance)

    @property
    def last(self) -> float:
        """The last level that is laid."""
        return self._parts[-1].last

    def at(self, level: Floats, error: Floats) -> Calls:
        """Bounds over eta; ``tail`` is the mass beyond each level. ``error``: by how much the levels may be off."""
        lower, upper, mass, doubt = (np.zeros_like(level) for _ in range(4))
        upper += math.inf
        self._reach(float(np.max(level, initial=0.0)))
        parts = tuple(self._parts)
        nearest = np.searchsorted(np.array([part.centre for part in parts]), level, side="right") - 1
        inside = np.array([isinstance(part, SeriesPart) for part in parts])[nearest] & (
            level < np.array([part.last for part in parts])[nearest]
        )
        for number in range(max(int(nearest.min(initial=len(parts))) - 1, 0), min(int(nearest.max(initial=0)) + 2, len(parts))):
            # The part whose centre is the last one before, and those next to it where it isn't a series that knows the level: the better
            # bound of each kind.
            part, away = parts[number], nearest - number
            ahead = number > 0 and isinstance(part, GridPart) and isinstance(parts[number - 1], GridPart)
            here = np.flatnonzero((away == 0) | ~inside & ((away == 1) | (away == -1) & ahead))
            if len(here) == 0:
                continue
            upper[here] = np.minimum(upper[here], part.upper(level[here] - error[here]))
            low, slope, unsure = part.lower(level[here] + error[here])
            kept = low > lower[here]
            better = here[kept]
            lower[better], mass[better], doubt[better] = low[kept], slope[kept], unsure[kept]
        return Calls(lower, upper, mass, doubt)


@final
class AllocationCurve:
    """Both orders of the pair of one whole random allocation; ``spread`` is at least that of S/t.

    Args:
      base: the family of one release's pair.
      distance: of that pair.
      steps: t, of which each record takes part in one.
      shares: the base's copies, as shares of the distance, of which the largest is 1.
    """

    def __init__(self, base: Density, distance: float, steps: int, shares: Mixture = WHOLE) -> None:
        log_square = base.loss(distance * (1.0 + STRETCH)).renyi(2.0) * (1.0 + 1e-9)
        if not log_square <= LARGEST_SQUARE:
            raise UnsupportedEvent(
                "random allocation", f"its noise is too small: log E[(dP/dQ)^2] is {log_square:.3g}, above {LARGEST_SQUARE:g}"
            )
        copies = Mixture(shares.weights, tuple(share * distance for share in shares.shifts))
        pair = Pair(Summand(base, log_square), copies, Mixture((1.0,), (0.0,)))
        self._steps, self._beyond = steps, beyond(log_square)
        shared = shared_ratio(base, copies, steps)
        self.spread = math.sqrt((math.expm1(log_square) if shared is None else shared.ratio.variance) / steps)
        self._forward, self._backward = OneOrder(pair, steps, shared), OneOrder(reverse(pair), steps, shared)

    def forward(self, epsilons: Floats) -> Calls:
        """E_Q[(S/t - e^eps)_+]: P, the allocation with the record, against Q."""
        t = float(self._steps)
        gain = np.expm1(np.minimum(epsilons, 600.0))
        found = self._forward.at(t * gain, 16.0 * UNIT * t * gain)
        # The linear sums from those of 1 - e^{-L}. (1)
        upper = found.upper / (ETA * t) * (1.0 + LINEAR) + self._beyond
        gamma = 1.0 + gain
        tail = gamma * found.tail
        return Calls(
            found.lower / (ETA * t) * (1.0 - 8.0 * UNIT), upper, tail, gamma * found.doubt * (1.0 + 8.0 * UNIT) + 16.0 * UNIT * tail
        )

    def backward(self, epsilons: Floats) -> Calls:
        """E_Q[(1 - e^eps S/t)_+]: Q against P."""
        found, gamma = self._puts(epsilons), np.exp(np.minimum(epsilons, 600.0))
        unit = ETA * self._steps
        lower = found.lower / unit * gamma * (1.0 - LINEAR)
        # A curve's bound is divided by what it is asked at; from some epsilon on, a smaller one's is better.
        upper = np.minimum(found.upper / unit * gamma * (1.0 + LINEAR), 1.0)
        end = -math.log1p(-min(self._backward.last / self._steps, 1.0 - 1e-9))
        if float(np.max(epsilons)) > end:
            last = float(self._puts(np.array([end])).upper[0]) / unit * math.exp(end) * (1.0 + LINEAR)
            upper = np.where(epsilons > end, np.minimum(upper, last), upper)
        tail = np.maximum(found.tail - lower, 0.0)
        return Calls(lower, upper, tail, found.doubt * (1.0 + 8.0 * UNIT) + 16.0 * UNIT * found.tail)

    def _puts(self, epsilons: Floats) -> Calls:
        fall = -float(self._steps) * np.expm1(-epsilons)
        return self._backward.at(fall, 16.0 * UNIT * fall)


def curve_of(base: Density, distance: float, steps: int, shares: Mixture = WHOLE) -> AllocationCurve:
    """The curve for this distance, or for one so near that it serves as well: pairs come a little wider and narrower than they are."""
    mantissa, exponent = math.frexp(distance)
    return _curve(base, math.ldexp(round(math.ldexp(mantissa, _BITS)), exponent - _BITS), steps, shares)


_curve = lru_cache(maxsize=8)(AllocationCurve)
