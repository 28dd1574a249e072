r"""Bounds on how far right samples stray from what is expected of them. Proof: accountants/proofs/audit.md, 5."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import scipy
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

ROUNDING = 1e-9
"""More than rounding moves the logarithm of one count's moment."""

_LEAST, _MOST = -14.0, 10.0
"""Of the logarithm of |lambda|, in units of one over a count's variance, where the bound is looked for; it holds for every lambda."""


def count_log_tail(found: int, trials: int, probability: float) -> float:
    r"""log of a bound on the probability that a binomial count is as far from its mean as ``found``, on that side (Chernoff).

    Also that of a count without replacement with this mean (Hoeffding 1963, Theorem 4).

    >>> round(count_log_tail(15, 100, 0.1), 3), count_log_tail(10, 100, 0.1), count_log_tail(0, 0, 0.1)
    (-1.224, 0.0, 0.0)
    """
    if trials == 0:
        return 0.0
    share = found / trials
    return min(0.0, -trials * (_divergence(share, probability) + _divergence(1.0 - share, 1.0 - probability)))


def squares_log_tail(found: float, counts: Mapping[int, int], probability: float) -> float:
    r"""The same for the sum of (c - E c)^2 over independent binomial counts c, on either side.

    Args:
      counts: trials of a count -> how many counts have them.

    >>> round(squares_log_tail(0.0, {40: 30}, 0.5), 1), round(squares_log_tail(600.0, {40: 30}, 0.5), 1)
    (-62.3, -4.8)
    """
    spread = probability * (1.0 - probability)
    expected = sum(many * trials * spread for trials, many in counts.items())
    return _chernoff(found, expected, counts, probability, lambda c, trials: (c - trials * probability) ** 2)


def coincidences_log_tail(found: float, counts: Mapping[int, int], probability: float) -> float:
    r"""The same for the sum of c (c - 1), upwards only, also over counts that are negatively associated, or below such counts.

    >>> coincidences_log_tail(0.0, {40: 30}, 0.1), round(coincidences_log_tail(40.0 * 39.0 * 3.0, {40: 30}, 0.1), 1)
    (0.0, -191.9)
    """
    expected = sum(many * trials * (trials - 1) * probability**2 for trials, many in counts.items())
    if found <= expected:
        return 0.0
    return _chernoff(found, expected, counts, probability, lambda c, _trials: c * (c - 1.0))


def _divergence(share: float, probability: float) -> float:
    """One term of the relative entropy of two coins."""
    if share <= 0.0:
        return 0.0
    return math.inf if probability <= 0.0 else share * math.log(share / probability)


def _chernoff(
    found: float, expected: float, counts: Mapping[int, int], probability: float, size: Callable[[Numbers, int], Numbers]
) -> float:
    r"""min over lambda of sum log E e^(lambda f(c)) - lambda found, with lambda > 0 where ``found`` is above what is expected."""
    if not counts or not 0.0 < probability < 1.0:
        return 0.0
    laws: list[tuple[int, Numbers, Numbers]] = []
    for trials, many in counts.items():
        c = np.arange(trials + 1.0)
        laws.append((many, scipy.stats.binom.logpmf(c, trials, probability), size(c, trials)))
    # Of the order of the summands' spread, so that the search begins nowhere near an end.
    unit = sum(counts.values()) / max(expected, ROUNDING)
    sign = 1.0 if found > expected else -1.0

    def bound(logarithm: float) -> float:
        rate = sign * unit * math.exp(logarithm)
        return sum(many * float(scipy.special.logsumexp(log_law + rate * of)) for many, log_law, of in laws) - rate * found

    best = scipy.optimize.minimize_scalar(bound, bounds=(_LEAST, _MOST), method="bounded", options={"maxiter": 60})
    return min(0.0, float(best.fun) + ROUNDING * sum(counts.values()))
