"""The largest privacy loss of a pair that has one: pure epsilon-DP."""

from __future__ import annotations

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
    return pair.family.largest_loss(pair.upper, pair.lower)
