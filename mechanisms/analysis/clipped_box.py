r"""The l1 diameter of a box cut by an l2 ball: how far a clipped gradient of the binary cross-entropy can move when a record is replaced.

The gradient with respect to z at z = a is g = s - x in the box [-(1 - s), s]^n, s = sigmoid(a), and clipping to C keeps exactly the part
of the box inside the ball of radius C. Proof: proofs/clipped_box.md.
"""

from __future__ import annotations

import math


def support(lower_count: int, lower: float, upper_count: int, upper: float, bound: float) -> float:
    r"""The largest sum of nonnegative coordinates, some <= lower and some <= upper, of a vector of l2 norm <= bound.

    All coordinates are equal except those limited by ``lower`` (water-filling).

    Args:
      lower_count, upper_count: how many coordinates have each limit.
      lower, upper: the limits; 0 <= lower <= upper.
      bound: C > 0.

    >>> support(1, 0.5, 1, 0.5, 1.0), support(2, 0.5, 2, 0.5, 0.5)
    (1.0, 1.0)
    """
    count = lower_count + upper_count
    if lower_count * lower**2 + upper_count * upper**2 <= bound**2:
        return lower_count * lower + upper_count * upper
    if lower_count == 0 or upper_count == 0 or bound <= math.sqrt(count) * lower:
        return math.sqrt(count) * bound
    level = math.sqrt((bound**2 - lower_count * lower**2) / upper_count)
    return lower_count * lower + upper_count * level


def l1_diameter(dimension: int, below: float, above: float, bound: float) -> float:
    r"""max ||u - v||_1 over u, v in [-below, above]^n with l2 norms <= bound: exact, and at most min(n (below + above), 2 sqrt(n) C).

    The worst pair has opposite signs in each coordinate, floor(n/2) of one kind and the others of the other.

    Args:
      dimension: n >= 1.
      below, above: >= 0, not both 0.
      bound: the clipping bound C > 0.

    >>> l1_diameter(14, 0.5, 0.5, 4.0), round(l1_diameter(14, 0.5, 0.5, 1.0), 6)
    (14.0, 7.483315)
    """
    lower, upper = min(below, above), max(below, above)
    half = dimension // 2
    return support(half, lower, dimension - half, upper, bound) + support(dimension - half, lower, half, upper, bound)
