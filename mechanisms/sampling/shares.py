r"""The grid of noise that several parties add up, each its share: chosen so that sums of shares cost no more than one noise.

A party's value becomes whole multiples of the number of honest parties, to which it adds floor(2^bits Z). Proof: proofs/shared_noise.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol, Self, TypeVar, final

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.grid import BITS, contraction

WIDENED: Final = 2.0**-7
"""The largest share by which rounding may widen the noise."""

WRAP_BITS: Final = 100
"""A round's sum wraps around with probability at most 2^-100."""

LARGEST_HELD: Final = 2.0**40
"""In steps of a party's value."""

MOST_BITS: Final = 53
"""Of a sum: float64 has all of these integers."""


@final
@dataclass(frozen=True)
class ShareGrid:
    r"""How a value becomes integers, and how integers become a value.

    Attributes:
      honest: h, the least number of parties whose shares count: integers are multiples of it before noise is added.
      bits: k; a share of the noise has deviation 2^k.
      factor: a; a value times it is rounded.
      held: B; larger products are held.
      widened: by how much the noise is wider than what is accounted for; slightly above 1.
      width: bits of a sum's integers.
    """

    honest: int
    bits: int
    factor: float
    held: float
    widened: float
    width: int

    @classmethod
    def of(cls, *, std: float, distance: float, numbers: int, parties: int, honest: int, bound: float, expected: float) -> Self:
        r"""The coarsest grid that widens the noise by less than ``WIDENED``.

        Args:
          std: of each real number, of the noise that is accounted for: of ``honest`` shares together.
          distance: the least distance of two neighbours' values that is accounted for, in units of std.
          numbers: real numbers of a value.
          parties: n, all whose integers are added up at most.
          bound: l2 norm of what one unit adds to a value, at most.
          expected: units in all parties' samples together, at most or on average.
        Raises:
          InvalidParameter: no grid is fine enough, or its sums are too long.
        """
        coarse = math.sqrt(numbers * honest) / (distance * WIDENED)
        bits = max(1, math.ceil(math.log2(1.001 * coarse)))
        if bits > BITS:
            least = 1.001 * math.sqrt(numbers * honest) * 2.0**-BITS / WIDENED
            raise InvalidParameter("noise", f"such that sensitivity / scale >= {least:.3g} for {numbers} numbers in shares", distance)
        each = math.sqrt(honest) * 2.0**-bits * (1.0 + 2.0**-52 * LARGEST_HELD)
        kept = contraction(distance, numbers, "l2", each)
        # A little less, for the three roundings of this number.
        factor = kept * 2.0**bits / (math.sqrt(honest) * std) * (1.0 - 2.0**-50)
        held = math.ceil(factor * bound * most_sampled(expected)) + 1.0
        if not held <= LARGEST_HELD:
            raise InvalidParameter("noise", f"such that a sample's sum is at most {LARGEST_HELD:.3g} steps of its grid", held)
        noise = math.sqrt(2.0 * (math.log(2.0 * numbers) + (WRAP_BITS + 1) * math.log(2.0)) * parties) * 2.0**bits
        # All samples together have at most so many units; rounding takes half a step of each party, its floor one.
        largest = honest * (held + 0.5 * parties) + noise + parties
        length = math.ceil(math.log2(largest)) + 1
        if length > MOST_BITS:
            raise InvalidParameter("noise", f"such that sums have at most {MOST_BITS} bits", length)
        return cls(honest, bits, factor, held, 1.0 / kept, length)

    @property
    def step(self) -> float:
        """One step of the integers, in units of the value."""
        return 1.0 / (self.honest * self.factor)


class Shifted(Protocol):
    """Signed integers of 64 bits, of which the highest are lost when they are shifted to the left."""

    def __lshift__(self, other: int, /) -> Self: ...

    def __rshift__(self, other: int, /) -> Self: ...


_Integers = TypeVar("_Integers", bound=Shifted)


def centred(integers: _Integers, width: int) -> _Integers:
    r"""The integers of least size that are the same modulo 2^width, in [-2^(width - 1), 2^(width - 1)).

    Args:
      width: 1 to 64.
    """
    shift = 64 - width
    return (integers << shift) >> shift


def most_sampled(expected: float) -> float:
    r"""More units than this are sampled with probability at most 2^-101, where each joins independently.

    >>> most_sampled(60.0)
    173.0
    """

    allowed = -(WRAP_BITS + 1) * math.log(2.0)

    def exponent(count: float) -> float:
        return count - expected - count * math.log(count / expected)

    low, high = expected, 2.0 * expected + 2.0 * -allowed
    while high - low > 0.5:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if exponent(middle) <= allowed else (middle, high)
    return float(math.ceil(high))
