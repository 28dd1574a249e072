r"""Shamir's secret sharing over the prime field of 2^521 - 1.

Any ``least`` shares give the secret, fewer say nothing about it. A library would be welcome here: those that are kept up share 16 bytes, or
phrases for wallets.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from zetadp.mechanisms.errors import InvalidParameter

PRIME: Final = 2**521 - 1
SHARE_BYTES: Final = 66
SECRET_BYTES: Final = 32


def split(secret: bytes, points: Sequence[int], least: int) -> Mapping[int, bytes]:
    r"""A share for each point.

    Args:
      secret: 32 bytes.
      points: different numbers >= 1, at least ``least`` of them.

    >>> shares = split(bytes(range(32)), [1, 2, 3], 2)
    >>> joined({1: shares[1], 3: shares[3]}) == bytes(range(32))
    True
    """
    if len(secret) != SECRET_BYTES or not 1 <= least <= len(set(points)) or min(points) < 1:
        raise InvalidParameter("shares", "of 32 bytes, for at least as many different points >= 1 as are needed", (least, points))
    # Uniform elements of the field, all of which are secret.
    coefficients = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(least - 1))]
    return {point: _value(coefficients, point).to_bytes(SHARE_BYTES, "big") for point in points}


def joined(shares: Mapping[int, bytes]) -> bytes | None:
    """The secret of as many shares as are needed, by their points; None if there's no such secret: a share is wrong."""
    weighted = zip(_weights(tuple(shares)), shares.values(), strict=True)
    secret = sum(weight * int.from_bytes(share, "big") for weight, share in weighted) % PRIME
    return secret.to_bytes(SECRET_BYTES, "big") if secret < 2 ** (8 * SECRET_BYTES) else None


@lru_cache(maxsize=16)
def _weights(points: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange's, of the polynomial's value at 0: the same for all secrets that the same sites have shares of."""
    weights = list[int]()
    for point in points:
        weight = 1
        for other in points:
            if other != point:
                weight = weight * other % PRIME * pow(other - point, -1, PRIME) % PRIME
        weights.append(weight)
    return tuple(weights)


def _value(coefficients: Sequence[int], point: int) -> int:
    """By Horner's rule."""
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * point + coefficient) % PRIME
    return value
