r"""The curve of a random allocation, E[(S/t - gamma)_+] for a sum S of t ratios, in both orders: bounds at every epsilon >= 0.

It is laid out once for each number of steps and distance: a few composed laws of tiny losses, each around its own part of the curve.
proofs/allocation.md
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import final

import numpy as np

from zetadp.accountants import deadline
from zetadp.accountants.allocation.derived import is_reversed
from zetadp.accountants.allocation.far import calls_beyond
from zetadp.accountants.allocation.grid_part import STRETCH, GridPart, grid_part
from zetadp.accountants.allocation.ratio import Ratio
from zetadp.accountants.allocation.series import calls_near, puts_near
from zetadp.accountants.allocation.series_part import SeriesPart, ratios_of
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

    def __init__(self, pair: Pair, steps: int, ratios: tuple[Ratio, Ratio] | None) -> None:
        self._parts = list[GridPart | SeriesPart]()
        self._pair, self._steps, self._ratios, self._is_forward = pair, steps, ratios, not is_reversed(pair.upper)
        level, guess = 0.0, None
        while len(self._parts) < _MOST_PARTS:
            deadline.check()
            found = self._next(level, guess)
            # A part that doesn't go on is the end: there is no room for another one.
            found = found[: next((n for n, part in enumerate(found) if not part.last > level * (1.0 + 1e-9)), len(found))]
            if not found:
                break
            self._parts.extend(found)
            level, guess = found[-1].last, found[-1].log_delta
            if not guess > _DEPTH:
                break
        self._centres = np.array([part.centre for part in self._parts])

    def _next(self, level: float, guess: float | None) -> Sequence[GridPart | SeriesPart]:
        """Parts from a level on, where the curve is about e^guess over its scale; none where the curve ends."""
        if self._ratios is not None:
            with within_floats("random allocation"):
                found = self._calls(level, guess) if self._is_forward else self._puts(level)
            if found:
                return found
        try:
            with within_floats("random allocation"):
                return [grid_part(self._pair, self._steps, level, guess)]
        except UnsupportedEvent:
            if not self._parts:
                raise
            return []

    def _calls(self, level: float, guess: float | None) -> Sequence[SeriesPart]:
        assert self._ratios is not None
        scale = self._scale
        if guess is None:
            pieces = [[calls_near(ratio, self._steps)] for ratio in self._ratios]
        else:
            size = math.log(scale)
            # A little more than what is wanted, so that two parts meet.
            k = self._steps + level * (1.0 - _OVERLAP)
            pieces = [calls_beyond(ratio, self._steps, k, guess + size, _DEPTH + size) for ratio in self._ratios]
        return [SeriesPart(a, b, self._steps, True, scale) for a, b in zip(*pieces, strict=False) if a is not None and b is not None]

    def _puts(self, level: float) -> Sequence[SeriesPart]:
        assert self._ratios is not None
        last = self._parts[-1] if self._parts else None
        if last is not None and not isinstance(last, SeriesPart):
            return []
        slope, high = (_FIRST_SLOPE / self._scale, float(self._steps)) if last is None else (last.slope, self._steps - level)
        low = max(high - (_FIRST_NATS if last is None else _PUT_NATS) / slope, 1e-3 * high)
        # A little more than what is wanted, so that two parts meet.
        above, below = (puts_near(ratio, self._steps, -slope, low, high + 1e-3 / slope) for ratio in self._ratios)
        return [] if above is None or below is None else [SeriesPart(above, below, self._steps, False, self._scale)]

    @cached_property
    def _scale(self) -> float:
        assert self._ratios is not None
        return math.sqrt(self._steps * self._ratios[0].variance)

    def at(self, level: Floats, error: Floats) -> Calls:
        """Bounds over eta; ``tail`` is the mass beyond each level. ``error``: by how much the levels may be off."""
        lower, upper, mass, doubt = (np.zeros_like(level) for _ in range(4))
        upper += math.inf
        nearest = np.searchsorted(self._centres, level, side="right") - 1
        for number, part in enumerate(self._parts):
            # The part whose centre is the last one before, and those next to it: the better bound of each kind.
            here = np.flatnonzero(np.abs(nearest - number) <= 1)
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
        self._forward = OneOrder(pair, steps, ratios_of(base, copies, steps, True))
        self._backward = OneOrder(reverse(pair), steps, ratios_of(base, copies, steps, False))
        # Backwards a curve's bound is divided by what it is asked at; from some epsilon on, a smaller one's is better.
        self._known = np.geomspace(1e-3, 100.0, 1000)
        self._least = np.minimum.accumulate(self._backward_upper(self._known))

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
        before = np.searchsorted(self._known, epsilons, side="right") - 1
        upper = np.minimum(self._backward_upper(epsilons), np.where(before >= 0, self._least[np.maximum(before, 0)], 1.0))
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
