r"""The curve of a random allocation, E[(S/t - gamma)_+] for a sum S of t ratios, in both orders: bounds at every epsilon >= 0.

It is laid out once for each number of steps and distance: a few composed laws of tiny losses, each around its own part of the curve.
proofs/allocation.md
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache
from threading import Lock
from typing import final

import numpy as np

from zetadp.accountants import deadline
from zetadp.accountants.allocation.derived import is_reversed
from zetadp.accountants.allocation.far import calls_beyond
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
                going = next((n for n, part in enumerate(found) if not part.last > start * (1.0 + 1e-9)), len(found))
                self._parts.extend(found[:going])
                self._is_complete = going == 0

    def _is_laid(self, level: float) -> bool:
        """Whether all parts that say something there are laid: of grids the next one does, too."""
        if not self._parts:
            return False
        last = self._parts[-1]
        return level < (last.centre if isinstance(last, GridPart) else last.last)

    def _next(self, level: float, guess: float | None) -> Sequence[GridPart | SeriesPart]:
        """Parts from a level on, where the curve is about e^guess over its scale; none where the curve ends."""
        if self._shared is not None:
            with within_floats("random allocation"):
                found = self._calls(self._shared, level, guess) if self._is_forward else self._puts(self._shared, level)
            if found:
                return found
        try:
            with within_floats("random allocation"):
                return [grid_part(self._pair, self._steps, level, guess)]
        except UnsupportedEvent:
            if not self._parts:
                raise
            return []

    def _calls(self, shared: SharedRatio, level: float, guess: float | None) -> Sequence[SeriesPart]:
        if guess is None:
            near = calls_near(shared.ratio, self._steps)
            pieces = [] if near is None else [near]
        else:
            size = math.log(self._scale)
            # A little more than what is wanted, so that two parts meet.
            k = self._steps + level * (1.0 - _OVERLAP)
            pieces = calls_beyond(shared.ratio, self._steps, k, guess + size, _DEPTH + size)
        return [SeriesPart(piece, shared, self._steps, True, self._scale) for piece in pieces]

    def _puts(self, shared: SharedRatio, level: float) -> Sequence[SeriesPart]:
        last = self._parts[-1] if self._parts else None
        if last is not None and not isinstance(last, SeriesPart):
            return []
        slope, high = (_FIRST_SLOPE / self._scale, float(self._steps)) if last is None else (last.slope, self._steps - level)
        low = max(high - (_FIRST_NATS if last is None else _PUT_NATS) / slope, 1e-3 * high)
        # A little more than what is wanted, so that two parts meet.
        found = puts_near(shared.ratio, self._steps, -slope, low, high + 1e-3 / slope)
        return [] if found is None else [SeriesPart(found, shared, self._steps, False, self._scale)]

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
        for number, part in enumerate(parts):
            # The part whose centre is the last one before, and those next to it: the better bound of each kind.
            ahead = number > 0 and isinstance(part, GridPart) and isinstance(parts[number - 1], GridPart)
            here = np.flatnonzero((nearest - number <= 1) & (number - nearest <= ahead))
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
    """Both orders of the pair of one whole random allocation.

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
        t = float(self._steps)
        fall = -np.expm1(-epsilons)
        found = self._backward.at(t * fall, 16.0 * UNIT * t * fall)
        gamma = np.exp(np.minimum(epsilons, 600.0))
        lower = found.lower / (ETA * t) * gamma * (1.0 - LINEAR)
        # A curve's bound is divided by what it is asked at; from some epsilon on, a smaller one's is better.
        upper = self._backward_upper(epsilons)
        if t * float(np.max(fall)) > self._backward.last:
            end = np.array([-math.log1p(-min(self._backward.last / t, 1.0 - 1e-9))])
            upper = np.where(epsilons > end, np.minimum(upper, self._backward_upper(end)), upper)
        tail = np.maximum(found.tail - lower, 0.0)
        return Calls(lower, upper, tail, found.doubt * (1.0 + 8.0 * UNIT) + 16.0 * UNIT * found.tail)

    def _backward_upper(self, epsilons: Floats) -> Floats:
        t = float(self._steps)
        fall = -np.expm1(-epsilons)
        found = self._backward.at(t * fall, 16.0 * UNIT * t * fall)
        return np.minimum(found.upper / (ETA * t) * np.exp(np.minimum(epsilons, 600.0)) * (1.0 + LINEAR), 1.0)


def curve_of(base: Density, distance: float, steps: int, shares: Mixture = WHOLE) -> AllocationCurve:
    """The curve for this distance, or for one so near that it serves as well: pairs come a little wider and narrower than they are."""
    mantissa, exponent = math.frexp(distance)
    return _curve(base, math.ldexp(round(math.ldexp(mantissa, _BITS)), exponent - _BITS), steps, shares)


_curve = lru_cache(maxsize=8)(AllocationCurve)
