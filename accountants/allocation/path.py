r"""phi(s) = E e^{sX} of Gaussian noise from above its cut [0, inf): an integral over Z along the real line, up at 45 degrees, and on.

proofs/allocation.md, (S6)
"""

from __future__ import annotations

import math
from typing import NamedTuple, final

import numpy as np
import scipy

from zetadp.accountants.allocation.ratio import CELLS, MASSES, Complexes, Ratio
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities import Floats

_ELLIPSE = 4.0
HALF_LONG, HALF_SHORT = 0.5 * (_ELLIPSE + 1.0 / _ELLIPSE), 0.5 * (_ELLIPSE - 1.0 / _ELLIPSE)
"""Half-axes of the ellipses in which integrands are bounded, over half a panel."""

RULES: dict[int, tuple[Floats, Floats]] = {count: np.polynomial.legendre.leggauss(count) for count in (16, 32)}
"""Nodes and weights on [-1, 1] by their number."""


def log_rule(count: int) -> float:
    """log of the error of the rule with so many nodes, over half a panel and the integrand's bound."""
    return math.log(8.0 / (_ELLIPSE - 1.0)) - (2 * count - 1) * math.log(_ELLIPSE)


_INNER = 16
_LOG_INNER = log_rule(_INNER) - 0.5 * math.log(2.0 * math.pi)

TURN = 0.75 * math.pi
"""How far e^{sX} is turned where the path goes on along the real axis."""

_BEGIN, _SMALL_ERROR = -9.0, 1e-13
_LARGEST_LOG = 600.0
"""Of what a bound may be: a larger one is infinite, since one that is cut off isn't a bound, to whatever power."""

_ON, _LEFT_NATS = 6.0, 48.0
_SPLITS: Floats = np.linspace(1.0, 12.0, 45)
_STEEPEST, _STEEPEST_FAR_OUT, _FAR_OUT = 0.5, 0.2, 7.0
"""How fast e^{rho X} may rise where the path begins, over how fast the density falls: where that is small anyway, rounding counts."""


def _grown(ratio: Ratio, z: Floats, low: Floats, high: Floats) -> Floats:
    """Bounds on Re(s X) / |s|, at least 0, for Re Z <= z and with s e^{i d_j Im Z} at angles from ``low`` to ``high``, by columns."""
    w, d = ratio.arrays
    most = np.where((low <= 0.0) & (high >= 0.0), 1.0, np.maximum(np.cos(low), np.cos(high)))
    return (w * np.exp(np.minimum(np.outer(z, d) - 0.5 * d * d, 600.0)) * np.maximum(most, 0.0)).sum(axis=1)


def _real(ratio: Ratio, z: Floats, low: Floats, high: Floats, s: complex) -> Floats:
    """Bounds on Re(s' X) for Re s' up to Re s, Im s' from 0 to Im s, Re Z <= z and d_j Im Z from ``low`` to ``high``, by columns."""
    w, d = ratio.arrays
    parts = w * np.exp(np.minimum(np.outer(z, d) - 0.5 * d * d, 600.0))
    return s.real * _grown(ratio, z, low, high) + s.imag * (parts * np.maximum(-np.minimum(np.sin(low), np.sin(high)), 0.0)).sum(axis=1)


@final
class Path:
    """From ``split`` up at 45 degrees, where the density falls, and on along the real axis; for s with Re s >= ``least`` > 0.

    Args:
      split: where it leaves the real axis.
      least: of Re s, where phi is integrated: the path ends where nothing is left for it.
      finer: how many times as many panels there are as usual.
    """

    def __init__(self, ratio: Ratio, split: float, least: float, finer: int = 1) -> None:
        _, d = ratio.arrays
        self.ratio, self.split, self.least, self._turn = ratio, split, least, TURN / float(d[-1])
        width = min(0.4, 0.4 / float(d[-1])) / finer
        self._up = np.linspace(0.0, self._turn, math.ceil(self._turn / width) + 1)
        start = split + self._turn
        ends = start + width * np.arange(1.0, math.ceil(_ON / width) + 1.0)
        left = 0.5 * self._turn**2 + scipy.special.log_ndtr(-ends)
        # Re(s X) at most there, and beyond, as the X with the largest d_j grows fastest.
        falls = self._parts(ends) @ np.cos(self._turn * d)
        gone = np.flatnonzero((left + least * falls < -0.5 * split * split - _LEFT_NATS) & (falls < 0.0))
        last = int(gone[0]) if len(gone) else len(ends) - 1
        self._left, self._left_modulus = float(left[last] + least * falls[last]), float(left[last])
        self._on, self._falls = np.append(start, ends[: last + 1]), float(falls[last])

    def _parts(self, z: Floats) -> Floats:
        w, d = self.ratio.arrays
        return w * np.exp(np.minimum(np.outer(z, d) - 0.5 * d * d, 600.0))

    def nodes(self) -> tuple[Complexes, Complexes]:
        """(z, weights with the density)"""
        tau, rule = _nodes(self._up)
        line, rest = _nodes(self._on)
        z: Complexes = np.asarray(np.append(self.split + (1.0 + 1.0j) * tau, line + 1j * self._turn), dtype=np.complex128)
        weights = np.append((1.0 + 1.0j) * rule, rest) * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
        return z, np.asarray(weights, dtype=np.complex128)

    def error(self, largest: complex) -> float:
        """Of the rule, for least <= Re s <= Re largest and 0 <= Im s <= Im largest, and of what is left out."""
        _, d = self.ratio.arrays
        split, turn, edges = self.split, self._turn, self._up
        # z = split + (1 + i) tau: |density| is e^{-(split^2 / 2 + split (a - b)) + 2ab} at tau = a + ib.
        width, up, out = _ellipses(edges)
        first, last = edges[:-1] - out, edges[1:] + out
        size = _real(self.ratio, split + last + up, np.outer(first - up, d), np.outer(last + up, d), largest)
        density = -0.5 * split * split - split * (first - up) + 2.0 * last * up
        found = math.sqrt(2.0) * _exponentials(_LOG_INNER + math.log(0.5 * width) + size + density)
        edges = self._on
        width, up, out = _ellipses(edges)
        rows = np.ones((len(edges) - 1, 1))
        size = _real(self.ratio, edges[1:] + out, rows * ((turn - up) * d), rows * ((turn + up) * d), largest)
        density = 0.5 * (turn + up) ** 2 - 0.5 * (edges[:-1] - out) ** 2
        found += _exponentials(_LOG_INNER + math.log(0.5 * width) + size + density)
        return found + 1.01 * math.exp(min(self._left, 700.0))

    def modulus(self, most: float, angle: float) -> float:
        """Bound on the integral of the modulus, for |s| <= most and |arg s| <= angle, or s = most + iy, y >= 0; or infinite."""
        _, d = self.ratio.arrays
        split, turn, edges = self.split, self._turn, self._up
        low, high = turn * d - angle, turn * d + angle
        angles = np.where((low <= 0.0) & (high >= 0.0), 1.0, np.maximum(np.cos(low), np.cos(high)))
        if float((self._parts(self._on[-1:]) @ angles)[0]) > 0.0:
            return math.inf
        size = most * _grown(self.ratio, split + edges[1:], np.outer(edges[:-1], d) - angle, np.outer(edges[1:], d) + angle)
        width = float(edges[1])
        found = math.sqrt(2.0) * width * _exponentials(size - 0.5 * split * split - split * edges[:-1])
        edges = self._on
        rows = np.ones((len(edges) - 1, 1))
        size = most * _grown(self.ratio, edges[1:], rows * low, rows * high)
        found += float(edges[1] - edges[0]) * _exponentials(size + 0.5 * turn * turn - 0.5 * edges[:-1] ** 2)
        return found / math.sqrt(2.0 * math.pi) * (1.0 + 1e-9) + 1.01 * math.exp(min(self._left_modulus, 700.0))

    def bound(self, most: float, angle: float = 0.0, real: float | None = None) -> float:
        """Of |phi_+|, as ``modulus``: with the part before ``split``, for Re s <= ``real`` there."""
        return moment(self.ratio, self.split, most if real is None else real) + self.modulus(most, angle)


def _exponentials(logs: Floats) -> float:
    """Their sum, or infinite."""
    return float(np.exp(logs).sum()) if float(np.max(logs)) < _LARGEST_LOG else math.inf


def _ellipses(edges: Floats) -> tuple[float, float, float]:
    """(width of equal panels, how far their ellipses reach up, and out at the ends)."""
    width = float(edges[1] - edges[0])
    return width, 0.5 * width * HALF_SHORT, 0.5 * width * (HALF_LONG - 1.0)


def _nodes(edges: Floats) -> tuple[Floats, Floats]:
    widths = np.diff(edges)
    z = edges[:-1, None] + 0.5 * widths[:, None] * (1.0 + RULES[_INNER][0])
    return z.ravel(), (0.5 * widths[:, None] * RULES[_INNER][1]).ravel()


def before(ratio: Ratio, split: float, largest: complex) -> tuple[Floats, Floats, float]:
    """(X, weights, error of the rule for Re s and Im s from 0 to those of ``largest``) of the integral up to ``split``."""
    _, d = ratio.arrays
    panels = math.ceil((split - _BEGIN) / min(1.0, 0.8 / float(d[-1])))
    for finer in (1, 2, 4):
        edges = np.linspace(_BEGIN, split, finer * panels + 1)
        width, up, out = _ellipses(edges)
        nearest = np.maximum(np.maximum(edges[:-1] - out, -edges[1:] - out), 0.0)
        rate = largest.real + largest.imag * min(float(d[-1]) * up, 1.0)
        size = rate * ratio.at(edges[1:] + out) - 0.5 * nearest**2 + 0.5 * up**2
        error = _exponentials(_LOG_INNER + math.log(0.5 * width) + size)
        if error < _SMALL_ERROR:
            break
    z, rule = _nodes(edges)
    return ratio.at(z), rule * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi), error + 2.0 * float(scipy.special.ndtr(_BEGIN))


def moment(ratio: Ratio, split: float, most: float) -> float:
    """Bound on E[e^{rX}; Z < split] for r <= ``most``."""
    top = float(ratio.at(np.array([split]))[0])
    if most * top > _LARGEST_LOG:
        return math.inf
    below, inside = np.minimum(ratio.at(CELLS[1:]), top), CELLS[:-1] < split
    return float(np.exp(most * below[inside]) @ MASSES[inside]) + 1e-18 * math.exp(most * top)


def split_at(ratio: Ratio, rho: float) -> float:
    """Where the path leaves the real line: beyond there e^{rho X - Z^2 / 2} soon rises."""
    steepness = rho * ratio.moves[-1] * ratio.at(_SPLITS) / _SPLITS
    steepest = np.where(_SPLITS > _FAR_OUT, min(_STEEPEST, _STEEPEST_FAR_OUT / ratio.moves[-1]), _STEEPEST)
    falling = np.flatnonzero(steepness <= np.maximum(steepest, 1.15 * float(steepness.min())))
    return max(ratio.inverse(1.6 / rho), float(_SPLITS[falling[-1]]))


@final
class Transform(NamedTuple):
    """phi at some s.

    Attributes:
      real, imaginary: its parts.
      real_error, off: the first is off by at most the sum of both, the second by the latter, or for complex s by both.
    """

    real: Floats
    imaginary: Floats
    real_error: float
    off: Floats


def transform(path: Path, s: Floats | Complexes) -> Transform:
    """Of s in ascending order of real and imaginary parts, the first one's real part at least that of the path. (S6)"""
    _, d = path.ratio.arrays
    last = complex(s[-1])
    x, weights, error = before(path.ratio, path.split, last)
    for finer in (2, 4):
        if path.error(last) < _SMALL_ERROR:
            break
        path = Path(path.ratio, path.split, path.least, finer)
    z, turned = path.nodes()
    beyond = np.exp(np.outer(z, d) - 0.5 * d * d) @ path.ratio.arrays[0]
    terms = np.exp(np.outer(s, beyond)) * turned
    spread = 128.0 + 16.0 * np.abs(z) ** 2 + 16.0 * float(d[-1]) * (np.abs(z) + float(d[-1])) * (1.0 + abs(last) * np.abs(beyond))
    part, off = terms.sum(axis=1), path.error(last) + UNIT * (np.abs(terms) @ spread)
    whole = np.exp(np.outer(s, x)) @ weights
    # Z is off by units of its size, which moves the density by its square and X by the moves' share of it; and s X by units of |s X|.
    most = float(np.exp(last.real * x) @ weights)
    error += (1000.0 + 16.0 * abs(last.imag) * float(x[-1])) * UNIT * most * (1.0 + float(d[-1]) ** 2)
    return Transform(whole.real + part.real, whole.imag + part.imag, error, off)
