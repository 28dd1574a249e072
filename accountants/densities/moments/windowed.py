r"""Parts of a release's P around a smooth cut: its jumps, P s, and its bulk, P (1 - s), with s(x) = 1 / (1 + e^{-k (x - c)}).

Both are densities with moment functions int f A^{s+1} B^{-s} s(x) dx on x <= end, which are inverted like the whole one's: (J) of
proofs/contour.md. Where samples are rare the whole one's hardly decays, because nearly all outcomes have nearly the same loss; the
jumps' does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, final

import numpy as np

from zetadp.accountants import deadline
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities import loops
from zetadp.accountants.densities.heights import MOST_TERMS, sum_on_line
from zetadp.accountants.densities.loops import Ratio, Spaced
from zetadp.accountants.densities.nodes import ELEMENTARY, Complexes, Floats, LineValues, Nodes, TransformUnavailable, log_mixture

REACH = 11.0
"""How far below 0 the nodes begin: what is before them is bounded (Q3)."""

MOST_NODES = 600_000
_CELLS = 2_000_000
_ANALYTIC, _RISING = 0.96 * math.pi, 0.499 * math.pi
"""Angles up to which a mixture has no zero, and up to which its argument grows with height."""

_LINE_SHARES = tuple(0.1 + 0.08 * k for k in range(12))
_DECAY_SHARES, _SMALL_SHARES = (0.7, 0.35, 0.1), (0.3, 1.0, 3.0, 10.0)
_REAL_SHARES = 0.1, 0.2, 0.35, 0.5, 0.75, 1.0


@final
class Cut(NamedTuple):
    """s(x) = 1 / (1 + e^{-steepness (x - centre)}), and where P ends."""

    centre: float
    steepness: float
    end: float


@final
class Uppers(NamedTuple):
    """A part's mass and a bound on its error; and upper bounds on the log of its moments."""

    mass: float
    error: float
    log_moments: Floats


@final
class _Line(NamedTuple):
    """A line parallel to the real axis as (D2) takes it: log of the modulus and the angle, less its error, at each node; what is added."""

    exponent: Floats
    angle: Floats
    rest: float

    def log_bound(self, height: float) -> float:
        """Upper bound on log of the integral of moduli there, and so at every greater height; infinite beyond floats."""
        turned = self.exponent - height * self.angle
        peak = float(turned.max(initial=-loops.LARGEST))
        if not peak <= loops.LARGEST:
            return math.inf
        total = float(np.sum(np.exp(turned - peak))) * (1.0 + UNIT * (turned.size + 64.0))
        size = max(total * math.exp(peak) + self.rest, 1e-300)
        return math.log(size) + ELEMENTARY * (1.0 + abs(peak))


@final
class Windowed:
    """One part of P = f A against Q = f B, in one direction of neighbours.

    Args:
      upper: A, shifts >= 0.
      lower: B, shifts <= 0.
      cut: the cut.
      jumps: P s if true, else P (1 - s).
      nats: errors of sums over nodes are made smaller than e^-nats of them, besides rounding.
    """

    def __init__(self, upper: Ratio, lower: Ratio, cut: Cut, jumps: bool, nats: float) -> None:
        self._upper, self._lower, self._cut, self._sign, self._nats = upper, lower, cut, 1.0 if jumps else -1.0, nats
        self._span = max(upper.span, lower.span)

    def _log_window(self, x: Floats) -> Floats:
        return -np.logaddexp(0.0, -self._sign * self._cut.steepness * (x - self._cut.centre))

    def _window_error(self, x: Floats) -> Floats:
        """Of the window's logarithm: its own rounding, and that of its exponent, which hardly matters where the window is nearly 1. (J3)"""
        # Nodes are rounded by up to UNIT (2 |x| + 9), their distance from the centre and its multiple once each.
        distance = np.abs(x - self._cut.centre)
        size = self._cut.steepness * (2.0 * np.abs(x) + REACH + 4.0 * distance)
        beyond = np.exp(np.minimum(-self._sign * self._cut.steepness * (x - self._cut.centre), 0.0))
        return 4.0 * ELEMENTARY + UNIT * size * 2.5 * beyond

    def _growth(self, height: float, tilt: float) -> float:
        r"""log of a bound on \|F(x + iy)\| / F(x) for 0 <= y <= height, without the factor e^{y^2 / 2}. (J1)"""
        return -tilt * math.log(math.cos(0.5 * self._lower.span * height)) - math.log(math.cos(0.5 * self._cut.steepness * height))

    def _highest(self, tilt: float, angle: float) -> float:
        """Heights up to which everything is analytic, the mixtures' angles are at most ``angle`` < pi, and growth is little. (J1)"""
        span = self._lower.span
        narrow = math.sqrt(40.0 / (tilt + 1.0)) / span if span > 0.0 else math.inf
        return min(3.0, angle / self._span, 2.6 / self._cut.steepness, narrow)

    def _spaced(self, step: float) -> Spaced:
        """Nodes of which the last is half a step before the end. (Q3)"""
        length = self._cut.end + REACH
        if length > MOST_NODES * step:
            raise TransformUnavailable(f"it would take more than {MOST_NODES} quadrature nodes: the noise is too small")
        number = max(math.ceil(length / step - 0.5), 8)
        return Spaced(-REACH, length / (number + 0.5), number + 1)

    def _log_integrand(self, x: Floats, tilts: Floats) -> Floats:
        """log F at real x, of shape (tilts, n)."""
        above, below = self._upper.log(x), self._lower.log(x)
        log_mass = above - 0.5 * x * x - 0.5 * math.log(2.0 * math.pi) + self._log_window(x)
        return log_mass + tilts[:, None] * (above - below)

    def _ends(self, tilts: Floats, factors: tuple[float, float]) -> Floats:
        """What is before the nodes and at the end, from bounds on both as multiples of F there; the first without its window. (Q3)"""
        ends = np.array([-REACH, self._cut.end])
        values = self._log_integrand(ends, tilts)
        if self._sign < 0.0:
            values[:, 0] -= self._log_window(ends[:1])  # the bulk's window grows to the left, up to 1
        return exp_or_infinite(values) @ np.array(factors) * 1.001

    def uppers(self, tilts: Floats) -> Uppers:
        """The mass and upper bounds on log M at each tilt > 0: trapezoid sums on the real axis. (J2)"""
        highest = float(tilts.max())
        widest = self._highest(highest, _ANALYTIC)
        shares = [(widest * share, 0.5 * (widest * share) ** 2 + self._growth(widest * share, highest)) for share in _REAL_SHARES]
        width, growth = max(shares, key=lambda strip: strip[0] / (self._nats + strip[1]))
        at = self._spaced(2.0 * math.pi * width / (self._nats + growth))
        strip = 2.02 * math.exp(growth) / math.expm1(2.0 * math.pi * width / at.step)
        factors = at.step / -math.expm1(-REACH * at.step), 4.0 * width * math.exp(growth)
        x, every = at.nodes, np.append(0.0, tilts)
        rows = max(1, _CELLS // x.size)
        peaks, totals = list[Floats](), list[Floats]()
        for first in range(0, every.size, rows):
            deadline.check()
            exponent = self._log_integrand(x, every[first : first + rows])
            peaks.append(exponent.max(axis=1))
            totals.append(np.exp(exponent - peaks[-1][:, None]).sum(axis=1) * at.step)
        peak, total = np.concatenate(peaks), np.concatenate(totals)
        ends = self._ends(every, factors)
        depth = self._depth(every) + UNIT * (x.size + 64.0) + 4.0 * UNIT * np.abs(peak)
        value = peak + np.log(total)
        beyond = exp_or_infinite(np.log(np.maximum(ends, 1e-300)) - value)
        moved = expm1_or_infinite(depth)
        uppers = value + np.log1p(1.01 * strip + 1.01 * moved + beyond) + ELEMENTARY * (1.0 + np.abs(value))
        mass = math.exp(float(value[0]))
        error = mass * 1.01 * (strip + float(moved[0]) + ELEMENTARY * (1.0 + abs(float(value[0])))) + float(ends[0])
        return Uppers(mass, error, uppers[1:])

    def _depth(self, tilts: Floats) -> Floats:
        """Relative rounding of F on the real axis."""
        own, other = self._upper.log_error(-REACH, self._cut.end), self._lower.log_error(-REACH, self._cut.end)
        window = float(np.max(self._window_error(np.array([-REACH, self._cut.centre, self._cut.end]))))
        return (1.0 + tilts) * own + tilts * other + window + ELEMENTARY * (1.0 + max(REACH, self._cut.end) ** 2)

    def log_decay(self, tilt: float, moment: float, wanted: tuple[float, int]) -> Callable[[float], float]:
        r"""Bounds log \|M(tilt + iv)\| from above for every v >= a height u, which is the function's argument. (J2)

        Args:
          moment: an upper bound on log M(tilt), at most ``loops.LARGEST``.
          wanted: how far below M(tilt) bounds are of use, as a logarithm, and how often they are multiplied with themselves: small steps
            from the real axis are tried that this hardly raises.
        """
        fall, count = wanted
        highest = self._highest(tilt, _RISING)
        small = {min(0.5 * highest, share / math.sqrt(count)) for share in _SMALL_SHARES}
        lines: list[_Line] = []
        for y in sorted(small if count > 1 else {share * highest for share in _DECAY_SHARES}):
            deadline.check()
            width = highest - y
            growth = 0.5 * highest**2 + self._growth(highest, tilt)
            at = self._spaced(2.0 * math.pi * width / (fall + growth))
            factors = at.step * math.exp(growth) / -math.expm1(-REACH * at.step), 4.0 * highest * math.exp(growth)
            rest = float(self._ends(np.array([tilt]), factors)[0])
            rest += 2.02 * math.exp(growth + moment) / math.expm1(2.0 * math.pi * width / at.step)
            lines.append(self._decay_line(at, y, tilt, (rest, growth, moment - fall)))
        return lambda height: min(moment, *(line.log_bound(height) for line in lines))

    def _decay_line(self, at: Spaced, y: float, tilt: float, rest: tuple[float, float, float]) -> _Line:
        """Args: rest: what is added to every sum, log of how far sums exceed those on the real axis, and log of what is negligible."""
        x = at.nodes
        real = self._log_integrand(x, np.array([tilt]))[0] + math.log(at.step) + rest[1]
        kept = real > rest[2] - math.log(x.size)
        dropped = float(exp_or_infinite(real[~kept]).sum())
        x = x[kept]
        above, below = log_mixture(self._upper.mixture, x, y), log_mixture(self._lower.mixture, x, y)
        exponent = 0.5 * (y * y - x * x) + (tilt + 1.0) * above.size - tilt * below.size + self._complex_window(x, y).real
        exponent = exponent + math.log(at.step / math.sqrt(2.0 * math.pi))
        angle, angle_error = above.angle - below.angle, above.error + below.error
        error = (tilt + 1.0) * above.error + tilt * below.error + self._window_error(x) + ELEMENTARY * (1.0 + x * x)
        error = error + 4.0 * UNIT * np.abs(exponent)
        return _Line(exponent + error, angle - (angle_error + 4.0 * UNIT * np.abs(angle)), 1.01 * (rest[0] + dropped))

    def _complex_window(self, x: Floats, y: float) -> Complexes:
        """log s or log(1 - s) at x + iy."""
        v, angle = self._sign * self._cut.steepness * (x - self._cut.centre), self._sign * self._cut.steepness * y
        small = np.exp(-np.abs(v))
        # 1 / (1 + e^-z) or, to the left, e^z / (1 + e^z).
        left = v < 0.0
        real, imaginary = 1.0 + small * math.cos(angle), np.where(left, 1.0, -1.0) * small * math.sin(angle)
        value = -(np.log(np.hypot(real, imaginary)) + 1j * np.arctan2(imaginary, real))
        return np.asarray(np.where(left, value + v + 1j * angle, value), dtype=np.complex128)

    def line(self, tilt: float, step: float, number: int, tolerance: float, moments: tuple[float, float]) -> LineValues:
        """M(s) less the mass at tilt + i k step, k = 0 ... number - 1, with a quadrature error of about ``tolerance``. (J2)

        Args:
          moments: upper bounds on M(tilt) and on the mass.
        """
        return sum_on_line(self._line_nodes(tilt, number, tolerance, moments), tilt, step, number)

    def values(self, tilt: float, step: float, number: int, tolerance: float, moments: tuple[float, float]) -> LineValues:
        """M(s) itself: as exact as it is large, where e^{tilt L} is far from 1. Arguments as those of ``line``."""
        nodes = self._line_nodes(tilt, number, tolerance, moments)
        turned = nodes.log_weight + tilt * nodes.loss
        relative = nodes.weight_error + tilt * (nodes.loss_error + 2.0 * UNIT * np.abs(nodes.loss))
        rise = sum_on_line(nodes._replace(log_weight=turned, weight_error=relative), 0.0, step, number)
        terms: Complexes = np.asarray(np.exp(turned), dtype=np.complex128)
        whole = complex(math.fsum(terms.real.tolist()), math.fsum(terms.imag.tolist()))
        still = float(np.sum(np.abs(terms) * (relative + 64.0 * UNIT)))
        return LineValues(rise.minus_one + whole, rise.error + 1.01 * still)

    def _line_nodes(self, tilt: float, number: int, tolerance: float, moments: tuple[float, float]) -> Nodes:
        widest = 0.5 * self._highest(tilt, _ANALYTIC)
        strips = [(y, 2.0 * y * y + self._growth(2.0 * y, tilt)) for y in (widest * share for share in _LINE_SHARES)]
        need = max(math.log(4.0 * max(moments) / tolerance), 20.0)
        y, growth = max(strips, key=lambda strip: strip[0] / (need + strip[1]))
        at = self._spaced(2.0 * math.pi * y / (need + growth))
        strip = 2.02 * math.exp(growth) * (moments[0] + moments[1]) / math.expm1(2.0 * math.pi * y / at.step)
        factors = at.step * math.exp(growth) / -math.expm1(-REACH * at.step), 8.0 * y * math.exp(growth)
        beyond = float(self._ends(np.array([0.0, tilt]), factors).sum())
        found = loops.line_nodes(self._upper, self._lower, at, y, tilt, -1.0)
        x = at.nodes
        log_weight = found.log_weight + self._complex_window(x, y)
        weight_error = found.weight_error + self._window_error(x)
        sizes = exp_or_infinite(log_weight.real) + exp_or_infinite(log_weight.real + tilt * found.loss.real)
        if not float(sizes.max()) < math.inf:
            raise TransformUnavailable(loops.DOMINATED)
        kept = sizes > 1e-3 * tolerance / x.size
        if int(kept.sum()) * number > MOST_TERMS:
            raise TransformUnavailable(f"it would take {number:.1e} points of {int(kept.sum())} nodes each")
        quadrature = 1.001 * (strip + beyond + 1.01 * float(sizes[~kept].sum()))
        return Nodes(log_weight[kept], found.loss[kept], weight_error[kept], found.loss_error[kept], quadrature)


def exp_or_infinite(x: Floats) -> Floats:
    """e^x; infinite where that is far beyond what a bound may be of use, so that no bound is ever cut short."""
    return np.where(x <= loops.LARGEST, np.exp(np.minimum(x, loops.LARGEST)), math.inf)


def expm1_or_infinite(x: Floats) -> Floats:
    """The same of e^x - 1."""
    return np.where(x <= loops.LARGEST, np.expm1(np.minimum(x, loops.LARGEST)), math.inf)
