r"""Moment functions of Laplace releases, whole and sampled. Their loss has atoms: a few hardly decay, and need other releases that do."""

from __future__ import annotations

import math
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities.heights import MOST_TERMS, sum_on_line
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.densities.moments.bounded import LARGEST_EXPONENT, ClosedForm, check_exponent
from zetadp.accountants.densities.nodes import ELEMENTARY, LineValues, Nodes, expm1_complex
from zetadp.accountants.densities.transforms import MOST_NODES, Transform, TransformUnavailable

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

_POINTS = 32
_POSITIONS, _WEIGHTS = np.polynomial.legendre.leggauss(_POINTS)
_WEIGHT_ERROR = 1e-13
"""Bound on the relative error of numpy's weights: the outermost is off by 6e-14."""

_LEVELS = np.array([0.6, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4, 1e-5])
"""Of L', as shares of its largest value."""

_MOST_CELLS, _MOST_SPLITS = 200_000, 40
_WIDEST, _BLOCK, _FINENESS = 0.4, 0.25, 0.02
"""Half-length of the longest panel; longest block of cells; and what the integrand's logarithm changes by in a cell, about."""

_LARGEST_REACH = 600.0
"""How far copies may be moved: e to this is nearly the largest float."""

_LARGEST_LOG_ERROR = 0.019
"""Of a node's logarithm: up to it e^d - 1 is below 1.01 d, which sums of such errors count."""

_RATIO = 4.0
"""Sum of the half axes of the Bernstein ellipse around each panel, in units of its half-length."""


@final
class WholeLaplace(ClosedForm):
    r"""Lap(0, 1) against Lap(e, 1): M(s) = ((s + 1) e^{se} + s e^{-(s+1)e}) / (2s + 1). Hardly decays: L has atoms at -e and e."""

    @property
    def plain(self) -> tuple[object, ...] | None:
        return self._e, self.count

    def log_decay(self, tilt: float, heights: Floats, shifts: int = 2) -> Floats:
        del shifts  # a closed form
        # |s + 1| / |2s + 1| falls and |s| / |2s + 1| rises in u, to 1/2 (D1).
        near = np.hypot(tilt + 1.0, heights) / np.hypot(2.0 * tilt + 1.0, 2.0 * heights)
        value = np.logaddexp(np.log(near) + tilt * self._e, math.log(0.5) - (tilt + 1.0) * self._e)
        return value + ELEMENTARY * (1.0 + (tilt + 1.0) * self._e)

    def _closed(self, s: Complexes) -> Complexes:
        # (s + 1) (e^{se} - 1) + s (e^{-(s+1)e} - 1), over 2s + 1: the constants add up to M(0) = 1.
        return ((s + 1.0) * expm1_complex(s * self._e) + s * expm1_complex(-(s + 1.0) * self._e)) / (2.0 * s + 1.0)

    def _error(self, s: Complexes) -> Floats:
        # (R4): |e^z - 1| <= |z| max(1, e^{Re z}), and each argument's rounding counts as much again times |z|.
        size = np.abs(s) * np.abs(s + 1.0) / np.abs(2.0 * s + 1.0)
        return np.asarray(5.0 * ELEMENTARY * self._e * size * np.exp(s.real * self._e), dtype=np.float64)


@final
class _Rises(NamedTuple):
    """Slopes p and q of log P and log Q, their difference L', and bounds on the relative error of L' and on its absolute one."""

    p: Floats
    q: Floats
    rise: Floats
    relative: Floats
    absolute: float


@final
class _Cells(NamedTuple):
    """Cells of one interval between shifts: of their ends H and its error, of each cell the rest.

    Attributes:
      ratio, error: H = G / L' at the n + 1 ends, and bounds on its error.
      sign: of H', -1 or 1 in the whole cell, or 0 if it may change.
      turned: int |H'| where the sign may change, else 0.
      mass: of G, from below.
      rise: L', from below.
    """

    ratio: Floats
    error: Floats
    sign: Floats
    turned: Floats
    mass: Floats
    rise: Floats


@final
class MixedLaplace(Transform):
    r"""A pair of Laplace mixtures (a sampled release).

    Between neighbouring shifts P and Q are a e^x + b e^-x with a, b >= 0, so L is analytic there; outside all shifts L is constant: two
    atoms. Panels of Gauss and Legendre points in between; proofs/contour.md (Q4).
    """

    def __init__(self, upper: Mixture, lower: Mixture, count: int) -> None:
        self._upper, self._lower, self.count = upper, lower, count
        self._breaks = np.array(sorted({*upper.shifts, *lower.shifts}))
        self._reach = float(np.max(np.abs(self._breaks)))
        if self._reach > _LARGEST_REACH:
            raise TransformUnavailable(f"it moves its noise by {self._reach:.3g} scales: expected at most {_LARGEST_REACH:g}")
        ends = self._breaks[[0, -1]]
        self._end_loss, self._end_log_mass, error = self._loss(ends)
        # Rounded up, so no loss is beyond it.
        self.largest_loss = float(self._end_loss[1] + error[1]) * (1.0 + 4.0 * UNIT)
        self.scale = max(self.largest_loss, -float(self._end_loss[0]))

    def _loss(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """(L, log of P's density, bound on the error of L) at x, wherever rounding puts x."""
        (own, own_error), (other, other_error) = (_log_ratio(side, x, self._reach) for side in (self._upper, self._lower))
        return own - other, own - np.abs(x) - math.log(2.0), own_error + other_error + 2.0 * UNIT * np.abs(own - other)

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        if tilt * self.scale > LARGEST_EXPONENT:
            return math.inf, math.inf, math.inf
        nodes = self._nodes(tilt, 0.0, 1e-9 / self.count)
        weight, loss = np.exp(nodes.log_weight.real), nodes.loss.real
        minus_one = float(weight @ np.expm1(tilt * loss))
        tilted = weight * np.exp(tilt * loss)
        mean, square = float(tilted @ loss) / (1.0 + minus_one), float(tilted @ loss**2) / (1.0 + minus_one)
        return math.log1p(minus_one), mean, max(square - mean * mean, 0.0)

    def log_moment_upper(self, tilts: Floats) -> Floats:
        nodes = self._nodes(float(tilts.max()), 0.0, 1e-3 / self.count)
        values = [sum_on_line(nodes, float(tilt), 1.0, 1) for tilt in tilts]
        found = np.array([math.log1p(float(value.minus_one[0].real + value.error[0])) for value in values])
        return found + ELEMENTARY * (1.0 + np.abs(found))

    def log_decay(self, tilt: float, heights: Floats, shifts: int = 2) -> Floats:
        del shifts  # no path is better than the real axis
        moment = float(self.log_moment_upper(np.array([tilt]))[0])
        mass, turn = self._moving(tilt, moment)
        fallen = np.max(mass[:, None] - turn[:, None] / np.maximum(heights, 1e-300), axis=0, initial=0.0)
        return moment + np.log1p(-np.minimum(fallen, 1.0 - 1e-12))

    def _moving(self, tilt: float, moment: float) -> tuple[Floats, Floats]:
        r"""Shares of e^moment, m and c of shape (n,): at every height u the modulus is at most M(tilt) - (m - c / u) e^moment. (D3)

        G = P e^{tilt L} and H = G / L'. Where L' >= some level, the integral of G e^{iuL} is at most 1/u times H at both ends and its
        variation; the rest counts with its modulus.
        """
        parts = [self._cells(begin, end, tilt, moment) for begin, end in zip(self._breaks[:-1], self._breaks[1:], strict=True)]
        cells = [one for one in parts if one is not None]
        if not cells or len(cells) < len(parts) or sum(one.sign.size for one in cells) > _MOST_CELLS:
            return np.zeros(1), np.zeros(1)
        found = [_above(level, cells) for level in max(float(one.rise.max()) for one in cells) * _LEVELS]
        return tuple(np.array(column) for column in zip(*found, strict=True))  # type: ignore[return-value]

    def _cells(self, begin: float, end: float, tilt: float, moment: float) -> _Cells | None:
        """Cells so short that log G and log H change little in each; None if there were too many."""
        edges: Floats = np.linspace(begin, end, math.ceil((end - begin) / _BLOCK) + 1)
        length = float(edges[1] - edges[0])
        inside = 0.5 * (begin + end)
        at = self._rises(edges, inside)
        # L' changes by a factor of e^2 in a unit of x at most.
        steepest = np.maximum(at.rise[:-1], at.rise[1:]) * math.exp(2.0 * length) * 1.01 + at.absolute
        slope = 3.0 + 2.0 * tilt * steepest
        numbers = np.maximum(np.ceil(length * slope / _FINENESS), 2.0)
        if not float(numbers.sum()) < _MOST_CELLS:
            return None
        counts = numbers.astype(int)
        place = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        x = np.append(np.repeat(edges[:-1], counts) + place * np.repeat(length / numbers, counts), end)
        width, slope = np.diff(x), np.repeat(slope, counts)
        loss, log_density, loss_error = self._loss(x)
        at = self._rises(x, inside)
        weight = np.exp(np.minimum(log_density + tilt * loss - moment, LARGEST_EXPONENT))
        # Of log G: its density's, at a place that is itself rounded, and tilt times that of L.
        slack = ELEMENTARY * (8.0 + 2.0 * self._reach) + (1.0 + tilt) * (loss_error + 4.0 * UNIT * np.abs(loss))
        rise = at.rise * (1.0 - at.relative) - at.absolute
        ratio = weight / np.maximum(rise, 1e-300)
        doubt = 1.01 * (slack + 2.0 * at.relative + 2.0 * at.absolute / np.maximum(rise, 1e-300))
        error = np.where((rise > 0.0) & (doubt < 0.1), 1.01 * doubt * ratio, math.inf)
        change = tilt * at.rise + 2.0 * at.p + at.q
        rounded = tilt * (at.rise * at.relative + at.absolute) + 3.0 * (at.relative + at.absolute)
        unsure = 2.0 * slope * width + 1e-9 * slope + np.maximum(rounded[:-1], rounded[1:])
        sign = np.where(np.abs(change[:-1]) > unsure, np.sign(change[:-1]), 0.0)
        grown = np.exp(slope * width)
        turned = np.where(sign == 0.0, 3.0 * slope * width * width * grown * (ratio[:-1] + error[:-1]), 0.0)
        mass = np.minimum(weight[:-1], weight[1:]) * (width / grown) * np.maximum(1.0 - 2.0 * np.maximum(slack[:-1], slack[1:]), 0.0)
        return _Cells(ratio, error, sign, turned, mass, np.minimum(rise[:-1], rise[1:]))

    def _rises(self, x: Floats, inside: Floats | float) -> _Rises:
        """Slopes at x, in the interval between shifts that ``inside`` lies in: its ends belong to two of them."""
        (p, own, own_mass), (q, other, other_mass) = (_slope(side, x, inside) for side in (self._upper, self._lower))
        rounding = ELEMENTARY * (4.0 + 2.0 * self._reach)
        if own is not None and other is not None:
            return _Rises(p, q, own - other, rounding * (1.0 + 1.0 / own_mass + 1.0 / other_mass), 0.0)
        least = min(*self._upper.weights, *self._lower.weights)
        return _Rises(p, q, p - q, np.zeros_like(x), rounding - ELEMENTARY * math.log(least))

    def line(self, tilt: float, step: float, number: int, tolerance: float) -> LineValues:
        on = self._nodes(tilt, step * number, tolerance)
        if on.loss.size * number > MOST_TERMS:
            raise TransformUnavailable(f"it would take {number:.1e} points of {on.loss.size} nodes each")
        return sum_on_line(on, tilt, step, number)

    def _nodes(self, tilt: float, height: float, tolerance: float) -> Nodes:
        check_exponent(tilt * self.scale)
        centres, halves, growth = self._panels(tilt, height, 2.0 * _POINTS * math.log(_RATIO) - math.log(8.0 / tolerance))
        x = (centres[:, None] + halves[:, None] * _POSITIONS).ravel()
        loss, log_density, loss_error = self._loss(np.concatenate([x, self._breaks[[0, -1]]]))
        log_weight = log_density + np.concatenate([np.log(halves[:, None] * _WEIGHTS).ravel(), np.zeros(2)])
        size = float(np.sum(np.exp(log_weight) + np.exp(log_weight + tilt * loss)))
        # 64/15 max |F| d / (1 - 1/16) 4^-64 for each panel; the panel's own share of ``size`` bounds max |F| d.
        quadrature = 5.0 * size * math.exp(growth) * _RATIO ** (-2.0 * _POINTS)
        error = np.full(loss.shape, ELEMENTARY * (8.0 + 2.0 * self._reach) + _WEIGHT_ERROR) + loss_error
        if not float(np.max(error + tilt * loss_error)) < _LARGEST_LOG_ERROR:
            raise TransformUnavailable("the loss is too steep to be rounded well: a weight is next to nothing")
        return Nodes(log_weight.astype(np.complex128), loss.astype(np.complex128), error, loss_error, quadrature)

    def _panels(self, tilt: float, height: float, wanted: float) -> tuple[Floats, Floats, float]:
        r"""(centres, half-lengths, log of how far integrands on the ellipses exceed the panels' least values), about ``wanted`` at most.

        On the ellipse \|Re\| grows by up to 17/8 and \|Im\| by 15/8 of the half-length d. \|log P\|' and \|log Q\|' are at most 1 and
        \|arg\| at most \|Im\|; or L' at most its value at the centre times e^{17/4 d} / cos(15/8 d)^2. (Q4)
        """
        edges = self._breaks
        numbers = np.ceil(np.diff(edges) / (2.0 * _WIDEST)).astype(int)
        for _ in range(_MOST_SPLITS):
            if int(numbers.sum()) * _POINTS > MOST_NODES:
                raise TransformUnavailable(f"it would take more than {MOST_NODES} quadrature nodes: the noise is too small")
            # Panel i of a piece starts i panel lengths after it; where it ends the next one begins, to the bit.
            place = np.arange(int(numbers.sum())) - np.repeat(np.cumsum(numbers) - numbers, numbers)
            edges = np.append(np.repeat(edges[:-1], numbers) + place * np.repeat(np.diff(edges) / numbers, numbers), edges[-1])
            halves, centres = 0.5 * np.diff(edges), 0.5 * (edges[:-1] + edges[1:])
            at = self._rises(centres, centres)
            steep = (at.rise * (1.0 + at.relative) + at.absolute) * np.exp(4.25 * halves) / np.cos(1.875 * halves) ** 2
            by_slopes = (2.0 * tilt + 1.0) * 3.125 * halves + 2.0 * height * 1.875 * halves - tilt * np.log(np.cos(1.875 * halves))
            by_loss = 3.125 * halves + (5.0 * tilt + 1.875 * height) * steep * halves
            growth = np.minimum(by_slopes, by_loss)
            numbers = np.minimum(np.ceil(growth / max(wanted, 1.0)), 1000.0).astype(int)
            if int(numbers.max()) <= 1:
                return centres, halves, float(growth.max())
        raise TransformUnavailable("its panels would have to be too short")


def _above(level: float, cells: list[_Cells]) -> tuple[float, float]:
    """(m, c) of all cells in which L' is at least this level."""
    mass = turn = 0.0
    for one in cells:
        kept = (one.rise >= level) & np.isfinite(one.error[:-1]) & np.isfinite(one.error[1:])
        error = np.where(np.isfinite(one.error), one.error, 0.0)
        sign = np.where(kept, one.sign, 0.0)
        # Where H' keeps its sign the differences add up to that of the ends, whatever rounding does in between.
        corners = np.abs(np.diff(sign, prepend=0.0, append=0.0))
        mass += float(one.mass[kept].sum())
        turn += float(sign @ np.diff(np.where(np.isfinite(one.error), one.ratio, 0.0))) + float(corners @ error)
        edges = np.diff(kept.astype(float), prepend=0.0, append=0.0) != 0.0
        turn += float(one.turned[kept].sum()) + float((one.ratio + error)[edges].sum())
    return mass * (1.0 - 1e-9), turn * (1.0 + 1e-9)


def _log_ratio(mixture: Mixture, x: Floats, reach: float) -> tuple[Floats, Floats]:
    """log of sum_j w_j e^{|x| - |x - a_j|}, and a bound on its error, x being rounded itself. The weight at 0 is 1 minus the others.

    Args:
      reach: of shifts and of x.
    """
    if mixture.shifts == (0.0,):
        return np.zeros_like(x), np.zeros_like(x)
    rounding = ELEMENTARY * (4.0 + 2.0 * reach)
    pairs = [(w, np.abs(x) - np.abs(x - a)) for w, a in zip(mixture.weights, mixture.shifts, strict=True) if a != 0.0]
    if 0.0 not in mixture.shifts:
        exponent = np.array([math.log(w) + z for w, z in pairs])
        peak = exponent.max(axis=0)
        return peak + np.log(np.exp(exponent - peak).sum(axis=0)), np.full_like(x, rounding - ELEMENTARY * math.log(min(mixture.weights)))
    gain, touched = np.zeros_like(x), np.zeros_like(x)
    for w, z in pairs:
        gain, touched = gain + w * np.expm1(z), touched + w * (1.0 + np.exp(z))
    value = np.log1p(gain)
    return value, rounding * touched / (1.0 + gain) + ELEMENTARY * np.abs(value)


def _slope(mixture: Mixture, x: Floats, inside: Floats | float) -> tuple[Floats, Floats | None, Floats]:
    """(its logarithm's slope, how far that is above the slope of the copy at 0, or None without one, its size beside that copy)."""
    total, signed, above = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    own = np.where(inside < 0.0, 1.0, -1.0)
    for w, a in zip(mixture.weights, mixture.shifts, strict=True):
        size, sign = w * np.exp(np.abs(x) - np.abs(x - a)), np.where(inside < a, 1.0, -1.0)
        total, signed, above = total + size, signed + sign * size, above + (sign - own) * size
    return signed / total, above / total if 0.0 in mixture.shifts else None, total
