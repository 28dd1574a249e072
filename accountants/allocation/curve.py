r"""The curve of a random allocation, E[(S/t - gamma)_+] for a sum S of t ratios, in both orders: bounds at every epsilon >= 0.

It is laid out once for each number of steps and distance: a few composed laws of tiny losses, each around its own part of the curve.
proofs/allocation.md
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import final

import numpy as np

from zetadp.accountants import deadline
from zetadp.accountants.allocation.summand import ETA, LARGEST_SQUARE, LINEAR, Summand, beyond
from zetadp.accountants.arithmetic import UNIT, within_floats
from zetadp.accountants.densities import Calls, Density, Floats
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.grids.convolution import Tails
from zetadp.accountants.grids.hockey_stick import reverse
from zetadp.accountants.grids.layers import Plan
from zetadp.accountants.grids.layout import Estimates
from zetadp.accountants.pairs import Pair
from zetadp.mechanisms.errors import UnsupportedEvent

_DEPTH = -58.0
"""How far down the curve is laid out, as a logarithm over the sum's scale. Beyond, its last value bounds it."""

_NATS = 9.0
"""How far down one window serves."""

STRETCH = 2e-11
"""Relative distance up to which a curve serves pairs of nearly the same distance."""

WHOLE = Mixture((1.0,), (1.0,))
"""The shares of a release of one record."""

_BITS = 36
_MOST_WINDOWS = 40
_COARSER = 2.0
"""Steps over those for one answer: a quarter as narrow, in half the time."""


@final
@dataclass(frozen=True)
class _Part:
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


@final
class OneOrder:
    """E[(S - t - level)_+], or E[(t - S - level)_+], at levels >= 0."""

    def __init__(self, pair: Pair, steps: int) -> None:
        self._parts = list[_Part]()
        level, guess = 0.0, None
        for _ in range(_MOST_WINDOWS):
            deadline.check()
            try:
                with within_floats("random allocation"):
                    part = _part(pair, steps, level, guess)
            except UnsupportedEvent:
                if not self._parts:
                    raise
                break  # near the curve's end there is no room for a grid
            if self._parts and not part.last > level * (1.0 + 1e-9):
                break
            self._parts.append(part)
            level, guess = part.last, part.log_delta
            if not guess > _DEPTH:
                break
        self._centres = np.array([part.centre for part in self._parts])

    def at(self, level: Floats, error: Floats) -> Calls:
        """Bounds over eta; ``tail`` is the mass beyond each level. ``error``: by how much the levels may be off."""
        lower, upper, mass, doubt = (np.zeros_like(level) for _ in range(4))
        upper += math.inf
        nearest = np.searchsorted(self._centres, level, side="right") - 1
        for number, part in enumerate(self._parts):
            # The window whose centre is the last one before, and those next to it: the better bound of each kind.
            here = np.flatnonzero((np.abs(nearest - number) <= 1) & (level >= part.first))
            if len(here) == 0:
                continue
            # Beyond the window's end the bound at its end holds, and no lower one is known.
            upper[here] = np.minimum(upper[here], _above(part.above, np.minimum(level[here] - error[here], part.end) * ETA))
            here = here[level[here] + error[here] < part.lower_end]
            if part.below is not None and len(here):
                low, slope, unsure = _below(part.below, (level[here] + error[here]) * ETA)
                kept = low > lower[here]
                better = here[kept]
                lower[better], mass[better], doubt[better] = low[kept], slope[kept], unsure[kept]
        return Calls(lower, upper, mass, doubt)


def _part(pair: Pair, steps: int, level: float, guess: float | None) -> _Part:
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
    return _Part(level, first, end, lower_end, float(above.losses[last]) / ETA, log_delta, kept, below)


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
        self._forward, self._backward = OneOrder(pair, steps), OneOrder(reverse(pair), steps)
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
