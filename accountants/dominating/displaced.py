r"""The family of a group in a sample of a fixed size that replaces its records: a pair known by its profile. proofs/pairs.md, row 5.

With weights p_j at distances s_j, p_0 the rest, R_j = f(x - s_j) / f(x) and S the upper tail of f, the profile at a level g >= 1 is

    h(g) = sum_j p_j (S(y_j - s_j) - R_j(y_j) S(y_j)),      y_j the larger of x and the point where R_j = g,

at the x where sum_j p_j (R_j(x) - g)_+ = (g - 1) p_0. Whatever x results, the level that belongs to it is computed again: the formula is
h there, and what is left between it and the level asked for is bounded. proofs/fft.md, (1.9)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants.allocation.derived import Derived, is_reversed
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities import TINY, Calls, Floats, LocationDensity, LossLaw, RatioNodes
from zetadp.accountants.densities.mixtures import Mixture

_CELLS = 2**20
_MOST_STEPS = 80
"""Newton's, or halvings where those would leave the interval: no bound depends on how near they come."""
_MOMENT_NODES = 8192
_MOMENT_REACH = 10.0
"""Standard deviations beyond the peak of a moment's integrand, where it is below e^-50 of that peak."""
_MOMENT_END = 36.0
"""Standard deviations beyond the furthest copy up to which the profile is more than ``TINY``."""

_FAR = 1e4
"""Beyond a Laplace copy's distance by this, its tail is 0 as a float."""
_NEAR = 1e-6
"""Components whose loss is this near below the level count as above it in bounds on rounding."""


@final
@dataclass(frozen=True)
class Displaced(Derived):
    """P: copies at the distances s_j, and the rest at 0; Q: one copy at 0. The pair meant is symmetric, with the profile h above.

    Attributes:
      base: the noise.
    """

    base: LocationDensity  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return f"displaced {self.base.name}"

    @property
    def norm(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.norm

    def largest_loss(self, upper: Mixture, lower: Mixture) -> float:
        if not self.base.has_atoms:
            return math.inf
        moved = lower.mirrored if is_reversed(upper) else upper
        last = _level(self.base, moved, np.array([moved.shifts[-1] + 1.0]))
        return float(last.level[0] + last.error[0])

    def calls(self, upper: Mixture, lower: Mixture, epsilons: Floats) -> Calls:
        if is_reversed(upper):
            nothing = np.zeros_like(epsilons)
            return Calls(nothing, nothing, nothing, nothing)
        block = max(1, _CELLS // len(upper.weights))
        parts = [self._calls(upper, lower, epsilons[i : i + block]) for i in range(0, max(len(epsilons), 1), block)]
        return Calls(*(np.concatenate(column) for column in zip(*((c.lower, c.upper, c.tail, c.doubt) for c in parts), strict=True)))

    def _calls(self, upper: Mixture, lower: Mixture, epsilons: Floats) -> Calls:
        x, level, error = _thresholds(self.base, upper, epsilons)
        value, rounding, tail = _value(self.base, upper, x, level, error)
        # h is convex: above the level it lies above its tangent there, and it falls.
        beyond = np.expm1(np.minimum(epsilons - level + error, 700.0)) * tail
        low = value - beyond - 1e-12 * np.abs(beyond) - rounding
        high = np.minimum(value + rounding + 2.0 * error * tail, 1.0)
        high = np.where(epsilons >= self.largest_loss(upper, lower), 0.0, high)
        tail = np.where(low > 0.0, tail * np.exp(np.minimum(epsilons - level, 600.0)), 0.0)
        doubt = UNIT * tail * (16.0 + 4.0 * len(upper.weights) + 4.0 * np.abs(level) + 4.0 * np.square(x)) + 4.0 * error * tail
        return Calls(np.minimum(np.maximum(low, 0.0), high), high, tail, doubt)

    def losses(self, upper: Mixture, lower: Mixture) -> LossLaw:
        # Laplace copies alone have their largest losses with positive probability: they end a cell, and get its mass.
        ends = (0.0, *(shift for shift in upper.shifts if self.base.has_atoms))
        levels = _table(self.base, upper)[1]
        edges = np.unique(np.append(levels, np.minimum(ends, levels[-1])))
        there = self.calls(upper, lower, edges)
        beyond = np.maximum.accumulate((there.lower + there.tail)[::-1])[::-1]
        masses = np.append(beyond[:-1] - beyond[1:], beyond[-1])
        middle = np.append(edges[1:] if self.base.has_atoms else 0.5 * (edges[:-1] + edges[1:]), edges[-1])
        middle, masses = middle[masses > 1e-290], masses[masses > 1e-290]
        return LossLaw(middle, np.log(masses), (float(edges[-1]),) if self.base.has_atoms else ())

    def ratio_nodes(self, upper: Mixture, lower: Mixture, order: float, *, upper_half: bool) -> RatioNodes | None:
        """Q's mass between neighbouring losses, at the larger one of them: every moment of the worse direction grows with it."""
        furthest = upper.shifts[-1]
        if not upper_half or not (self.base.has_atoms or order * furthest + _MOMENT_REACH <= furthest + _MOMENT_END):
            return None
        losses, log_masses = _cells(self, upper, lower)
        nothing = np.zeros_like(losses)  # the worse direction's moments take no differences from 1
        return RatioNodes(log_masses, losses, nothing, nothing)


@lru_cache(maxsize=64)
def _cells(family: Displaced, upper: Mixture, lower: Mixture) -> tuple[Floats, Floats]:
    """(losses > 0, log of Q's mass from the one before each of them up to it)."""
    x = np.linspace(0.5 * float(_parts(upper).shifts[0]), upper.shifts[-1] + family.base.underflow, _MOMENT_NODES)
    block = max(1, _CELLS // len(upper.weights))
    edges = np.unique(np.concatenate([_level(family.base, upper, x[i : i + block]).level for i in range(0, len(x), block)]))
    tail = family.calls(upper, lower, edges).tail
    # The tail is 0 where nothing is left of the profile but rounding: the last mass before it may lie anywhere up to the largest loss.
    last = int(np.flatnonzero(tail > 0.0)[-1])
    with np.errstate(divide="ignore"):
        beyond = np.append(np.maximum.accumulate((np.log(tail[: last + 1]) - edges[: last + 1])[::-1])[::-1], -math.inf)
        log_masses = beyond[:-1] + np.log(-np.expm1(np.minimum(np.diff(beyond), 0.0))) + 1e-9
    end = family.largest_loss(upper, lower) if family.base.has_atoms else edges[min(last + 1, len(edges) - 1)]
    losses = np.append(edges[1 : last + 1], end)
    kept = log_masses > -math.inf
    return losses[kept], log_masses[kept]


class _Parts(NamedTuple):
    """Weights and distances of the copies that moved, of shape (k,), and the weight of the one that didn't."""

    weights: Floats
    shifts: Floats
    rest: float


def _parts(upper: Mixture) -> _Parts:
    first = 1 if upper.shifts[0] == 0.0 else 0
    return _Parts(np.array(upper.weights[first:]), np.array(upper.shifts[first:]), upper.weights[0] if first else 0.0)


class _Level(NamedTuple):
    """Of points x: log g that belongs to each, a bound on its error, and its slope."""

    level: Floats
    error: Floats
    slope: Floats


def _level(base: LocationDensity, upper: Mixture, x: Floats) -> _Level:
    """g is the largest mean of 1, with weight p_0, and some of the R_j, with theirs: of those above g."""
    weights, shifts, rest = _parts(upper)
    found = [base.relative(x, float(shift)) for shift in shifts]
    z, spread = (np.stack(column, axis=1) for column in zip(*found, strict=True))
    peak = np.maximum(z.max(axis=1), 0.0)
    share = weights * np.exp(z - peak[:, None])
    level, mass, above = _largest_mean(_Parts(weights, shifts, rest), z, peak, share)
    near = np.where(z > level[:, None] - _NEAR, share, 0.0)
    scale = np.exp(np.minimum(peak - level, 700.0)) / mass
    moved = np.sum(near * (spread + len(weights) + 16.0), axis=1) * scale
    # p_0 stands for 1 minus the others, and may be off by some units of 1.
    off = 8.0 * -np.expm1(-level) / mass if rest else 0.0
    large = peak >= 30.0
    error = moved + off + (len(weights) + 16.0) * np.where(large, 1.0, np.minimum(level, 1.0)) + 4.0 * np.where(large, peak, level)
    error = np.where(np.max(z + UNIT * spread, axis=1) < 0.0, 0.0, UNIT * error)
    rise = np.where(x[:, None] < shifts, 2.0, 0.0) if base.has_atoms else shifts
    return _Level(level, error, np.sum(np.where(above, share * rise, 0.0), axis=1) * scale)


def _largest_mean(parts: _Parts, z: Floats, peak: Floats, share: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """(its logarithm, the weight of all that it is of, which of the copies these are): from all that are above 1, dropping those below."""
    level = np.zeros(len(z)) if parts.rest else np.maximum(z.max(axis=1), 0.0)
    above = z > level[:, None] if parts.rest else z >= level[:, None]
    excess = parts.weights * np.expm1(np.minimum(z, 30.0))
    while True:
        mass = parts.rest + np.where(above, parts.weights, 0.0).sum(axis=1)
        if not parts.rest:
            return level, np.where(mass > 0.0, mass, 1.0), above
        near: Floats = np.log1p(np.where(above, excess, 0.0).sum(axis=1) / mass)
        far: Floats = peak + np.log((np.where(above, share, 0.0).sum(axis=1) + parts.rest * np.exp(-peak)) / mass)
        level = np.maximum(np.where(peak < 30.0, near, far), level)
        kept = above & (z > level[:, None])
        if bool((kept == above).all()):
            return level, mass, above
        above = kept


def _value(base: LocationDensity, upper: Mixture, x: Floats, level: Floats, error: Floats) -> tuple[Floats, Floats, Floats]:
    """(the formula, bound on its rounding, e^level Q(L > level))."""
    weights, shifts, rest = _parts(upper)
    total, rounding = np.zeros_like(x), np.full_like(x, TINY)
    tail = rest * base.tail(x, level)[0]
    for index, (weight, shift) in enumerate(zip(weights.tolist(), shifts.tolist(), strict=True)):
        y = np.maximum(x, _own_threshold(base, level, shift))
        z, spread = base.relative(y, shift)
        near, own = base.tail(y - shift, np.zeros_like(y))
        _, relative = base.tail(y, np.zeros_like(y))
        beyond = base.tail(y, level)[0]
        total += weight * np.maximum(near - base.tail(y, z)[0], 0.0)
        rounding += weight * near * (own + relative + UNIT * (8.0 + spread + 2.0 * np.abs(z)))
        # Off its own best point, or on the wrong side of x, a term changes by at most the distance of its loss from the level.
        off = np.where(y > x, np.abs(z - level), 0.0)
        rounding += weight * 2.0 * beyond * np.where(beyond > 0.0, np.expm1(np.minimum(off + error + UNIT * spread, 1.0)), 0.0)
        if index == 0 and rest == 0.0:
            rounding += 8.0 * UNIT * near
        tail += weight * beyond
    return total, rounding, tail


def _own_threshold(base: LocationDensity, level: Floats, shift: float) -> Floats:
    """About where the copy at this distance alone has this loss, >= 0; far away if it never has."""
    if base.has_atoms:
        return np.where(level < shift, 0.5 * (level + shift), shift + _FAR)
    return level / shift + 0.5 * shift


def _thresholds(base: LocationDensity, upper: Mixture, epsilons: Floats) -> tuple[Floats, Floats, Floats]:
    """(x, its level, the level's error): as near below epsilon as rounding allows, and certified to be at or below it."""
    nodes, levels = _table(base, upper)
    place = np.searchsorted(levels, epsilons)
    # The first node's level is exactly 0.
    low, high = np.full_like(epsilons, nodes[0]), nodes[np.minimum(place + 1, len(nodes) - 1)].copy()
    best, error = np.zeros_like(epsilons), np.zeros_like(epsilons)
    x = nodes[np.clip(place - 1, 0, len(nodes) - 1)].copy()
    left = np.arange(len(epsilons))
    for _ in range(_MOST_STEPS):
        here = _level(base, upper, x[left])
        fits = here.level + here.error <= epsilons[left]
        good, late = left[fits], left[~fits]
        low[good], best[good], error[good] = x[good], here.level[fits], here.error[fits]
        high[late] = x[late]
        gap = epsilons[left] - here.level
        done = (fits & (gap <= 8.0 * here.error + 1e-15 * epsilons[left])) | (high[left] - low[left] <= 2.0 * UNIT * high[left])
        aim = gap - 2.0 * here.error
        move = np.divide(aim, here.slope, out=np.full_like(aim, math.inf), where=here.slope > 0.0)
        left, ahead = left[~done], (x[left] + move)[~done]
        if len(left) == 0:
            break
        within = (ahead > low[left]) & (ahead < high[left])
        x[left] = np.where(within, ahead, 0.5 * (low[left] + high[left]))
    return low, best, error


@lru_cache(maxsize=64)
def _table(base: LocationDensity, upper: Mixture) -> tuple[Floats, Floats]:
    shifts = _parts(upper).shifts
    # Below half of the smallest distance every ratio is below 1.
    first = 0.5 * float(shifts[0]) * (1.0 - 1e-9)
    nodes = base.table_nodes([0.0, *shifts.tolist()])
    nodes = np.concatenate(([first], nodes[nodes > first]))
    block = max(1, _CELLS // len(shifts))
    levels = np.concatenate([_level(base, upper, nodes[i : i + block]).level for i in range(0, len(nodes), block)])
    return nodes, np.maximum.accumulate(levels)
