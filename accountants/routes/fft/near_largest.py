r"""Epsilon from above where all largest losses together are likelier than delta: no grid as fine as the gap to their sum. proofs/fft.md, 0

With l the sum of the largest losses l_i, L > l - g only if every L_i > l_i - g, so that

    delta(l - g) <= (1 - e^{-g}) prod P(L_i > l_i - g)^{T_i}.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.grids.hockey_stick import calls
from zetadp.accountants.largest_loss import largest_loss
from zetadp.accountants.pairs import Pair

_LARGEST_SHARE = 0.01
"""Gaps beyond this share of the largest losses' sum hold so many other losses that a grid says more."""

_ALLOWED = 1e-12
"""More than the relative rounding of a gap and of the logarithm of a product of probabilities."""


def epsilon_near_largest(pairs: Sequence[tuple[Pair, int]], largest: float, low: float, log_delta: float) -> float:
    """An epsilon at which delta is at most e^log_delta: ``largest`` itself where nothing better is known.

    Args:
      pairs: one direction of a composition, with counts.
      largest: at least the sum of their largest losses; finite.
      low: an epsilon that is known to be at most the one in question; 0 if none is.
    """
    gap = (largest - low) * (1.0 + _ALLOWED) + 8.0 * UNIT * largest
    if not 0.0 < gap <= _LARGEST_SHARE * largest:
        return largest
    logs = [(_log_beyond(pair, gap), count) for pair, count in pairs]
    log_all = math.fsum(count * log for log, count in logs)
    log_all += _ALLOWED * (1.0 + abs(log_all))
    share = log_delta - log_all
    if share >= -1.0:
        return largest
    nearer = min(-math.log1p(-math.exp(share)), gap)
    return min(largest - nearer * (1.0 - _ALLOWED) + 2.0 * UNIT * largest, largest)


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
