"""The largest privacy loss of a pair that has one: pure epsilon-DP, and the bounded direction of a sample."""

from __future__ import annotations

import math

from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.pairs import Pair


def pure_epsilon(pair: Pair) -> float:
    """The largest privacy loss of a pair in either direction, rounded up; infinite for a Gaussian.

    >>> from zetadp.accountants.densities import LAPLACE
    >>> from zetadp.accountants.densities.mixtures import Mixture
    >>> half = Mixture((0.5, 0.5), (0.0, 1.0))
    >>> round(pure_epsilon(Pair(LAPLACE, half, Mixture((1.0,), (0.0,)))), 6)
    0.620115
    """
    # Where a pair isn't shown its loss is 0.
    own = pair.family.largest_loss(pair.upper, pair.lower)
    return own if pair.crowded is None else max(own, pure_epsilon(pair.crowded.pair))


def largest_loss(pair: Pair) -> float:
    """The largest log dP/dQ in this order, rounded up: finite for any noise where Q has every copy that P has.

    >>> from zetadp.accountants.densities import GAUSSIAN
    >>> from zetadp.accountants.densities.mixtures import Mixture
    >>> sampled = Mixture((0.75, 0.25), (-1.0, 0.0))
    >>> round(largest_loss(Pair(GAUSSIAN, Mixture((1.0,), (0.0,)), sampled)), 6), largest_loss(Pair(GAUSSIAN, sampled.mirrored, sampled))
    (1.386294, inf)
    """
    if pair.crowded is not None:
        return max(largest_loss(pair.uncrowded), largest_loss(pair.crowded.pair))
    below = dict(zip(pair.lower.shifts, pair.lower.weights, strict=True))
    if pair.worst_of_both or not all(shift in below for shift in pair.upper.shifts):
        return pure_epsilon(pair)
    # P is at most the largest ratio of a copy's two weights times those copies of Q. A weight that stands for 1 minus the others is off by
    # up to a unit of 1, not of itself.
    pairs = [(weight, below[shift]) for weight, shift in zip(pair.upper.weights, pair.upper.shifts, strict=True)]
    largest = max(math.log(p / q) + 4.0 * UNIT * (1.0 / p + 1.0 / q) for p, q in pairs)
    return largest + 4.0 * UNIT * (1.0 + abs(largest))


def least_loss(pair: Pair) -> float:
    """The smallest log dP/dQ, rounded down: the negative of the largest in the other order."""
    if pair.crowded is not None:
        return min(least_loss(pair.uncrowded), least_loss(pair.crowded.pair))
    return -largest_loss(Pair(pair.family, pair.lower.mirrored, pair.upper.mirrored, pair.worst_of_both, pair.shown))
