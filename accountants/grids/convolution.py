r"""Composition of lattice laws by tilted FFT, with a bound on all effects of the cyclic sum and of rounding.

Weights w_k = p_k e^{t h k - kappa} of sum about 1 are convolved; the composed mass at lattice index K is x_K e^{sum kappa - t h K}, and

    delta(eps_K) = e^{sum kappa - t h K} sum_{j > 0} x_{K + j} g_j,    g_j = e^{-t h j} (1 - e^{-h j}).

An error of x is thus measured against the mass near eps_K, however small delta is. proofs/fft.md, section 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import scipy
from numpy.typing import NDArray

from zetadp.accountants import deadline
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.grids.grid import GridLaw
from zetadp.accountants.grids.powers import Both, power, power_of_both, product_of_both

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

FFT_ERROR = 8.0 * UNIT
"""Relative error, in the 2-norm, of an FFT of 2^L points, for each of the L levels: Higham 2002, Theorem 24.2. (4.1)"""

PRODUCT_ERROR = 3.0 * UNIT
"""Relative error of a complex product. (4.2)"""

_SUM_ERROR = 1e-12
"""More than the rounding of any sum of 2^22 positive terms that NumPy adds pairwise."""

_UNDERFLOW = 1e-300
"""More than the total of all tilted weights, kernel values and products that underflow. (4.7)"""


@final
@dataclass(frozen=True)
class Window:
    """Where and how to evaluate the composed law.

    Attributes:
      tilt: per unit of loss; > 0.
      first: lattice index of the first point at which delta is needed.
      last: lattice index of the last one.
      size: period of the cyclic sum, a power of 2.
      kernel: how many lattice points ahead to look; what is beyond is bounded.
      before: further tilt, < 0, for the bound on what is far before the window.
      after: further tilt, > 0, for the bound on what is far after it.
      jump: loss of one release from which on it counts as a jump: without one the window isn't reached, as is shown, and what no jump
        contributes is bounded instead of computed. -inf: every loss is one.
      bulk: further tilt, > 0, that shows it.
    """

    tilt: float
    first: int
    last: int
    size: int
    kernel: int
    before: float
    after: float
    jump: float = -math.inf
    bulk: float = 0.0


@final
@dataclass(frozen=True)
class Tails:
    """A composed law of tiny losses at every lattice index of its window.

    Attributes:
      losses: shape (n,), evenly spaced.
      loss_error: by which they may be off.
      deltas: bounds from above or below, as the law is.
      masses: of the losses beyond each: by how much delta falls from there to the next one, over their distance.
      doubts: by how much ``masses`` may be off.
    """

    losses: Floats
    loss_error: float
    deltas: Floats
    masses: Floats
    doubts: Floats


@final
class TiltedLaw:
    """The weights w_k, all rounded upwards (``grow``) or downwards; the last of them, from the loss ``jump`` on, are jumps."""

    def __init__(self, law: GridLaw, tilt_step: float, grow: bool, jump: float = -math.inf) -> None:
        index = law.index
        self.index = index
        self.bulk = int(np.searchsorted(law.start + law.step * index, jump))
        logs = np.log(law.masses)
        turned = logs + tilt_step * index
        peak = float(turned.max())
        self.log_mass = peak + math.log(float(np.exp(turned - peak).sum()))
        error = 4.0 * UNIT * (np.abs(logs) + tilt_step * index + abs(self.log_mass) + 4.0)
        self.weights = np.exp(turned - self.log_mass) * (1.0 + error if grow else 1.0 - error)
        self.excess = max(float(self.weights.sum()) * (1.0 + _SUM_ERROR) - 1.0, 0.0)

    def folded(self, size: int, part: slice) -> Floats:
        """Part of the weights summed over equal remainders of their index modulo ``size``."""
        return np.asarray(np.bincount(self.index[part] % size, weights=self.weights[part], minlength=size), dtype=np.float64)

    def log_moment(self, step: float, part: slice) -> float:
        """log of an upper bound on sum w_k e^{step k} over part of the weights.

        A weight that vanished counts as 1e-300, except for step < 0, which is asked for what wraps around: 0 doesn't. (4.7)
        """
        index, weights = self.index[part], self.weights[part]
        if step < 0.0:
            index, weights = index[weights > 0.0], weights[weights > 0.0]
        turned = step * index + np.log(np.maximum(weights, 1e-300))
        if len(turned) == 0:
            return -math.inf
        peak = float(turned.max())
        return peak + math.log(float(np.exp(turned - peak).sum())) + 1e-11 + 8.0 * UNIT * (abs(step) * float(self.index[-1]) + abs(peak))


@final
class Composition:
    """The composed law of leaves on one lattice, as upper or lower bounds of its delta at lattice points.

    Args:
      laws: leaf laws with the same step, each with its count; none of them empty.
      window: where the tilted composed law has its mass.
      upper: whether the bounds are upper bounds.
    """

    def __init__(self, laws: tuple[tuple[GridLaw, int], ...], window: Window, upper: bool) -> None:
        self.window, self.step, self.is_upper = window, laws[0][0].step, upper
        self._tilt_step = window.tilt * self.step
        self.start = math.fsum(law.start * count for law, count in laws)
        self._top = sum(int(law.index[-1]) * count for law, count in laws)
        self.start_error = 4.0 * UNIT * math.fsum(abs(law.start) * count for law, count in laws)
        self._leaves = [(TiltedLaw(law, self._tilt_step, grow=upper, jump=window.jump), count) for law, count in laws]
        self._log_scale = math.fsum(count * leaf.log_mass for leaf, count in self._leaves)
        self._scale_error = 4.0 * UNIT * math.fsum(abs(count * leaf.log_mass) for leaf, count in self._leaves)
        self._log_whole = sum(count * math.log1p(leaf.excess) for leaf, count in self._leaves)
        self._log_total = self._log_whole if window.jump == -math.inf else min(self._log_whole, self._moment(0.0))
        # (4.6) total masses above 1 multiply the mass at infinity.
        surplus = sum(count * max(float(law.masses.sum()) * (1.0 + _SUM_ERROR) + law.infinity - 1.0, 0.0) for law, count in laws)
        self.infinity = sum(count * law.infinity for law, count in laws) * math.exp(min(surplus, 700.0)) * (1.0 + 1e-12)
        self._log_least_infinity = -math.inf if upper else _log_of_any(laws)
        self._values, self._noise = self._composed() if window.jump == -math.inf else self._composed_with_jumps()
        reach = min(window.size - 1 - (window.last - window.first), window.kernel)
        places = np.arange(1.0, reach + 1.0)
        self._kernel = np.exp(-self._tilt_step * places) * -np.expm1(-self.step * places)
        # Divided by its largest value: a steep tilt's squares would vanish, and the bound with them.
        peak = max(float(self._kernel.max(initial=0.0)), _UNDERFLOW)
        self._kernel_norm = peak * float(np.linalg.norm(self._kernel / peak)) * (1.0 + 1e-9)
        # e^{-ty} (1 - e^{-y}) is at most both: (1 - e^{-y}) <= min(1, y), and y e^{-ty} <= 1 / (e t).
        self._kernel_bound = min(1.0, 0.37 / window.tilt)

    def _composed(self) -> tuple[Floats, float]:
        """(x over the window, bound on the 2-norm of its error)."""
        size = self.window.size
        levels = size.bit_length() - 1
        product: Complexes | None = None
        error = growth = 0.0
        for leaf, count in self._leaves:
            deadline.check()
            folded = leaf.folded(size, slice(None))
            norm = float(np.linalg.norm(folded)) * (1.0 + 1e-9)
            # Weights with the same remainder are added, each sum with one rounding.
            error += count * (FFT_ERROR * levels + UNIT * (int(leaf.index[-1]) // size)) * norm
            growth += count * (leaf.excess + FFT_ERROR * levels * math.sqrt(size) * norm)
            factor = power(np.asarray(scipy.fft.rfft(folded)), count)
            product = factor if product is None else product * factor
        assert product is not None
        values = np.roll(np.asarray(scipy.fft.irfft(product, size), dtype=np.float64), -(self.window.first % size))
        products = sum(count for _, count in self._leaves) + len(self._leaves)
        error += (PRODUCT_ERROR * products + FFT_ERROR * levels) * float(np.linalg.norm(values)) * (1.0 + 1e-9)
        # (4.3) every factor of a product is at most 1 plus its share of ``growth`` in modulus.
        return values, 1.01 * error * math.exp(min(growth, 700.0))

    def _composed_with_jumps(self) -> tuple[Floats, float]:
        """The same without what no jump contributes, (b + s)^T - b^T: then every error is a share of the jumps' mass. (4.8)"""
        size = self.window.size
        levels = size.bit_length() - 1
        both: Both | None = None
        bulk_error = jump_error = jumps = growth = 0.0
        for leaf, count in self._leaves:
            deadline.check()
            folded = leaf.folded(size, slice(0, leaf.bulk)), leaf.folded(size, slice(leaf.bulk, None))
            bulk_norm, jump_norm = (float(np.linalg.norm(part)) * (1.0 + 1e-9) for part in folded)
            share = FFT_ERROR * levels + UNIT * (int(leaf.index[-1]) // size + 1)
            bulk_error, jump_error = bulk_error + count * share * bulk_norm, jump_error + count * share * jump_norm
            jumps += count * (float(folded[1].sum()) * (1.0 + _SUM_ERROR) + FFT_ERROR * levels * math.sqrt(size) * jump_norm)
            growth += count * (leaf.excess + FFT_ERROR * levels * math.sqrt(size) * (bulk_norm + jump_norm))
            found = power_of_both((np.asarray(scipy.fft.rfft(folded[0])), np.asarray(scipy.fft.rfft(folded[1]))), count)
            both = found if both is None else product_of_both(both, found)
        assert both is not None
        values = np.roll(np.asarray(scipy.fft.irfft(both[1], size), dtype=np.float64), -(self.window.first % size))
        products = sum(count for _, count in self._leaves) + len(self._leaves)
        error = jump_error + bulk_error * jumps + 2.0 * (PRODUCT_ERROR + UNIT) * products * jumps * (1.0 + jumps)
        own = FFT_ERROR * levels * float(np.linalg.norm(values)) * (1.0 + 1e-9)
        return values, 1.01 * (error * math.exp(min(growth, 700.0)) + own)

    @cached_property
    def _bulk_moment(self) -> float:
        return sum(count * leaf.log_moment(self.window.bulk * self.step, slice(0, leaf.bulk)) for leaf, count in self._leaves)

    def _without_jumps(self, index: Floats) -> Floats:
        """Bound on the tilted mass that is at or beyond each index without a jump. (4.8)"""
        if self.window.jump == -math.inf:
            return np.zeros_like(index)
        turned = self.window.bulk * self.step * index
        return np.exp(np.minimum(self._bulk_moment - turned + 1e-12 * np.abs(turned), min(self._log_whole, 700.0))) * (1.0 + 1e-9)

    @cached_property
    def aliases(self) -> float:
        """Bound on what wraps around into the sum at any index of the window. (4.4)

        Masses at or beyond last + size come in from above; masses at or below first + half - size come in from below, and end up at
        most ``half`` ahead, or further ahead, where the kernel is small.
        """
        half = len(self._kernel) - len(self._kernel) // 4
        return self._wrapped(half, float(self._kernel.max()), float(self._kernel[half:].max(initial=0.0)))

    def _wrapped(self, half: int, peak: float, far: float) -> float:
        """The same for a kernel of this largest value, anywhere and further than ``half`` ahead."""
        above, below = self.window.first + self.window.size, self.window.last + half - self.window.size
        total = self._beyond(above, self.window.after) * peak if above <= self._top else 0.0
        if self.window.last + len(self._kernel) - self.window.size >= 0:
            total += math.exp(min(self._log_total, 700.0)) * far
        if below >= 0:
            total += self._beyond(below, self.window.before) * peak
        return total * (1.0 + 1e-9)

    @cached_property
    def _rest(self) -> float:
        """Bound on the tilted mass beyond the kernel's end, from any index of the window."""
        edge = self.window.first + len(self._kernel) + 1
        return self._beyond(edge, self.window.after) if edge <= self._top else 0.0

    def _beyond(self, edge: int, tilt: float) -> float:
        """Chernoff's bound on the tilted mass at and beyond a lattice index, on the side that the further tilt points to."""
        turned = tilt * self.step
        best = min(self._log_total, self._moment(turned) - turned * edge + 1e-12 * abs(turned * edge))
        return math.exp(min(best, 700.0)) * (1.0 + 1e-9)

    def _moment(self, step: float) -> float:
        """log of an upper bound on the moment of what is composed, at a further tilt per lattice step. (4.8)"""
        if self.window.jump == -math.inf or any(leaf.bulk == 0 for leaf, _ in self._leaves):
            return sum(count * leaf.log_moment(step, slice(None)) for leaf, count in self._leaves)
        # b^T ((1 + s / b)^T - 1), which rises with b and with s.
        bulk = rise = 0.0
        for leaf, count in self._leaves:
            own, jumps = leaf.log_moment(step, slice(0, leaf.bulk)), leaf.log_moment(step, slice(leaf.bulk, None))
            bulk, rise = bulk + count * own, rise + count * float(np.logaddexp(0.0, jumps - own)) * (1.0 + 1e-12)
        return bulk + (rise if rise > 700.0 else math.log(math.expm1(rise) + _UNDERFLOW)) + 1e-12 * (1.0 + abs(bulk))

    def _kernel_beyond(self, place: int) -> float:
        """Bound on the kernel at and beyond a place: for y >= y_0, y e^{-ty} is at most e^{-t y_0} times the larger of y_0 and 1 / t."""
        largest = min(1.0, max(self.step * place, 1.0 / self.window.tilt))
        return math.exp(-self._tilt_step * place) * largest * (1.0 + 1e-12)

    def tails(self) -> Tails | None:
        r"""All of ``log_delta`` in the window at once, for losses so tiny that 1 - e^{-L} is L but for rounding. (4.10)

        None if losses aren't tiny, or the window is too short for its kernel: then nothing bounds what wraps around.
        """
        window, terms = self.window, len(self._kernel)
        count = window.last - window.first + 1
        values, fall = self._values[: count + terms], math.exp(-self._tilt_step)
        half = terms - terms // 4
        if not (self.step * window.size < 1e-14 and self._tilt_step * half >= 1.0 and self._tilt_step * len(values) < 600.0):
            return None
        mass, moment = _geometric(values, self._tilt_step)
        sizes, sized_moment = _geometric(np.abs(values), self._tilt_step)
        # 2-norms of the kernels f^j and h j f^j over all j >= 1, with r = f^2.
        rise, r = -math.expm1(-2.0 * self._tilt_step), fall * fall
        norms = math.sqrt(r / rise), self.step * math.sqrt(r * (1.0 + r) / rise**3)
        rounding = 8.0 * UNIT * (len(values) + 64.0 + self._tilt_step * len(values))
        index = np.asarray(window.first + np.arange(count), dtype=np.float64)
        bulk = self._without_jumps(index)
        wrapped = self._wrapped(half, 1.0, fall**half)
        doubts = rounding * sizes[:count] + 1.01 * self._noise * norms[0] + wrapped + bulk + self._rest * fall**terms
        unsure = rounding * self.step * sized_moment[:count] + 1.01 * self._noise * norms[1] + _UNDERFLOW
        turned = self._tilt_step * index
        scale = np.exp(self._log_scale - turned)
        slack = 1.01 * (self._scale_error + 8.0 * UNIT * (abs(self._log_scale) + np.abs(turned) + 16.0))
        finite = self.step * moment[:count]
        if self.is_upper:
            finite = np.maximum(finite, 0.0) + unsure + self._rest * self._kernel_beyond(terms + 1) + bulk * self._kernel_bound
            deltas = scale * finite * (1.0 + slack) + self.infinity
        else:
            least = math.exp(self._log_least_infinity) if self._log_least_infinity > -math.inf else 0.0
            deltas = scale * np.maximum(finite - unsure - self.aliases, 0.0) * (1.0 - slack) + least
        masses = scale * np.maximum(mass[:count], 0.0)
        losses = self.start + self.step * index
        return Tails(losses, self.loss_error(max(abs(window.first), abs(window.last))), deltas, masses, scale * doubts + slack * masses)

    def loss(self, index: int) -> float:
        """The loss at a lattice index, off by at most ``loss_error``."""
        return self.start + self.step * index

    def loss_error(self, index: int) -> float:
        """Rounding of ``loss``."""
        return self.start_error + 4.0 * UNIT * abs(self.step * index)

    def log_delta(self, index: int) -> float:
        """log of a bound on the composed law's delta at a lattice index inside the window; -inf if nothing is left of a lower bound."""
        place, terms = index - self.window.first, len(self._kernel)
        assert 0 <= place <= self.window.last - self.window.first
        total = float(self._values[place + 1 : place + 1 + terms] @ self._kernel)
        error = self._noise * self._kernel_norm
        # (4.5) rounding of the scalar product and of the kernel.
        error += (terms + 64.0) * UNIT * (max(total, 0.0) + 2.0 * error)
        scale = self._log_scale - self._tilt_step * index
        slack = self._scale_error + 8.0 * UNIT * (abs(self._log_scale) + self._tilt_step * abs(index) + 8.0)
        if self.is_upper:
            rest = self._rest * self._kernel_beyond(terms + 1)
            rest += float(self._without_jumps(np.array([float(index)]))[0]) * self._kernel_bound
            size = max(total, 0.0) + error + rest + _UNDERFLOW
            return _log_sum(scale + math.log(size) + slack, self.infinity)
        size = total - error - self.aliases - _UNDERFLOW
        finite = scale + math.log(size) - slack if size > 0.0 else -math.inf
        return finite if self._log_least_infinity == -math.inf else float(np.logaddexp(finite, self._log_least_infinity)) - 1e-14


def _geometric(values: Floats, tilt_step: float) -> tuple[Floats, Floats]:
    """sum_j e^{-aj} v_{k + j} and sum_j j e^{-aj} v_{k + j} over j >= 1, at every k, by sums from the end."""
    powers = np.exp(-tilt_step * np.arange(len(values)))
    turned = (values * powers)[::-1]
    after = np.append(0.0, np.cumsum(turned)[:-1])
    return (after / powers[::-1])[::-1], (np.cumsum(after) / powers[::-1])[::-1]


def _log_sum(log_value: float, other: float) -> float:
    """log(e^log_value + other), rounded up."""
    if other == 0.0:
        return log_value
    return float(np.logaddexp(log_value, math.log(other))) + 1e-14 * (1.0 + abs(math.log(other)))


def _log_of_any(laws: tuple[tuple[GridLaw, int], ...]) -> float:
    """log of a lower bound on the mass at infinity: that with which any of the releases' losses is infinite. (4.9)"""
    finite = [float(law.masses.sum()) * (1.0 - _SUM_ERROR) for law, _ in laws]
    releases = [(mass, law.infinity * (1.0 - _SUM_ERROR), count) for mass, (law, count) in zip(finite, laws, strict=True)]
    rise = math.fsum(count * math.log1p(infinity / mass) for mass, infinity, count in releases) * (1.0 - 1e-12)
    if not rise > 0.0:
        return -math.inf
    without = math.fsum(count * math.log(mass) for mass, _, count in releases)
    return without - 1e-12 * abs(without) + math.log(math.expm1(min(rise, 700.0))) - 1e-12
