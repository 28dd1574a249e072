r"""Laplace noise on a grid, drawn exactly: floor(2^32 L) of a Laplace variable L of scale 1. Proof: proofs/grid_noise.md.

Its magnitude is geometric, and the binary digits of a geometric variable are independent: digit i of v is 1 with probability
1 / (1 + e^(2^(i - 32))). Each is decided by comparing as many random bits with that number as necessary. Nothing is cut off: the part
above the last digit is geometric again.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.sampling.grid import BITS, STEP
from zetadp.mechanisms.sampling.lazy_bits import Fill, bits_below, digits, more_bits

DIGITS: Final = 38
"""Drawn one by one: up to 2^6 scales."""

BLOCK: Final = 1 << 12
"""Numbers per block."""


def _probability(digit: int) -> Any:
    """The probability, in an mpmath context, that digit ``digit`` is 1; for ``DIGITS``, that the variable reaches 2^6 scales."""

    def exactly(of: Any) -> Any:
        of.prec += 64
        power = of.exp(of.mpf(2) ** (digit - BITS))
        return 1 / power if digit == DIGITS else 1 / (1 + power)

    return exactly


@cache
def _first_words() -> tuple[int, ...]:
    """floor(2^32 p) for every digit's probability p, and for that of anything beyond."""
    return tuple(int(_probability(digit)(digits(256)) * 2**32) for digit in range(DIGITS + 1))


def draw(count: int, fill: Fill) -> NDArray[np.float64]:
    r"""``count`` independent (floor(2^32 L) + 1/2) / 2^32, (count,) float64, exactly.

    >>> draw(2, lambda words: words.fill(2**32 - 1)) * 2**32  # no digit is 1, and the sign is minus
    array([-0.5, -0.5])
    """
    numbers, cells = np.empty(count), np.empty(min(count, BLOCK), np.int64)
    for first in range(0, count, BLOCK):
        size = min(BLOCK, count - first)
        part = cells[:size]
        words = np.empty((DIGITS + 2, len(part)), "<u4")
        fill(words)
        part[:] = 0
        for digit, limit in enumerate(_first_words()[:DIGITS]):
            row = words[digit]
            is_one = row < limit
            for number in np.flatnonzero(row == limit):
                is_one[number] = bits_below(limit, 32, _probability(digit), fill)
            part |= is_one.astype(np.int64) << digit
        for number in np.flatnonzero(words[DIGITS] <= _first_words()[DIGITS]):
            part[number] += _beyond(int(words[DIGITS][number]), fill) << DIGITS
        # A cell [v, v + 1) mirrored is [-1 - v, -v).
        part ^= -(words[DIGITS + 1] & np.uint32(1)).astype(np.int64)
        np.multiply(part + 0.5, STEP, out=numbers[first : first + size])
    return numbers


def _beyond(word: int, fill: Fill) -> int:
    """The number of times that another 2^6 scales are exceeded."""
    passed, bits = 0, 32
    while bits_below(word, bits, _probability(DIGITS), fill):
        passed += 1
        word, bits = more_bits(fill), 64
    return passed
