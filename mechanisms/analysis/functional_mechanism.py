r"""How far one record moves the coefficients of a quadratic loss summed over all records, which the functional mechanism perturbs.

A decoder whose outputs are z_i = w_i . h for codes h that are fixed and public functions of a record has the second-order loss

    sum over records and outputs of  r_i z_i + v_i z_i^2 / 2,      r_i affine in the feature x_i,

whose coefficients in the weights are linear in two sums over the records: A = sum h t^T, t = x - 1/2, and G = sum h h^T. Here h is in
{1/2} x [-1/2, 1/2]^(l - 1) (the first unit is constant) and t in [-1/2, 1/2]^n. Proof: proofs/functional_mechanism.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from zetadp.mechanisms.base import Adjacency

Expansion = Literal["zero", "column_means"]
r"""Where the loss becomes a quadratic: at z = 0, by Taylor; or at the log-odds of the released column means, by the bound that touches it.

Both are functions of the released sums alone.
"""

GRID_BITS = 16
"""Codes and targets are multiples of 2^-16 in [-1/2, 1/2]: their products, and the sums over a data set, are exact in float64."""

MOST_RECORDS = 2**20
"""Sums of up to this many products are exact."""


def coefficient_count(features: int, units: int) -> int:
    """Numbers in A and the upper triangle of G: l n + l (l + 1) / 2.

    >>> coefficient_count(14, 7)
    126
    """
    return units * features + units * (units + 1) // 2


def l1_sensitivity(features: int, units: int, adjacency: Adjacency) -> float:
    r"""The l1 sensitivity of A and G's upper triangle as one vector, for one record.

    With a record more, less or zeroed, l n / 4 + l (l + 1) / 8: every product is at most 1/4, and every corner of the box attains all of
    them at once. Replacing one, at most the largest number of products that change sign, over 2, and 1/4 for each square; never more
    than twice the former.

    Args:
      features: n >= 1.
      units: l >= 1, the constant one included.

    >>> l1_sensitivity(14, 7, Adjacency.ADD_REMOVE), l1_sensitivity(14, 7, Adjacency.REPLACE_ONE)
    (31.5, 50.5)
    """
    one = Fraction(units * features, 4) + Fraction(units * (units + 1), 8)
    if adjacency != Adjacency.REPLACE_ONE:
        return _up(one)
    return _up(min(Fraction(most_flips(features, units), 2) + Fraction(units - 1, 4), 2 * one))


def l2_sensitivity(features: int, units: int, adjacency: Adjacency) -> float:
    r"""The same in the l2 norm: sqrt((2 l n + l (l + 1)) / 32), attained; replacing one, each changed sign adds 1/4 and each square 1/16.

    >>> round(l2_sensitivity(14, 7, Adjacency.ADD_REMOVE), 6), round(l2_sensitivity(14, 7, Adjacency.REPLACE_ONE), 6)
    (2.806243, 4.987484)
    """
    square = Fraction(2 * units * features + units * (units + 1), 32)
    if adjacency == Adjacency.REPLACE_ONE:
        square = min(Fraction(most_flips(features, units), 4) + Fraction(units - 1, 16), 4 * square)
    return _root_up(square)


def most_flips(features: int, units: int) -> int:
    r"""How many products h_r t_i and h_r h_s, r < s, can change sign at once when some coordinates of a corner do.

    With a of the n features and c of the l - 1 units that aren't constant: c (n - a) + (l - c) a + c (l - c), linear in a.

    >>> most_flips(14, 7), most_flips(2, 7)
    (98, 20)
    """
    return max(c * (features - a) + (units - c) * a + c * (units - c) for a in (0, features) for c in range(units))


def _up(value: Fraction) -> float:
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def _root_up(square: Fraction) -> float:
    root = math.sqrt(square)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root
