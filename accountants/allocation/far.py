r"""E[(S - k)_+] far above E S, where one large ratio of Gaussian noise decides: an integral along the cut of phi(s) = E e^{sX}.

phi is analytic off the positive half-line, and its values on the upper side differ from real ones by as little as large X are improbable:

    E[(S - k)_+] = (1/pi) int_0^inf e^{-rho k} Im phi_+(rho)^t / rho^2 d rho,

of which only the part below a rho_max matters there. phi_+ is an integral over Z along the real line up to a point, from there up at
45 degrees until e^{sX} falls, and on. proofs/allocation.md, (S6)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple, final

import numpy as np
import scipy

from zetadp.accountants.allocation.line import Ends, Lattice, Line, largest_of, line_at
from zetadp.accountants.allocation.path import HALF_LONG, HALF_SHORT, RULES, TURN, Path, log_rule, split_at, transform
from zetadp.accountants.allocation.ratio import CELLS, MASSES, Ratio
from zetadp.accountants.allocation.series import Series, bounded, log_tail_integral
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities import Floats

_WIDTH = 0.7
"""Widest panel of log rho: angles of s in its ellipse are below pi / 4."""

_LEAST_RHO_Z = 15.0
"""Where X is 1 / rho at the smallest rho."""

_REST_NATS, _PANEL_NATS = 15.0, 30.0
_MOST_PIECES, _MOST_COUNT = 60, 2**16
_LEAST_BELOW_Z, _SMALL_RHO = 8.0, 4.0
"""Where X is 1 / rho at the largest rho that isn't integrated, at least, and more than the path's modulus over the density there: (S6)."""

_MOST_GROWTH = math.exp(0.25 * math.pi) * math.cos(0.25 * math.pi)
_MOST_RHO = 300.0
"""Of the search for the end of the cut, in units of 1 / (k - E S)."""

_LINE_NATS, _LINE_DEPTH, _BELOW_NATS = 14.0, 28.0, 22.0
_LEAST_PRECISE, _PRECISE, _LINE_PRECISE = 1e-3, 1e-8, 1e-6
_GROWTH = 1.6
_STEP = 3e-3


@final
class _Panel(NamedTuple):
    """Nodes of log rho in one panel.

    Attributes:
      rho, weights: nodes of the integral over log rho.
      imaginary, doubts: Im phi_+^t there, and by how much it may be off, over e^{rho k} for the k that they were laid for.
      ends: the rule's error is at most e^{a - b k} for one of these (a, b).
    """

    rho: Floats
    weights: Floats
    imaginary: Floats
    doubts: Floats
    ends: Ends


def _panel(ratio: Ratio, steps: int, low: float, high: float, allowed: tuple[float, float]) -> _Panel | None:
    """From log rho ``low`` to ``high``; None if the rule's error were above e^{allowed[0]} at k = allowed[1]. (S6)"""
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    angle = half * HALF_SHORT
    assert angle < 0.25 * math.pi
    least, most = math.exp(middle - half * HALF_LONG), math.exp(middle + half * HALF_LONG)
    path = Path(ratio, split_at(ratio, math.exp(high)), math.exp(low))
    logs = [steps * math.log(path.bound(end, angle)) - math.log(least) for end in (most, least)]
    rates = [end * math.cos(angle) for end in (most, least)]
    worst = max(size - rate * allowed[1] for size, rate in zip(logs, rates, strict=True))
    count = next((one for one in RULES if worst + math.log(half) + log_rule(one) <= allowed[0]), None)
    if count is None:
        return None
    nodes, rule = RULES[count]
    rho = np.exp(middle + half * nodes)
    ends = tuple((math.log(half) + log_rule(count) + size, rate) for size, rate in zip(logs, rates, strict=True))
    there = transform(path, rho)
    size, turn = np.hypot(there.real, there.imaginary), np.arctan2(there.imaginary, there.real)
    powers = np.exp(steps * np.log(size) - rho * allowed[1])
    share = steps * ((there.real_error + there.off) / size + 16.0 * UNIT)
    if not float(share.max()) < 1e-2:
        return None
    # A power's size is off by a share, and its angle by what the imaginary part is off and by a share of itself.
    turned = steps * np.abs(turn)
    doubts = 1.1 * powers * (share * np.minimum(turned, 1.0) + steps * there.off / size + turned * (there.real_error / size + 16.0 * UNIT))
    return _Panel(rho, half * rule, powers * np.sin(steps * turn), doubts, ends)


def _end(ratio: Ratio, steps: int, k: float, log_value: float) -> tuple[float, bool]:
    """(rho_max, whether what is beyond seems to be negligible there): otherwise where it is least."""
    rho = np.geomspace(1.0, _MOST_RHO, 40) / (k - steps * ratio.mean)
    splits = np.array([split_at(ratio, float(one)) for one in rho])
    ends = ratio.at(splits)
    x = np.minimum(ratio.at(CELLS[1:] - 0.5 * (CELLS[1] - CELLS[0])), ends[:, None])
    # Re(s X) on the path grows by at most e^y cos y.
    beyond = np.exp(np.minimum(_MOST_GROWTH * rho * ends - 0.5 * splits**2, 600.0))
    sizes = steps * np.log(np.exp(np.minimum(rho[:, None] * x, 600.0)) @ MASSES + beyond) - rho * k
    small = np.flatnonzero(sizes < log_value - _REST_NATS - 4.0)
    return (float(rho[small[0]]), True) if len(small) else (float(rho[int(np.argmin(sizes))]), False)


def _rest(ratio: Ratio, steps: int, rho: float, log_wanted: float) -> float | None:
    """log of a bound on the integral of |phi(rho + iy)|^t / |s|; None if it isn't below e^{log_wanted}."""
    bound = Path(ratio, split_at(ratio, rho), rho).bound(rho)
    size = steps * math.log(bound) if math.isfinite(bound) else math.inf
    return log_tail_integral(ratio, steps, rho, size) if size < log_wanted else None


def _below(ratio: Ratio, steps: int, rho: float, k: float) -> float | None:
    """Bound on the integral up to rho from k on; None where nothing bounds it. (S6)"""
    w, d = ratio.arrays
    split, turn = ratio.inverse(1.0 / rho), TURN / float(d[-1])
    path = Path(ratio, split, rho)
    bounds = path.bound(0.0), path.bound(rho)
    ends_falling = float((w * np.exp(d * (split + turn) - 0.5 * d * d)) @ np.cos(turn * d)) <= 0.0
    if split < _LEAST_BELOW_Z or not (ends_falling and math.isfinite(bounds[1])):
        return None
    size = steps * max(math.log(bounds[0]), math.log(bounds[1]) - rho * k / steps)
    return _SMALL_RHO * steps * math.exp(size) * float((w * d) @ scipy.special.ndtr(d - split)) * (1.0 + 1e-9)


@final
class CallsBeyond(Iterator[Series]):
    """E[(S - k)_+] from ``k`` on, where its logarithm is about ``log_value``, in pieces, one after the other, down to ``depth``. (S6)"""

    def __init__(self, ratio: Ratio, steps: int, k: float, log_value: float, depth: float) -> None:
        rho_max, is_small = _end(ratio, steps, k, log_value)
        log_rest = _rest(ratio, steps, rho_max, log_value - _REST_NATS + rho_max * k) if is_small else None
        self._line = line_at(ratio, steps, rho_max, k, log_value) if log_rest is None else None
        if self._line is not None:
            log_rest, depth = self._line.log_rest, max(depth, log_value - _LINE_DEPTH)
        self._panels = _Panels(ratio, steps, math.log(rho_max), (k, log_value))
        self._rest = None if log_rest is None else (log_rest, rho_max)
        self._depth, self._k, self._log_value, self._left = depth, k, log_value, _MOST_PIECES

    def __next__(self) -> Series:
        """The next one; there is none if k isn't far enough."""
        if self._rest is None or self._left == 0 or not self._log_value > self._depth:
            raise StopIteration
        precise = _PRECISE if self._line is None else _LINE_PRECISE
        rough = (precise, _LEAST_PRECISE) if self._left == _MOST_PIECES else (precise,)
        found, is_whole = _piece(self._panels, self._line, (self._k, self._log_value, self._depth), self._rest, rough)
        # What is left out, or rounding, ends a piece early: then another line, or the end of the cut elsewhere, suits what is further on.
        self._left = self._left - 1 if is_whole else 0
        if found is None:
            raise StopIteration
        self._k, self._log_value = found.first + found.step * (len(found.upper) - 1), math.log(float(found.upper[-1]))
        return found


@final
class _Cut(NamedTuple):
    """All panels, as one; ``lowest`` is the bound on what is below them, where rho is at most ``least``.

    Attributes:
      rho, weights, imaginary, doubts: of the integral over log rho, with 1 / pi.
    """

    rho: Floats
    weights: Floats
    base: float
    imaginary: Floats
    doubts: Floats
    ends: tuple[tuple[Ends, float], ...]
    lowest: float
    least: float


@final
class _Panels:
    """Of log rho, laid from ``high`` downwards only as far as a piece needs them, each after the one before it.

    Args:
      start: (k from which on they serve, logarithm of the value there).
    """

    def __init__(self, ratio: Ratio, steps: int, high: float, start: tuple[float, float]) -> None:
        self._ratio, self._steps, self._high, self._start = ratio, steps, high, start
        self._laid, self._width, self._nearest, self._below = list[_Panel](), _WIDTH, -math.inf, math.inf
        self._least = -math.log(float(ratio.at(np.array([_LEAST_RHO_Z]))[0]))
        self._all: _Cut | None = None

    def cut(self, enough: float) -> _Cut | None:
        """All panels, as far as what is left is below e^enough; None where one would be too short, or nothing bounds what is left."""
        k, log_value = self._start
        while self._high > self._least and not (self._nearest >= _LEAST_BELOW_Z and self._below < math.exp(enough)):
            panel = _panel(self._ratio, self._steps, self._high - self._width, self._high, (log_value - _PANEL_NATS, k))
            if panel is None:
                self._width *= 0.7
                if self._width < 0.02:
                    return None
                continue
            self._laid.append(panel)
            self._high -= self._width
            self._width = min(1.3 * self._width, _WIDTH)
            self._nearest = self._ratio.inverse(math.exp(-self._high))
            self._below = self._steps * float(scipy.special.ndtr(self._ratio.moves[-1] - self._nearest))
            self._all = None
        if self._all is None and self._laid:
            self._all = self._joined()
        return self._all

    def _joined(self) -> _Cut | None:
        k, least = self._start[0], math.exp(self._high)
        lowest = _below(self._ratio, self._steps, least, k)
        if lowest is None:
            return None
        columns = zip(*((one.rho, one.weights / math.pi, one.imaginary, one.doubts) for one in self._laid), strict=True)
        rho, weights, imaginary, doubts = (np.concatenate(column) for column in columns)
        ends = tuple((one.ends, float(one.rho[-1])) for one in self._laid)
        return _Cut(rho, weights, k, imaginary, doubts, ends, lowest, least)


def _piece(
    panels: _Panels, line: Line | None, start: tuple[float, float, float], rest: tuple[float, float], precisions: tuple[float, ...]
) -> tuple[Series | None, bool]:
    """(as far as one lattice serves, with the first of the precisions that it has; whether it is as long as it was meant to be).

    Args:
      start: k, the logarithm of the value there, and how far down the value's logarithm matters.
    """
    k, log_value, depth = start
    cut = panels.cut(log_value - _BELOW_NATS)
    if cut is None:
        return None, False
    parts = cut.weights * cut.imaginary * np.exp(-cut.rho * (k - cut.base))
    value, slope = float((parts / cut.rho).sum()), float(parts.sum())
    if line is not None:
        value, slope = line.added_at(k, value, slope)
    if not (slope > 0.0 and value > 0.0):
        return None, False
    step, span = _STEP * value / slope, k * (_GROWTH - 1.0)
    count = max(int((span if line is None else min(span, _LINE_NATS * value / slope)) / step), 64)
    # The value falls at most as fast as at first.
    cut = None if count > _MOST_COUNT else panels.cut(max(log_value - _STEP * count, depth) - _BELOW_NATS)
    if cut is None:
        return None, False
    there, bounds = _on_lattice(cut, line, Lattice(cut.base, k, step, math.ceil(math.sqrt(count))), rest)
    found = next((one for precise in precisions if (one := bounded(there, step, *bounds, precise)) is not None and one.first <= k), None)
    if found is None:
        return None, False  # a later beginning would leave out what is before it
    return found, len(found.upper) == len(there)


def _on_lattice(
    cut: _Cut, line: Line | None, lattice: Lattice, rest: tuple[float, float]
) -> tuple[Floats, tuple[Floats, Floats, Floats, Floats]]:
    """(k, (upper and lower bounds of values, slopes, and by how much these may be off))"""
    rho, weights, there = cut.rho, cut.weights, lattice.there
    doubts = weights * (cut.doubts + np.abs(cut.imaginary) * UNIT * (4096.0 + 64.0 * rho * there[-1]))
    values, slopes, error, slope_error = lattice.sums(rho, weights * cut.imaginary / rho, weights * cut.imaginary, doubts / rho, doubts)
    if line is not None:
        added = line.sums(lattice)
        values, slopes, error, slope_error = values + added[0], slopes + added[1], error + added[2], slope_error + added[3]
    for ends, most in cut.ends:
        off = largest_of(ends, there)
        error, slope_error = error + off, slope_error + off * most
    beyond = np.exp(np.minimum(rest[0] - rest[1] * there, 700.0))
    error += beyond / rest[1] + cut.lowest
    slope_error += beyond + cut.lowest * cut.least
    return there, (values + error, values - error, slopes, slope_error)
