r"""A window of a grid on the curve of an allocation's sum, around one level. proofs/allocation.md, (4) and (5)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from zetadp.accountants.allocation.summand import ETA
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities import Floats
from zetadp.accountants.grids.convolution import Tails
from zetadp.accountants.grids.layers import Plan
from zetadp.accountants.grids.layout import Estimates
from zetadp.accountants.pairs import Pair
from zetadp.mechanisms.errors import UnsupportedEvent

_NATS = 9.0
"""How far down one window serves."""

STRETCH = 2e-11
"""Relative distance up to which a curve serves pairs of nearly the same distance."""

_COARSER = 2.0
"""Steps over those for one answer: a quarter as narrow, in half the time."""


@final
@dataclass(frozen=True)
class GridPart:
    """Bounds in one window around a level; levels are sums less t, in units of a ratio.

    Attributes:
      centre: the level.
      first, end, lower_end: of the window, for upper and for lower bounds.
      last: up to where the bounds are good.
      log_delta: of the upper bound at ``last``, over the scale of its estimates.
    """

    centre: float
    first: float
    end: float
    lower_end: float
    last: float
    log_delta: float
    above: Tails
    below: Tails | None

    def upper(self, level: Floats) -> Floats:
        """Over eta. Beyond the window's end the bound at its end holds, and before it nothing is known."""
        return np.where(level >= self.first, _above(self.above, np.minimum(level, self.end) * ETA), math.inf)

    def lower(self, level: Floats) -> tuple[Floats, Floats, Floats]:
        """(bounds over eta, the curve's slope there, how much it may be off); 0 outside."""
        if self.below is None:
            return np.zeros_like(level), np.zeros_like(level), np.zeros_like(level)
        inside = (level >= self.first) & (level < self.lower_end)
        low, slope, unsure = _below(self.below, np.where(inside, level, self.first) * ETA)
        return np.where(inside, low, 0.0), slope, unsure


def grid_part(pair: Pair, steps: int, level: float, guess: float | None) -> GridPart:
    """Around a level, where the curve is about e^guess over the scale of its sum, if that is known."""
    sides = ((pair, steps),)
    estimates, saddle = Estimates.for_epsilon(sides, ETA * level, guess)
    plan = Plan(sides, estimates, saddle, error=STRETCH)
    layer = plan.layer(_COARSER * plan.step(1.0 / saddle.tilt), both=True)
    above = layer.upper.tails()
    if above is None:
        raise UnsupportedEvent("random allocation", "its grid would be too short for its sums")
    below = None if layer.lower is None else layer.lower.tails()
    blur = 2.0 * above.loss_error + 32.0 * UNIT * float(np.max(np.abs(above.losses)))
    if not (np.all(np.isfinite(above.deltas)) and 16.0 * blur < above.losses[1] - above.losses[0]):
        raise UnsupportedEvent("random allocation", "the numbers of its grid are outside what floats can tell apart")
    start = int(np.searchsorted(above.losses, ETA * level))
    if not 1 < start < len(above.losses) - 2:
        raise UnsupportedEvent("random allocation", "the grid for its sums is elsewhere than it should be")
    fallen = np.flatnonzero(above.deltas[start:] < above.deltas[start] * math.exp(-_NATS))
    last = min(start + (int(fallen[0]) if len(fallen) else len(above.losses)), len(above.losses) - 1)
    log_delta = math.log(max(float(above.deltas[last]), 1e-300)) - estimates.log_unit
    first, end = (float(above.losses[k]) / ETA * (1.0 - 1e-12) for k in (1, -2))
    lower_end = end if below is None else min(end, float(below.losses[-2]) / ETA * (1.0 - 1e-12))
    nothing = np.empty(0)
    kept = replace(above, masses=nothing, doubts=nothing)  # only lower bounds come with tangents
    return GridPart(level, first, end, lower_end, float(above.losses[last]) / ETA, log_delta, kept, below)


def _place(tails: Tails, at: Floats) -> tuple[np.ndarray, Floats]:
    """(cell, share of it) of each loss, inside the window."""
    step = (tails.losses[-1] - tails.losses[0]) / (len(tails.losses) - 1)
    places = np.clip((at - tails.losses[0]) / step, 0.0, len(tails.losses) - 1.000001)
    cells = places.astype(np.int64)
    return cells, places - cells


def _above(tails: Tails, at: Floats) -> Floats:
    """A chord between two upper bounds of a convex curve; where the chord falls it is taken a little before."""
    moved = at - 2.0 * tails.loss_error - 8.0 * UNIT * np.abs(at)
    cells, share = _place(tails, moved)
    value = tails.deltas[cells] * (1.0 - share) + tails.deltas[cells + 1] * share
    # Rounding of the place, times the chord's slope.
    slope = np.abs(tails.deltas[cells] - tails.deltas[cells + 1])
    return value * (1.0 + 8.0 * UNIT) + slope * 8.0 * UNIT * (cells + 2.0)


def _below(tails: Tails, at: Floats) -> tuple[Floats, Floats, Floats]:
    """The law's own curve, which is linear between indices, a little further; and its slope there."""
    moved = at + 2.0 * tails.loss_error + 8.0 * UNIT * np.abs(at)
    cells, share = _place(tails, moved)
    value = tails.deltas[cells] * (1.0 - share) + tails.deltas[cells + 1] * share
    slope = np.abs(tails.deltas[cells] - tails.deltas[cells + 1])
    low = np.maximum(value * (1.0 - 8.0 * UNIT) - slope * 8.0 * UNIT * (cells + 2.0), 0.0)
    # The law's curve at ``moved``, with the slope of its cell, supports the curve from ``at`` on as well. (5)
    return low, tails.masses[cells], tails.doubts[cells]
