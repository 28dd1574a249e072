r"""Arithmetic with fifty digits and more, and its results as floats on the safe side.

Every closed form of this package is evaluated here, so that a published float is wrong by its last rounding only. The decimal
module's ``exp`` and ``ln`` are correctly rounded, its exponents reach 10^18, and e^-1e50 is plain 0: nothing overflows on the way.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, DivisionByZero, InvalidOperation, Overflow, getcontext, localcontext
from fractions import Fraction

DIGITS = 50
"""Digits kept at least. A few dozen operations lose three of them, and cancellation between floats at most thirty more
(proofs/notions.md, section 9), which leaves more than ``SLACK`` needs."""

SLACK = Decimal("1e-16") * Decimal("1e-9")
"""Relative allowance for rounding in fifty digits: 1e-25, a hundred-millionth of a float's own rounding."""

ZERO, ONE, TWO = Decimal(0), Decimal(1), Decimal(2)

_LEAST = Decimal("1e-40")
"""What a logarithm near 0 may be off by, absolutely: its argument has fifty digits."""
_SERIES_BELOW = Decimal("0.1")
_SMALLEST = math.ulp(0.0)
_LARGEST_EXPONENT = Decimal("1e18")


@contextmanager
def precise(digits: int = DIGITS) -> Generator[None]:
    """Within it, ``Decimal`` keeps this many digits; the functions below refuse to work with fewer than fifty."""
    with localcontext(Context(prec=digits, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[InvalidOperation, DivisionByZero, Overflow])):
        yield


def exp(x: Decimal) -> Decimal:
    """e^x; 0 far below every exponent."""
    return ZERO if x < -_LARGEST_EXPONENT else x.exp()


def expm1(x: Decimal) -> Decimal:
    """e^x - 1 with all digits, near 0 as well.

    >>> with precise(): str(expm1(Decimal("1e-30")))[:34]
    '1.00000000000000000000000000000050'
    """
    if abs(x) >= _SERIES_BELOW:
        return exp(x) - ONE
    term = total = x
    n = 1
    smallest = abs(x).scaleb(-getcontext().prec)
    while abs(term) > smallest:
        n += 1
        term = term * x / n
        total += term
    return total


def log1p(x: Decimal) -> Decimal:
    """log(1 + x) with all digits, near 0 as well; x > -1.

    >>> with precise(): str(log1p(Decimal("1e-30")))[:12]
    '9.9999999999'
    """
    if abs(x) >= _SERIES_BELOW:
        return (ONE + x).ln()
    # 2 artanh(x / (2 + x)).
    z = x / (TWO + x)
    square, power, total = z * z, z, z
    n = 1
    smallest = abs(z).scaleb(-getcontext().prec)
    while abs(power) > smallest:
        n += 2
        power *= square
        total += power / n
    return TWO * total


def up(x: Decimal | Fraction, error: Decimal | None = None) -> float:
    """The smallest float that is certainly not below the number that x stands for.

    A fraction is exact. A decimal is off by ``error`` at most, by default ``SLACK`` times itself.
    """
    if isinstance(x, Fraction):
        value = _nearest(x)
        return value if value == math.inf or Fraction(value) >= x else math.nextafter(value, math.inf)
    assert getcontext().prec >= DIGITS  # a default context would round silently
    high = x + (abs(x) * SLACK if error is None else error)
    if high == ZERO:
        return 0.0
    value = float(high)
    return value if value == math.inf or Decimal(value) >= high else math.nextafter(value, math.inf)


def down(x: Decimal | Fraction, error: Decimal | None = None) -> float:
    """The largest float that is certainly not above the number that x stands for."""
    return -up(-x, error)


def log_up(x: Decimal) -> float:
    """The logarithm of x >= 0 as a float, rounded up; -infinity at 0."""
    if x == ZERO:
        return -math.inf
    log = x.ln() if x < Decimal("0.9") or x > Decimal("1.1") else log1p(x - ONE)
    return up(log, abs(log) * SLACK + _LEAST)


def log_down(x: Decimal) -> float:
    """The logarithm of x >= 0 as a float, rounded down; -infinity at 0."""
    if x == ZERO:
        return -math.inf
    log = x.ln() if x < Decimal("0.9") or x > Decimal("1.1") else log1p(x - ONE)
    return down(log, abs(log) * SLACK + _LEAST)


def _nearest(x: Fraction) -> float:
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def fraction(x: float) -> Fraction:
    """Exactly this float."""
    return Fraction(x)


def nearest(x: Decimal) -> float:
    """A float that was read as a decimal, back as it was."""
    return float(x)
