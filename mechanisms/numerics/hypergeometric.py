r"""The hypergeometric distribution: how many of some given units a sample of a fixed size holds."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

_DIGITS = 60


def hypergeometric(population: int, members: int, sample: int) -> list[float]:
    r"""Probabilities that a uniform sample without replacement holds 0, ..., min(members, sample) of some given units.

    Every one is the float at or just above its exact value.

    Args:
      population: units in all, >= members and >= sample.
      members: the number of the given ones among them, >= 1.
      sample: its size, >= 1.

    >>> hypergeometric(10, 2, 5)[1] == math.comb(8, 4) * 2 / math.comb(10, 5)
    True
    """
    with localcontext() as context:
        context.prec = _DIGITS
        # C(members, j) [sample]_j [population - sample]_{members - j} / [population]_members, [n]_i = n (n - 1) ... (n - i + 1).
        inside, outside, everywhere = (_falling(of, members) for of in (sample, population - sample, population))
        exact = [math.comb(members, j) * inside[j] * outside[members - j] / everywhere[members] for j in range(min(members, sample) + 1)]
        found = [float(one) for one in exact]
        return [one if Decimal(one) >= true else math.nextafter(one, math.inf) for one, true in zip(found, exact, strict=True)]


def _falling(of: int, most: int) -> list[Decimal]:
    """[of]_i for i = 0, ..., most."""
    found = [Decimal(1)]
    for i in range(most):
        found.append(found[-1] * max(of - i, 0))
    return found
