r"""A part of the curve of an allocation's sum that is known as a series, or an integral. proofs/allocation.md, (S7) and (S8)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
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

_FAR = 13.0
"""How far out a Z counts as one for which a ratio's move by ``STRETCH`` isn't bounded: its mass is below 1e-38."""

_MISSED = 0.5 * math.erfc(_FAR / math.sqrt(2.0)) * (1.0 + 1e-9)


@final
@dataclass(frozen=True)
class SharedRatio:
    """A ratio whose series serves all pairs of nearly its distances. (S8)

    Attributes:
      ratio: X.
      moved: log X of those pairs is nowhere off by more than this, but for what ``missed`` bounds.
      missed: E of what X is beyond that.
    """

    ratio: Ratio
    moved: float
    missed: float


def shared_ratio(base: Density, copies: Mixture, steps: int) -> SharedRatio | None:
    """Of the base's copies, moved by ``STRETCH`` and the weights' rounding; None where sums are on a grid only."""
    if not base.is_normal or steps < FEWEST_STEPS:
        return None
    ratio, largest = Ratio(copies.weights, copies.shifts), copies.shifts[-1]
    moved = STRETCH * largest * (_FAR + 1.0 + largest)
    if len(copies.weights) > 1:
        moved += _REMAINDER / copies.weights[0]
    return SharedRatio(ratio, moved * (1.0 + 1e-5), _MISSED * ratio.mean * (1.0 + 1e-6))


@final
@dataclass(frozen=True)
class SeriesPart:
    """Calls at levels k - t, or puts at levels t - k.

    Attributes:
      series: of the ratio itself.
      shared: that ratio, and by how much those it serves differ.
      steps: t.
      is_forward: whether these are calls.
    """

    series: Series
    shared: SharedRatio
    steps: int
    is_forward: bool
    scale: float

    @property
    def centre(self) -> float:
        return self._levels[0]

    @property
    def last(self) -> float:
        return self._levels[1]

    @property
    def log_delta(self) -> float:
        """About the logarithm at ``last``, over the scale."""
        return math.log(float(self.series.upper[-1 if self.is_forward else 0]) / self.scale)

    @property
    def slope(self) -> float:
        """Of the logarithm at ``last``, downwards."""
        end = -1 if self.is_forward else 0
        return float(self.series.slopes[end] / self.series.upper[end])

    @cached_property
    def _levels(self) -> tuple[float, float]:
        """From the first to the last, a little inside."""
        one, inside = self.series, 2.0 * self._moved
        first, last = one.first * (1.0 + inside), (one.first + one.step * (len(one.upper) - 1)) * (1.0 - inside)
        return (first - self.steps, last - self.steps) if self.is_forward else (self.steps - last, self.steps - first)

    @property
    def _moved(self) -> float:
        """With the rounding of a level's k."""
        return self.shared.moved + 64.0 * UNIT

    def _k(self, level: Floats, safe: float) -> Floats:
        """k at a level, moved by ``moved`` towards larger values (safe = 1) or smaller ones (-1)."""
        k, moved = (self.steps + level, -safe) if self.is_forward else (self.steps - level, safe)
        return k * (1.0 + moved * self._moved) + moved * 64.0 * UNIT * np.abs(level)

    def upper(self, level: Floats) -> Floats:
        """Over eta: a chord between two upper bounds. Beyond the end the bound at the end holds, and before it nothing is known."""
        one = self.series
        places = np.clip((self._k(level, 1.0) - one.first) / one.step, 0.0, len(one.upper) - 1.000001)
        cells = places.astype(np.int64)
        share = places - cells
        left, right = one.upper[cells], one.upper[cells + 1]
        value = left * (1.0 - share) + right * share + np.abs(left - right) * 8.0 * UNIT * (cells + 2.0)
        value = value * (1.0 + 2.0 * self._moved) + self.steps * self.shared.missed
        return np.where(level >= self._levels[0], ETA * value * (1.0 + 8.0 * UNIT), math.inf)

    def lower(self, level: Floats) -> tuple[Floats, Floats, Floats]:
        """(bounds over eta, slope, how much it may be off) of the tangent at the nearest k; 0 outside."""
        one = self.series
        first, last = self._levels
        k = self._k(level, -1.0)
        cells = np.clip(np.rint((k - one.first) / one.step), 0, len(one.lower) - 1).astype(np.int64)
        gain = one.first + one.step * cells - k
        gain = gain if self.is_forward else -gain
        slopes, doubts = one.slopes[cells], one.doubts[cells]
        value = one.lower[cells] + slopes * gain - doubts * np.abs(gain) - (slopes + doubts) * 16.0 * UNIT * (k + one.step * cells)
        value = value * (1.0 - 2.0 * self._moved) - 2.0 * self.steps * self.shared.missed
        inside = (level >= first) & (level <= last)
        return np.where(inside, ETA * np.maximum(value * (1.0 - 8.0 * UNIT), 0.0), 0.0), slopes, doubts
