r"""Repeated Laplace noise: delta is a finite sum in closed form, exact up to the largest loss, where lattices resolve little.

T releases at distance e have the loss T e - 2 Y. With G = (T e - t) / 2, half of the gap to the largest loss,

    delta(t) = 2^-T sum_{k e < G} C(T, k) e^{-k e} sum_j K_j I_j(G - k e),      sum_j K_j z^j = (1 + z)^{T - k} (1 - z)^k,

I_0(R) = 1 - e^{-2R} and I_j(R) = int_0^R y^{j-1} / (j-1)! e^{-y} (1 - e^{2(y - R)}) dy. Terms for k > 0 have both signs: the sum uses
as many digits as they may lose, and 25 more. proofs/lattice.md
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import final

from zetadp.accountants import deadline
from zetadp.accountants.arithmetic import UNIT
from zetadp.mechanisms.base import Step

MOST_RELEASES = 1000
"""Beyond it the sums need too many digits."""

_MOST_TERMS = 1200
"""Longer sums take more than a few milliseconds; a lattice is used instead."""

_SPARE_DIGITS = 25
_LOG_TEN = math.log(10.0)


@final
class RepeatedLaplace:
    """``count`` whole Laplace releases at one distance, exact for these numbers."""

    def __init__(self, distance: float, count: int) -> None:
        self._distance, self._count = Fraction(distance), count
        self._largest = self._distance * count

    @property
    def largest_loss(self) -> float:
        """The largest loss, rounded up."""
        nearest = float(self._largest)
        return nearest if Fraction(nearest) >= self._largest else math.nextafter(nearest, math.inf)

    def log_delta(self, epsilon: float) -> tuple[float, float]:
        """(lower, upper) of log delta(epsilon), for finite epsilon >= 0."""
        gap = (self._largest - Fraction(epsilon)) / 2
        if gap <= 0:
            return -math.inf, -math.inf
        with localcontext() as context:
            context.prec = self._digits(gap)
            total = sum((self._term(k, gap) for k in range(math.ceil(gap / self._distance))), Decimal(0))
            value = total / 2**self._count
        tens = value.adjusted()
        found = math.log(float(value.scaleb(-tens))) + tens * _LOG_TEN
        slack = 8.0 * UNIT * (1.0 + abs(tens) * _LOG_TEN)
        return min(found - slack, 0.0), min(found + slack, 0.0)

    @property
    def short_from(self) -> float:
        """The smallest epsilon from which the sum is short; 0 if it always is."""
        return short_from(float(self._distance), self._count)

    def step(self, *, in_part: bool) -> Step:
        """The sum, for derivations; ``in_part`` if a lattice also gives some of the answers."""
        return Step(
            symbol="delta(eps)",
            value="2^-T sum_k C(T, k) e^(-k epsilon_0) sum_j K_j I_j(G - k epsilon_0), G = (T epsilon_0 - eps) / 2",
            formula="the law of the loss in closed form, near its largest value" if in_part else "the law of the loss in closed form",
            source="accountants/proofs/lattice.md",
        )

    def _digits(self, gap: Fraction) -> int:
        """Enough digits to lose less than 1e-25 of a sum that is off by at most 4^T 40 (T + G + 4) units and is at least 0.8 min(G, 1)."""
        size, least = max(float(gap), 1.0), min(gap, Fraction(1))
        lost = 2.0 * self._count * math.log10(2.0) + math.log10(40.0 * (self._count + size + 4.0)) - _log10(least)
        return math.ceil(lost) + _SPARE_DIGITS + 1

    def _term(self, k: int, gap: Fraction) -> Decimal:
        """C(T, k) e^{-k e} sum_j K_j I_j(R)."""
        deadline.check()
        rest = _decimal(gap - k * self._distance)
        density = (-rest).exp()
        above, below = Decimal(1), density * density
        total = above - below
        for j, number in enumerate(_signed(self._count, k)[1:], start=1):
            # A_j = A_{j-1} - p_j and B_j = p_j - B_{j-1}, I_j = A_j - B_j, p_j = e^-R R^{j-1} / (j-1)!.
            above, below = above - density, density - below
            total += number * (above - below)
            density = density * rest / j
        return math.comb(self._count, k) * (-k * _decimal(self._distance)).exp() * total


@lru_cache(maxsize=2048)
def _signed(count: int, k: int) -> tuple[int, ...]:
    """Coefficients of (1 + z)^{count - k} (1 - z)^k, from z^0 on: (1 - z^2)^k (1 + z)^{count - 2k} for k <= count / 2."""
    short = [math.comb(count - 2 * k, i) for i in range(count - 2 * k + 1)]
    signs = [(-1) ** i * math.comb(k, i) for i in range(k + 1)]
    return tuple(
        sum(signs[i] * short[j - 2 * i] for i in range(max(0, (j - len(short)) // 2), min(k, j // 2) + 1) if j - 2 * i < len(short))
        for j in range(count + 1)
    )


def _decimal(value: Fraction) -> Decimal:
    """The value as a decimal, with the caller's number of digits."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def _log10(value: Fraction) -> float:
    return math.log10(value.numerator) - math.log10(value.denominator)


def short_from(distance: float, count: int) -> float:
    """The smallest epsilon from which the sums for these releases are short; 0 if they always are."""
    terms = _MOST_TERMS // (count + 1)
    return 0.0 if 2 * terms > count else max((count - 2 * terms) * distance * (1.0 + 1e-12), 0.0)
