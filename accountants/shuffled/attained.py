r"""What shuffled batches with Gaussian noise lose at least: concrete data sets, and tests of all outputs. proofs/shuffled.md, section 2.

Every test is a set S of outputs, of which p = P(S) and q = Q(S) are products of normal probabilities: delta(eps) >= p - e^eps q.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import final

import numpy as np
import scipy

from zetadp.accountants.leaf import Leaf
from zetadp.accountants.shared_sample import GaussianWithLaplace
from zetadp.accountants.shuffled import epochs
from zetadp.accountants.shuffled.epochs import Floats
from zetadp.mechanisms.base import Adjacency
from zetadp.mechanisms.loss import GaussianLoss

LARGEST_DISTANCE = 60.0
"""Records that contribute more are shrunk to it in the data sets that are tested: epsilons up to some 1800."""

MOST_EPOCHS = 10**6
"""A count of epochs looks at no more than these: all others are ignored."""

_SHORTER = 1.0 - 2e-14
"""Contributions are that much shorter: more than the rounding of a distance (``SHIFT_ERROR``)."""

_POINTS, _COUNTED_POINTS = 1500, 400
"""Thresholds of one epoch, and of several."""

_TINY = -650.0
"""Sets whose probability has a smaller logarithm under Q aren't used: floats would have lost its digits."""


@final
class Attained:
    r"""Lower bounds on the profile of ``count`` epochs, by a fixed list of tests.

    Args:
      log_p: (tests,); lower ends of their log probabilities under one data set.
      log_q: (tests,); upper ends under its neighbour.
    """

    def __init__(self, log_p: Floats, log_q: Floats) -> None:
        kept = np.isfinite(log_p) & (log_q > _TINY)
        self._log_p, self._log_q = log_p[kept], np.minimum(log_q[kept], 0.0)

    def log_delta(self, epsilon: float) -> float:
        """log of a lower end of delta; -inf where no test says anything."""
        if not epsilon < math.inf:
            return -math.inf
        above = self._log_q + epsilon - self._log_p
        above += 1e-14 * (1.0 + np.abs(self._log_q) + np.abs(self._log_p) + epsilon)
        some = above < 0.0
        if not some.any():
            return -math.inf
        return float(np.max(self._log_p[some] + np.log(-np.expm1(above[some])))) - epochs.ERROR

    def epsilon(self, log_delta: float) -> float:
        """A lower end of epsilon at this log of delta: at any smaller one delta is larger."""
        below = log_delta - self._log_p + 1e-14 * (1.0 - log_delta + np.abs(self._log_p))
        some = below < 0.0
        if not some.any():
            return 0.0
        found = self._log_p[some] + np.log(-np.expm1(below[some])) - self._log_q[some]
        return max(float(np.max(found)) - epochs.ERROR * (1.0 + abs(float(np.max(found)))), 0.0)


def attained(leaf: Leaf, count: int) -> Attained | None:
    """The tests for so many epochs of one leaf of the scheme shuffled; None where no noise is Gaussian."""
    mechanism = leaf.mechanism.gaussian if isinstance(leaf.mechanism, GaussianWithLaplace) else leaf.mechanism
    loss = mechanism.privacy_loss()
    if not isinstance(loss, GaussianLoss):
        return None
    # Under zero_out other records may contribute the opposite of the one that differs; else how far they are apart is all that is known.
    return _attained(loss.mu, leaf.steps, count, leaf.mechanism.neighbours[0] is Adjacency.ZERO_OUT)


@lru_cache(maxsize=64)
def _attained(distance: float, steps: int, count: int, opposite: bool) -> Attained:
    m = min(distance, LARGEST_DISTANCE) * _SHORTER
    found = [_of_sum(min(m * math.sqrt(count / steps) * _SHORTER, LARGEST_DISTANCE))]
    for low, high in ((0.0, m), (m, 2.0 * m)) if opposite else ((0.0, m),):
        found.extend(epochs.largest(low, high, steps, _POINTS).tests)
        if count > 1:
            one, several = epochs.largest(low, high, steps, _COUNTED_POINTS), min(count, MOST_EPOCHS)
            found.extend(test for ends in one.tests for _, test in epochs.counts(*ends, several))
            found.extend(epochs.sums(one, several))
    return Attained(*(np.concatenate(sides) for sides in zip(*found, strict=True)))


def _of_sum(mu: float) -> epochs.Tests:
    """That the sum of all outputs, in units of its noise, is above a threshold."""
    thresholds = np.linspace(epochs.LEAST, mu + epochs.BEYOND, _POINTS)
    return epochs.lower(scipy.special.log_ndtr(mu - thresholds)), epochs.upper(scipy.special.log_ndtr(-thresholds))
