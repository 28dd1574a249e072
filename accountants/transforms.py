r"""Moment functions M(s) = E_P[e^{sL}] of one release on vertical lines of the complex plane, each with a proved error.

For a pair of Gaussian mixtures, P = f A and Q = f B with f the standard normal density, A(x) = sum_j p_j e^{a_j x - a_j^2 / 2} and B
likewise, L = log A - log B, so that M(s) = int f A^{s+1} B^{-s} dx. With the path of integration moved up to Im x = y > 0 the factor
e^{iuL} never grows with u, since arg A >= arg B there: the same few nodes serve every height u, and the trapezoid rule's error is
bounded once for all of them. Tags such as (Q1) name the inequalities of proofs/contour.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import final

import numpy as np
from numpy.typing import NDArray

from accountants.nodes import ELEMENTARY, UNIT, LineValues, Nodes, expm1_complex, log_mixture, sum_on_line
from accountants.pairs import Mixture

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

MOST_NODES = 50_000
"""Beyond this many quadrature nodes a release's noise is too small for this route."""

_REACH = 9.0
"""How far beyond the outermost possible peak nodes go; what lies beyond is bounded, not ignored (Q3)."""

_ROUGH_SHARES = np.array([0.15, 0.3, 0.5, 0.75, 1.0])
_LINE_SHARES = np.linspace(0.1, 0.98, 12)


class TransformUnavailable(Exception):
    """This route can't bound the moment function; the text says why."""


class Transform(ABC):
    """The moment function of one release in one direction of neighbours, and how often it is released.

    Attributes:
      count: how often; every answer here is of a single release, accurate enough to be raised to this power.
      scale: of the tilts that matter: the largest shift, or the largest loss.
      largest_loss: the supremum of L, or infinity.
    """

    count: int
    scale: float
    largest_loss: float

    @abstractmethod
    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        """log M and its first two derivatives at a real point; accurate, but without a bound: for choosing, never for answering."""

    @abstractmethod
    def log_moment_upper(self, tilts: Floats) -> Floats:
        """Upper bounds on log M at real points > 0, of the shape of ``tilts``."""

    @abstractmethod
    def log_decay(self, tilt: float, heights: Floats) -> Floats:
        """Upper bounds on log |M(tilt + iu)| that hold for all u >= each height."""

    @abstractmethod
    def line(self, tilt: float, step: float, number: int, tolerance: float) -> LineValues:
        """M - 1 at tilt + i k step, k = 0 ... number - 1, with a quadrature error of about ``tolerance`` M(tilt)."""


@final
class WholeLaplace(Transform):
    r"""Lap(0, 1) against Lap(e, 1): M(s) = ((s + 1) e^{se} + s e^{-(s+1)e}) / (2s + 1). Hardly decays: L has atoms at -e and e."""

    def __init__(self, epsilon: float, count: int) -> None:
        self.count = count
        self.scale = self.largest_loss = self._epsilon = epsilon

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        h = 1e-3 * max(tilt, 1e-3)
        points = np.array([tilt - h, tilt, tilt + h], dtype=np.complex128)
        low, middle, high = (math.log1p(value) for value in self._minus_one(points).real.tolist())
        return middle, (high - low) / (2.0 * h), max((high - 2.0 * middle + low) / h**2, 0.0)

    def log_moment_upper(self, tilts: Floats) -> Floats:
        s = tilts.astype(np.complex128)
        return np.log1p(self._minus_one(s).real + self._error(s)) + ELEMENTARY

    def log_decay(self, tilt: float, heights: Floats) -> Floats:
        # |s + 1| / |2s + 1| falls and |s| / |2s + 1| rises in u, to 1/2 (D1).
        near = np.hypot(tilt + 1.0, heights) / np.hypot(2.0 * tilt + 1.0, 2.0 * heights)
        value = np.logaddexp(np.log(near) + tilt * self._epsilon, math.log(0.5) - (tilt + 1.0) * self._epsilon)
        return value + ELEMENTARY * (1.0 + (tilt + 1.0) * self._epsilon)

    def line(self, tilt: float, step: float, number: int, tolerance: float) -> LineValues:
        s = tilt + 1j * step * np.arange(number)
        return LineValues(self._minus_one(s), self._error(s))

    def _minus_one(self, s: Complexes) -> Complexes:
        # (s + 1) (e^{se} - 1) + s (e^{-(s+1)e} - 1), over 2s + 1: the constants add up to M(0) = 1.
        e = self._epsilon
        return ((s + 1.0) * expm1_complex(s * e) + s * expm1_complex(-(s + 1.0) * e)) / (2.0 * s + 1.0)

    def _error(self, s: Complexes) -> Floats:
        # (R4): |e^z - 1| <= |z| max(1, e^{Re z}), and each argument's rounding counts as much again times |z|.
        e, size = self._epsilon, np.abs(s) * np.abs(s + 1.0) / np.abs(2.0 * s + 1.0)
        growth = np.exp(s.real * e)
        return np.asarray(4.0 * ELEMENTARY * e * size * growth, dtype=np.float64)


@final
class MixedGaussian(Transform):
    r"""A pair of Gaussian mixtures (a sampled release), P = f A against Q = f B.

    Args:
      upper: P, shifts >= 0.
      lower: Q, shifts <= 0.
      count: how often it is released.
    """

    def __init__(self, upper: Mixture, lower: Mixture, count: int) -> None:
        if not upper.shifts[0] >= 0.0 >= lower.shifts[-1]:
            raise TransformUnavailable("shifts of P and Q don't lie on two sides of 0")
        self._upper, self._lower, self.count = upper, lower, count
        self._span = max(upper.span, lower.span)
        self.scale = max(upper.shifts[-1], -lower.shifts[0])
        # With P = f alone, L = -log B is bounded by the weight of Q's copy at 0.
        bounded = upper.shifts == (0.0,) and lower.shifts[-1] == 0.0
        self.largest_loss = -math.log1p(-math.fsum(lower.weights[:-1])) if bounded else math.inf
        self._rough_reach = -1.0
        self._need = math.log(2e3 * count)

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        self._make_rough(tilt)
        exponent = tilt * self._loss
        if exponent[-1] > 600.0 or exponent[0] < -600.0:
            tilted = np.exp(self._log_mass + exponent)
            minus_one = float(np.where(exponent < 1.0, self._mass * np.expm1(np.minimum(exponent, 1.0)), tilted - self._mass).sum())
        else:
            growth = np.expm1(exponent)
            minus_one = float(self._mass @ growth)
            tilted = self._mass * growth + self._mass
        mean = float(tilted @ self._loss) / (1.0 + minus_one)
        square = float(tilted @ self._square) / (1.0 + minus_one)
        return math.log1p(minus_one), mean, max(square - mean * mean, 0.0)

    def log_moment_upper(self, tilts: Floats) -> Floats:
        highest = float(tilts.max())
        self._make_rough(highest)
        exponent = self._log_mass + tilts[:, None] * self._loss
        peak = exponent.max(axis=1)
        terms = np.exp(exponent - peak[:, None])
        total = terms.sum(axis=1)
        # (Q1) for the grid's own strip, (Q3) for what lies beyond its ends, (R1) for rounding.
        beyond = (terms[:, 0] + terms[:, -1]) / total / math.expm1(_REACH * self._rough_step)
        rounding = 4.0 * UNIT * (self._loss.size + 64.0 + 2.0 * self._depth + 2.0 * highest * self._rough_depth)
        return peak + np.log(total) + np.log1p(self._rough_error + beyond + rounding) + ELEMENTARY * (1.0 + np.abs(peak))

    def _make_rough(self, tilt: float) -> None:
        """A coarse grid on the real axis, good for every tilt up to ``tilt``: M's relative error is below 1e-3 / count there."""
        if tilt <= self._rough_reach:
            return
        reach = 1.3 * tilt + 1.0
        widths = _ROUGH_SHARES * min(3.0, 3.0 / self._span)
        growth = 0.5 * widths**2 - reach * np.log(np.cos(0.5 * self._lower.span * widths))
        steps = 2.0 * math.pi * widths / (self._need + growth)
        best = int(np.argmax(steps))
        x = self._grid(reach, float(steps[best]))
        log_upper, log_lower = log_mixture(self._upper, x, 0.0), log_mixture(self._lower, x, 0.0)
        self._loss = log_upper.size - log_lower.size
        self._square = self._loss**2
        self._log_mass = log_upper.size - 0.5 * x * x + math.log(float(steps[best]) / math.sqrt(2.0 * math.pi))
        self._mass = np.exp(self._log_mass)
        self._x, self._rough_reach, self._rough_step = x, reach, float(steps[best])
        self._rough_error = 2.0 * math.exp(float(growth[best])) / math.expm1(2.0 * math.pi * float(widths[best]) / float(steps[best]))
        self._depth = float(np.max(np.abs(self._log_mass)))
        self._rough_depth = float(np.max((log_upper.error + log_lower.error) / UNIT))

    def _grid(self, tilt: float, step: float) -> Floats:
        """Multiples of ``step`` from ``_REACH`` below to ``_REACH`` above where d/dx log f A^{t+1} B^{-t} = 0 is possible (Q3)."""
        low = (tilt + 1.0) * self._upper.shifts[0] - tilt * self._lower.shifts[-1]
        high = (tilt + 1.0) * self._upper.shifts[-1] - tilt * self._lower.shifts[0]
        first, last = math.floor((min(low, 0.0) - _REACH) / step), math.ceil((high + _REACH) / step)
        if last - first > MOST_NODES:
            raise TransformUnavailable(f"it would take more than {MOST_NODES} quadrature nodes: the noise is too small")
        return np.arange(first, last + 1) * np.float64(step)

    def log_decay(self, tilt: float, heights: Floats) -> Floats:
        self._make_rough(tilt)
        tilted = np.exp(self._log_mass + tilt * self._loss)
        tilted /= tilted.sum()
        slope = np.gradient(self._loss, self._x)
        # Any shift gives a bound (D2). These two are nearly the best: one where the bulk of the tilted law matters, one where the
        # untilted bulk near L = 0 does.
        mean, square, centre = float(tilted @ slope), float(tilted @ slope**2), float(np.interp(0.0, self._x, slope))
        bulk = self._log_decay_at(tilt, heights, heights * mean / (1.0 + heights**2 * square))
        return np.minimum(bulk, self._log_decay_at(tilt, heights, heights * centre))

    def _log_decay_at(self, tilt: float, heights: Floats, shifts: Floats) -> Floats:
        r"""(D2): int |F(x + ia)| e^{-u (arg A - arg B)} dx bounds |M(t + iu)| and falls in u; by a trapezoid rule with its own strip."""
        quarter = 0.5 * math.pi / self._span
        y = np.minimum(shifts, min(0.5 * quarter, 2.0))
        widest = float(y.max())
        width = min(quarter - widest, 3.0)
        growth = 0.5 * (width**2 + widest**2) - tilt * math.log(math.cos(0.5 * self._lower.span * (width + widest)))
        step = 2.0 * math.pi * width / (self._need + growth)
        x, column = self._grid(tilt, step), y[:, None]
        upper, lower = log_mixture(self._upper, x, column), log_mixture(self._lower, x, column)
        normal = math.log(step / math.sqrt(2.0 * math.pi))
        still = 0.5 * (column**2 - x * x) + (tilt + 1.0) * upper.size - tilt * lower.size + normal
        terms = np.exp(still - heights[:, None] * (upper.angle - lower.angle))
        total = terms.sum(axis=1)
        # Without the factor of u, which is at most 1, terms fall beyond the ends (Q3).
        beyond = (np.exp(still[:, 0]) + np.exp(still[:, -1])) / math.expm1(_REACH * step)
        # (Q1) relative to M(tilt), itself bounded; (R1) for rounding.
        strip = 2.0 * math.exp(growth + float(self.log_moment_upper(np.array([tilt]))[0])) / math.expm1(2.0 * math.pi * width / step)
        depth = (tilt + 1.0) * upper.error + tilt * lower.error + heights[:, None] * (upper.error + lower.error)
        rounding = (terms * (depth + ELEMENTARY * (1.0 + x * x))).sum(axis=1) + UNIT * x.size * total
        return np.log(total + beyond + strip + rounding) + ELEMENTARY

    def line(self, tilt: float, step: float, number: int, tolerance: float) -> LineValues:
        nodes = self._line_nodes(tilt, tolerance)
        return sum_on_line(nodes, tilt, step, number)

    def _line_nodes(self, tilt: float, tolerance: float) -> Nodes:
        """Nodes on Im x = y, half way up a strip in which the integrand is analytic and bounded at every height u >= 0 (Q2)."""
        self._make_rough(tilt)
        shifts = _LINE_SHARES * min(0.5 * math.pi / self._span, 3.0)
        growth = 2.0 * shifts**2 - tilt * np.log(np.cos(self._lower.span * shifts))
        steps = 2.0 * math.pi * shifts / (math.log(4.0 / tolerance) + growth)
        best = int(np.argmax(steps))
        y, h = float(shifts[best]), float(steps[best])
        x = self._grid(tilt, h)
        upper, lower = log_mixture(self._upper, x, y), log_mixture(self._lower, x, y)
        loss = (upper.size - lower.size) + 1j * np.maximum(upper.angle - lower.angle, 0.0)
        weight = np.exp(0.5 * (y * y - x * x) + upper.size + math.log(h / math.sqrt(2.0 * math.pi)) + 1j * (upper.angle - y * x))
        # At u = 0 and at u = infinity the terms are largest and 0: |weight| e^{tilt Re L} bounds them all.
        tilted = np.abs(weight) * np.exp(tilt * loss.real)
        moment = math.exp(float(self.log_moment_upper(np.array([tilt]))[0]))
        strip = 2.0 * (math.exp(float(growth[best])) * moment + math.exp(2.0 * y * y)) / math.expm1(2.0 * math.pi * y / h)
        # (Q3): on the line |F| is at most this factor times its value on the real axis, which falls beyond the ends.
        real_ends = np.array([x[0], x[-1]])
        end_upper, end_lower = log_mixture(self._upper, real_ends, 0.0).size, log_mixture(self._lower, real_ends, 0.0).size
        amplified = math.exp(0.5 * y * y - tilt * math.log(math.cos(0.5 * self._lower.span * y))) * h / math.sqrt(2.0 * math.pi)
        ends = np.exp(-0.5 * real_ends**2 + end_upper) * (1.0 + np.exp(tilt * (end_upper - end_lower)))
        beyond = amplified * float(ends.sum()) / math.expm1(_REACH * h)
        # Nodes that carry nothing are left out, and counted as an error.
        sizes = tilted + np.abs(weight)
        kept = sizes > 1e-3 * tolerance * moment / x.size
        dropped = float(sizes[~kept].sum())
        weight_error = ELEMENTARY * (1.0 + x * x + y * np.abs(x)) + upper.error
        return Nodes(
            weight[kept], loss[kept], weight_error[kept], (upper.error + lower.error)[kept], 1.001 * (strip + beyond + dropped)
        )
