r"""Moment functions of Laplace releases, whole and sampled. Their loss has atoms: a few hardly decay, and need other releases that do."""

from __future__ import annotations

import itertools
import math
from typing import final

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants.densities.bounded_transforms import LARGEST_EXPONENT, ClosedForm, check_exponent
from zetadp.accountants.densities.heights import sum_on_line
from zetadp.accountants.densities.mixtures import Mixture
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

_MOST_CELLS = 200_000

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
class MixedLaplace(Transform):
    r"""A pair of Laplace mixtures (a sampled release).

    Between neighbouring shifts P and Q are a e^x + b e^-x with a, b >= 0, so L is analytic there; outside all shifts L is constant: two
    atoms. Panels of Gauss and Legendre points in between; proofs/contour.md (Q4).
    """

    def __init__(self, upper: Mixture, lower: Mixture, count: int) -> None:
        self._upper, self._lower, self.count = upper, lower, count
        self._breaks = np.array(sorted({*upper.shifts, *lower.shifts}))
        ends = self._breaks[[0, -1]]
        log_upper, log_lower = _log_density(upper, ends), _log_density(lower, ends)
        self._end_loss, self._end_log_mass = log_upper - log_lower, log_upper
        # Rounded up, so no loss is beyond it.
        self.largest_loss = float(self._end_loss[1]) + 4.0 * ELEMENTARY * (2.0 + float(np.max(np.abs(self._breaks))))
        self.scale = max(self.largest_loss, -float(self._end_loss[0]))

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
        return np.array([math.log1p(float(value.minus_one[0].real + value.error[0])) for value in values]) + ELEMENTARY

    def log_decay(self, tilt: float, heights: Floats, shifts: int = 2) -> Floats:
        del shifts  # no path is better than the real axis
        moment = float(self.log_moment_upper(np.array([tilt]))[0])
        mass, turn = self._moving(tilt, moment)
        fallen = np.max(mass[:, None] - turn[:, None] / np.maximum(heights, 1e-300), axis=0, initial=0.0)
        return moment + np.log1p(-np.minimum(fallen, 1.0 - 1e-12))

    def _moving(self, tilt: float, moment: float) -> tuple[Floats, Floats]:
        r"""Shares of e^moment, m and c of shape (n,): at every height u the modulus is at most M(tilt) - (m - c / u) e^moment. (D3)

        G = P e^{tilt L} and H = G / L', whose logarithms change by at most ``slope`` in a unit of x. Where L' >= some level, the integral
        of G e^{iuL} is at most 1/u times H at both ends and its variation; the rest counts with its modulus.
        """
        slope = 2.0 * tilt + 3.0
        space = min(0.02, 0.02 / slope)
        if not float(self._breaks[-1] - self._breaks[0]) < _MOST_CELLS * space:
            return np.zeros(1), np.zeros(1)
        masses, turns, rises = list[Floats](), list[Floats](), list[Floats]()
        breaks: list[float] = self._breaks.tolist()
        for begin, end in itertools.pairwise(breaks):
            x: Floats = np.linspace(begin, end, max(math.ceil((end - begin) / space), 2) + 1)
            width = float(x[1] - x[0])
            (log_upper, p), (log_lower, q) = (_log_density_and_slope(side, x) for side in (self._upper, self._lower))
            weight = np.exp(np.minimum(log_upper + tilt * (log_upper - log_lower) - moment, LARGEST_EXPONENT))
            rise = (p - q) * (1.0 - 1e-9) - ELEMENTARY * (4.0 + 2.0 * float(np.max(np.abs(x))))
            ratio = weight / np.maximum(rise, 1e-300)
            turning = np.abs((tilt + 2.0) * p - (tilt - 1.0) * q) <= 2.0 * slope * width
            grown = math.exp(slope * width)
            change = np.abs(np.diff(ratio)) + np.where(turning[:-1] | turning[1:], 3.0 * slope * width**2 * grown * ratio[:-1], 0.0)
            masses.append(np.minimum(weight[:-1], weight[1:]) * (width / grown))
            turns.append(np.stack([change, ratio[:-1], ratio[1:]]))
            rises.append(np.minimum(rise[:-1], rise[1:]))
        found = [self._above(level, masses, turns, rises) for level in max(float(rise.max()) for rise in rises) * _LEVELS]
        return tuple(np.array(column) for column in zip(*found, strict=True))  # type: ignore[return-value]

    @staticmethod
    def _above(level: float, masses: list[Floats], turns: list[Floats], rises: list[Floats]) -> tuple[float, float]:
        """(m, c) of all cells in which L' is at least this level."""
        mass = turn = 0.0
        for weight, (change, before, after), rise in zip(masses, turns, rises, strict=True):
            kept = rise >= level
            edges = np.diff(kept.astype(int), prepend=0, append=0)
            mass += float(weight[kept].sum())
            turn += float(change[kept].sum() + before[np.flatnonzero(edges > 0)].sum() + after[np.flatnonzero(edges < 0) - 1].sum())
        return mass * (1.0 - 1e-9), turn * (1.0 + 1e-9)

    def line(self, tilt: float, step: float, number: int, tolerance: float) -> LineValues:
        return sum_on_line(self._nodes(tilt, step * number, tolerance), tilt, step, number)

    def _nodes(self, tilt: float, height: float, tolerance: float) -> Nodes:
        check_exponent(tilt * self.scale)
        # On the ellipse |Re| grows by up to 17/8 and |Im| by 15/8 of the half-length d; |log P|' and |log Q|' are at most 1, and
        # |arg| at most |Im|: beside the panel's least value the integrand is at most e^{(2t + 1) 25/8 d + 2 u 15/8 d} / cos(15/8 d)^t.
        wanted = 2.0 * _POINTS * math.log(_RATIO) - math.log(8.0 / tolerance)
        half = min(0.4, wanted / (2.0 * ((2.0 * tilt + 1.0) * 3.125 + 2.0 * height * 1.875 + 2.0 * tilt)))
        lengths = np.diff(self._breaks)
        panels = np.ceil(lengths / (2.0 * half)).astype(int)
        if int(panels.sum()) * _POINTS > MOST_NODES:
            raise TransformUnavailable(f"it would take more than {MOST_NODES} quadrature nodes: the noise is too small")
        # Panel i of an interval starts i panel lengths after it.
        number = np.arange(int(panels.sum())) - np.repeat(np.cumsum(panels) - panels, panels)
        halves = np.repeat(0.5 * lengths / panels, panels)[:, None]
        edges = np.repeat(self._breaks[:-1], panels) + 2.0 * number * halves[:, 0]
        x = (edges[:, None] + halves * (1.0 + _POSITIONS)).ravel()
        log_upper, log_lower = _log_density(self._upper, x), _log_density(self._lower, x)
        log_weight = np.concatenate([np.log(halves * _WEIGHTS).ravel() + log_upper, self._end_log_mass])
        loss = np.concatenate([log_upper - log_lower, self._end_loss])
        size = float(np.sum(np.exp(log_weight) + np.exp(log_weight + tilt * loss)))
        growth = half * ((2.0 * tilt + 1.0) * 3.125 + 2.0 * height * 1.875) - tilt * math.log(math.cos(1.875 * half))
        # 64/15 max |F| d / (1 - 1/16) 4^-64 for each panel; the panel's own share of ``size`` bounds max |F| d.
        quadrature = 5.0 * size * math.exp(growth) * _RATIO ** (-2.0 * _POINTS)
        reach = float(np.max(np.abs(self._breaks)))
        error = np.full(loss.shape, ELEMENTARY * (2.0 + reach) * len(self._upper.shifts))
        return Nodes(log_weight.astype(np.complex128), loss.astype(np.complex128), error + _WEIGHT_ERROR, 2.0 * error, quadrature)


def _log_density_and_slope(mixture: Mixture, x: Floats) -> tuple[Floats, Floats]:
    """The same with its derivative, for x between two neighbouring shifts, ends included."""
    middle = 0.5 * (x[0] + x[-1])
    exponent = np.array([math.log(w) - np.abs(x - a) for w, a in zip(mixture.weights, mixture.shifts, strict=True)])
    peak = exponent.max(axis=0)
    shares = np.exp(exponent - peak)
    signs = np.array([1.0 if a > middle else -1.0 for a in mixture.shifts])
    total = shares.sum(axis=0)
    return peak + np.log(total) - math.log(2.0), (signs @ shares) / total


def _log_density(mixture: Mixture, x: Floats) -> Floats:
    """log of sum_j w_j e^{-|x - a_j|} / 2; its absolute error is a few UNIT times 1 + |x|."""
    exponent = np.array([math.log(w) - np.abs(x - a) for w, a in zip(mixture.weights, mixture.shifts, strict=True)])
    peak = exponent.max(axis=0)
    return peak + np.log(np.exp(exponent - peak).sum(axis=0)) - math.log(2.0)
