r"""Composition by numerical inversion of the moment function, with a proved bracket. Its cost doesn't depend on the number of releases.

With M(s) = E_P[e^{sL}] of the composed event, and any t > 0,

    delta(eps) = 1/(2 pi i) int_{Re s = t} M(s) e^{-s eps} / (s (s + 1)) ds,

computed by the trapezoid rule through the real saddle point. Aliasing is one-sided and bounded by Chernoff's inequality at another tilt
(A), the cut-off by a bound on |M| at every greater height (D), and quadrature (Q) and rounding (R) node by node: proofs/contour.md. One
set of values of M works for every nearby epsilon. Both directions of neighbours are used, unless one is a mirror image of the other.
``_contour.c`` has both classes again, for machines with a compiler (``engine.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import final

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants import deadline
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities.heights import Integrand
from zetadp.accountants.densities.transforms import Transform, TransformUnavailable
from zetadp.accountants.routes.contour.ends import root_near
from zetadp.accountants.routes.contour.saddle import Saddle
from zetadp.mechanisms.numerics.logspace import log_add

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

MOST_HEIGHTS = 2**19
"""Points on the contour beyond which this route declines: releases too sparse, or too few, for their moment function to decay."""

_LEAST_TOLERANCE, _LARGEST_TOLERANCE = 1e-13, 1e-6
"""Range of the relative error of delta that aliasing, cut-off and quadrature together aim at; rounding is added to it."""

_ALIAS_TILTS = 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0
_ENOUGH = 0.3
"""How near the saddle a contour must be, in units of log delta. Any tilt gives a bracket; one this near is as good as the best."""

_SMALLEST_SHARE = 1e-20
"""No quadrature needs to be better than this, because rounding isn't."""

_CLIFF = 10.0
_LEAST_RISE = 1.1
_STAIRS = np.concatenate([np.linspace(0.0, 2.6, 11), np.array([3.1, 4.2])])
_MOST_ITERATIONS = 100
_LOWER_TILTS, _SPARE_SIZE, _MANY_HEIGHTS = (0.93, 0.85, 0.75, 0.6), 1.5, 600.0


@final
class Direction:
    """The composed loss in one direction of neighbours: transforms, each raised to its count, and a Gaussian e^{s (s + 1) g}.

    Args:
      transforms: sampled and Laplace releases.
      gaussian: half the sum of mu^2 over whole Gaussian releases; they compose in closed form.

    Attributes:
      start: a tilt to search from, if a good one is known.
    """

    def __init__(self, transforms: tuple[Transform, ...], gaussian: float) -> None:
        self.transforms, self.gaussian = transforms, gaussian
        self.start: float | None = None
        scales = [transform.scale for transform in transforms]
        self.scale = max([*scales, math.sqrt(2.0 * gaussian)])
        # Rounded up, so no loss is beyond it.
        self.largest_loss = math.fsum(t.count * t.largest_loss for t in transforms) * (1.0 + 4.0 * UNIT) if gaussian == 0.0 else math.inf

    @property
    def log_left_out(self) -> float:
        """Bound on the log probability of the outcomes that the transforms, as used so far, leave out of P. (T1)"""
        total = -math.inf
        for transform in self.transforms:
            total = log_add(total, math.log(transform.count) + transform.log_left_out)
        return total

    @property
    def ends(self) -> tuple[float, ...]:
        """Where each transform's ranges currently end: all bounds of one contour must use the same ranges."""
        return tuple(end for transform in self.transforms for end in transform.ends)

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        """log M and its first two derivatives."""
        g = self.gaussian
        value, slope, curvature = tilt * (tilt + 1.0) * g, (2.0 * tilt + 1.0) * g, 2.0 * g
        for transform in self.transforms:
            a, b, c = transform.cumulants(tilt)
            value, slope, curvature = value + transform.count * a, slope + transform.count * b, curvature + transform.count * c
        return value, slope, curvature

    def log_moment_upper(self, tilts: Floats) -> Floats:
        """Upper bounds on log M."""
        total = tilts * (tilts + 1.0) * (self.gaussian * (1.0 + 8.0 * UNIT))
        for transform in self.transforms:
            total = total + transform.count * transform.log_moment_upper(tilts)
        return total

    def log_decay(self, tilt: float, heights: Floats, shifts: int = 2) -> Floats:
        """Upper bounds on log |M(tilt + iu)| for all u >= each height. ``shifts``: as for ``Transform.log_decay``."""
        total = (tilt * (tilt + 1.0) * (1.0 + 8.0 * UNIT) - heights**2 * (1.0 - 8.0 * UNIT)) * self.gaussian
        for transform in self.transforms:
            total = total + transform.count * transform.log_decay(tilt, heights, shifts)
        return total

    def decay_height(self, saddle: Saddle, need: float) -> float:
        """About the height from which log |M| is ``need`` below its value at the tilt, as far as this can be proved cheaply."""
        rate = 2.0 * self.gaussian + sum(transform.count * transform.decay_rate(saddle.tilt) for transform in self.transforms)
        return max(math.sqrt(2.0 * need / saddle.curvature), math.sqrt(2.0 * need / max(rate, 1e-300)) if rate > 0.0 else 0.0)

    def saddle_at(self, epsilon: float) -> Saddle:
        """The saddle point for an epsilon."""
        return self._searched(lambda saddle: (saddle.epsilon - epsilon) / saddle.tilt, 1.0)

    def saddle_for(self, log_delta: float) -> Saddle:
        """The saddle point whose approximate delta is this; its epsilon may be negative."""
        found = self._searched(lambda saddle: (log_delta - saddle.log_delta) / saddle.tilt**2, -log_delta)
        # The tilt says more about epsilon at this delta than about its own: an error of the tilt only counts squared.
        epsilon = found.epsilon + (found.log_delta - log_delta) / found.tilt
        return Saddle(found.tilt, epsilon, found.curvature, found.log_moment)

    def chernoff(self, tilt: float) -> float:
        """``chernoff`` at one tilt."""
        return chernoff(self, [tilt])[0]

    def log_integral(self, saddle: Saddle) -> float:
        """``log_integral`` of this direction."""
        return log_integral(self, saddle)

    def contour(self, saddle: Saddle, log_delta: float, tolerance: float) -> Contour:
        """A contour through this direction's moment function."""
        return Contour(self, saddle, log_delta, tolerance)

    def _searched(self, excess: Callable[[Saddle], float], size: float) -> Saddle:
        """Guarded Newton steps on log tilt: ``excess`` rises with the tilt at about the rate that the curvature gives."""
        low, high, tilt = 1e-15 / self.scale, math.inf, self._first_tilt(size)
        below: Saddle | None = None
        for _ in range(_MOST_ITERATIONS):
            saddle = self._saddle(tilt)
            value = excess(saddle) if math.isfinite(saddle.curvature) else math.inf
            move = -value / saddle.curvature if math.isfinite(value) else -math.inf
            # A move of log delta by this much, or of a third of the tilted law's deviation, leaves the contour as good as it was.
            if abs(move) * min(saddle.tilt**2 * saddle.curvature, abs(move) * saddle.tilt**2 * saddle.curvature * 10.0) < _ENOUGH:
                return saddle
            if value < 0.0:
                low, below = max(low, tilt), saddle
            else:
                high = min(high, tilt)
            # A cliff: the tilt before it is as good as any, unless log delta is so large that much is still between the two.
            near = 0.02 if below is not None and abs(excess(below)) * low * low < _CLIFF + 0.05 * size else 1e-6
            if below is not None and high - low < near * low:
                return below
            moved = tilt * math.exp(min(max(move, -1.0), 1.1))
            # High on a cliff Newton's steps are short, so go down to between the last tilt before it and this one.
            on_cliff = value > 0.0 and low > 0.0 and abs(move) * saddle.tilt**2 * saddle.curvature > _CLIFF
            tilt = moved if low < moved < high and not on_cliff else low**0.4 * high**0.6
            if not 1e-12 < tilt * self.scale < 1e9:
                break
        raise TransformUnavailable("the saddle point lies beyond the tilts that are worth a contour")

    def _saddle(self, tilt: float) -> Saddle:
        value, slope, variance = self.cumulants(tilt)
        curvature = variance + 1.0 / tilt**2 + 1.0 / (1.0 + tilt) ** 2
        return Saddle(tilt, slope - 1.0 / tilt - 1.0 / (1.0 + tilt), curvature, value)

    def _first_tilt(self, size: float) -> float:
        """A start from below: a tilt that is far too large would need a huge grid."""
        reach = math.sqrt(2.0 * max(size, 1.0))
        if self.start is not None:
            return self.start
        for transform in self.transforms:
            transform.look_ahead(reach / self.scale)
        _, slope, variance = self.cumulants(1e-3 / max(self.scale, 1.0))
        tilt = min(0.5 * reach / math.sqrt(max(variance, 1e-300)), 0.5 * reach / self.scale)
        while self.cumulants(tilt)[0] - tilt * slope > 3.0 * reach * reach:
            tilt *= 0.6
        return tilt


@final
class Contour:
    r"""Values of M on one vertical line, and a proved bracket of delta at any epsilon near the one that the contour was made for.

    Args:
      direction: the composed loss.
      saddle: where the line crosses the real axis, and the epsilon it is for.
      log_delta: log of the delta of interest, as far as known; errors are kept small relative to it.
      tolerance: relative error of delta to aim at, without rounding.
    Raises:
      TransformUnavailable: M's decay can't be proved within ``MOST_HEIGHTS`` points.
    """

    def __init__(self, direction: Direction, saddle: Saddle, log_delta: float, tolerance: float) -> None:
        self.tolerance, self.centre = tolerance, saddle.epsilon
        self._last = math.nan, (-math.inf, 0.0)
        need, wanted = math.log(8.0 / tolerance), min(log_delta, 0.0)
        spread = math.sqrt(2.0 * need / saddle.curvature)
        tilts = [saddle.tilt + share * spread for share in _ALIAS_TILTS]
        for transform in direction.transforms:
            transform.settle(saddle.tilt, tilts[-1])
        sizes, ends = chernoff(direction, tilts), direction.ends
        beyond = [(tilt, size - tilt * saddle.epsilon - wanted + need) for tilt, size in zip(tilts, sizes, strict=True)]
        saddle, self._period = _shortest(direction, saddle, beyond, need - wanted)
        self.tilt = saddle.tilt
        best = min(range(len(tilts)), key=lambda k: beyond[k][1] - tilts[k] * self._period)
        self._alias_tilt, self._alias_size = tilts[best], sizes[best]
        self._step = 2.0 * math.pi / self._period
        height, self._log_cut = self._cut_off(direction, saddle, wanted - need)
        number = math.ceil(height / self._step) + 2
        if number > MOST_HEIGHTS:
            raise TransformUnavailable(f"the moment function decays too slowly: it would take {number:.1e} points")
        deadline.check()
        # If the tilted distribution has most of its mass below epsilon, delta is far smaller than the integrand; so must errors be.
        excess = saddle.log_moment - saddle.tilt * saddle.epsilon - math.log(saddle.tilt) - wanted
        self._values(direction, number, max(0.03 * tolerance * math.exp(-max(excess - 3.0, 0.0)), _SMALLEST_SHARE))
        self._log_left_out = direction.log_left_out
        if direction.ends != ends:
            raise TransformUnavailable("the part of P that is left out has changed in between")

    def _cut_off(self, direction: Direction, saddle: Saddle, wanted: float) -> tuple[float, float]:
        """(height, log bound on |M| from there on) such that what is above that height contributes less than e^wanted. (D)"""
        # Raised at once by the least that a second try would raise it: as it stands it is rarely enough.
        height = _LEAST_RISE * direction.decay_height(saddle, math.log(8.0 / self.tolerance))
        while height * self._period < 8.0 * MOST_HEIGHTS:
            decay = float(direction.log_decay(saddle.tilt, np.array([height]))[0])
            missing = decay - saddle.tilt * saddle.epsilon - math.log(math.pi * height) - wanted
            if missing <= 0.0:
                return height, decay
            # As if log |M| fell with the square of the height.
            fallen = max(saddle.log_moment - decay, 1e-300)
            height *= min(max(1.02 * math.sqrt(1.0 + missing / fallen), _LEAST_RISE), 3.0)
        raise TransformUnavailable("the moment function doesn't decay provably: too few releases, or too sparse, or with atoms")

    def _values(self, direction: Direction, number: int, tolerance: float) -> None:
        powers = (
            (transform.count, transform.line(self.tilt, self._step, number, tolerance / transform.count))
            for transform in direction.transforms
        )
        self._integrand = Integrand(self.tilt, self._step, number, direction.gaussian, powers)
        self._rounding, self._phase_rounding = self._integrand.rounding, self._integrand.phase_rounding
        self._log_scale = math.log(self._step / math.pi) + self._integrand.log_size
        self._log_cut -= math.log(math.pi * self._step * (number - 1.0))

    @property
    def period(self) -> float:
        """Distance of the aliases: this far from its centre a contour gives no more information."""
        return self._period

    def estimate(self, epsilon: float) -> tuple[float, float]:
        """(log, slope of the log) of the trapezoid sum at an epsilon; (-inf, 0) if it isn't positive."""
        total, weighted = self._integrand.sums(epsilon)
        if not total > 0.0:
            return -math.inf, 0.0
        return self._log_scale - self.tilt * epsilon + math.log(total), -weighted / total

    def bracket(self, epsilon: float) -> tuple[float, float]:
        """Proved (log lower, log upper) of delta(epsilon), in this direction."""
        if self._last[0] != epsilon:
            self._last = epsilon, self._bracket(epsilon)
        return self._last[1]

    def _bracket(self, epsilon: float) -> tuple[float, float]:
        scale = self._log_scale - self.tilt * epsilon
        total, _ = self._integrand.sums(epsilon)
        beyond = self._log_cut - self.tilt * epsilon - scale
        if beyond > 700.0:
            return -math.inf, 0.0  # nothing is known so far away
        cut = math.exp(beyond)
        error = 1.01 * (self._rounding + abs(epsilon) * self._phase_rounding + cut)
        slack = 8.0 * UNIT * (abs(self._log_scale) + abs(self.tilt * epsilon) + 8.0)
        high = scale + math.log(max(total, 0.0) + error) + slack
        high = log_add(high, self._log_left_out)  # (T1)
        low = total - error - self._aliases(epsilon, scale)
        return (scale + math.log(low) - slack if low > 0.0 else -math.inf), min(high, 0.0)

    def _aliases(self, epsilon: float, scale: float) -> float:
        """(A): bound on what the trapezoid rule adds, over e^scale. The copies on both sides are geometric series at most."""
        below = -self.tilt * self._period
        fall = (self._alias_tilt - self.tilt) * self._period
        above = self._alias_size - self._alias_tilt * epsilon - fall - math.log(-math.expm1(-fall))
        both = math.exp(min(below - math.log(-math.expm1(below)) - scale, 700.0)) + math.exp(min(above - scale, 700.0))
        return both * (1.0 + 1e-9)

    def solve(self, log_delta: float, epsilon: float) -> float:
        """The epsilon at which the trapezoid sum is e^log_delta, from a first guess; guarded Newton steps on its logarithm."""
        return root_near(self, log_delta, epsilon)


def _shortest(direction: Direction, saddle: Saddle, beyond: list[tuple[float, float]], below: float) -> tuple[Saddle, float]:
    """The saddle, or a smaller tilt with a hardly larger integrand whose aliases may be closer together; and their distance. (A)

    If the loss consists of a bulk and rare jumps, M rises like a cliff beyond the saddle and is flat before it.
    """

    def period(tilt: float) -> float:
        return max(below / tilt, min(size / (larger - tilt) for larger, size in beyond)) + 1e-3 * abs(saddle.epsilon)

    best, shortest = saddle, period(saddle.tilt)
    if shortest * direction.decay_height(saddle, below) < _MANY_HEIGHTS:
        return best, shortest
    for share in _LOWER_TILTS:
        tilt = share * saddle.tilt
        size = direction.cumulants(tilt)[0]
        larger = size - saddle.log_moment + (saddle.tilt - tilt) * saddle.epsilon - math.log(share)
        if larger < _SPARE_SIZE and period(tilt) < 0.8 * shortest:
            best, shortest = Saddle(tilt, saddle.epsilon, saddle.curvature, size), period(tilt)
    return best, shortest


def tolerance_for(epsilon: float, tilt: float) -> float:
    """The relative error of delta that changes epsilon by less than a tenth of 1e-6 of its value."""
    return min(max(1e-7 * abs(epsilon) * tilt, _LEAST_TOLERANCE), _LARGEST_TOLERANCE)


def chernoff(direction: Direction, tilts: list[float]) -> list[float]:
    """log c(t), where delta(epsilon) <= c(t) e^{-t epsilon} + what the direction leaves out, for every epsilon. (A2)"""
    uppers: list[float] = direction.log_moment_upper(np.array(tilts)).tolist()
    return [
        upper - t * math.log1p(1.0 / t) - math.log1p(t) + 16.0 * UNIT * (2.0 + math.log1p(t))
        for t, upper in zip(tilts, uppers, strict=True)
    ]


def log_integral(direction: Direction, saddle: Saddle) -> float:
    r"""log of b, where delta(epsilon) <= b e^{-t epsilon} + what the direction leaves out, t the saddle's tilt, for every epsilon. (B)

    The integral of |M(t + iu) / (s (s + 1))| over stairs: on each step, |M| is bounded by its bound from the step's lower end on, and the
    kernel by its value there. It is a few tenths above delta where Chernoff's bound is a factor of ten above it.
    """
    heights = _STAIRS / math.sqrt(saddle.curvature)
    decay = np.concatenate([direction.log_moment_upper(np.array([saddle.tilt])), direction.log_decay(saddle.tilt, heights[1:], 1)])
    decay = np.minimum(decay, decay[0])  # |M(t + iu)| <= M(t)
    kernel = np.hypot(saddle.tilt, heights) * np.hypot(saddle.tilt + 1.0, heights)
    top = float(decay[0])
    steps = np.exp(decay[:-1] - top) * np.diff(heights) / kernel[:-1]
    total = float(steps.sum()) + math.exp(float(decay[-1]) - top) / float(heights[-1])
    return top + math.log(total / math.pi) + 64.0 * UNIT * (2.0 + abs(top))
