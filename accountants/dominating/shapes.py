r"""The shapes that dominating pairs have: one copy, two, and those of a group."""

from __future__ import annotations

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


def sampled_group(family: Density, weights: list[float], move: float) -> Pair:
    """sum_j weights[j] f(x - j move) against f(x); every rounding moves mass up, which dominates."""
    lowest, kept = moved_up(weights)
    # The frame's origin is the lowest component, so that its weight can represent 1 minus the others.
    return Pair(family, Mixture(kept, tuple(j * move for j in range(len(kept)))), Mixture((1.0,), (0.0 - lowest * move,)))


def replaced_group(family: Density, weights: list[float], up: float, down: float) -> Pair:
    """sum_j weights[j] f(x - j up) against sum_j weights[j] f(x + j down); every rounding moves mass outwards, which dominates."""
    lowest, kept = moved_up(weights)
    moves = range(lowest, len(weights))
    return Pair(family, Mixture(kept, tuple(j * up for j in moves)), Mixture(kept, tuple(j * down for j in moves)).mirrored)
