r"""A part of the curve of an allocation's sum that is known as a series, or an integral. proofs/allocation.md, (S7)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from zetadp.accountants.allocation.grid_part import STRETCH
from zetadp.accountants.allocation.ratio import Ratio
from zetadp.accountants.allocation.series import Series
from zetadp.accountants.allocation.summand import ETA
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities import Density, Floats
from zetadp.accountants.densities.mixtures import Mixture

FEWEST_STEPS = 4
"""Sums of fewer are on a grid: their transforms fall too slowly."""


_REMAINDER = 4.0 * UNIT
"""By how much the weight that stands for 1 minus the others may be off."""


def ratios_of(base: Density, copies: Mixture, steps: int, is_forward: bool) -> tuple[Ratio, Ratio] | None:
    """(a ratio with a curve above that of the base's copies, one below), by ``STRETCH`` and the weights' rounding; None on a grid only."""
    if not base.is_normal or steps < FEWEST_STEPS:
        return None
    # Larger copies make calls larger and puts smaller.
    off = 0.0 if len(copies.weights) == 1 else _REMAINDER if is_forward else -_REMAINDER
    above, below = (
        Ratio((copies.weights[0] + sign * off, *copies.weights[1:]), tuple(shift * (1.0 + sign * STRETCH) for shift in copies.shifts))
        for sign in (1.0, -1.0)
    )
    return above, below


@final
@dataclass(frozen=True)
class SeriesPart:
    """Calls at levels k - t, or puts at levels t - k.

    Attributes:
      above, below: of the ratio above and of that below.
      steps: t.
      is_forward: whether these are calls.
    """

    above: Series
    below: Series
    steps: int
    is_forward: bool
    scale: float

    @property
    def centre(self) -> float:
        return max(min(self._levels(one)) for one in (self.above, self.below))

    @property
    def last(self) -> float:
        return min(max(self._levels(one)) for one in (self.above, self.below))

    @property
    def log_delta(self) -> float:
        """About the logarithm at ``last``, over the scale."""
        return math.log(float(self.above.upper[-1 if self.is_forward else 0]) / self.scale)

    @property
    def slope(self) -> float:
        """Of the logarithm at ``last``, downwards."""
        end = -1 if self.is_forward else 0
        return float(self.above.slopes[end] / self.above.upper[end])

    def _levels(self, one: Series) -> tuple[float, float]:
        ends = one.first - self.steps, one.first + one.step * (len(one.upper) - 1) - self.steps
        return ends if self.is_forward else (-ends[1], -ends[0])

    def _k(self, level: Floats, safe: float) -> Floats:
        """k at a level, moved by more than its rounding towards larger values (safe = 1) or smaller ones (-1)."""
        k = self.steps + level if self.is_forward else self.steps - level
        return k + (-safe if self.is_forward else safe) * 32.0 * UNIT * (self.steps + np.abs(level))

    def upper(self, level: Floats) -> Floats:
        """Over eta: a chord between two upper bounds. Beyond the end the bound at the end holds, and before it nothing is known."""
        one = self.above
        first, _ = self._levels(one)
        places = np.clip((self._k(level, 1.0) - one.first) / one.step, 0.0, len(one.upper) - 1.000001)
        cells = places.astype(np.int64)
        share = places - cells
        left, right = one.upper[cells], one.upper[cells + 1]
        value = left * (1.0 - share) + right * share + np.abs(left - right) * 8.0 * UNIT * (cells + 2.0)
        return np.where(level >= first, ETA * value * (1.0 + 8.0 * UNIT), math.inf)

    def lower(self, level: Floats) -> tuple[Floats, Floats, Floats]:
        """(bounds over eta, slope, how much it may be off) of the tangent at the nearest k; 0 outside."""
        one = self.below
        first, last = self._levels(one)
        k = self._k(level, -1.0)
        cells = np.clip(np.rint((k - one.first) / one.step), 0, len(one.lower) - 1).astype(np.int64)
        gain = one.first + one.step * cells - k
        gain = gain if self.is_forward else -gain
        slopes, doubts = one.slopes[cells], one.doubts[cells]
        value = one.lower[cells] + slopes * gain - doubts * np.abs(gain) - (slopes + doubts) * 16.0 * UNIT * (k + one.step * cells)
        inside = (level >= first) & (level <= last)
        return np.where(inside, ETA * np.maximum(value * (1.0 - 8.0 * UNIT), 0.0), 0.0), slopes, doubts
