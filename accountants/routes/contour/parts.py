r"""delta of the outcomes with so many jumps, by a contour through their part of the moment function. proofs/contour.md (J)

With M_b and M_s the moment functions of a release's bulk and jumps (``densities/moments/windowed.py``), T releases have

    M^T = sum_k binom(T, k) M_b^{T - k} M_s^k,

each term that of a measure of its own: T - k releases without a jump, k with one. Where nearly nobody is sampled each hardly reaches
beyond the next, and tilts that suit one make the next huge: apart, each has the tilt that suits it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants import deadline
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities.loops import Ratio
from zetadp.accountants.densities.moments.windowed import Cut, Windowed, exp_or_infinite, expm1_or_infinite
from zetadp.accountants.densities.nodes import ELEMENTARY, TINY, LineValues, TransformUnavailable, expm1_complex, log1p_complex
from zetadp.mechanisms.numerics.logspace import log_add

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

MOST_HEIGHTS, _FEW_HEIGHTS = 2**16, 3000
_LARGEST = 300.0
"""Logarithm of the largest moment of one release that is computed."""

_LEAST = 1e-300
"""The least modulus of the jumps' moment function: what is smaller counts as this, and as wrong by it."""

LARGEST_GAP = 22.0
"""How far the integrand may be above delta, as a logarithm: beyond it, rounding is what is left."""

_MASS_NATS = 40.0
"""A sum for a mass errs by e^-40 of it, besides rounding."""

_ALIAS_SHARES = 0.03, 0.1, 0.25, 0.5, 1.0, 2.0
_HEIGHTS = np.geomspace(4.0, 1.3e5, 52)


class SlowDecay(TransformUnavailable):
    """A part's moment function falls too slowly for a contour through it."""


@final
@dataclass(frozen=True)
class Releases:
    """``count`` releases of the pair f A against f B in one direction."""

    upper: Ratio
    lower: Ratio
    count: int


@final
class Jumps(NamedTuple):
    """How many releases have a jump: exactly ``number``; or any, at least one, if it is None."""

    number: int | None

    def log_size(self, count: int, bulk: Floats, jumps: Floats) -> Floats:
        """log of this part of (b + s)^T, given log b and log s: it rises with both, so bounds give a bound; infinite where one is."""
        finite = np.isfinite(bulk) & np.isfinite(jumps)
        bulk, jumps = np.where(finite, bulk, 0.0), np.where(finite, jumps, 0.0)
        if self.number is None:
            size = count * bulk + _log_expm1(count * np.logaddexp(0.0, jumps - bulk))
        else:
            size = log_binomial(count, self.number) + (count - self.number) * bulk + self.number * jumps
        return np.where(finite, size, math.inf)


def _log_expm1(x: Floats) -> Floats:
    """log(e^x - 1) for x >= 0; never below log 1e-300."""
    return np.where(x > 40.0, x, np.log(np.maximum(np.expm1(np.minimum(x, 40.0)), 1e-300)))


def log_binomial(count: int, number: int) -> float:
    """log of the binomial coefficient."""
    return math.fsum(math.log(count - k) - math.log(k + 1.0) for k in range(number))


@final
class Aim(NamedTuple):
    """What a part is laid for: its tilt, the epsilon, the whole delta there as far as known, and the relative error of it to aim at."""

    tilt: float
    epsilon: float
    log_delta: float
    tolerance: float


@final
class Part:
    """A contour for the outcomes with so many jumps.

    Raises:
      TransformUnavailable: it would take too many points, or leave too few digits.
    """

    def __init__(self, releases: Releases, cut: Cut, jumps: Jumps, aim: Aim) -> None:
        self._releases, self._cut, self._jumps, self.tilt, self._aim = releases, cut, jumps, aim.tilt, aim
        nats = max(math.log(2e3 * releases.count), _MASS_NATS)
        self._bulk = Windowed(releases.upper, releases.lower, cut, False, nats)
        # Where nothing jumps P's bulk may end before its jumps do, whose whole mass it lacks.
        far = releases.upper.shifts[-1] + math.sqrt(2.0 * (nats + math.log(releases.count)))
        self._whole = cut._replace(end=max(cut.end, far)) if jumps.number == 0 else cut
        self._rest = Windowed(releases.upper, releases.lower, self._whole, True, nats)
        self._log_left_out = log_beyond(releases, cut, jumps)
        self._lay(math.log(8.0 / aim.tolerance))

    def _lay(self, need: float) -> None:
        t, aim = self.tilt, self._aim
        tilts = np.array([t, *(t * (1.0 + share) for share in _ALIAS_SHARES)])
        self._own, self._other = self._bulk.uppers(tilts), self._rest.uppers(tilts)
        if not math.isfinite(self._own.error + self._other.error):
            raise TransformUnavailable("rounding hides the mass of its jumps")
        if not max(float(self._own.log_moments[0]), float(self._other.log_moments[0]) if self._copies() else 0.0) <= _LARGEST:
            raise TransformUnavailable("a single release's moment function exceeds what a float can hold")
        sizes = self._log_size(self._own.log_moments, self._other.log_moments)
        chernoff = sizes - tilts * np.log1p(1.0 / tilts) - np.log1p(tilts)
        gap = float(sizes[0]) - t * aim.epsilon - math.log1p(t) - aim.log_delta
        self._gap = max(gap, 0.0)
        if gap > LARGEST_GAP:
            raise TransformUnavailable("its parts' moments outweigh delta by too much")
        own, other = (np.log(np.maximum(np.array([side.mass + side.error]), 1e-300)) for side in (self._own, self._other))
        self._log_mass = min(float(self._log_size(np.minimum(own, 0.0), other)[0]), 0.0)
        above = (chernoff[1:] - tilts[1:] * aim.epsilon - aim.log_delta + need) / (tilts[1:] - t)
        best = int(np.argmin(above)) + 1
        if above[best - 1] == math.inf:
            raise TransformUnavailable("every larger moment exceeds what a float can hold")
        self._alias_tilt, self._alias_size = float(tilts[best]), float(chernoff[best])
        self.period = max((self._log_mass - aim.log_delta + need) / t, float(above[best - 1]), 1.0 / t) + 1e-3 * aim.epsilon
        self._step = 2.0 * math.pi / self.period
        height, self._log_cut = self._cut_off(need)
        number = math.ceil(height / self._step) + 2
        if number > MOST_HEIGHTS:
            raise SlowDecay(f"its jumps' moment function decays too slowly: it would take {number:.1e} points")
        self._log_cut -= math.log(math.pi * self._step * (number - 1.0))
        self._fill(number, max(0.03 * aim.tolerance * math.exp(-self._gap), 1e-20))

    def _log_size(self, bulk: Floats, jumps: Floats) -> Floats:
        """An upper bound on the log of this part of (b + s)^T, from upper bounds on log b and log s."""
        count, number = self._releases.count, self._jumps.number
        if number == 0:
            return count * bulk + 4.0 * UNIT * np.abs(count * bulk)
        size = self._jumps.log_size(count, bulk, jumps)
        number = number or 1
        rounding = 64.0 * UNIT * (1.0 + number * math.log(count + 2.0) + count * np.abs(bulk) + number * np.abs(jumps))
        return size + np.abs(size) * 8.0 * UNIT + rounding

    def _cut_off(self, need: float) -> tuple[float, float]:
        """(height, log of a bound on this part of M^T from there on) beyond which little enough is left. (D), (J4)"""
        t, aim = self.tilt, self._aim
        heights = _HEIGHTS / self.period * 2.0 * math.pi
        heights = heights[heights < 2.0 * MOST_HEIGHTS * self._step]
        own, other = float(self._own.log_moments[0]), float(self._other.log_moments[0])
        count, fall = self._releases.count, need + self._gap + 6.0
        limits = t * aim.epsilon + np.log(math.pi * heights) + aim.log_delta - need
        decay = None if self._jumps.number == 0 else self._rest.log_decay(t, other, (fall, 1))

        def first(bulk: Callable[[float], float]) -> tuple[int, float] | None:
            """The first height from which on little enough is left, with the bound; None if there is none."""

            def size(place: int) -> float:
                height = float(heights[place])
                jumps = other if decay is None else decay(height)
                return float(self._log_size(np.array([bulk(height)]), np.array([jumps]))[0])

            # Bounds fall with the height: where the last one isn't enough none is.
            low, high, found = -1, heights.size - 1, size(heights.size - 1)
            if found > limits[high]:
                return None
            while high - low > 1:
                middle = (low + high) // 2
                value = size(middle)
                low, high, found = (middle, high, found) if value > limits[middle] else (low, middle, value)
            return high, found

        found = first(lambda _: own) if self._jumps.number != 0 else None
        if found is None or heights[found[0]] > _FEW_HEIGHTS * self._step:
            # The bulk's costs as much again, and falls only where there are many releases.
            found = first(self._bulk.log_decay(t, own, (fall + math.log(count), count))) or found
        if found is None:
            raise SlowDecay("its jumps' moment function doesn't decay provably")
        return float(heights[found[0]]), found[1]

    def _fill(self, number: int, tolerance: float) -> None:
        t, count = self.tilt, self._releases.count
        u = self._step * np.arange(number)
        s = t + 1j * u
        sizes = float(self._own.log_moments[0]), float(self._other.log_moments[0]) if self._copies() else 0.0
        (own, other), mass = (math.exp(size) for size in sizes), self._other.mass
        masses = self._own.mass + self._own.error, mass + self._other.error
        deadline.check()
        line = self._bulk.line(t, self._step, number, tolerance * own / count, (own, masses[0]))
        nothing = LineValues(np.zeros(number, dtype=np.complex128), np.zeros(number))
        jumps = (
            self._rest.values(t, self._step, number, tolerance * other / self._copies(), (other, masses[1])) if self._copies() else nothing
        )
        # P's bulk has the mass that jumps and what is beyond the end leave. (J3)
        beyond = math.exp(log_beyond_one(self._releases, self._whole, Jumps(None)))
        beyond += math.exp(log_beyond_one(self._releases, self._cut, self._jumps))
        # A modulus below TINY counts as TINY.
        bulk_error = line.error + self._other.error + beyond + 4.0 * UNIT * np.abs(line.minus_one) + 4.0 * TINY
        log_bulk = log1p_complex(line.minus_one - mass)
        kernel: Complexes = np.asarray(-np.log(s) - np.log1p(s), dtype=np.complex128)
        kernel_error = 16.0 * UNIT * (8.0 + np.abs(kernel))
        moduli = np.abs(1.0 + line.minus_one - mass) + bulk_error, np.abs(jumps.minus_one) + jumps.error
        log_value, log_errors = self._values(log_bulk, jumps.minus_one, moduli, (bulk_error, jumps.error))
        scale = float(log_value[0].real + kernel[0].real)
        self._integrand: Complexes = np.asarray(np.exp(log_value + kernel - scale), dtype=np.complex128)
        self._integrand[0] *= 0.5
        errors = exp_or_infinite(log_errors + kernel.real - scale)
        found = np.abs(self._integrand)
        whole = float(found.sum())
        rounding = 1.01 * float(np.sum(errors * (1.0 + kernel_error) + found * kernel_error)) + UNIT * (number + 64.0) * whole
        self._u, self._scale, self._rounding = u, math.log(self._step / math.pi) + scale, rounding + 8.0 * UNIT * abs(scale) * whole
        self._phase = 4.0 * UNIT * float(found @ np.abs(s))

    def _copies(self) -> int:
        return self._releases.count if self._jumps.number is None else self._jumps.number

    def _values(
        self, log_bulk: Complexes, jumps: Complexes, sizes: tuple[Floats, Floats], errors: tuple[Floats, Floats]
    ) -> tuple[Complexes, Floats]:
        """(log of this part of M^T at each height, log of a bound on its error). (J5)"""
        count, number = self._releases.count, self._jumps.number
        a, b = np.log(np.maximum(sizes[0], TINY)), np.log(np.maximum(sizes[1], 1e-300))
        if number is not None:
            safe = np.where(np.abs(jumps) > _LEAST, jumps, _LEAST)
            log_value = log_binomial(count, number) + (count - number) * log_bulk + number * np.log(safe)
            size = log_binomial(count, number) + (count - number) * a + number * b
            relative = (count - number) * errors[0] / sizes[0]
            if number:
                # What is below the least is taken for it: off by no more than both together.
                relative = relative + number * errors[1] / np.maximum(sizes[1], _LEAST) + np.where(np.abs(jumps) > _LEAST, 0.0, 2.0)
            relative = relative + expm1_or_infinite(
                ELEMENTARY
                * ((count - number) * np.abs(log_bulk) + number * (1.0 + np.abs(np.log(safe))) + 1.0 + number * math.log(count + 2.0))
            )
            return log_value, size + np.log(1.01 * relative)
        one = np.exp(log_bulk)
        is_tiny = ~(np.abs(one) > 2.0 * TINY)
        # There the bulk counts as TINY: the jumps are scaled by up to 2 and turned with it.
        jumps_error = errors[1] + _LEAST + np.where(is_tiny, 3.0 * np.abs(jumps), 0.0)
        ratio = jumps / np.where(is_tiny, TINY, one)
        rho, base = count * log1p_complex(ratio), count * log_bulk
        near = rho.real < 1.0
        with np.errstate(divide="ignore"):
            grown = np.log(np.asarray(expm1_complex(np.asarray(np.where(near, rho, 0.0), dtype=np.complex128)), dtype=np.complex128))
        log_value = base + np.where(near, grown, rho + np.log1p(-np.exp(-np.where(near, 1.0, rho))))
        first = np.log(1.01 * count * errors[0]) + (count - 1) * a + _log_expm1((count - 1) * np.logaddexp(0.0, b - a))
        moved = np.logaddexp(first, np.log(1.01 * count * jumps_error) + (count - 1) * np.logaddexp(a, b))
        # Where the value is 0 no logarithm was rounded.
        depth = 4.0 + np.abs(base) + 2.0 * np.abs(rho) + np.where(np.isfinite(log_value), np.abs(log_value), 0.0)
        amount = np.where(ELEMENTARY * depth < 0.5, 4.0 * ELEMENTARY * depth, math.inf)
        own = np.log(amount) + np.maximum(rho.real, 0.0) + np.minimum(np.log(np.maximum(np.abs(rho), 1e-300)), 0.0)
        # The quotient's rounding, even where 1 + the quotient is nearly 0.
        turned = 16.0 * UNIT * np.abs(ratio) + 1e-300
        own = base.real + np.logaddexp(own, np.log(1.01 * count * turned) + (count - 1) * np.log(np.abs(1.0 + ratio) + turned))
        return log_value, np.logaddexp(moved, own)

    def estimate(self, epsilon: float) -> tuple[float, float]:
        """(log, slope of the log) of the trapezoid sum; (-inf, 0) if it isn't positive."""
        total, weighted = self._sums(epsilon)
        if not total > 0.0:
            return -math.inf, 0.0
        return self._scale - self.tilt * epsilon + math.log(total), -weighted / total

    def _sums(self, epsilon: float) -> tuple[float, float]:
        terms: Complexes = np.asarray(self._integrand * np.exp(-1j * epsilon * self._u), dtype=np.complex128)
        total = float(terms.real.sum())
        return total, self.tilt * total - float(terms.imag @ self._u)

    def bracket(self, epsilon: float) -> tuple[float, float]:
        """Proved (log lower, log upper) of this part of delta(epsilon), but for what is left out of P: who adds parts counts it."""
        scale = self._scale - self.tilt * epsilon
        total, _ = self._sums(epsilon)
        cut = float(exp_or_infinite(np.array(self._log_cut - self.tilt * epsilon - scale)))
        error = 1.01 * (self._rounding + abs(epsilon) * self._phase + cut)
        slack = 8.0 * UNIT * (abs(self._scale) + abs(self.tilt * epsilon) + 8.0)
        high = scale + math.log(max(total, 0.0) + error) + slack
        low = total - error - self._aliases(epsilon, scale)
        return (scale + math.log(low) - slack if low > 0.0 else -math.inf), min(high, self._log_mass + 1e-9)

    def _aliases(self, epsilon: float, scale: float) -> float:
        """(A), with this part's own mass in place of 1."""
        below = -self.tilt * self.period
        fall = (self._alias_tilt - self.tilt) * self.period
        above = self._alias_size - self._alias_tilt * epsilon - fall - math.log(-math.expm1(-fall))
        both = exp_or_infinite(np.array([self._log_mass + below - math.log(-math.expm1(below)), above]) - scale)
        return float(both.sum()) * (1.0 + 1e-9)


def log_beyond(releases: Releases, cut: Cut, jumps: Jumps) -> float:
    """log of a bound on the probability of what is left out, any release beyond the end of P: of its bulk, if none has a jump. (T1)"""
    return min(log_beyond_one(releases, cut, jumps) + math.log(releases.count) * (1.0 + 4.0 * UNIT), 0.0)


def log_beyond_one(releases: Releases, cut: Cut, jumps: Jumps) -> float:
    """The same of one release."""
    total = -math.inf
    for weight, shift in zip(releases.upper.mixture.weights, releases.upper.shifts, strict=True):
        distance = cut.end - shift
        total = log_add(total, math.log(weight) - (0.5 * distance * distance + math.log(2.0) if distance > 0.0 else 0.0))
    if jumps.number == 0:
        total -= max(cut.steepness * (cut.end - cut.centre) * (1.0 - 1e-12) - 1e-9, 0.0)
    return total + 1e-12 * (1.0 + abs(total))
