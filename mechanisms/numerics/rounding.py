"""Bounds on the safe side: exact fractions as floats, and floats as text."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction


def rounded_up(value: Fraction) -> float:
    """The smallest float that is at least a fraction within the range of floats.

    >>> rounded_up(Fraction(1, 10)) == 0.1, rounded_up(Fraction(2, 3)) > Fraction(2, 3)
    (True, True)
    """
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def text_up(value: float, digits: int) -> str:
    """A bound in so many significant digits that is never below it as it is printed in full; of infinity "inf".

    >>> text_up(1.19834, 4), text_up(0.1, 4), text_up(3.9999995, 6), text_up(math.inf, 3)
    ('1.199', '0.1', '4', 'inf')
    """
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(value))):.{digits}g}"


def fixed_up(value: float, places: int) -> str:
    """The same with so many decimals; finite only.

    >>> fixed_up(1.19834, 4), fixed_up(0.5, 4), fixed_up(1e30, 1)
    ('1.1984', '0.5000', '1000000000000000000000000000000.0')
    """
    return f"{Context(prec=400, rounding=ROUND_CEILING).quantize(Decimal(repr(value)), Decimal(1).scaleb(-places)):f}"
