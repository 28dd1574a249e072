"""The largest privacy loss of a pair that has one: pure epsilon-DP."""

from __future__ import annotations

import math

import scipy

from accountants.pairs import Family, Mixture, Pair

_ROUNDING = 1e-13
"""Relative allowance for a sampled loss: measured against 40 digits, less than a tenth of it is used."""

_ABSOLUTE = 1e-15
_LARGEST_EXPONENT = 700.0


def pure_epsilon(pair: Pair) -> float:
    """The largest privacy loss of a pair in either direction, rounded up: the log ratio at the ends of the line; infinite for a Gaussian.

    >>> half = Mixture((0.5, 0.5), (0.0, 1.0))
    >>> round(pure_epsilon(Pair(Family.LAPLACE, half, Mixture((1.0,), (0.0,)))), 6)
    0.620115
    """
    if pair.family is Family.GAUSSIAN:
        return math.inf
    if pair.is_whole or pair.shown < 1.0:
        # Where a pair isn't shown its loss is 0.
        return pair.distance
    right = _log_sum(pair.upper) - _log_sum_down(pair.lower)
    left = _log_sum(pair.lower.mirrored) - _log_sum_down(pair.upper.mirrored)
    return max(right, left) * (1.0 + _ROUNDING) + _ABSOLUTE


def _log_sum(mixture: Mixture) -> float:
    """log sum_j w_j e^{s_j}; the weight at shift 0 of several components stands for 1 minus the others."""
    if len(mixture.weights) == 1:
        return mixture.shifts[0]
    if mixture.shifts[-1] > _LARGEST_EXPONENT:
        return float(scipy.special.logsumexp([math.log(w) + s for w, s in zip(mixture.weights, mixture.shifts, strict=True)]))
    return math.log1p(math.fsum(w * math.expm1(s) for w, s in zip(mixture.weights, mixture.shifts, strict=True)))


def _log_sum_down(mixture: Mixture) -> float:
    """The same for shifts <= 0, rounded down: 1 minus the others may have lost its digits, but e^{lowest shift} is below it."""
    if len(mixture.weights) == 1:
        return mixture.shifts[0]
    rest = 1.0 + math.fsum(w * math.expm1(s) for w, s in zip(mixture.weights, mixture.shifts, strict=True))
    return max(math.log(rest - _ABSOLUTE) if rest > _ABSOLUTE else -math.inf, mixture.shifts[0])
