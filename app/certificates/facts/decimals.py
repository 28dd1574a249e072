r"""Numbers of a certificate as decimal strings: bounds are rounded to the safe side, parameters are written exactly.

A JSON number passes through whatever float type its reader has; a string arrives as it was signed.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Annotated

from pydantic import StringConstraints

SIGNIFICANT_DIGITS = 7
"""Digits kept of a bound: rounding then loosens it by less than 1e-6, the accuracy of the independent recomputation."""

CURVE_DIGITS = 5
"""Digits of what a certificate states beside its own epsilon: points of curves, which are many, and by at most 1e-4 larger for it."""

# Exponents have at most 4 digits, so that Decimal and Fraction stay small whatever a stranger's certificate says.
_PATTERN = r"^(0|[1-9][0-9]{0,39})(\.[0-9]{1,40})?(e[+-][0-9]{1,4})?$"
_SIGNED = r"^-?" + _PATTERN[1:]

DecimalText = Annotated[str, StringConstraints(strict=True, pattern=_PATTERN, max_length=64)]
"""A number >= 0, such as ``1.234568`` or ``1e-05``."""

SignedDecimalText = Annotated[str, StringConstraints(strict=True, pattern=_SIGNED, max_length=64)]
"""A number of either sign."""


def upper(value: float | Fraction, digits: int = SIGNIFICANT_DIGITS) -> str:
    """The shortest text of so many digits that is >= ``value``; finite and >= 0 only.

    >>> upper(1.00000001), upper(0.1), upper(0.0), upper(1.00000001, digits=CURVE_DIGITS)
    ('1.000001', '0.1000001', '0', '1.0001')
    """
    return _rounded(value, ROUND_CEILING, digits)


def lower(value: float) -> str:
    """The shortest text of SIGNIFICANT_DIGITS digits that is <= ``value``; finite and >= 0 only.

    >>> lower(1.99999999), lower(1e-7)
    ('1.999999', '9.999999e-08')
    """
    return _rounded(value, ROUND_FLOOR, SIGNIFICANT_DIGITS)


def exact(value: float) -> str:
    """A parameter as text that reads back as the same float.

    >>> exact(0.1), exact(2.0), exact(1e-5)
    ('0.1', '2.0', '1e-05')
    """
    if not math.isfinite(value):
        raise ValueError(f"a parameter in a certificate must be finite, got {value!r}")
    return repr(float(value))


def fraction(text: str) -> Fraction:
    """The number that the text says, without rounding.

    >>> fraction("0.1") == Fraction(1, 10)
    True
    """
    return Fraction(text)


def _rounded(value: float | Fraction, rounding: str, digits: int) -> str:
    if not (math.isfinite(value) and value >= 0.0):
        raise ValueError(f"a bound in a certificate must be finite and >= 0, got {value!r}")
    if value == 0.0:
        return "0"
    # The binary value is taken exactly; 0.1 is a little more than a tenth, and its upper bound says so.
    context, exactly = Context(prec=digits, rounding=rounding), Fraction(value)
    number = context.divide(Decimal(exactly.numerator), Decimal(exactly.denominator))
    if -5 <= number.adjusted() < SIGNIFICANT_DIGITS:
        text = format(number, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    written = "".join(str(digit) for digit in number.as_tuple().digits).rstrip("0")
    mantissa = written[0] + (f".{written[1:]}" if len(written) > 1 else "")
    return f"{mantissa}e{number.adjusted():+03d}"
