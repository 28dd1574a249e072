r"""Epsilon and delta near the sum of all largest losses, likelier than delta together: no grid as fine as the gap. proofs/fft.md, 0

With l the sum of the largest losses l_i, L > l - g only if every L_i > l_i - g, so that

    delta(l - g) <= (1 - e^{-g}) prod P(L_i > l_i - g)^{T_i}.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.grids.hockey_stick import calls
from zetadp.accountants.largest_loss import largest_loss, log_delta_from_largest
from zetadp.accountants.pairs import Pair, narrowed, widened

_LARGEST_SHARE = 0.01
"""Gaps beyond this share of the largest losses' sum hold so many other losses that a grid says more."""

_WIDEST = 1e-3
"""Of a bracket of log delta."""

_ALLOWED = 1e-12
"""More than the relative rounding of a gap and of the logarithm of a product of probabilities."""


def epsilon_near_largest(pairs: Sequence[tuple[Pair, int]], largest: float, low: float, log_delta: float) -> float:
    """An epsilon at which delta is at most e^log_delta: ``largest`` itself where nothing better is known.

    Args:
      pairs: one direction of a composition, with counts.
      largest: at least the sum of their largest losses; finite.
      low: an epsilon that is known to be at most the one in question; 0 if none is.
    """
    gap = _gap(largest, low)
    if not 0.0 < gap <= _LARGEST_SHARE * largest:
        return largest
    share = log_delta - _log_all_beyond(pairs, gap)
    if share >= -1.0:
        return largest
    nearer = min(-math.log1p(-math.exp(share)), gap)
    return min(largest - nearer * (1.0 - _ALLOWED) + 2.0 * UNIT * largest, largest)


def log_delta_near_largest(
    sides: Sequence[Sequence[tuple[Pair, int]]], largest: Sequence[float], epsilon: float, width: float
) -> tuple[float, float] | None:
    """(lower, upper) of log delta(epsilon) by the largest losses alone, or None if that isn't narrow enough.

    Args:
      sides: both directions of a composition, or one if it is enough, with counts.
      largest: of each, at least the sum of its pairs' largest losses.
      width: share of epsilon to which it would have to be known: delta's slope is about 1 / (e^gap - 1).
    """
    most = max(largest)
    if not epsilon < most < math.inf:
        return None
    low = max(log_delta_from_largest([(narrowed(pair), count) for pair, count in side], epsilon) for side in sides)
    if low == -math.inf:
        return None
    live = [(side, end) for side, end in zip(sides, largest, strict=True) if epsilon < end]
    high = max(log_delta_upper([(widened(pair), count) for pair, count in side], end, epsilon) for side, end in live)
    allowed = min(width * max(epsilon / math.expm1(min(most - epsilon, 700.0)), 1.0), _WIDEST)
    return (low, high) if high - low <= allowed else None


def log_delta_upper(pairs: Sequence[tuple[Pair, int]], largest: float, epsilon: float) -> float:
    """Upper bound on log delta(epsilon) in one direction, epsilon < ``largest``: 0 where this says nothing."""
    gap = _gap(largest, epsilon)
    if not 0.0 < gap <= _LARGEST_SHARE * largest:
        return 0.0
    found = math.log(-math.expm1(-gap))
    return min(found + _log_all_beyond(pairs, gap) + _ALLOWED * (1.0 + abs(found)), 0.0)


def _gap(largest: float, epsilon: float) -> float:
    """At least how far the largest loss is above an epsilon."""
    return (largest - epsilon) * (1.0 + _ALLOWED) + 8.0 * UNIT * largest


def _log_all_beyond(pairs: Sequence[tuple[Pair, int]], gap: float) -> float:
    """Upper bound on the log of the probability that every loss is within the gap of its largest one."""
    log_all = math.fsum(count * _log_beyond(pair, gap) for pair, count in pairs)
    return log_all + _ALLOWED * (1.0 + abs(log_all))


def _log_beyond(pair: Pair, gap: float) -> float:
    """Upper bound on log P(L > l - gap), l the pair's largest loss: 0 if there is none.

    At g = e^x, P(L > x) = H(g) + g Q(L > x), and H is convex: -Q(L > x), its slope there, is at least that of the chord from before.
    """
    at = largest_loss(pair) * (1.0 - 8.0 * UNIT) - gap
    before = at - gap
    if not before > 0.0:
        return 0.0
    found = calls(pair, np.array([before, at]))
    slope = max(float(found.upper[0]) - float(found.lower[1]), 0.0) / -math.expm1(before - at)
    beyond = (float(found.upper[1]) + slope) * (1.0 + _ALLOWED)
    return math.log(beyond) if 0.0 < beyond < 1.0 else 0.0
