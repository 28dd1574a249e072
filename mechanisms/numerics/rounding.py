"""Exact fractions as floats on the safe side."""

from __future__ import annotations

import math
from fractions import Fraction


def rounded_up(value: Fraction) -> float:
    """The smallest float that is at least a fraction within the range of floats.

    >>> rounded_up(Fraction(1, 10)) == 0.1, rounded_up(Fraction(2, 3)) > Fraction(2, 3)
    (True, True)
    """
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)
