r"""Noise on whole numbers: mixtures of shifted copies of an even, log-concave law f on the whole numbers. proofs/fft.md (1.8)

Everything is a sum over a table of f. Of two mixtures that share a copy c (P above, Q below it), only differences are summed:

    P - g Q = sum_j p_j (f_{a_j} - f_c) + g sum_j q_j (f_c - f_{b_j}) - (g - 1) f_c,

whose first two sums are not negative over a half-line: rare samples keep their digits. Sums and exponents are long doubles, where a
processor has them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias, final

import numpy as np

from zetadp.accountants import deadline
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities.base import TINY, Calls, Density, Floats, LossLaw, RatioNodes
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.mechanisms.loss import IntegerLoss, PrivacyLoss
from zetadp.mechanisms.numerics.integer_laws import LARGEST_EXPONENT, LONG, GaussianLaw, IntegerLaw, Long

_LARGEST_EPSILON = 700.0
_MOST_LOSSES = 8192
_FURTHEST = 2**15
_LARGEST_TILT = 1000.0
"""How far a table for moments may reach beyond the usual one, in whole numbers, and in scales: logarithms of f then keep ten digits."""

_Copies: TypeAlias = tuple[tuple[float, ...], tuple[int, ...]]
"""Weights and whole shifts of a mixture."""


@final
@dataclass(frozen=True)
class IntegerDensity(Density):
    """Shifts are in units of the scale, and stand for the nearest whole number: rounding allowances for shifts change nothing here.

    Attributes:
      law: of the noise.
    """

    loss_type = IntegerLoss
    norm = "l2"
    is_discrete = True
    has_atoms = False
    law: IntegerLaw

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.law.name

    @property
    def is_bound(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.law.is_part

    def of(self, loss: PrivacyLoss) -> Density:
        assert isinstance(loss, IntegerLoss)  # of this type
        return IntegerDensity(loss.law)

    def loss(self, distance: float) -> PrivacyLoss:
        return IntegerLoss(self.law, distance)

    def largest_loss(self, upper: Mixture, lower: Mixture) -> float:
        if not self.law.is_bounded:
            return math.inf
        # Beyond all shifts the ratio is constant, and its logarithm is the largest in each order.
        table = _table(self, upper, lower)
        return max(float(table.loss[-1]), -float(table.loss[0])) * (1.0 + 1e-13) + 1e-15

    def calls(self, upper: Mixture, lower: Mixture, epsilons: Floats) -> Calls:
        table = _table(self, upper, lower)
        # Beyond e^700 the value at 700 is an upper end, and there is no lower one.
        epsilons, beyond = np.minimum(epsilons, _LARGEST_EPSILON), epsilons > _LARGEST_EPSILON
        place = np.searchsorted(table.loss, epsilons, side="right")
        g, over = np.exp(epsilons), np.expm1(epsilons)
        # Any half-line gives a lower bound. The best one differs only in outcomes whose loss is as near to epsilon as rounding, and each of
        # them adds that share of its probability at most.
        value = table.ahead[place] + g * table.behind[place] - over * table.centre[place]
        size = table.ahead_size[place] + g * table.behind_size[place] + np.abs(over) * table.centre[place]
        error = (table.error + 8.0 * UNIT) * size
        slack = 4.0 * UNIT * (1.0 + np.abs(epsilons)) + table.loss_error
        near = np.searchsorted(table.loss, epsilons - slack, side="left")
        missed = np.where(near < place, 2.0 * slack * (table.ahead[near] + table.centre[near]), 0.0)
        tail = np.where(beyond, 0.0, g * table.below[place])
        doubt = (table.error + 8.0 * UNIT) * tail
        return Calls(np.where(beyond, 0.0, np.maximum(value - error, 0.0)), np.maximum(value, 0.0) + error + missed + TINY, tail, doubt)

    def losses(self, upper: Mixture, lower: Mixture) -> LossLaw:
        table = _table(self, upper, lower)
        logs = table.log_lower + table.loss
        block = -(-len(logs) // _MOST_LOSSES)
        starts = np.arange(0, len(logs), block)
        losses, weights = table.loss[starts + np.minimum(block, len(logs) - starts) // 2], np.logaddexp.reduceat(logs, starts)
        # Equal losses, as beyond all shifts of Laplace noise, are one.
        kept, inverse = np.unique(losses, return_inverse=True)
        merged = np.full(kept.shape, -math.inf)
        np.logaddexp.at(merged, inverse, weights)
        ends = (float(kept[0]), float(kept[-1])) if self.law.is_bounded and len(upper.weights) == len(lower.weights) == 1 else ()
        return LossLaw(kept, merged, ends)

    def ratio_nodes(self, upper: Mixture, lower: Mixture, order: float, *, upper_half: bool) -> RatioNodes | None:
        scale, further = self.law.scale, self._further(upper, lower, order)
        if further > min(_FURTHEST, _LARGEST_TILT * scale):
            return None
        table = _table(self, upper, lower, further)
        kept = table.loss > (0.0 if upper_half else -math.inf)
        log_weight, loss, minus_one = table.log_lower[kept], table.loss[kept], table.minus_one[kept]
        small, weight = np.abs(minus_one) < 1.0, np.exp(log_weight)
        weighted = np.where(small, weight * minus_one, np.exp(log_weight + loss) - weight)
        return RatioNodes(log_weight, loss, np.where(small, minus_one, 1.0), weighted)

    def ratio_error(self, upper: Mixture, lower: Mixture, order: float) -> float:
        span = math.ceil((upper.shifts[-1] - lower.shifts[0]) * self.law.scale)
        return 2.0 * self.law.error(self.law.reach + self._further(upper, lower, 2.0 * order) + 2 * span + 2)

    def _further(self, upper: Mixture, lower: Mixture, order: float) -> int:
        # e^{order L} moves mass by up to the order times the shifts, to both sides.
        return self.law.tilted(math.ceil((order + 1.0) * (upper.shifts[-1] - lower.shifts[0]) * self.law.scale))


DENSITY = IntegerDensity(GaussianLaw(1.0))


@final
class _Table(NamedTuple):
    """Of the half-lines {y >= x}, one for each whole number x of the table, in ascending order, and of none at the end of each sum.

    Attributes:
      loss: log P/Q at x.
      minus_one: P/Q - 1 at x.
      log_lower: log Q at x.
      ahead: sum_j p_j (f_{a_j} - f_c) over the half-line; ``ahead_size``, with + in place of -.
      behind: sum_j q_j (f_c - f_{b_j}); ``behind_size``, likewise.
      centre: f_c over it.
      below: Q over it.
      error: relative error of each of these sums, relative to the sizes.
      loss_error: of each loss, from the law's own error, besides rounding.
    """

    loss: Floats
    minus_one: Floats
    log_lower: Floats
    ahead: Floats
    ahead_size: Floats
    behind: Floats
    behind_size: Floats
    centre: Floats
    below: Floats
    error: float
    loss_error: float


def _table(density: IntegerDensity, upper: Mixture, lower: Mixture, further: int = 0) -> _Table:
    """The table of mixtures whose shifts may be stretched by a rounding allowance, longer by ``further`` on both sides."""
    above, below = (tuple(round(shift * density.law.scale) for shift in one.shifts) for one in (upper, lower))
    return _table_of(density, (upper.weights, above), (lower.weights, below), further)


@lru_cache(maxsize=6)
def _table_of(density: IntegerDensity, p: _Copies, q: _Copies, further: int) -> _Table:
    law, (upper, above), (lower, below) = density.law, p, q
    # A copy that both have, if both have several, or P's lowest; otherwise that of the one that has one.
    shared = next((shift for shift in above if shift in below), above[0])
    centre = below[0] if len(below) == 1 else above[-1] if len(above) == 1 else shared
    reach = law.reach + further
    x = np.arange(below[0] - reach, above[-1] + reach + 1, dtype=np.int64)
    # f and its upper tails, on a table that covers x minus every shift.
    wide = np.arange(x[0] - above[-1], x[-1] - below[0] + 2, dtype=np.int64)
    logs = law.log_weights(wide)
    f = np.exp(logs)
    total = f.sum()
    f /= total
    tails = np.cumsum(f[::-1])[::-1]

    def tail(shift: int) -> Long:
        return tails[x - shift - wide[0]]

    def exponent(shift: int) -> Long:
        return logs[x - shift - wide[0]]

    zero: Long = np.zeros(x.shape, dtype=np.longdouble)
    ahead, ahead_size, behind, behind_size, rise, fall, under = (zero.copy() for _ in range(7))
    at_centre = exponent(centre)
    for weight, shift in zip(upper, above, strict=True):
        deadline.check()
        if shift != centre:
            ahead += weight * (tail(shift) - tail(centre))
            ahead_size += weight * (tail(shift) + tail(centre))
            with np.errstate(over="ignore"):
                rise += weight * np.expm1(exponent(shift) - at_centre)
    for weight, shift in zip(lower, below, strict=True):
        deadline.check()
        under += weight * tail(shift)
        if shift != centre:
            behind += weight * (tail(centre) - tail(shift))
            behind_size += weight * (tail(centre) + tail(shift))
            with np.errstate(over="ignore"):
                fall += weight * np.expm1(exponent(shift) - at_centre)
    # Small ratios from their difference from 1, others as logarithms of sums: neither loses digits, nor leaves the range of floats.
    direct = [_log_sum(one, [exponent(shift) for shift in shifts]) for one, shifts in (p, q)]
    above_centre, below_centre = [
        np.where(np.abs(part) < 0.5, np.log1p(np.clip(part, -0.5, 0.5)), one - at_centre)
        for part, one in zip((rise, fall), direct, strict=True)
    ]
    loss = above_centre - below_centre
    # P/Q - 1 = (rise - fall) / (1 + fall), where it is small.
    small = np.abs(loss) < 1.0
    minus_one = np.where(small, (np.where(small, rise, 0.0) - np.where(small, fall, 0.0)) / (1.0 + np.where(small, fall, 0.0)), 2.0)
    log_lower = direct[1] - np.log(total)
    # Every exponent is off by few units of itself, f and its sum by as many more, a tail by one more for each term.
    own = law.error(int(max(-wide[0], wide[-1])))
    error = (len(wide) + 8.0 * LARGEST_EXPONENT) * LONG + 3.0 * own
    sums = [np.append(one, 0.0) for one in (ahead, ahead_size, behind, behind_size, tail(centre), under)]
    found = [np.asarray(one, dtype=np.float64) for one in (np.maximum.accumulate(loss), minus_one, log_lower, *sums)]
    return _Table(*found, error, 6.0 * own)  # pyright: ignore[reportCallIssue] (nine arrays)


def _log_sum(weights: tuple[float, ...], exponents: list[Long]) -> Long:
    """log of the mixture, up to the normalisation of f."""
    parts = [one + np.log(np.longdouble(weight)) for weight, one in zip(weights, exponents, strict=True)]
    return np.asarray(np.logaddexp.reduce(parts, axis=0), dtype=np.longdouble)
