r"""Exact decisions of events whose probability is a real number: random bits are drawn, and digits computed, until they differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Fill = Callable[[NDArray[Any]], None]
"""Overwrites an array with fresh random bytes."""

Probability = Callable[[Any], Any]
"""An mpmath context -> the number in it, with an error below 2^-prec for the precision that the context was given."""


def more_bits(fill: Fill) -> int:
    """64 fresh random bits."""
    word = np.empty(1, "<u8")
    fill(word)
    return int(word[0])


def digits(prec: int) -> Any:
    """A new mpmath context with this many binary digits, not shared, because other threads also compute."""
    import mpmath  # pyright: ignore[reportMissingTypeStubs] (seldom needed, and slow to load)

    of: Any = mpmath.MPContext()
    of.prec = prec
    return of


def bits_below(word: int, bits: int, probability: Probability, fill: Fill) -> bool:
    r"""Whether the number 0.w, of which ``word`` is the first ``bits`` bits, is below ``probability``.

    >>> bits_below(3, 3, lambda of: of.exp(-1), lambda more: more.fill(0))  # 0.375 < 0.3678...
    False
    >>> bits_below(0, 3, lambda of: of.exp(-1), lambda more: more.fill(0))
    True
    """
    while True:
        of = digits(bits + 64)
        low = int(of.floor(probability(of) * of.mpf(2) ** bits))
        # Only whole numbers are compared, with a margin of one for the last digit of the arithmetic.
        if word + 1 < low:
            return True
        if word > low + 1:
            return False
        word, bits = (word << 64) | more_bits(fill), bits + 64
