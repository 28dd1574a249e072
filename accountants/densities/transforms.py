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
from zetadp.accountants.densities import loops
from zetadp.accountants.densities.heights import sum_on_line
from zetadp.accountants.densities.loops import Ratio, Spaced
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.densities.nodes import ELEMENTARY, LineValues, Nodes, TransformUnavailable

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

_ROUGH_SHARES = 0.15, 0.3, 0.5, 0.75, 1.0
_LINE_SHARES = tuple(0.1 + 0.08 * k for k in range(12))


class Transform(ABC):
    """The moment function of one release in one direction of neighbours, and the number of repetitions.

    Attributes:
      count: the number of repetitions; every result here is for a single release, accurate enough to be raised to this power.
      scale: the scale of the tilts that matter: the largest shift, or the largest loss.
      largest_loss: the supremum of L, or infinity.
    """

    count: int
    scale: float
    largest_loss: float

    @property
    def log_left_out(self) -> float:
        """Bound on the log probability of what was left out of P."""
        return -math.inf

    @property
    def ends(self) -> tuple[float, ...]:
        """Where the ranges of x end; what is left out is beyond them."""
        return (math.inf,)

    @property
    def plain(self) -> tuple[object, ...] | None:
        """All that a compiled contour needs to know of it; None if only NumPy has its moment function."""
        return None

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
    def log_decay(self, tilt: float, heights: Floats, shifts: int = 2) -> Floats:
        """Upper bounds on log |M(tilt + iu)| that hold for all u >= each height.

        Args:
          shifts: paths tried for each height, where there are several: 1 is enough near the real axis, where all bounds are close.
        """

    @abstractmethod
    def line(self, tilt: float, step: float, number: int, tolerance: float) -> LineValues:
        """M - 1 at tilt + i k step, k = 0 ... number - 1, with a quadrature error of about ``tolerance`` M(tilt)."""


@final
class _Range(NamedTuple):
    """The range of x that a trapezoid sum covers, and the log of P's density and the loss at its ends."""

    low: float
    high: float
    density: tuple[float, float]
    loss: tuple[float, float]


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
        self._upper, self._lower, self.count = Ratio(upper), Ratio(lower), count
        self._span = max(upper.span, lower.span)
        self.scale = max(upper.shifts[-1], -lower.shifts[0])
        if not SMALLEST_SHIFT <= self.scale <= LARGEST_SHIFT:
            raise TransformUnavailable(f"it moves its noise by {self.scale:.3g} scales: expected {SMALLEST_SHIFT} to {LARGEST_SHIFT}")
        # With P = f alone, L = -log B is bounded by the weight of Q's copy at 0.
        bounded = upper.shifts == (0.0,) and lower.shifts[-1] == 0.0
        self.largest_loss = -math.log1p(-math.fsum(lower.weights[:-1])) * (1.0 + ELEMENTARY) if bounded else math.inf
        self._improbable = improbable
        self.ceiling = upper.shifts[-1] + math.sqrt(2.0 * improbable)
        self._rough_reach = -1.0
        self._need = math.log(2e3 * count)
        self._log_left_out, self._end = -math.inf, math.inf

    @property
    def log_left_out(self) -> float:
        return self._log_left_out

    @property
    def ends(self) -> tuple[float, ...]:
        return (self._end,)

    @property
    def plain(self) -> tuple[object, ...] | None:
        upper, lower = self._upper.mixture, self._lower.mixture
        halves = upper.weights, upper.shifts, lower.weights, lower.shifts
        return (*halves, self.count, self._improbable, self.scale, self.largest_loss) if self._span > 0.0 else None

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        self._make_rough(tilt)
        if self._is_cut_shallow(tilt):
            self._make_rough_for(tilt, self._rough_reach)
            if self._is_cut_shallow(tilt):
                return math.inf, math.inf, math.inf
        return loops.cumulants(self._rough, tilt)

    def log_moment_upper(self, tilts: Floats) -> Floats:
        highest = float(tilts.max())
        self._make_rough(highest)
        # (Q1) for the grid's own strip, (Q3) for its ends, (R1) for rounding.
        rounding = 4.0 * UNIT * (self._rough.x.size + 64.0 + 2.0 * self._rough.depth + (1.0 + 2.0 * highest) * self._rough_depth)
        ends = loops.Ends(self._range.density, self._range.loss, self._end_factors(self._rough_step, 0.0, *self._rough_strip))
        return loops.log_moment_upper(self._rough, tilts, ends, self._rough_error + rounding)

    def _log_moment(self, tilt: float) -> float:
        self._make_rough(tilt)
        if tilt not in self._moments:
            self._moments[tilt] = float(self.log_moment_upper(np.array([tilt]))[0])
        return self._moments[tilt]

    def look_ahead(self, tilt: float) -> None:
        self._make_rough(tilt)

    def settle(self, tilt: float, reach: float) -> None:
        # A search looks so far ahead that its range may be cut where tilts up to this one have no need of a cut, nor of so long a range.
        if reach > self._rough_reach or self._is_cut_shallow(tilt) or (self._cut and self._enough_for(reach) < self._high):
            self._make_rough_for(tilt, reach)

    def _enough_for(self, reach: float) -> float:
        """The range may end here for tilts up to ``reach``. (Q3)"""
        return (reach + 1.0) * self._upper.shifts[-1] - reach * self._lower.shifts[0] + _REACH

    def _is_cut_shallow(self, tilt: float) -> bool:
        """Whether the integrand isn't small where the range was cut."""
        return self._cut and float(self._range.density[1] + tilt * self._range.loss[1]) > -self._need - _DEEP

    def _make_rough(self, tilt: float) -> None:
        if tilt > self._rough_reach:
            # Further ahead, so that it is rarely rebuilt while a search moves upwards.
            self._make_rough_for(tilt, 3.0 * tilt + 1.0)

    def _make_rough_for(self, tilt: float, reach: float) -> None:
        """A coarse grid on the real axis, good for every tilt up to ``reach``: M's relative error is below 1e-3 / count there."""
        widest, lean = min(3.0, 3.0 / self._span, _narrow(160.0, reach, self._lower.span)), 0.5 * self._lower.span
        strips = [
            (width, 0.5 * width**2 - reach * math.log(math.cos(lean * width))) for width in (widest * share for share in _ROUGH_SHARES)
        ]
        width, growth = max(strips, key=lambda strip: strip[0] / (self._need + strip[1]))
        self._set_range(reach, tilt)
        at = self._grid(self._range, 2.0 * math.pi * width / (self._need + growth))
        self._rough = loops.line_grid(self._upper, self._lower, at)
        self._rough_reach, self._rough_step, self._rough_strip = reach, at.step, (width, growth)
        self._moments: dict[float, float] = {}
        self._slope_means: dict[float, tuple[float, float, float]] = {}
        self._rough_error = 2.02 * math.exp(growth) / math.expm1(2.0 * math.pi * width / at.step)
        ends = float(self._rough.x[0]), float(self._rough.x[-1])
        self._rough_depth = (self._upper.log_error(*ends) + self._lower.log_error(*ends)) / UNIT

    def _set_range(self, reach: float, tilt: float) -> None:
        r"""The range of x for tilts up to ``reach``; if it would be far too long, it is cut where that harms ``tilt`` least. (Q3)

        From some point on, to both sides, the integrand f A^{t+1} B^{-t} falls faster than e^{-d^2 / 2}; the sum may end ``_REACH`` beyond
        it. If that is far above the ceiling, the range of integration itself ends, and so does P. (T1)
        """
        self._low = min((reach + 1.0) * self._upper.shifts[0] - reach * self._lower.shifts[-1], 0.0) - _REACH
        self._high = self._enough_for(reach)
        self._cut, self._log_left_out, self._end = False, -math.inf, math.inf
        if self._high > self.ceiling + _VALLEY:
            place, height = loops.valley(self._upper, self._lower, Spaced(self.ceiling, _VALLEY / 24.0, 25), tilt)
            if height < -self._need - _DEEP:
                self._cut, self._high = True, place
            elif self._high > self.ceiling + _LONGEST:
                self._cut, self._high = True, self.ceiling + _LONGEST
            if self._cut:
                # Phi(-d) <= e^{-d^2 / 2} / 2, for each copy of P.
                self._log_left_out, self._end = -0.5 * (self._high - self._upper.shifts[-1]) ** 2 - math.log(2.0), self._high
        (density, loss), (last_density, last_loss) = (self._density_and_loss(x) for x in (self._low, self._high))
        self._range = _Range(self._low, self._high, (density, last_density), (loss, last_loss))

    def _density_and_loss(self, x: float) -> tuple[float, float]:
        upper = self._upper.log_at(x)
        return upper - 0.5 * x * x - 0.5 * math.log(2.0 * math.pi), upper - self._lower.log_at(x)

    def _range_at(self, tilt: float) -> _Range:
        """The part of the range that this tilt alone needs: it may end at the first rough node ``_REACH`` beyond the last peak. (Q3)"""
        whole = self._range
        enough = self._enough_for(tilt)
        x, loss, log_mass = self._rough.x, self._rough.loss, self._rough.log_mass
        if self._cut or enough >= x[-1]:
            return whole
        last = int(np.searchsorted(x, enough))
        density = float(log_mass[last]) - math.log(self._rough_step)
        return _Range(whole.low, float(x[last]), (whole.density[0], density), (whole.loss[0], float(loss[last])))

    def _grid(self, reach: _Range, step: float) -> Spaced:
        """Nodes from the lower end of the range, at most ``step`` apart; a cut is half a step beyond the last node."""
        length = reach.high - reach.low
        if length > MOST_NODES * step:
            raise TransformUnavailable(f"it would take more than {MOST_NODES} quadrature nodes: the noise is too small")
        if self._cut:
            number = math.ceil(length / step - 0.5)
            step = length / (number + 0.5)
        else:
            number = math.ceil(length / step)
        return Spaced(reach.low, step, number + 1)

    def _end_factors(self, step: float, amplified: float, width: float, growth: float) -> tuple[float, float]:
        r"""(Q3): what P's density at the ends, times e^{tilt loss}, is multiplied with to bound what they do to a sum over ``_grid(step)``.

        Args:
          step: between nodes.
          amplified: log of the largest ratio of the summand to its value on the real axis.
          width: greatest distance from the real axis that the strip's bound uses.
          growth: log of the largest ratio of the integrand to its value on the real axis up to that distance.
        """
        falling = step * math.exp(amplified) / -math.expm1(-_REACH * step)
        return falling, 4.0 * width * math.exp(growth) if self._cut else falling

    def _ends(self, reach: _Range, tilt: float, unit: float, factors: tuple[float, float]) -> float:
        """The bound itself, over e^unit."""
        density = [density + tilt * loss - unit for density, loss in zip(reach.density, reach.loss, strict=True)]
        if not max(density) <= loops.LARGEST:
            raise TransformUnavailable(loops.DOMINATED)
        return math.exp(density[0]) * factors[0] + math.exp(density[1]) * factors[1]

    def decay_rate(self, tilt: float) -> float:
        mean, _, centre = self._slopes(tilt)
        return max(mean, centre) ** 2 if self._lower.shifts == (0.0,) else centre**2

    def _slopes(self, tilt: float) -> tuple[float, float, float]:
        """Means of dL/dx and of its square under the tilted distribution, and dL/dx at x = 0."""
        self._make_rough(tilt)
        if tilt not in self._slope_means:
            x, loss = self._rough.x, self._rough.loss
            step = float(x[1] - x[0])
            middle = max(int(-x[0] / step) - 1, 0)
            self._slope_means[tilt] = *loops.slopes(self._rough, tilt), float(loss[middle + 1] - loss[middle]) / step
        return self._slope_means[tilt]

    def log_decay(self, tilt: float, heights: Floats, shifts: int = 2) -> Floats:
        # Any shift gives a bound (D2). These two are nearly optimal: one where the bulk of the tilted distribution matters, the other
        # where the untilted bulk near L = 0 does.
        mean, square, centre = self._slopes(tilt)
        # A strip of growth e^20 at most, and narrow enough for every arg to rise with height.
        quarter = min(0.5 * math.pi / self._span, _narrow(160.0, tilt, self._lower.span))
        highest = min(0.5 * quarter, 2.0)
        us: list[float] = heights.tolist()
        wanted = [*(u * mean / (1.0 + u * u * square) for u in us), *(u * centre for u in us if shifts > 1)]
        y = [min(max(shift, 0.0), highest) for shift in wanted]
        widest = max(y)
        width = min(quarter - widest, 3.0)
        growth = 0.5 * (width**2 + widest**2) - tilt * math.log(math.cos(0.5 * self._lower.span * (width + widest)))
        reach = self._range_at(tilt)
        at = self._grid(reach, 2.0 * math.pi * width / (self._need + growth))
        # Relative to M(tilt), itself bounded: (Q1), and (Q3), whose terms lack the factor of u, which is at most 1.
        moment = self._log_moment(tilt)
        ends = self._ends(reach, tilt, moment, self._end_factors(at.step, growth, width + widest, growth))
        strip = 2.0 * math.exp(growth) / math.expm1(2.0 * math.pi * width / at.step) + ends
        return loops.log_decay(self._upper, self._lower, at, tilt, heights, y, moment + math.log(strip))

    def line(self, tilt: float, step: float, number: int, tolerance: float) -> LineValues:
        return sum_on_line(self._line_nodes(tilt, tolerance), tilt, step, number)

    def _line_nodes(self, tilt: float, tolerance: float) -> Nodes:
        """Nodes on Im x = y, half way up a strip in which the integrand is analytic and bounded at every height u >= 0 (Q2)."""
        self._make_rough(tilt)
        widest, span = min(0.5 * math.pi / self._span, 3.0, _narrow(40.0, tilt, self._lower.span)), self._lower.span
        strips = [(y, 2.0 * y * y - tilt * math.log(math.cos(span * y))) for y in (widest * share for share in _LINE_SHARES)]
        need = math.log(4.0 / tolerance)
        y, growth = max(strips, key=lambda strip: strip[0] / (need + strip[1]))
        reach = self._range_at(tilt)
        at = self._grid(reach, 2.0 * math.pi * y / (need + growth))
        log_moment = self._log_moment(tilt)
        if log_moment > 300.0:
            raise TransformUnavailable("a single release's moment function exceeds what a float can hold")
        moment = math.exp(log_moment)
        strip = 2.0 * (math.exp(growth) * moment + math.exp(2.0 * y * y)) / math.expm1(2.0 * math.pi * y / at.step)
        amplified = 0.5 * y * y - tilt * math.log(math.cos(0.5 * self._lower.span * y))
        factors = self._end_factors(at.step, amplified, 2.0 * y, growth)
        beyond = self._ends(reach, 0.0, 0.0, factors) + self._ends(reach, tilt, 0.0, factors) + math.exp(self.log_left_out)
        # Nodes that contribute nothing are left out and counted as an error.
        nodes = loops.line_nodes(self._upper, self._lower, at, y, tilt, 1e-3 * tolerance * moment / at.number)
        return nodes._replace(quadrature=1.001 * (strip + beyond + nodes.quadrature))


def _narrow(growth: float, tilt: float, span: float) -> float:
    """Half-width of a strip in which cos(span y / 2)^-tilt isn't far above e^{growth / 8}; four times the growth doubles it."""
    return math.sqrt(growth / (tilt + 1.0)) / span if span > 0.0 else math.inf
