r"""The ratio X = sum_j w_j e^{d_j Z - d_j^2 / 2} of Gaussian noise, Z standard normal, and E e^{sX}, Re s < 0, with a proved error.

proofs/allocation.md, The series
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import scipy
from numpy.typing import NDArray

from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities import Floats

Complexes = NDArray[np.complex128]

_POINTS = 16
_GAUSS: tuple[Floats, Floats] = np.polynomial.legendre.leggauss(_POINTS)
_ELLIPSE = 4.0
"""Sum of the half-axes of the ellipses in which the integrand is bounded: it bounds the error by its power 1 - 2 _POINTS."""

_HALF_LONG, _HALF_SHORT = 0.5 * (_ELLIPSE + 1.0 / _ELLIPSE), 0.5 * (_ELLIPSE - 1.0 / _ELLIPSE)
_LOG_QUADRATURE = math.log(8.0 / (_ELLIPSE - 1.0)) - (2 * _POINTS - 1) * math.log(_ELLIPSE) - 0.5 * math.log(2.0 * math.pi)
_WIDEST = 1.5
_NEGLIGIBLE = -41.0
"""log of a panel's error over the whole: a few hundred of them are less than rounding."""

_ENDED = 80.0
"""-log of the integrand at which the integral ends above."""

_LEAST, _STRIP_NATS = -10.0, 46.0
CELLS: Floats = np.linspace(-9.0, 9.0, 451)
_SIDES: Floats = np.where(CELLS[:-1] < 0.0, 1.0, -1.0)
# By the standard library: SciPy's functions are loaded when something is first answered.
_BELOW: Floats = np.array([0.5 * math.erfc(abs(end) / math.sqrt(2.0)) for end in CELLS.tolist()])
MASSES: Floats = np.where(_SIDES > 0.0, _BELOW[1:] - _BELOW[:-1], _BELOW[:-1] - _BELOW[1:]) * (1.0 + 1e-9)
_OUTSIDE = 0.5 * math.erfc(9.0 / math.sqrt(2.0)) * (1.0 + 1e-9)
_ANGLES: Floats = np.geomspace(0.01, 1.5, 24)
_MOST_EXPONENT = 600.0
_BLOCK, _VANISHED = 32, 50.0
_SUMMED = 64.0
"""Units: more than the rounding of a sum of 2^17 terms that NumPy adds pairwise, and of each term but for its exponent."""


@final
@dataclass(frozen=True)
class Nodes:
    """A quadrature of E e^{sX} for s = r + iy, y >= 0.

    Attributes:
      tilt: r.
      ratios: X at the nodes: on the real line, or all off it.
      weights: the density times the rule's weight.
      spread: relative rounding of X, in units.
      falls: e^{Re sX} is at most e^{-falls |s X|} off the real line.
      error: of the rule and of what is left out.
    """

    tilt: float
    ratios: Complexes
    weights: Complexes
    spread: Floats
    falls: float
    error: float

    def transform(self, y: Floats) -> tuple[Complexes, float]:
        """(E e^{sX} at each y, bound on the error of every one). (S3)"""
        moved = abs(complex(self.tilt, float(y[-1]))) * np.abs(self.ratios)
        if self.falls == 0.0:
            weights = self.weights.real * np.exp(self.tilt * self.ratios.real)
            angles = np.outer(y, self.ratios.real)
            found = np.cos(angles) @ weights + 1j * (np.sin(angles) @ weights)
        else:
            weights, moved = self.weights, np.minimum(moved, 1.0 / (math.e * self.falls))
            found = np.exp(np.outer(self.tilt + 1j * y, self.ratios)) @ weights
        units = self.spread + moved * (self.spread + 8.0) + (len(weights) + 64.0)
        return found, self.error + 1.01 * UNIT * float(np.abs(weights) @ units)

    def minus_one(self, y: Floats) -> tuple[Complexes, Floats]:
        """(E e^{sX} - 1 at each y, bounds on the errors), off the real line, where |e^{sX} - 1| <= |sX|: rounding is a share of it. (S5)"""
        s: Complexes = np.asarray(self.tilt + 1j * y, dtype=np.complex128)
        found, moduli = np.empty_like(s), np.abs(self.ratios)
        order = np.argsort(moduli)
        for begin in range(0, len(s), _BLOCK):
            # Where e^{sX} is below e^{-50} it counts as 0.
            count = int(np.searchsorted(moduli[order], _VANISHED / (self.falls * abs(complex(s[begin])))))
            near, rest = np.sort(order[:count]), np.sort(order[count:])
            part = slice(begin, begin + _BLOCK)
            found[part] = (_exponential_minus_one(np.outer(s[part], self.ratios[near])) * self.weights[near]).sum(axis=1)
            found[part] -= self.weights[rest].sum()
        size = float((np.abs(self.weights) * moduli) @ (self.spread + _SUMMED))
        vanished = math.exp(-_VANISHED) * float(np.abs(self.weights).sum())
        return found, 2.0 * self.error + vanished + 1.01 * UNIT * size * np.abs(s)


@final
@dataclass(frozen=True)
class Ratio:
    """X, rising in Z.

    Attributes:
      weights, moves: w_j and d_j > 0, ascending.
    """

    weights: tuple[float, ...]
    moves: tuple[float, ...]

    def at(self, z: Floats) -> Floats:
        total = np.zeros_like(z)
        for weight, move in zip(self.weights, self.moves, strict=True):
            total += weight * np.exp(np.minimum(move * z - 0.5 * move * move, _MOST_EXPONENT))
        return total

    @cached_property
    def arrays(self) -> tuple[Floats, Floats]:
        return np.asarray(self.weights), np.asarray(self.moves)

    @cached_property
    def mean(self) -> float:
        return math.fsum(self.weights)

    @cached_property
    def variance(self) -> float:
        """An upper bound."""
        w, d = self.arrays
        return float(w @ np.expm1(np.minimum(np.outer(d, d), _MOST_EXPONENT)) @ w) * (1.0 + 1e-9)

    def inverse(self, value: float) -> float:
        """z at which X is about this."""
        if len(self.moves) == 1:
            return math.log(value / self.weights[0]) / self.moves[0] + 0.5 * self.moves[0]
        low, high = -40.0, 40.0
        for _ in range(50):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self._scalar(middle) < value else (low, middle)
        return high

    def _scalar(self, z: float) -> float:
        parts = zip(self.weights, self.moves, strict=True)
        return math.fsum(w * math.exp(min(d * z - 0.5 * d * d, _MOST_EXPONENT)) for w, d in parts)

    def beyond(self, share: float) -> float:
        """x at which E[(X - x)_+] is about this, a share of 1."""
        w, d = self.arrays
        values = scipy.special.ndtr(d - CELLS[:, None]) @ w - self._edges[0] * scipy.special.ndtr(-CELLS)
        return float(self._edges[0][int(np.argmax(values < share))])

    @cached_property
    def _edges(self) -> tuple[Floats, Floats]:
        """(X at the cells' edges, each part w_j e^{...} of it at their lower ends)."""
        w, d = self.arrays
        parts = w * np.exp(np.minimum(np.outer(CELLS[:-1], d) - 0.5 * d * d, _MOST_EXPONENT))
        return self.at(CELLS), parts

    def log_moments(self, tilts: Floats) -> Floats:
        """Upper bounds on log E e^{rX} at tilts r <= 0: masses of cells at their lower ends. (S4)"""
        x, _ = self._edges
        inside = np.exp(np.maximum(np.outer(tilts, x[:-1]), -700.0)) @ MASSES
        return np.log(inside + _OUTSIDE + _OUTSIDE * np.exp(np.maximum(tilts * x[-1], -700.0))) + 1e-9

    def tilted_variance(self, tilt: float) -> float:
        """Of X under the law e^{rX}, approximately, of all but its far end."""
        x, _ = self._edges
        middle = 0.5 * (x[1:] + x[:-1])
        shares = np.where(CELLS[1:] < 3.0, MASSES * np.exp(np.maximum(tilt * middle, -700.0)), 0.0)
        total = float(shares.sum())
        mean = float(shares @ middle) / total
        return float(shares @ (middle - mean) ** 2) / total

    def log_modulus(self, tilt: float, y: float) -> float:
        """log of a bound on |E e^{sX}| for all s = r + iv, v >= y: the integral's line is moved up by an angle. (S4)"""
        _, d = self.arrays
        angles = _ANGLES[:, None] / d[-1]
        rates = y * np.sin(d * angles) - tilt * np.cos(d * angles)
        _, parts = self._edges
        inside = np.exp(np.maximum(-(np.maximum(rates, 0.0) @ parts.T), -700.0)) @ MASSES + 2.0 * _OUTSIDE
        logs = np.where(np.all(rates >= 0.0, axis=1), 0.5 * angles[:, 0] ** 2 + np.log(inside), math.inf)
        return float(np.min(logs)) + 1e-9

    def log_far_modulus(self, tilt: float, y: float) -> float:
        """The same, as a multiple of 1 / y: E e^{-cX} <= E[1 / X] / c. (S4)"""
        w, d = self.arrays
        angle = 1.5 / float(d[-1])
        rate = float(np.min(y * np.sin(d * angle) - max(tilt, 0.0) * np.cos(d * angle)))
        if not rate > 0.0:
            return math.inf
        inverse = float(w @ np.exp(np.minimum(d * d, _MOST_EXPONENT))) / self.mean**2
        return 0.5 * angle * angle + math.log(inverse / rate) + 1e-9

    def nodes(self, tilt: float, largest: float, most: int) -> Nodes | None:
        """Nodes on panels of the real line, each with its error for all y <= ``largest``; None if there were more than ``most``. (S2)"""
        log_whole = float(self.log_moments(np.array([tilt]))[0])
        top = self._top(tilt)
        error = float(
            scipy.special.ndtr(_LEAST) + math.exp(max(tilt * float(self.at(np.array([top]))[0]), -700.0)) * scipy.special.ndtr(-top)
        )
        edges, a, width = [_LEAST], _LEAST, _WIDEST
        while a < top:
            width = min(2.0 * width, _WIDEST, max(top - a, 1e-3))
            while (log_error := self._panel_error(tilt, largest, a, width)) > log_whole + _NEGLIGIBLE:
                width *= 0.75
            error += math.exp(max(log_error, -700.0))
            a += width
            edges.append(a)
            if len(edges) * _POINTS > most:
                return None
        z, rule = _panels(np.asarray(edges))
        density = rule * np.exp(-0.5 * z * z - 0.5 * math.log(2.0 * math.pi))
        spread = 16.0 + 8.0 * z * z + 4.0 * self.moves[-1] * (np.abs(z) + self.moves[-1]) + len(self.moves)
        return Nodes(tilt, self.at(z).astype(np.complex128), density.astype(np.complex128), spread, 0.0, error * (1.0 + 1e-9))

    def turned_nodes(self, tilt: float) -> Nodes:
        """The same for all y >= 0, on the line through i angle: |e^{sX}| <= 1 from the real line to twice as far up. (S2)"""
        w, d = self.arrays
        angle = min(0.25 * math.pi / self.moves[-1], 1.0)
        step = 2.0 * math.pi * angle / _STRIP_NATS
        count = math.ceil(-_LEAST / step)
        z, end = step * np.arange(-count, count + 1.0), step * count
        error = 2.0 * math.exp(2.0 * angle * angle) / math.expm1(_STRIP_NATS)
        left = float(scipy.special.ndtr(-end)) + step * math.exp(-0.5 * end * end)
        error += 2.0 * left * math.exp(0.5 * angle * angle)
        line = z + 1j * angle
        x: Complexes = np.asarray(np.exp(np.outer(line, d) - 0.5 * d * d) @ w, dtype=np.complex128)
        density: Complexes = np.asarray(step * np.exp(-0.5 * line * line - 0.5 * math.log(2.0 * math.pi)), dtype=np.complex128)
        spread = 16.0 + 8.0 * (np.abs(z) + angle) ** 2 + 4.0 * self.moves[-1] * (np.abs(z) + angle + self.moves[-1]) + len(self.moves)
        return Nodes(tilt, x, density, spread, math.sin(0.99 * angle * self.moves[0]), error * (1.0 + 1e-9))

    def _top(self, tilt: float) -> float:
        """Where the integral ends."""
        low, high = 0.0, 13.0
        for _ in range(30):
            middle = 0.5 * (low + high)
            x = float(self.at(np.array([middle]))[0])
            low, high = (middle, high) if -tilt * x + 0.5 * middle * middle < _ENDED else (low, middle)
        return high

    def _panel_error(self, tilt: float, largest: float, a: float, width: float) -> float:
        """log of a bound on the rule's error on [a, a + width], for all y <= ``largest``. (S2)"""
        left, right = a + 0.5 * width * (1.0 - _HALF_LONG), a + 0.5 * width * (1.0 + _HALF_LONG)
        up = 0.5 * width * _HALF_SHORT
        nearest = max(left, -right, 0.0)
        least, most = self._scalar(left), self._scalar(right)
        turn = self.moves[-1] * up
        real = tilt * least * math.cos(turn) if turn < 0.5 * math.pi else -tilt * most
        size = real + largest * most * min(turn, 1.0) - 0.5 * nearest * nearest + 0.5 * up * up
        return _LOG_QUADRATURE + math.log(0.5 * width) + size


def _exponential_minus_one(z: Complexes) -> Complexes:
    """e^z - 1 with the digits of a small z, in a third of the time that NumPy's takes."""
    grown, found = np.expm1(z.real), np.empty_like(z)
    sine = np.sin(0.5 * z.imag)
    turned = 2.0 * np.square(sine)
    found.real = grown - (grown + 1.0) * turned
    found.imag = (2.0 * (grown + 1.0)) * sine * np.cos(0.5 * z.imag)
    return found


def _panels(edges: Floats) -> tuple[Floats, Floats]:
    """(nodes, weights) of the rule on panels between ascending edges."""
    widths = np.diff(edges)
    z = edges[:-1, None] + 0.5 * widths[:, None] * (1.0 + _GAUSS[0])
    return z.ravel(), (0.5 * widths[:, None] * _GAUSS[1]).ravel()
