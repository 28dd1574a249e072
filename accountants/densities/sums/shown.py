r"""Repeated randomized response that is shown only sometimes: delta is a short sum over a walk of three steps, with all rounding counted.

Each of k releases at distance e, shown with probability s, has the loss e, 0 or -e, under P with probability a = s p, b = 1 - s,
c = s (1 - p), p = e^e / (1 + e^e). The composed loss is S e, and the weights w_i = P(S = k - i) are the coefficients of
(a + b y + c y^2)^k:

    delta(t) = sum_{j e > t} P(S = j) (1 - e^{t - j e}),      a (i + 1) w_{i+1} = (k - i) b w_i + (2k - i + 1) c w_{i-1},      w_0 = a^k.

For j > 0, that is i < k, all terms of the recursion are positive, so it loses no digits. proofs/lattice.md
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants import deadline
from zetadp.accountants.arithmetic import UNIT
from zetadp.mechanisms.base import Step

MOST_RELEASES = 2000
"""Beyond it the recursion takes longer than a grid."""

_SUM_ERROR = 1e-13
"""More than the rounding of a term's factor and of the first weight's logarithm when that logarithm is small."""

_BLOCK = 600
"""Weights are kept as a float from 2^-600 to 2^600 times a power of 2^600: together they may be far outside the range of floats."""

_DIGITS = 50
_CHECKED_EVERY = 1024

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]


@final
class RepeatedShown:
    """``count`` releases of randomized response at one distance, each shown with probability ``shown`` < 1; exact for these numbers."""

    def __init__(self, distance: float, count: int, shown: float) -> None:
        assert 0.0 < shown < 1.0
        self._distance, self._count, self._shown = distance, count, shown
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
        e, first = Fraction(self._distance), math.floor(Fraction(epsilon) / Fraction(self._distance)) + 1
        terms = self._count - first + 1
        anchor, floats, blocks = self._weights
        top = int(blocks[:terms].max())
        gaps = float(first * e - Fraction(epsilon)) + self._distance * np.arange(terms - 1.0, -1.0, -1.0)
        # Weights that underflow here are together below 2^-180 of the sum.
        total = float(np.ldexp(floats[:terms], _BLOCK * (blocks[:terms] - top)) @ -np.expm1(-gaps))
        log = anchor + math.log(total) + top * _BLOCK * math.log(2.0)
        slack = _SUM_ERROR + 32.0 * UNIT * terms + 8.0 * UNIT * (abs(anchor) + abs(log))
        return min(log - slack, 0.0), min(log + slack, 0.0)

    @property
    def short_from(self) -> float:
        """0: the sum is always short."""
        return 0.0

    def step(self, *, in_part: bool) -> Step:
        """The sum, for derivations."""
        del in_part
        return Step(
            symbol="delta(eps)",
            value="sum of P(S = j) (1 - e^(eps - j epsilon_0)) over j with j epsilon_0 > eps",
            formula="S: sum of T steps 1, 0 and -1 of probability s p, 1 - s and s (1 - p), p = e^epsilon_0 / (1 + e^epsilon_0)",
            source="accountants/proofs/lattice.md",
        )

    @cached_property
    def _weights(self) -> tuple[float, Floats, Integers]:
        """(log w_0, f, n) with w_i / w_0 = f_i 2^{600 n_i}, for i < count."""
        k, odds = self._count, math.exp(-self._distance)
        anchor = self._log_first()
        i = np.arange(k - 1.0)
        here = ((k - i) / (i + 1.0) * ((1.0 - self._shown) * (1.0 + odds) / self._shown)).tolist()
        before = ((2.0 * k - i + 1.0) / (i + 1.0) * odds).tolist()
        up, down = 2.0**_BLOCK, 2.0**-_BLOCK
        last, weight, block = 0.0, 1.0, 0
        floats, blocks = [weight], [block]
        for place, (share, older) in enumerate(zip(here, before, strict=True)):
            last, weight = weight, share * weight + older * last
            if not down < weight < up:
                scale, block = (down, block + 1) if weight >= up else (up, block - 1)
                last, weight = last * scale, weight * scale
            floats.append(weight)
            blocks.append(block)
            if place % _CHECKED_EVERY == 0:
                deadline.check()
        return anchor, np.asarray(floats, dtype=np.float64), np.asarray(blocks, dtype=np.int64)

    def _log_first(self) -> float:
        """log of w_0 = (s p)^k, off by a rounding or two."""
        with localcontext() as context:
            context.prec = _DIGITS
            return float(self._count * (Decimal(self._shown).ln() - (1 + (-Decimal(self._distance)).exp()).ln()))
