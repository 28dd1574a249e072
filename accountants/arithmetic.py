r"""Floats: their rounding unit and the limits of their range.

If numbers leave the range of floats, a route refuses: an infinity or a NaN on the way would make its bounds meaningless.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
from pydantic import ValidationError

from zetadp.mechanisms.errors import PrivacyError, UnsupportedEvent

UNIT = 2.0**-53
"""Rounding unit of float64; constants in units of it are at least twice what the proofs derive."""


@contextmanager
def within_floats(route: str) -> Generator[None]:
    """Turns overflows, divisions by 0 and undefined operations into a refusal by this route. Our own errors pass unchanged.

    >>> with within_floats("example"):
    ...     np.exp(np.array([1000.0]))
    Traceback (most recent call last):
    zetadp.mechanisms.errors.UnsupportedEvent: accountant example can't bound this event: its numbers are outside the range of floats here
    """
    try:
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            yield
    except (PrivacyError, ValidationError):
        raise
    except (ArithmeticError, ValueError) as reason:
        # ValueError is what ``math`` raises for logarithms of 0 and for NaN where a whole number is needed.
        raise UnsupportedEvent(route, "its numbers are outside the range of floats here") from reason
