r"""E[(S - k)_+] far above E S, where one large ratio of Gaussian noise decides: an integral along the cut of phi(s) = E e^{sX}.

phi is analytic off the positive half-line, and its values on the upper side differ from real ones by as little as large X are improbable:

    E[(S - k)_+] = (1/pi) int_0^inf e^{-rho k} Im phi_+(rho)^t / rho^2 d rho,

of which only the part below a rho_max matters there. phi_+ is an integral over Z along the real line up to a point, from there up at
45 degrees until e^{sX} falls, and on. proofs/allocation.md, (S6)
"""

from __future__ import annotations

import math
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
_SMALL_RHO = 4.0
"""More than the path's modulus over the density where it begins, beyond 8, where X = 1 / rho: (S6)."""

_MOST_GROWTH = math.exp(0.25 * math.pi) * math.cos(0.25 * math.pi)
_MOST_RHO = 300.0
"""Of the search for the end of the cut, in units of 1 / (k - E S)."""

_LINE_NATS, _LINE_DEPTH, _BELOW_NATS = 14.0, 28.0, 20.0
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
    """Bound on the integral up to rho from k on, and on the same without 1 / rho; None where nothing bounds it. (S6)"""
    w, d = ratio.arrays
    split, turn = ratio.inverse(1.0 / rho), TURN / float(d[-1])
    path = Path(ratio, split, rho)
    bounds = path.bound(0.0), path.bound(rho)
    ends_falling = float((w * np.exp(d * (split + turn) - 0.5 * d * d)) @ np.cos(turn * d)) <= 0.0
    if split < 8.0 or not (ends_falling and math.isfinite(bounds[1])):
        return None
    size = steps * max(math.log(bounds[0]), math.log(bounds[1]) - rho * k / steps)
    return _SMALL_RHO * steps * math.exp(size) * float((w * d) @ scipy.special.ndtr(d - split)) * (1.0 + 1e-9)


def calls_beyond(ratio: Ratio, steps: int, k: float, log_value: float, depth: float) -> list[Series]:
    """E[(S - k)_+] in pieces from k on, where its logarithm is about ``log_value``, down to ``depth``; none if k isn't far enough. (S6)"""
    rho_max, is_small = _end(ratio, steps, k, log_value)
    log_rest = _rest(ratio, steps, rho_max, log_value - _REST_NATS + rho_max * k) if is_small else None
    line = line_at(ratio, steps, rho_max, k, log_value) if log_rest is None else None
    if line is not None:
        log_rest, depth = line.log_rest, max(depth, log_value - _LINE_DEPTH)
    cut = None if log_rest is None else _cut(ratio, steps, math.log(rho_max), (k, log_value), depth - _BELOW_NATS)
    if cut is None or log_rest is None:
        return []
    pieces, is_whole = list[Series](), True
    # What is left out, or rounding, ends a piece early: then another line, or the end of the cut elsewhere, suits what is further on.
    while is_whole and log_value > depth and len(pieces) < _MOST_PIECES:
        precise = _PRECISE if line is None else _LINE_PRECISE
        piece, is_whole = _piece(cut, line, k, (log_rest, rho_max), precise)
        if piece is None and not pieces:
            piece, is_whole = _piece(cut, line, k, (log_rest, rho_max), _LEAST_PRECISE)
        if piece is None:
            break
        pieces.append(piece)
        k = piece.first + piece.step * (len(piece.upper) - 1)
        log_value = math.log(float(piece.upper[-1]))
    return pieces


@final
class _Cut(NamedTuple):
    """All panels, as one; ``lowest`` is the bound on what is below them.

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


def _cut(ratio: Ratio, steps: int, high: float, start: tuple[float, float], enough: float) -> _Cut | None:
    """Below log rho ``high``, for k from start[0] on, where the value's logarithm is start[1]; as far as what is left is below e^enough."""
    panels, width = list[_Panel](), _WIDTH
    least = -math.log(float(ratio.at(np.array([_LEAST_RHO_Z]))[0]))
    while high > least:
        panel = _panel(ratio, steps, high - width, high, (start[1] - _PANEL_NATS, start[0]))
        if panel is None:
            width *= 0.7
            if width < 0.02:
                return None
            continue
        panels.append(panel)
        high -= width
        width = min(1.3 * width, _WIDTH)
        if steps * float(scipy.special.ndtr(ratio.moves[-1] - ratio.inverse(math.exp(-high)))) < math.exp(enough):
            break
    lowest = _below(ratio, steps, math.exp(high), start[0])
    if lowest is None or not panels:
        return None
    columns = zip(*((one.rho, one.weights / math.pi, one.imaginary, one.doubts) for one in panels), strict=True)
    rho, weights, imaginary, doubts = (np.concatenate(column) for column in columns)
    return _Cut(rho, weights, start[0], imaginary, doubts, tuple((one.ends, float(one.rho[-1])) for one in panels), lowest)


def _piece(cut: _Cut, line: Line | None, k: float, rest: tuple[float, float], precise: float) -> tuple[Series | None, bool]:
    """(from k on, as far as one lattice serves; whether it is as long as it was meant to be)"""
    rho, weights = cut.rho, cut.weights
    parts = weights * cut.imaginary * np.exp(-rho * (k - cut.base))
    value, slope = float((parts / rho).sum()), float(parts.sum())
    if line is not None:
        value, slope = line.added_at(k, value, slope)
    if not (slope > 0.0 and value > 0.0):
        return None, False
    step, span = _STEP * value / slope, k * (_GROWTH - 1.0)
    count = max(int((span if line is None else min(span, _LINE_NATS * value / slope)) / step), 64)
    if count > _MOST_COUNT:
        return None, False
    lattice = Lattice(cut.base, k, step, math.ceil(math.sqrt(count)))
    there = lattice.there
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
    slope_error += beyond + cut.lowest
    found = bounded(there, step, values + error, values - error, slopes, slope_error, precise)
    if found is None or found.first > k:
        return None, False  # a later beginning would leave out what is before it
    return found, len(found.upper) == len(there)
