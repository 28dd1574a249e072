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

from zetadp.accountants.allocation.ratio import CELLS, MASSES, Complexes, Ratio
from zetadp.accountants.allocation.series import Series, bounded, log_tail_integral
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities import Floats

_INNER: tuple[Floats, Floats] = np.polynomial.legendre.leggauss(16)
_OUTER: tuple[Floats, Floats] = np.polynomial.legendre.leggauss(32)
_ELLIPSE = 4.0
_HALF_LONG, _HALF_SHORT = 0.5 * (_ELLIPSE + 1.0 / _ELLIPSE), 0.5 * (_ELLIPSE - 1.0 / _ELLIPSE)
_LOG_INNER = math.log(8.0 / (_ELLIPSE - 1.0)) - 31.0 * math.log(_ELLIPSE) - 0.5 * math.log(2.0 * math.pi)
_LOG_OUTER = math.log(8.0 / (_ELLIPSE - 1.0)) - 63.0 * math.log(_ELLIPSE)

_WIDTH = 0.7
"""Widest panel of log rho: angles of s in its ellipse are below pi / 4."""

_TURN = 0.75 * math.pi
"""How far e^{sX} is turned where the path goes on along the real axis."""

_LEAST_RHO_Z = 15.0
"""Where X is 1 / rho at the smallest rho."""

_BEGIN = -12.0
_ON = 6.0
_REST_NATS, _PANEL_NATS = 15.0, 20.0
_MOST_PIECES = 60
_SMALL_RHO = 4.0
"""More than the path's modulus over the density where it begins, beyond 8, where X = 1 / rho: (S6)."""

_PRECISE = 1e-3
_GROWTH = 1.6
_STEP = 3e-3


@final
class _Panel(NamedTuple):
    """Nodes of log rho in one panel.

    Attributes:
      rho, weights: nodes of the integral over log rho.
      imaginary, doubts: Im phi_+^t there, and by how much it may be off.
      log_error, rate: the rule's error is at most e^{log_error - rate k}.
    """

    rho: Floats
    weights: Floats
    imaginary: Floats
    doubts: Floats
    log_error: float
    rate: float


def _grown(ratio: Ratio, z: Floats, low: Floats, high: Floats) -> Floats:
    """Bounds on Re(s X) / |s|, at least 0, for Re Z <= z and with s e^{i d_j Im Z} at angles from ``low`` to ``high``, by columns."""
    w, d = ratio.arrays
    most = np.where((low <= 0.0) & (high >= 0.0), 1.0, np.maximum(np.cos(low), np.cos(high)))
    return (w * np.exp(np.minimum(np.outer(z, d) - 0.5 * d * d, 600.0)) * np.maximum(most, 0.0)).sum(axis=1)


@final
class _Path(NamedTuple):
    """The integral of e^{sX} times the density over Z from ``split`` on.

    Attributes:
      z, weights: nodes, and weights with the density.
      error: of the rule, for 0 < s <= largest, and of what is left out.
      modulus: bound on the integral of the modulus, for |s| <= most and |arg s| <= angle, or s = most + iy, y >= 0.
    """

    z: Complexes
    weights: Complexes
    error: float
    modulus: float


def _path(ratio: Ratio, split: float, largest: float, most: float, angle: float) -> _Path | None:
    """Up from ``split`` at 45 degrees, where the density falls, and on along the real axis; None where e^{sX} doesn't fall at its end."""
    _, d = ratio.arrays
    turn = _TURN / float(d[-1])
    root = 1.0 / math.sqrt(2.0 * math.pi)
    # z = split + (1 + i) tau: |density| is e^{-(split^2 / 2 + split (a - b)) + 2ab} at tau = a + ib.
    edges = np.linspace(0.0, turn, math.ceil(turn / min(0.4, 0.4 / float(d[-1]))) + 1)
    width, up, out = _ellipses(edges)
    first, last = edges[:-1] - out, edges[1:] + out
    size = largest * _grown(ratio, split + last + up, np.outer(first - up, d), np.outer(last + up, d))
    density = -0.5 * split * split - split * (first - up) + 2.0 * last * up
    error = math.sqrt(2.0) * float(np.exp(np.minimum(_LOG_INNER + math.log(0.5 * width) + size + density, 700.0)).sum())
    size = most * _grown(ratio, split + edges[1:], np.outer(edges[:-1], d) - angle, np.outer(edges[1:], d) + angle)
    modulus = math.sqrt(2.0) * width * root * float(np.exp(np.minimum(size - 0.5 * split * split - split * edges[:-1], 700.0)).sum())
    tau, rule = _nodes(edges)
    z, weights = split + (1.0 + 1.0j) * tau, (1.0 + 1.0j) * rule
    # At the height of ``turn``, to the right.
    edges = np.linspace(split + turn, split + turn + _ON, math.ceil(_ON / min(0.5, 0.4 / float(d[-1]))) + 1)
    width, up, out = _ellipses(edges)
    rows = np.ones((len(edges) - 1, 1))
    size = largest * _grown(ratio, edges[1:] + out, rows * ((turn - up) * d), rows * ((turn + up) * d))
    density = 0.5 * (turn + up) ** 2 - 0.5 * (edges[:-1] - out) ** 2
    error += float(np.exp(np.minimum(_LOG_INNER + math.log(0.5 * width) + size + density, 700.0)).sum())
    low, high = turn * d - angle, turn * d + angle
    size = most * _grown(ratio, edges[1:], rows * low, rows * high)
    modulus += width * root * float(np.exp(np.minimum(size + 0.5 * turn * turn - 0.5 * edges[:-1] ** 2, 700.0)).sum())
    end = float(edges[-1])
    parts = np.asarray(ratio.weights) * np.exp(np.minimum(d * end - 0.5 * d * d, 600.0))
    angles = np.where((low <= 0.0) & (high >= 0.0), 1.0, np.maximum(np.cos(low), np.cos(high)))
    if float(parts @ angles) > 0.0:
        return None
    left = math.exp(min(0.5 * turn * turn + float(scipy.special.log_ndtr(-end)), 700.0)) * 1.01
    line, rule = _nodes(edges)
    there: Complexes = np.asarray(np.append(z, line + 1j * turn), dtype=np.complex128)
    weights = np.append(weights, rule) * np.exp(-0.5 * there * there) * root
    return _Path(there, np.asarray(weights, dtype=np.complex128), error + left, modulus + left)


def _ellipses(edges: Floats) -> tuple[float, float, float]:
    """(width of equal panels, how far their ellipses reach up, and out at the ends)."""
    width = float(edges[1] - edges[0])
    return width, 0.5 * width * _HALF_SHORT, 0.5 * width * (_HALF_LONG - 1.0)


def _nodes(edges: Floats) -> tuple[Floats, Floats]:
    widths = np.diff(edges)
    z = edges[:-1, None] + 0.5 * widths[:, None] * (1.0 + _INNER[0])
    return z.ravel(), (0.5 * widths[:, None] * _INNER[1]).ravel()


def _before(ratio: Ratio, split: float, largest: float) -> tuple[Floats, Floats, float]:
    """(X, weights, error of the rule for 0 < s <= ``largest``) of the integral up to ``split``."""
    _, d = ratio.arrays
    edges = np.linspace(_BEGIN, split, math.ceil((split - _BEGIN) / min(1.5, 0.8 / float(d[-1]))) + 1)
    width, up, out = _ellipses(edges)
    nearest = np.maximum(np.maximum(edges[:-1] - out, -edges[1:] - out), 0.0)
    size = largest * ratio.at(edges[1:] + out) - 0.5 * nearest**2 + 0.5 * up**2
    error = float(scipy.special.ndtr(_BEGIN)) * 2.0 + float(np.exp(np.minimum(_LOG_INNER + math.log(0.5 * width) + size, 700.0)).sum())
    z, rule = _nodes(edges)
    return ratio.at(z), rule * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi), error


def _moment(ratio: Ratio, split: float, most: float) -> float:
    """Bound on E[e^{rX}; Z < split] for r <= ``most``."""
    top = float(ratio.at(np.array([split]))[0])
    below, inside = np.minimum(ratio.at(CELLS[1:]), top), CELLS[:-1] < split
    return float(np.exp(np.minimum(most * below[inside], 600.0)) @ MASSES[inside]) + 1e-18 * math.exp(min(most * top, 600.0))


def _split(ratio: Ratio, rho: float, share: float = 1.6) -> float:
    """Where the path leaves the real line: X is about 1 / rho there."""
    return max(ratio.inverse(share / rho), 1.0)


def _panel(ratio: Ratio, steps: int, low: float, high: float, allowed: tuple[float, float]) -> _Panel | None:
    """From log rho ``low`` to ``high``; None if the rule's error were above e^{allowed[0]} at k = allowed[1]. (S6)"""
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    rho = np.exp(middle + half * _OUTER[0])
    least, most = math.exp(middle - half * _HALF_LONG), math.exp(middle + half * _HALF_LONG)
    assert half * _HALF_SHORT < 0.25 * math.pi
    split = _split(ratio, math.exp(high))
    path = _path(ratio, split, float(rho[-1]), most, half * _HALF_SHORT)
    if path is None:
        return None
    bound = _moment(ratio, split, most) + path.modulus
    log_error = _LOG_OUTER + math.log(half) + steps * math.log(bound) - math.log(least)
    rate = least * math.cos(half * _HALF_SHORT)
    if log_error - rate * allowed[1] > allowed[0]:
        return None
    x, before, before_error = _before(ratio, split, float(rho[-1]))
    w, d = ratio.arrays
    beyond = np.exp(np.outer(path.z, d) - 0.5 * d * d) @ w
    terms = np.exp(np.outer(rho, beyond)) * path.weights
    spread = 128.0 + 16.0 * np.abs(path.z) ** 2 + 16.0 * float(d[-1]) * (np.abs(path.z) + float(d[-1])) * (1.0 + rho[-1] * np.abs(beyond))
    part, off = terms.sum(axis=1), path.error + UNIT * (np.abs(terms) @ spread)
    whole = np.exp(np.outer(rho, x)) @ before
    # Z is off by units of its size, which moves the density by its square and X by the moves' share of it.
    whole_error = before_error + 1000.0 * UNIT * float(whole[-1]) * (1.0 + float(d[-1]) ** 2)
    real = whole + part.real
    size, turn = np.hypot(real, part.imag), np.arctan2(part.imag, real)
    powers = np.exp(steps * np.log(size))
    share = steps * ((whole_error + off) / size + 16.0 * UNIT)
    if not float(share.max()) < 1e-2:
        return None
    # A power's size is off by a share, and its angle by what the imaginary part is off and by a share of itself.
    turned = steps * np.abs(turn)
    doubts = 1.1 * powers * (share * np.minimum(turned, 1.0) + steps * off / size + turned * (whole_error / size + 16.0 * UNIT))
    return _Panel(rho, half * _OUTER[1], powers * np.sin(steps * turn), doubts, log_error, rate)


def _largest_rho(ratio: Ratio, steps: int, k: float, log_wanted: float) -> tuple[float, float] | None:
    """(rho_max, log of a bound on t-th powers of the transform above it, times 1 + what they add up to) from which on nothing matters."""
    rho, best = 4.0 / (k - steps * ratio.mean), math.inf
    for _ in range(18):
        rho *= 1.3
        split = _split(ratio, rho, 1.1)
        path = _path(ratio, split, rho, rho, 0.0)
        if path is None:
            return None
        size = steps * math.log(_moment(ratio, split, rho) + path.modulus)
        best = min(best, size - rho * k)
        if best < log_wanted - 4.0:
            tail = log_tail_integral(ratio, steps, rho, size)
            return None if tail is None else (rho, tail)
    return None


def _below(ratio: Ratio, steps: int, rho: float) -> float | None:
    """Bound on the integral up to rho, and on the same without 1 / rho; None where nothing bounds it. (S6)"""
    w, d = ratio.arrays
    split = ratio.inverse(1.0 / rho)
    path = _path(ratio, split, rho, rho, 0.0)
    turn = _TURN / float(d[-1])
    if path is None or split < 8.0 or float((w * np.exp(d * (split + turn) - 0.5 * d * d)) @ np.cos(turn * d)) > 0.0:
        return None
    size = steps * math.log(_moment(ratio, split, rho) + path.modulus)
    return _SMALL_RHO * steps * math.exp(size) * float((w * d) @ scipy.special.ndtr(d - split)) * (1.0 + 1e-9)


def calls_beyond(ratio: Ratio, steps: int, k: float, log_value: float, depth: float) -> list[Series]:
    """E[(S - k)_+] in pieces from k on, where its logarithm is about ``log_value``, down to ``depth``; none if k isn't far enough. (S6)"""
    found = _largest_rho(ratio, steps, k, log_value - _REST_NATS)
    if found is None:
        return []
    rho_max, log_rest = found
    panels: list[_Panel] = []
    high, width, least = math.log(rho_max), _WIDTH, -math.log(float(ratio.at(np.array([_LEAST_RHO_Z]))[0]))
    while high > least:
        panel = _panel(ratio, steps, high - width, high, (log_value - _PANEL_NATS, k))
        if panel is None:
            width *= 0.7
            if width < 0.02:
                return []
            continue
        panels.append(panel)
        high -= width
        width = min(1.3 * width, _WIDTH)
    lowest = _below(ratio, steps, math.exp(high))
    if lowest is None:
        return []
    pieces: list[Series] = []
    while log_value > depth and len(pieces) < _MOST_PIECES:
        piece = _piece(panels, k, (log_rest, rho_max), lowest)
        if piece is None:
            break
        pieces.append(piece)
        k = piece.first + piece.step * (len(piece.upper) - 1)
        log_value = math.log(float(piece.upper[-1]))
    return pieces


def _piece(panels: list[_Panel], k: float, rest: tuple[float, float], lowest: float) -> Series | None:
    rho = np.concatenate([one.rho for one in panels])
    weights = np.concatenate([one.weights for one in panels]) / math.pi
    imaginary = np.concatenate([one.imaginary for one in panels])
    doubts = np.concatenate([one.doubts for one in panels])
    parts = weights * imaginary * np.exp(-rho * k)
    slope = float(parts.sum()) / float((parts / rho).sum())
    if not slope > 0.0:
        return None
    step = _STEP / slope
    count = max(int(k * (_GROWTH - 1.0) / step), 64)
    rows, columns = math.ceil(math.sqrt(count)), math.ceil(math.sqrt(count))
    # e^{-rho (k + (a n + b) step)} as a product of two.
    left, right = np.exp(-np.outer(step * columns * np.arange(rows), rho)), np.exp(-np.outer(rho, step * np.arange(columns)))

    def over(values: Floats) -> Floats:
        return ((left * (values * np.exp(-rho * k))) @ right).ravel()

    there: Floats = np.asarray(k + step * np.arange(rows * columns), dtype=np.float64)
    values, slopes = over(weights * imaginary / rho), over(weights * imaginary)
    error = over(weights * doubts / rho) + (4096.0 * UNIT) * over(weights * np.abs(imaginary) / rho * (1.0 + rho * there[-1] / 64.0))
    slope_error = over(weights * doubts) + (4096.0 * UNIT) * over(weights * np.abs(imaginary) * (1.0 + rho * there[-1] / 64.0))
    for one in panels:
        off = np.exp(np.maximum(one.log_error - one.rate * there, -700.0))
        error, slope_error = error + off, slope_error + off * float(one.rho[-1])
    beyond = np.exp(np.minimum(rest[0] - rest[1] * there, 700.0))
    error += beyond / rest[1] + lowest
    slope_error += beyond + lowest
    return bounded(there, step, values + error, values - error, slopes, slope_error, _PRECISE)
