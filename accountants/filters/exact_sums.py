r"""Exact running sums: whole numbers of steps of a binary grid that belongs to a limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Self, final

GRID_BITS = 128
"""A limit is 2^128 to 2^130 steps of its grid: N spends are over-counted by less than N 2^-128 of it, and never under-counted."""

RUNGS = 64
RUNG_RATIO = Fraction(3, 4)
"""The odometer's ladder: a limit times (3/4)^0, ..., (3/4)^63, down to 1.4e-8 of it."""


@final
@dataclass(frozen=True)
class Grid:
    """Steps of size 2^exponent, ``limit`` of which may be used; -1 where nothing ever fits.

    >>> grid = Grid.of(Fraction(1, 3))
    >>> grid.steps(Fraction(1, 3)) - grid.limit  # a limit is rounded down, a cost up
    1
    >>> grid.steps(Fraction(1, 4) ** 200)
    1
    """

    exponent: int
    limit: int

    @classmethod
    def of(cls, limit: Fraction) -> Self:
        """The grid of a limit; -1 steps for one at or below 0."""
        if limit <= 0:
            return cls(0, -1)
        # 2^e <= limit < 2^(e + 1) for one of two values of e; the smaller one is taken where the bit lengths leave it open.
        exponent = limit.numerator.bit_length() - limit.denominator.bit_length() - 1 - GRID_BITS
        return cls(exponent, math.floor(_divided(limit, exponent)))

    def steps(self, cost: Fraction) -> int:
        """A cost >= 0 in steps, rounded up."""
        return math.ceil(_divided(cost, self.exponent))

    def amount(self, steps: int) -> Fraction:
        """The exact value of this many steps."""
        return Fraction(steps << self.exponent) if self.exponent >= 0 else Fraction(steps, 1 << -self.exponent)

    def rung(self, steps: int) -> Fraction | None:
        """The lowest rung of the ladder that holds this many steps, as a part of the limit; None beyond the limit."""
        found = None
        for k in range(RUNGS):
            part = RUNG_RATIO**k
            if steps > self.limit * part:
                break
            found = part
        return found


def _divided(value: Fraction, exponent: int) -> Fraction:
    """value / 2^exponent."""
    return value / (1 << exponent) if exponent >= 0 else value * (1 << -exponent)
