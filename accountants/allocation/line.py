r"""The part of E[(S - k)_+] along a vertical line from the cut on, where large ratios together decide as much as a single one.

    (1/pi) Re int_0^inf e^{-sk} phi(s)^t s^-2 dy,  s = rho + iy,

next to the point where the integrand is least along the cut. proofs/allocation.md, (S6)
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias, final

import numpy as np

from zetadp.accountants.allocation.path import HALF_LONG, HALF_SHORT, RULES, Path, log_rule, split_at, transform
from zetadp.accountants.allocation.ratio import Complexes, Ratio
from zetadp.accountants.allocation.series import reach
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities import Floats

Ends: TypeAlias = tuple[tuple[float, float], ...]
"""(a, b) of bounds e^{a - b k}, of which the largest holds."""

_NODES = 32
_MOST_PANELS = 20
_PANEL_NATS, _BEYOND_NATS = 32.0, 32.0
_FIRST, _WIDEST, _NARROWEST = 0.6, 0.95, 0.05
"""Lengths of panels, over rho."""


def largest_of(ends: Ends, k: Floats) -> Floats:
    """The largest of the bounds at each k."""
    return np.exp(np.clip(np.max([a - b * k for a, b in ends], axis=0), -700.0, 700.0))


@final
class Lattice:
    """Sums of weighted e^{-sk} on a lattice of k, as products of two of fewer.

    Args:
      base: values are known over e^{Re(s) base}.
      first, step: of k.
      rows: their number is its square.
    """

    def __init__(self, base: float, first: float, step: float, rows: int) -> None:
        self._base, self._first, self._step, self._rows = base, first, step, rows
        self.there: Floats = np.asarray(first + step * np.arange(rows * rows), dtype=np.float64)

    def sums(self, s: Floats | Complexes, *values: Floats | Complexes) -> list[Floats]:
        """Real parts, of each of the values."""
        counted = np.arange(self._rows)
        left, right = np.exp(-np.outer(self._step * self._rows * counted, s)), np.exp(-np.outer(s, self._step * counted))
        start = np.exp(s.real * self._base - s * self._first)
        return [((left * (one * start)) @ right).ravel().real for one in values]


@final
class Line(NamedTuple):
    """Nodes along the line.

    Attributes:
      s, weights: with 1 / pi.
      base: where the line was laid.
      powers, doubts: phi^t, and by how much it may be off, over e^{rho base}.
      ends: bounds on the rule's errors over 1 / s^2.
      log_rest: log of a bound on the integral of |phi|^t / |s| beyond the nodes.
    """

    s: Complexes
    weights: Floats
    base: float
    powers: Complexes
    doubts: Floats
    ends: tuple[Ends, ...]
    log_rest: float

    def added_at(self, k: float, value: float, slope: float) -> tuple[float, float]:
        """The value and the slope of all, about, from those of the rest."""
        parts = self.weights * self.powers * np.exp(self.s.real * self.base - self.s * k)
        return value + float((parts / self.s**2).real.sum()), slope + float((parts / self.s).real.sum())

    def sums(self, k: Lattice) -> tuple[Floats, Floats, Floats, Floats]:
        """(its part of the values, of the slopes, and by how much both may be off)"""
        values, slopes = k.sums(self.s, self.weights * self.powers / self.s**2, self.weights * self.powers / self.s)
        sizes = np.abs(self.s)
        doubts = self.weights * (self.doubts + np.abs(self.powers) * UNIT * (4096.0 + 64.0 * sizes * k.there[-1]))
        # All nodes have the same real part.
        error, slope_error = k.sums(self.s.real[:1], (doubts / sizes**2).sum(keepdims=True), (doubts / sizes).sum(keepdims=True))
        for ends in self.ends:
            off = largest_of(ends, k.there)
            error, slope_error = error + off, slope_error + off * float(sizes[-1])
        return values, slopes, error, slope_error


def line_at(ratio: Ratio, steps: int, rho: float, k: float, log_value: float) -> Line | None:
    """For k from here on, where E[(S - k)_+] is about e^{log_value}; None where it would be too long. (S6)"""
    path = Path(ratio, split_at(ratio, rho), rho)
    found = reach(ratio, steps, rho, 0.5 * rho, log_value + rho * k + 36.0 - _BEYOND_NATS)
    if found is None or found[0] > _MOST_PANELS * rho:
        return None
    edges, ends, width = [0.0], list[Ends](), _FIRST * rho
    while edges[-1] < found[0]:
        bounds = _ends(path, steps, rho, edges[-1], width)
        if len(edges) > _MOST_PANELS:
            return None
        if bounds is None or max(a - b * k for a, b in bounds) > log_value - _PANEL_NATS:
            width *= 0.75
            if width < _NARROWEST * rho:
                return None
            continue
        edges.append(edges[-1] + width)
        ends.append(bounds)
        width = min(1.4 * width, _WIDEST * rho)
    widths = np.diff(edges)
    y = (np.asarray(edges[:-1])[:, None] + 0.5 * widths[:, None] * (1.0 + RULES[_NODES][0])).ravel()
    s: Complexes = np.asarray(rho + 1j * y, dtype=np.complex128)
    there = transform(path, s)
    size, turn = np.hypot(there.real, there.imaginary), np.arctan2(there.imaginary, there.real)
    # Where phi is smaller than what it is off by, so is its power.
    off = there.real_error + there.off
    share = off / np.maximum(size, 1e-300)
    log_powers = steps * np.log(np.maximum(size, 1e-300)) - rho * k
    rounding = 16.0 * UNIT * steps * (2.0 + np.abs(turn) + np.abs(np.log(np.maximum(size, 1e-300)))) + 64.0 * UNIT
    grown = steps * np.log1p(share)
    if not float(grown.max()) < 600.0:
        return None
    doubts = np.exp(log_powers) * (1.01 * np.expm1(grown) + rounding)
    weights = (0.5 * widths[:, None] * RULES[_NODES][1]).ravel() / math.pi
    return Line(s, weights, k, np.exp(log_powers + 1j * steps * turn), doubts, tuple(ends), float(found[1]))


def _ends(path: Path, steps: int, rho: float, first: float, width: float) -> Ends | None:
    """Of the rule from y = ``first`` on: at both ends of Re s in the panel's ellipse, between which the bound's logarithm is convex."""
    centre, short, long = first + 0.5 * width, 0.5 * width * HALF_SHORT, 0.5 * width * HALF_LONG
    low, high = rho - short, rho + short
    # The line through 0 that touches the ellipse from below.
    gap = max(long * long - centre * centre, 0.0)
    under = (math.sqrt(centre * centre * rho * rho + gap * low * high) - centre * rho) / (low * high) if gap > 0.0 else 0.0
    angle = math.atan(under) * (1.0 + 1e-9)
    if not angle < 0.24 * math.pi:
        return None
    nearest, bounds = max(low, centre - long), list[tuple[float, float]]()
    for real in (low, high):
        bound = path.bound(real / math.cos(angle), angle, real)
        if not math.isfinite(bound):
            return None
        log_size = steps * math.log(bound)
        bounds.append((log_rule(_NODES) + math.log(0.5 * width) + log_size - 2.0 * math.log(nearest), real))
    return tuple(bounds)
