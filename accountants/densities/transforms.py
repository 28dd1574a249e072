r"""Moment functions M(s) = E_P[e^{sL}] of one release on vertical lines of the complex plane, each with a proved error.

For a pair of Gaussian mixtures, P = f A and Q = f B with f the standard normal density, A(x) = sum_j p_j e^{a_j x - a_j^2 / 2} and B
likewise, L = log A - log B, so M(s) = int f A^{s+1} B^{-s} dx. When the path of integration is moved up to Im x = y > 0, the factor
e^{iuL} never grows with u, since arg A >= arg B there. So the same few nodes work at every height u, and the trapezoid rule's error is
bounded once for all of them. Tags such as (Q1) refer to the inequalities of proofs/contour.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.densities.nodes import ELEMENTARY, LineValues, Nodes, log_mixture, log_mixture_error, log_mixture_real, sum_on_line
from zetadp.mechanisms.errors import UnsupportedEvent

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

MOST_NODES = 50_000
"""Beyond this many quadrature nodes a release's noise is too small for this route."""

SMALLEST_SHIFT, LARGEST_SHIFT = 1e-12, 1e3
"""Distances of P from Q, in units of the noise, that this route accepts."""

_REACH = 9.0
"""How far the nodes extend beyond the outermost possible peak; what is beyond is bounded, not ignored (Q3)."""

_VALLEY, _LONGEST = 12.0, 60.0
"""How far above the ceiling a range may reach before it is cut where that does no harm, and whatever it does: then the search for a
saddle sees so large an M that it turns back to smaller tilts."""

_DEEP = 35.0
"""A cut does no harm where the integrand is this far below 1 / count, as a logarithm."""

_ROUGH_SHARES = np.array([0.15, 0.3, 0.5, 0.75, 1.0])
_LINE_SHARES = np.linspace(0.1, 0.98, 12)


class TransformUnavailable(UnsupportedEvent):
    """The contour route can't prove a bracket; the reason says why."""

    def __init__(self, reason: str) -> None:
        super().__init__("contour", reason)


class Transform(ABC):
    """The moment function of one release in one direction of neighbours, and the number of repetitions.

    Attributes:
      count: the number of repetitions; every result here is for a single release, accurate enough to be raised to this power.
      scale: the scale of the tilts that matter: the largest shift, or the largest loss.
      largest_loss: the supremum of L, or infinity.
      log_left_out: bound on the log probability of what was left out of P.
      end: where the range of x ends; what is left out is beyond it.
    """

    count: int
    scale: float
    largest_loss: float
    log_left_out: float = -math.inf
    end: float = math.inf

    @abstractmethod
    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        """log M and its first two derivatives at a real point. Accurate, but without a bound: for making choices, never for results."""

    def look_ahead(self, tilt: float) -> None:  # noqa: B027 (most transforms have nothing to prepare)
        """Called before a search for a tilt of about this size or below."""

    def settle(self, tilt: float, reach: float) -> None:  # noqa: B027 (most transforms have nothing to settle)
        """Called before a contour is placed at this tilt, with others up to ``reach`` for its aliases; chooses what is left out of P."""

    @abstractmethod
    def log_moment_upper(self, tilts: Floats) -> Floats:
        """Upper bounds on log M at real points > 0, of the shape of ``tilts``."""

    def decay_rate(self, tilt: float) -> float:
        """About twice what ``log_decay`` loses per squared height, for small heights; 0 if it hardly decays."""
        del tilt
        return 0.0

    @abstractmethod
    def log_decay(self, tilt: float, heights: Floats) -> Floats:
        """Upper bounds on log |M(tilt + iu)| that hold for all u >= each height."""

    @abstractmethod
    def line(self, tilt: float, step: float, number: int, tolerance: float) -> LineValues:
        """M - 1 at tilt + i k step, k = 0 ... number - 1, with a quadrature error of about ``tolerance`` M(tilt)."""


@final
class _Range(NamedTuple):
    """The range of x that a trapezoid sum covers, and the log of P's density and the loss at both ends; arrays of shape (2,)."""

    low: float
    high: float
    density: Floats
    loss: Floats


@final
class MixedGaussian(Transform):
    r"""A pair of Gaussian mixtures (a sampled release), P = f A against Q = f B.

    Args:
      upper: P, shifts >= 0.
      lower: Q, shifts <= 0.
      count: how often it is released.
      improbable: a probability's negative logarithm, >= 0; outcomes x beyond ``ceiling`` are less probable than e^-improbable
        and may be left out: M is then that of the rest of P. Otherwise outcomes that never happen would dominate at a large tilt.
    """

    def __init__(self, upper: Mixture, lower: Mixture, count: int, improbable: float) -> None:
        if not upper.shifts[0] >= 0.0 >= lower.shifts[-1]:
            raise TransformUnavailable("shifts of P and Q don't lie on opposite sides of 0")
        self._upper, self._lower, self.count = upper, lower, count
        self._span = max(upper.span, lower.span)
        self.scale = max(upper.shifts[-1], -lower.shifts[0])
        if not SMALLEST_SHIFT <= self.scale <= LARGEST_SHIFT:
            raise TransformUnavailable(f"it moves its noise by {self.scale:.3g} scales: expected {SMALLEST_SHIFT} to {LARGEST_SHIFT}")
        # With P = f alone, L = -log B is bounded by the weight of Q's copy at 0.
        bounded = upper.shifts == (0.0,) and lower.shifts[-1] == 0.0
        self.largest_loss = -math.log1p(-math.fsum(lower.weights[:-1])) * (1.0 + ELEMENTARY) if bounded else math.inf
        self.ceiling = upper.shifts[-1] + math.sqrt(2.0 * improbable)
        self._rough_reach = -1.0
        self._need = math.log(2e3 * count)

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        self._make_rough(tilt)
        if self._is_cut_shallow(tilt):
            self._make_rough_for(tilt, self._rough_reach)
            if self._is_cut_shallow(tilt):
                return math.inf, math.inf, math.inf
        exponent = tilt * self._loss
        if exponent[-1] > 600.0 or exponent[0] < -600.0:
            whole = self._log_mass + exponent
            if float(whole.max()) > 600.0:
                return math.inf, math.inf, math.inf
            tilted = np.exp(whole)
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
        # (Q1) for the grid's own strip, (Q3) for its ends, (R1) for rounding.
        ends = self._ends(self._range, tilts, peak, self._rough_step, 0.0, *self._rough_strip)
        rounding = 4.0 * UNIT * (self._loss.size + 64.0 + 2.0 * self._depth + (1.0 + 2.0 * highest) * self._rough_depth)
        return peak + np.log(total) + np.log1p(self._rough_error + ends / total + rounding) + ELEMENTARY * (1.0 + np.abs(peak))

    def _log_moment(self, tilt: float) -> float:
        self._make_rough(tilt)
        if tilt not in self._moments:
            self._moments[tilt] = float(self.log_moment_upper(np.array([tilt]))[0])
        return self._moments[tilt]

    def look_ahead(self, tilt: float) -> None:
        self._make_rough(tilt)

    def settle(self, tilt: float, reach: float) -> None:
        if reach > self._rough_reach or self._is_cut_shallow(tilt):
            self._make_rough_for(tilt, reach)

    def _is_cut_shallow(self, tilt: float) -> bool:
        """Whether the integrand isn't small where the range was cut."""
        return self._cut and float(self._range.density[1] + tilt * self._range.loss[1]) > -self._need - _DEEP

    def _make_rough(self, tilt: float) -> None:
        if tilt > self._rough_reach:
            # Further ahead, so that it is rarely rebuilt while a search moves upwards.
            self._make_rough_for(tilt, 3.0 * tilt + 1.0)

    def _make_rough_for(self, tilt: float, reach: float) -> None:
        """A coarse grid on the real axis, good for every tilt up to ``reach``: M's relative error is below 1e-3 / count there."""
        widths = _ROUGH_SHARES * min(3.0, 3.0 / self._span, _narrow(160.0, reach, self._lower.span))
        growth = 0.5 * widths**2 - reach * np.log(np.cos(0.5 * self._lower.span * widths))
        steps = 2.0 * math.pi * widths / (self._need + growth)
        best = int(np.argmax(steps))
        self._set_range(reach, tilt)
        x, step = self._grid(self._range, float(steps[best]))
        log_upper, log_lower = log_mixture_real(self._upper, x), log_mixture_real(self._lower, x)
        self._loss = log_upper - log_lower
        self._square = self._loss**2
        self._log_mass = log_upper - 0.5 * x * x + math.log(step / math.sqrt(2.0 * math.pi))
        self._mass = np.exp(self._log_mass)
        self._x, self._rough_reach, self._rough_step, self._rough_strip = x, reach, step, (float(widths[best]), float(growth[best]))
        self._moments: dict[float, float] = {}
        self._slope_means: dict[float, tuple[float, float, float]] = {}
        self._rough_error = 2.02 * math.exp(float(growth[best])) / math.expm1(2.0 * math.pi * float(widths[best]) / step)
        self._depth = float(np.max(np.abs(self._log_mass)))
        ends = x[[0, -1]]
        self._rough_depth = (log_mixture_error(self._upper, ends) + log_mixture_error(self._lower, ends)) / UNIT

    def _set_range(self, reach: float, tilt: float) -> None:
        r"""The range of x for tilts up to ``reach``; if it would be far too long, it is cut where that harms ``tilt`` least. (Q3)

        From some point on, to both sides, the integrand f A^{t+1} B^{-t} falls faster than e^{-d^2 / 2}; the sum may end ``_REACH`` beyond
        it. If that is far above the ceiling, the range of integration itself ends, and so does P. (T1)
        """
        self._low = min((reach + 1.0) * self._upper.shifts[0] - reach * self._lower.shifts[-1], 0.0) - _REACH
        self._high = (reach + 1.0) * self._upper.shifts[-1] - reach * self._lower.shifts[0] + _REACH
        self._cut, self.log_left_out, self.end = False, -math.inf, math.inf
        if self._high > self.ceiling + _VALLEY:
            x = self.ceiling + np.linspace(0.0, _VALLEY, 25)
            upper, lower = log_mixture_real(self._upper, x), log_mixture_real(self._lower, x)
            height = (tilt + 1.0) * upper - tilt * lower - 0.5 * x * x
            deepest = int(np.argmin(height))
            if height[deepest] < -self._need - _DEEP:
                self._cut, self._high = True, float(x[deepest])
            elif self._high > self.ceiling + _LONGEST:
                self._cut, self._high = True, self.ceiling + _LONGEST
            if self._cut:
                # Phi(-d) <= e^{-d^2 / 2} / 2, for each copy of P.
                self.log_left_out, self.end = -0.5 * (self._high - self._upper.shifts[-1]) ** 2 - math.log(2.0), self._high
        edges = np.array([self._low, self._high])
        upper, lower = log_mixture_real(self._upper, edges), log_mixture_real(self._lower, edges)
        self._range = _Range(self._low, self._high, upper - 0.5 * edges * edges - 0.5 * math.log(2.0 * math.pi), upper - lower)

    def _range_at(self, tilt: float) -> _Range:
        """The part of the range that this tilt alone needs: it may end at the first rough node ``_REACH`` beyond the last peak. (Q3)"""
        whole = self._range
        enough = (tilt + 1.0) * self._upper.shifts[-1] - tilt * self._lower.shifts[0] + _REACH
        if self._cut or enough >= self._x[-1]:
            return whole
        last = int(np.searchsorted(self._x, enough))
        density = np.array([whole.density[0], self._log_mass[last] - math.log(self._rough_step)])
        return _Range(whole.low, float(self._x[last]), density, np.array([whole.loss[0], self._loss[last]]))

    def _grid(self, reach: _Range, step: float) -> tuple[Floats, float]:
        """Nodes from the lower end of the range, at most ``step`` apart, and their distance; a cut is half a step beyond the last node."""
        length = reach.high - reach.low
        if length > MOST_NODES * step:
            raise TransformUnavailable(f"it would take more than {MOST_NODES} quadrature nodes: the noise is too small")
        if self._cut:
            number = math.ceil(length / step - 0.5)
            step = length / (number + 0.5)
        else:
            number = math.ceil(length / step)
        return np.asarray(reach.low + step * np.arange(number + 1), dtype=np.float64), step

    def _ends(self, reach: _Range, tilts: Floats, units: Floats, step: float, amplified: float, width: float, growth: float) -> Floats:
        r"""(Q3): bounds, at each tilt, on what the ends of the range do to a sum over ``_grid(step)``.

        Args:
          reach: the range.
          tilts: shape (n,).
          units: logarithms of what the bounds are multiples of, shape (n,).
          step: between nodes.
          amplified: log of the largest ratio of the summand to its value on the real axis.
          width: greatest distance from the real axis that the strip's bound uses.
          growth: log of the largest ratio of the integrand to its value on the real axis up to that distance.
        """
        density = reach.density + tilts[:, None] * reach.loss - units[:, None]
        if float(density.max()) > 600.0:
            raise TransformUnavailable("the moment function is dominated by outcomes that never happen")
        density = np.exp(density)
        falling = step * math.exp(amplified) / -math.expm1(-_REACH * step)
        right = 4.0 * width * math.exp(min(growth, 700.0)) if self._cut else falling
        return density[:, 0] * falling + density[:, 1] * right

    def decay_rate(self, tilt: float) -> float:
        mean, _, centre = self._slopes(tilt)
        return max(mean, centre) ** 2 if self._lower.shifts == (0.0,) else centre**2

    def _slopes(self, tilt: float) -> tuple[float, float, float]:
        """Means of dL/dx and of its square under the tilted distribution, and dL/dx at x = 0."""
        self._make_rough(tilt)
        if tilt not in self._slope_means:
            exponent = (self._log_mass + tilt * self._loss)[:-1]
            inner = np.exp(exponent - exponent.max())
            slope = np.diff(self._loss) / (self._x[1] - self._x[0])
            mass, middle = float(inner.sum()), max(int(-self._x[0] / (self._x[1] - self._x[0])) - 1, 0)
            self._slope_means[tilt] = float(inner @ slope) / mass, float(inner @ slope**2) / mass, float(slope[middle])
        return self._slope_means[tilt]

    def log_decay(self, tilt: float, heights: Floats) -> Floats:
        # Any shift gives a bound (D2). These two are nearly optimal: one where the bulk of the tilted distribution matters, the other
        # where the untilted bulk near L = 0 does.
        mean, square, centre = self._slopes(tilt)
        both = self._log_decay_at(
            tilt, np.tile(heights, 2), np.concatenate([heights * mean / (1.0 + heights**2 * square), heights * centre])
        )
        return np.minimum(both[: heights.size], both[heights.size :])

    def _log_decay_at(self, tilt: float, heights: Floats, shifts: Floats) -> Floats:
        r"""(D2): int |F(x + ia)| e^{-u (arg A - arg B)} dx bounds |M(t + iu)| and falls in u; by a trapezoid rule with its own strip."""
        # A strip of growth e^20 at most, and narrow enough for every arg to rise with height.
        quarter = min(0.5 * math.pi / self._span, _narrow(160.0, tilt, self._lower.span))
        y = np.clip(shifts, 0.0, min(0.5 * quarter, 2.0))
        widest = float(y.max())
        width = min(quarter - widest, 3.0)
        growth = 0.5 * (width**2 + widest**2) - tilt * math.log(math.cos(0.5 * self._lower.span * (width + widest)))
        step = 2.0 * math.pi * width / (self._need + growth)
        reach, column = self._range_at(tilt), y[:, None]
        x, step = self._grid(reach, step)
        upper, lower = log_mixture(self._upper, x, column), log_mixture(self._lower, x, column)
        normal = math.log(step / math.sqrt(2.0 * math.pi))
        exponent = 0.5 * (column**2 - x * x) + (tilt + 1.0) * upper.size - tilt * lower.size
        exponent = exponent - heights[:, None] * (upper.angle - lower.angle) + normal
        peak = exponent.max(axis=1)
        terms = np.exp(exponent - peak[:, None])
        total = terms.sum(axis=1)
        # Relative to M(tilt), itself bounded: (Q1), and (Q3), whose terms lack the factor of u, which is at most 1; (R1) for rounding.
        moment = self._log_moment(tilt)
        ends = float(self._ends(reach, np.array([tilt]), np.array([moment]), step, growth, width + widest, growth)[0])
        strip = 2.0 * math.exp(growth) / math.expm1(2.0 * math.pi * width / step) + ends
        depth = (tilt + 1.0) * upper.error + tilt * lower.error + heights[:, None] * (upper.error + lower.error)
        rounding = (terms * np.expm1(np.minimum(depth + ELEMENTARY * (1.0 + x * x), 300.0))).sum(axis=1) + UNIT * x.size * total
        return np.logaddexp(peak + np.log(total + rounding), moment + math.log(strip)) + ELEMENTARY * (1.0 + np.abs(peak))

    def line(self, tilt: float, step: float, number: int, tolerance: float) -> LineValues:
        nodes = self._line_nodes(tilt, tolerance)
        return sum_on_line(nodes, tilt, step, number)

    def _line_nodes(self, tilt: float, tolerance: float) -> Nodes:
        """Nodes on Im x = y, half way up a strip in which the integrand is analytic and bounded at every height u >= 0 (Q2)."""
        self._make_rough(tilt)
        shifts = _LINE_SHARES * min(0.5 * math.pi / self._span, 3.0, _narrow(40.0, tilt, self._lower.span))
        growth = 2.0 * shifts**2 - tilt * np.log(np.cos(self._lower.span * shifts))
        steps = 2.0 * math.pi * shifts / (math.log(4.0 / tolerance) + growth)
        best = int(np.argmax(steps))
        y, h = float(shifts[best]), float(steps[best])
        reach = self._range_at(tilt)
        x, h = self._grid(reach, h)
        upper, lower = log_mixture(self._upper, x, y), log_mixture(self._lower, x, y)
        loss = (upper.size - lower.size) + 1j * np.maximum(upper.angle - lower.angle, 0.0)
        log_weight = 0.5 * (y * y - x * x) + upper.size + math.log(h / math.sqrt(2.0 * math.pi)) + 1j * (upper.angle - y * x)
        log_moment = self._log_moment(tilt)
        if log_moment > 300.0:
            raise TransformUnavailable("a single release's moment function exceeds what a float can hold")
        moment = math.exp(log_moment)
        strip = 2.0 * (math.exp(float(growth[best])) * moment + math.exp(2.0 * y * y)) / math.expm1(2.0 * math.pi * y / h)
        amplified = 0.5 * y * y - tilt * math.log(math.cos(0.5 * self._lower.span * y))
        ends = self._ends(reach, np.array([0.0, tilt]), np.zeros(2), h, amplified, 2.0 * y, float(growth[best]))
        beyond = float(ends.sum()) + math.exp(self.log_left_out)
        # Nodes that contribute nothing are left out and counted as an error: a term is largest at u = 0.
        sizes = np.exp(log_weight.real) + np.exp(log_weight.real + tilt * loss.real)
        kept = sizes > 1e-3 * tolerance * moment / x.size
        dropped = float(sizes[~kept].sum())
        weight_error = ELEMENTARY * (1.0 + x * x + y * (1.0 + np.abs(x))) + upper.error
        return Nodes(
            log_weight[kept], loss[kept], weight_error[kept], (upper.error + lower.error)[kept], 1.001 * (strip + beyond + dropped)
        )


def _narrow(growth: float, tilt: float, span: float) -> float:
    """Half-width of a strip in which cos(span y / 2)^-tilt isn't far above e^{growth / 8}; four times the growth doubles it."""
    return math.sqrt(growth / (tilt + 1.0)) / span if span > 0.0 else math.inf
