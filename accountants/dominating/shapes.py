r"""The shapes that dominating pairs have: one copy, two, and those of a group."""

from __future__ import annotations

from collections.abc import Sequence

from zetadp.accountants.densities import Density
from zetadp.accountants.densities.mixtures import Mixture, moved_up
from zetadp.accountants.pairs import Pair

NULL = Mixture((1.0,), (0.0,))
"""One copy that doesn't move."""


def at(shift: float) -> Mixture:
    """One copy there."""
    return Mixture((1.0,), (shift,))


def two(q: float, distance: float) -> Mixture:
    """One copy that moved, with probability q, and one that didn't."""
    return Mixture((1.0 - q, q), (0.0, distance))


def multiples(move: float, weights: Sequence[float]) -> list[float]:
    """The distances that so many weights have in a group whose units move alike."""
    return [j * move for j in range(len(weights))]


def moved_one_way(family: Density, weights: list[float], distances: Sequence[float]) -> Pair:
    """sum_j weights[j] f(x - distances[j]) against f(x); distances ascend, and every rounding moves mass up, which dominates."""
    lowest, kept = moved_up(weights)
    # The frame's origin is the lowest component, so that its weight can represent 1 minus the others.
    origin = distances[lowest]
    return Pair(family, Mixture(kept, tuple(distance - origin for distance in distances[lowest:])), at(0.0 - origin))


def moved_both_ways(family: Density, weights: list[float], up: Sequence[float], down: Sequence[float]) -> Pair:
    """sum_j weights[j] f(x - up[j]) against sum_j weights[j] f(x + down[j]); every rounding moves mass outwards, which dominates."""
    lowest, kept = moved_up(weights)
    return Pair(family, Mixture(kept, tuple(up[lowest:])), Mixture(kept, tuple(down[lowest:])).mirrored)
