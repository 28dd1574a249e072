r"""Repeated randomized response: the composed loss is binomial, and delta is a short sum. Any delta works, and all rounding is counted.

k releases at distance e have the loss (2J - k) e, J ~ Bin(k, p) under P, p = e^e / (1 + e^e) (Kairouz, Oh and Viswanath 2015):

    delta(t) = sum_{j >= m} C(k, j) p^j (1 - p)^{k - j} (1 - e^{t - (2j - k) e}),    m the first j with (2j - k) e > t.

All terms are positive. They are summed outwards from the largest weight; its logarithm is taken with 50 digits. proofs/lattice.md
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants import deadline
from zetadp.accountants.arithmetic import UNIT
from zetadp.mechanisms.base import Step

MOST_RELEASES = 10**10
"""Beyond it a sum has more than a million terms."""

_CUT = 1e-40
"""Weights below this share of the largest one are bounded together, as a geometric series."""

_FIRST_TERMS = 256
_SUM_ERROR = 1e-13
"""More than the total rounding of a sum, of a term's factor and of the largest weight's logarithm when that logarithm is small."""

_DIGITS, _EXACT_FACTORIALS = 50, 64
_STIRLING = (12, -360, 1260, -1680, 1188)
_LOG_ROOT_2PI = Decimal("0.91893853320467274178032973640561763986139747363778341281715154")

Floats = NDArray[np.float64]
Ratios: TypeAlias = Callable[[Floats], Floats]


@final
class RepeatedResponse:
    """``count`` releases of randomized response at one distance, exact for these numbers. A single one may be shown only sometimes."""

    def __init__(self, distance: float, count: int, shown: float = 1.0) -> None:
        assert shown == 1.0 or count == 1  # with several, the sum would run over how many of them are shown
        self._distance, self._count, self._log_shown = distance, count, math.log(shown)
        self._largest = Fraction(distance) * count

    @property
    def largest_loss(self) -> float:
        """The largest loss, rounded up."""
        nearest = float(self._largest)
        return nearest if Fraction(nearest) >= self._largest else math.nextafter(nearest, math.inf)

    def log_delta(self, epsilon: float) -> tuple[float, float]:
        """(lower, upper) of log delta(epsilon), for finite epsilon >= 0."""
        if Fraction(epsilon) >= self._largest:
            return -math.inf, -math.inf
        e, k = self._distance, self._count
        first = math.floor((k + Fraction(epsilon) / Fraction(e)) / 2) + 1
        gap = float((2 * first - k) * Fraction(e) - Fraction(epsilon))
        # Near the largest weight; the exact position doesn't matter.
        top = min(max(first, math.floor((k + 1) / (1.0 + math.exp(-e)))), k)
        up = _outwards(self._ratios_up(top), k - top)
        down = _outwards(self._ratios_down(top), top - first)
        places = np.concatenate(
            (np.arange(top - first, top - first + len(up.weights) + 1.0), top - first - np.arange(1.0, len(down.weights) + 1.0))
        )
        weights = np.concatenate(([1.0], up.weights, down.weights))
        total = float(weights @ -np.expm1(-(gap + 2.0 * e * places)))
        anchor = _log_weight(k, top, e)
        # 1 - e^-gap is at most the gap: the omitted terms are small even next to a total of tiny gaps.
        farthest = (gap + 2.0 * e * (float(np.max(places)) + 1.0 + up.reach)) * (1.0 + 1e-9)
        rest = (up.rest + down.rest) * min(1.0, farthest)
        base = anchor + self._log_shown
        low, high = base + math.log(total), base + math.log(total + rest)
        slack = _SUM_ERROR + 16.0 * UNIT * len(weights) + 4.0 * UNIT * (abs(anchor) + abs(self._log_shown) + abs(low))
        return min(low - slack, 0.0), min(high + slack, 0.0)

    @property
    def short_from(self) -> float:
        """0: the sum is always short."""
        return 0.0

    def step(self, *, in_part: bool) -> Step:
        """The sum, for derivations."""
        del in_part
        return Step(
            symbol="delta(eps)",
            value="sum of C(T, j) p^j (1 - p)^(T - j) (1 - e^(eps - (2j - T) epsilon_0)) over j with (2j - T) epsilon_0 > eps",
            formula="p = e^epsilon_0 / (1 + e^epsilon_0); all terms are positive, each rounding is counted",
            source="Kairouz, Oh and Viswanath 2015, Theorem 3.3; accountants/proofs/lattice.md",
        )

    def _ratios_up(self, top: int) -> Ratios:
        # Beyond a distance of 700 the top is k, and there is nothing above it.
        odds = math.exp(min(self._distance, 700.0))
        return lambda place: (self._count - top + 1.0 - place) / (top + place) * odds

    def _ratios_down(self, top: int) -> Ratios:
        odds = math.exp(-self._distance)
        return lambda place: (top + 1.0 - place) / (self._count - top + place) * odds


@final
@dataclass(frozen=True)
class _Side:
    """Weights on one side of the top, the top's being 1; a bound on the sum of the omitted ones, and their average reach in steps."""

    weights: Floats
    rest: float
    reach: float


def _outwards(ratios: Ratios, available: int) -> _Side:
    wanted = min(_FIRST_TERMS, available)
    while True:
        deadline.check()
        steps = ratios(np.asarray(np.arange(1.0, wanted + 1.0), dtype=np.float64))
        weights: Floats = np.asarray(np.cumprod(steps), dtype=np.float64)
        if wanted == available or weights[-1] < _CUT:
            break
        wanted = min(8 * wanted, available)
    kept = int(np.count_nonzero(weights >= _CUT))
    if kept == available:
        return _Side(weights, 0.0, 0.0)
    # The ratios fall outwards, so a geometric series bounds the omitted weights.
    spread = (1.0 + 1e-9) / (1.0 - float(steps[kept]))
    return _Side(weights[:kept], float(weights[kept]) * spread, spread)


@lru_cache(maxsize=4096)
def _log_weight(count: int, successes: int, distance: float) -> float:
    """log of C(k, j) p^j (1 - p)^{k - j}, off by a rounding or two."""
    with localcontext() as context:
        context.prec = _DIGITS
        choices = _log_factorial(count) - _log_factorial(successes) - _log_factorial(count - successes)
        # p = 1 / (1 + e^-e) and 1 - p = e^-e p.
        return float(choices - (count - successes) * Decimal(distance) - count * _log_normalizer(distance))


@lru_cache(maxsize=256)
def _log_normalizer(distance: float) -> Decimal:
    """log(1 + e^-distance), with the caller's number of digits."""
    return (1 + (-Decimal(distance)).exp()).ln()


@lru_cache(maxsize=4096)
def _log_factorial(number: int) -> Decimal:
    """log n!, with the caller's number of digits: exact, or by Stirling's series, whose next term is below 1e-22."""
    if number < _EXACT_FACTORIALS:
        return Decimal(math.factorial(number)).ln()
    n = Decimal(number)
    return (n + Decimal("0.5")) * n.ln() - n + _LOG_ROOT_2PI + sum(1 / (divisor * n ** (2 * i + 1)) for i, divisor in enumerate(_STIRLING))
