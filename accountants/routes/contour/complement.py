r"""1 - delta of a composed loss by numerical inversion, where delta is so near 1 that its own sum has lost it.

kappa(eps) = 1 - delta(eps) = E_P[min(1, e^{eps - L})], and for any -1 < t < 0

    kappa(eps) = -1/(2 pi i) int_{Re s = t} M(s) e^{-s eps} / (s (s + 1)) ds:

the integral of delta on the other side of its pole at 0. For Gaussian mixtures and whole Gaussian releases, in NumPy.
proofs/contour.md, (K)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants import deadline
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.densities.nodes import ELEMENTARY, TINY, TransformUnavailable
from zetadp.accountants.pairs import Pair
from zetadp.accountants.routes.contour.ends import Ends, around, root_near

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

NEAREST = -1e-2
"""log delta above which this is worth a try."""

MOST_PRODUCTS = 1e7
"""Nodes times heights, beyond which a line is declined: about half a second."""

_REACH = 9.0
_LEAST_NEED, _LARGEST_NEED, _NODE_NEED = 14.0, 32.0, 37.0
"""Natural logarithms of the share of kappa that aliases and cut-off may leave, and of the share of 1 that quadrature may leave."""

_SHARPNESS = 1e-8
"""Relative change of epsilon that aliases and cut-off are to cause at most."""

_LOWER_PATHS = 0.3, 0.1, 0.03, 0.01, 0.003
"""Of the nodes' distance from the real axis: where M is bounded besides, for low heights and many releases."""

_ROWS, _HALVINGS, _FARTHEST = 128, 60, 25.0


def epsilon(pairs: Sequence[tuple[Pair, int]], log_delta: float) -> Ends:
    """(lower, upper) of the epsilon of one direction of neighbours at this delta, >= 0.

    Raises:
      TransformUnavailable: other pairs than Gaussian mixtures, or a line of too many points.
    """
    exact = math.log(-math.expm1(log_delta))
    # Rounded up: the upper end is where kappa is at least this.
    goal = exact + 16.0 * UNIT * (1.0 + abs(exact))
    line = line_for(pairs, goal)
    low, high = around(line, root_near(line, -goal, line.centre), -goal)
    return low, max(high, 0.0)


def line_for(pairs: Sequence[tuple[Pair, int]], goal: float) -> Line:
    """A line through the saddle point between -1 and 0 at which log kappa is about the goal."""
    factors, squares = list[_Factor](), list[float]()
    for pair, count in pairs:
        mu = pair.family.gdp_mu(pair.distance) if pair.is_whole else None
        if mu is None:
            factors.append(_Factor(pair, count))
        else:
            squares.append(0.5 * count * mu**2)
    g = math.fsum(squares)

    def saddle(place: float) -> tuple[float, float, float]:
        """(tilt, epsilon, about log kappa there), all rising with the place."""
        t, rest = -1.0 / (1.0 + math.exp(place)), 1.0 / (1.0 + math.exp(-place))
        value, slope, curvature = t * rest * g, (rest + t) * g, 2.0 * g
        for factor in factors:
            a, b, c = factor.cumulants(t)
            value, slope, curvature = value + factor.count * a, slope + factor.count * b, curvature + factor.count * c
        at = slope - 1.0 / t - 1.0 / rest
        curvature += 1.0 / t**2 + 1.0 / rest**2
        return t, at, value - t * at - math.log(-t * rest) - 0.5 * math.log(2.0 * math.pi * curvature)

    low, high = -_FARTHEST, _FARTHEST
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if saddle(middle)[2] < goal else (low, middle)
    tilt, centre, _ = saddle(0.5 * (low + high))
    return Line(factors, g, tilt, centre, goal)


@final
class _Values(NamedTuple):
    """log A - A a mixture over the standard normal density - at complex places, and its absolute error."""

    log: Complexes
    error: Floats


def _values(mixture: Mixture, x: Floats, y: float) -> _Values:
    """At x + iy, y >= 0 times the span at most pi / 4: all terms lie within an eighth of a turn, so the logarithm is continuous in y."""
    shifts, weights = np.array(mixture.shifts)[:, None], np.array(mixture.weights)[:, None]
    exponents = shifts * x - 0.5 * shifts**2
    top = exponents.max(axis=0)
    terms = weights * np.exp(exponents - top)
    first = float(mixture.shifts[0])
    total = (terms * np.exp(1j * y * (shifts - first))).sum(axis=0)
    # A weight that is what the others leave of 1 is off by a few units of 1.
    rest = 4.0 * UNIT * np.exp(exponents - top) * ((shifts == 0.0) | bool(np.all(shifts != 0.0)))
    sizes = 4.0 * UNIT * (2.0 * np.abs(shifts * x) + shifts**2 + np.abs(top) + y * np.abs(shifts)) + 2.0 * ELEMENTARY
    modulus = np.abs(total)
    relative = ((terms * sizes + rest).sum(axis=0) + len(weights) * UNIT * terms.sum(axis=0)) / modulus
    if not float(relative.max()) < 0.01:
        raise TransformUnavailable("rounding leaves nothing of a mixture's logarithm")
    log = np.log(total) + (top + 1j * y * first)
    return _Values(log, 1.01 * relative + ELEMENTARY * (1.0 + np.abs(log) + np.abs(top) + y * abs(first)))


@final
class _Placed(NamedTuple):
    """Nodes on a line above the real axis: summands e^{log_weight + iu loss}, the relative error of each at u = 0, and of each loss."""

    log_weight: Complexes
    loss: Complexes
    weight_error: Floats
    loss_error: Floats

    def modulus_at(self, height: float) -> float:
        """An upper bound on the sum of the summands' moduli, which falls with the height."""
        modulus = np.exp(self.log_weight.real - height * np.maximum(self.loss.imag - self.loss_error, 0.0))
        return float(modulus @ (1.0 + 1.02 * self.weight_error))


@final
class _Factor:
    """M of one release with a Gaussian mixture on each side, at tilts in (-1, 0).

    Attributes:
      size: the number of nodes.
    """

    def __init__(self, pair: Pair, count: int) -> None:
        upper, lower = pair.upper, pair.lower
        is_plain = pair.family.is_normal and pair.family.mixes and not pair.worst_of_both and pair.shown == 1.0 and pair.crowded is None
        if not (is_plain and upper.shifts[0] >= 0.0 >= lower.shifts[-1]):
            raise TransformUnavailable("deltas next to 1 are inverted for Gaussian noise only")
        self.count = count
        span = max(upper.span, lower.span)
        self._y = min(0.249 * math.pi / span, 1.0) if span > 0.0 else 1.0
        # Nodes are multiples of a power of two, so that none is rounded.
        self._step = 2.0 ** math.floor(math.log2(2.0 * math.pi * self._y / (_NODE_NEED + 2.0 * self._y**2)))
        first = math.floor((lower.shifts[0] - _REACH) / self._step)
        last = math.ceil((upper.shifts[-1] + _REACH) / self._step)
        if last - first > MOST_PRODUCTS / 64.0:
            raise TransformUnavailable("the noise is too small")
        self._x = self._step * np.arange(first, last + 1, dtype=np.float64)
        self.size = self._x.size
        self._pair, self._above, self._below = pair, _values(upper, self._x, 0.0), _values(lower, self._x, 0.0)
        self._loss = self._above.log.real - self._below.log.real
        self._log_mass = self._above.log.real - 0.5 * self._x**2 + math.log(self._step) - 0.5 * math.log(2.0 * math.pi)

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        """log M and its first two derivatives; for choices only."""
        mass = self._log_mass + tilt * self._loss
        top = float(mass.max())
        weights = np.exp(mass - top)
        total = float(weights.sum())
        mean = float(weights @ self._loss) / total
        return top + math.log(total), mean, float(weights @ (self._loss - mean) ** 2) / total

    def settle(self, tilt: float) -> None:
        """The nodes on Im x = y for this tilt. (K1)"""
        self._line = self._placed(tilt, self._y)
        self._paths = (self._line, *(self._placed(tilt, share * self._y) for share in _LOWER_PATHS))
        strip = 2.0 * math.exp(2.0 * self._y**2) / math.expm1(2.0 * math.pi * self._y / self._step)
        ends = np.exp(self._log_mass[[0, -1]] + tilt * self._loss[[0, -1]] + 0.5 * self._y**2).sum() / -math.expm1(-_REACH * self._step)
        self._quadrature = 1.01 * (strip + float(ends))

    def _placed(self, tilt: float, y: float) -> _Placed:
        above, below = _values(self._pair.upper, self._x, y), _values(self._pair.lower, self._x, y)
        z = self._x + 1j * y
        loss = above.log - below.log
        exponents = above.log - 0.5 * z**2 + tilt * loss - 0.5 * math.log(2.0 * math.pi)
        loss_error = above.error + below.error + 2.0 * UNIT * np.abs(loss)
        sizes = np.abs(z) ** 2 + np.abs(above.log) + np.abs(loss) + np.abs(exponents)
        weight_error = above.error + loss_error + 2.0 * ELEMENTARY + 8.0 * UNIT * sizes + (self.size + 8) * UNIT
        if not float(weight_error.max()) < 0.005:
            raise TransformUnavailable("rounding leaves nothing of a mixture's weights")
        return _Placed(exponents + math.log(self._step), loss, weight_error, loss_error)

    def log_decay(self, height: float) -> float:
        """An upper bound on log |M| at every height from this one on. (K2)"""
        return math.log(min(on.modulus_at(height) for on in self._paths) + self._quadrature)

    def line(self, heights: Floats) -> tuple[Complexes, Floats]:
        """M at these heights, and its error."""
        on, values, errors = self._line, np.empty(heights.size, dtype=np.complex128), np.empty(heights.size)
        for start in range(0, heights.size, _ROWS):
            deadline.check()
            some = heights[start : start + _ROWS]
            terms = np.exp(on.log_weight + 1j * some[:, None] * on.loss)
            modulus = np.abs(terms)
            values[start : start + _ROWS] = terms.sum(axis=1)
            errors[start : start + _ROWS] = modulus @ on.weight_error + some * (modulus @ (on.loss_error + 4.0 * UNIT * np.abs(on.loss)))
        if not float((heights.max(initial=0.0) * on.loss_error).max()) < 0.005:
            raise TransformUnavailable("rounding of losses leaves nothing at the largest height")
        return values, 1.02 * errors + self._quadrature


@final
class Line:
    """kappa near one epsilon, from M on one vertical line; also a decreasing curve, of -log kappa."""

    def __init__(self, factors: Sequence[_Factor], gaussian: float, tilt: float, centre: float, log_size: float) -> None:
        self.tilt, self.centre, self._gaussian, self._factors, self._log_size = tilt, centre, gaussian, factors, log_size
        share = min(max(-math.log(_SHARPNESS * max(abs(tilt * centre), 1e-3)), _LEAST_NEED), _LARGEST_NEED)
        need = share - log_size
        # (K3): kappa <= 1, and kappa(eps) <= e^eps.
        self.period = max(need / -tilt, (need + abs(centre)) / (1.0 + tilt)) + 2.0
        step = 2.0 ** math.floor(math.log2(2.0 * math.pi / self.period))
        self.period = 2.0 * math.pi / step
        for factor in factors:
            factor.settle(tilt)
        height = self._cut_off(step, log_size + tilt * centre - share, max(factor.size for factor in factors) if factors else 1)
        self._step, self._heights = step, step * np.arange(math.ceil(height / step) + 1, dtype=np.float64)
        self._log_cut = self._log_decay(float(self._heights[-1]) + step) - math.log(math.pi * (float(self._heights[-1]) or step))
        self._set_values()

    def at_tilt(self, tilt: float) -> Line:
        """The same through another tilt in (-1, 0)."""
        return Line(self._factors, self._gaussian, tilt, self.centre, self._log_size)

    def _log_decay(self, height: float) -> float:
        t, g = self.tilt, self._gaussian
        whole = (t * (t + 1.0) * (1.0 - 8.0 * UNIT) - height**2 * (1.0 - 8.0 * UNIT)) * g
        return whole + math.fsum(factor.count * factor.log_decay(height) for factor in self._factors)

    def _cut_off(self, step: float, wanted: float, nodes: int) -> float:
        height = step
        while (missing := self._log_decay(height) - math.log(math.pi * height) - wanted) > 0.0:
            height *= min(1.5, max(1.05, 1.0 + 0.02 * missing))
            if height / step * nodes > MOST_PRODUCTS:
                raise TransformUnavailable("the moment function decays too slowly on the left of 0")
        return height

    def _set_values(self) -> None:
        s = self.tilt + 1j * self._heights
        kernel = -s * (s + 1.0)
        log = self._gaussian * (s * (s + 1.0)) - np.log(kernel)
        doubt = 16.0 * UNIT * (self._gaussian * np.abs(kernel) + np.abs(log)) + 4.0 * ELEMENTARY
        for factor in self._factors:
            value, error = factor.line(self._heights)
            modulus = np.maximum(np.abs(value), TINY)
            own = np.log(np.where(np.abs(value) < TINY, TINY, value))
            log = log + factor.count * own
            doubt = doubt + factor.count * (np.log1p((error + 2.0 * TINY) / modulus) + 2.0 * ELEMENTARY * (1.0 + np.abs(own)))
            doubt = doubt + 2.0 * UNIT * np.abs(log)
        self._top = float(log.real.max())
        log = log - self._top
        size = log.real
        small = np.minimum(doubt, 1.0)
        error = np.where(doubt < 1.0, np.exp(size) * np.expm1(small), np.exp(np.minimum(size + doubt, 700.0)))
        modulus = np.exp(size)
        share = np.where(self._heights == 0.0, 0.5, 1.0)
        self._weights: Complexes = share * np.exp(log)
        self._error = float(share @ error) + (self._heights.size + 64.0) * UNIT * float(share @ modulus)
        self._phase_error = 4.0 * UNIT * float(share @ (modulus * self._heights))
        self._log_scale = math.log(self._step / math.pi) + self._top

    def _sum(self, epsilon: float) -> tuple[float, float]:
        """The sum over heights, over e^(scale - tilt eps), and its derivative."""
        turned: Complexes = self._weights * np.exp(-1j * epsilon * self._heights)
        total = math.fsum(turned.real)
        return total, math.fsum(self._heights * turned.imag) - self.tilt * total

    def log_kappa(self, epsilon: float) -> Ends:
        """Proved (log lower, log upper) of kappa at an epsilon."""
        scale = self._log_scale - self.tilt * epsilon
        total, _ = self._sum(epsilon)
        slack = 8.0 * UNIT * (abs(self._log_scale) + abs(self.tilt * epsilon) + 8.0)
        beyond = self._log_cut - self.tilt * epsilon - scale
        if beyond > 600.0:
            return -math.inf, 0.0
        error = 1.01 * (self._error + abs(epsilon) * self._phase_error + math.exp(beyond))
        high = scale + math.log(max(total, 0.0) + error) + slack
        low = total - error - self._aliases(epsilon, scale)
        return (scale + math.log(low) - slack if low > 0.0 else -math.inf), min(high, 0.0)

    def _aliases(self, epsilon: float, scale: float) -> float:
        """(K3), over e^scale."""
        right, left = self.tilt * self.period, (1.0 + self.tilt) * self.period
        both = math.exp(min(right - scale, 600.0)) / -math.expm1(right) + math.exp(min(epsilon - left - scale, 600.0)) / -math.expm1(-left)
        return both * (1.0 + 1e-9)

    def estimate(self, epsilon: float) -> tuple[float, float]:
        """About -log kappa, and its slope."""
        total, slope = self._sum(epsilon)
        if not total > 0.0:
            return math.inf, 0.0
        return -(self._log_scale - self.tilt * epsilon + math.log(total)), -slope / total

    def bracket(self, epsilon: float) -> Ends:
        """Proved bounds on -log kappa."""
        low, high = self.log_kappa(epsilon)
        return -high, -low
