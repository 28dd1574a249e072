r"""How far the weights of the best run may differ between neighbours, from the base's profile. proofs/selected.md, section 3."""

from __future__ import annotations

import math
from collections.abc import Callable

import scipy

from zetadp.accountants import deadline
from zetadp.mechanisms.declared.runs import NegativeBinomialRuns
from zetadp.mechanisms.numerics import logspace

_ROUNDING = 1e-14
"""Allowance for a sum of a few terms, relative to the sum of their sizes: some forty units of 1.1e-16."""

_TIGHT = 1e-6
"""How far, relatively, the root may lie on its safe side."""

_LOG_LEAST = -30.0
"""log of the smallest log r that is told from 0."""


def log_ratio(runs: NegativeBinomialRuns, log_delta: Callable[[float], float]) -> float:
    """log r, rounded up, for an r >= 1 with (1 / gamma - 1) delta(log r) <= r - 1; nearly the smallest one.

    Args:
      runs: the law of the number of runs.
      log_delta: upper bounds on log delta of one run, in both directions of neighbours.
    """
    t = runs.spread.high
    if t == 0.0:
        return 0.0
    log_factor = t + logspace.log_one_minus_exp(-t)

    def excess(log_x: float) -> float:
        deadline.check()
        x = math.exp(log_x)
        found = log_delta(x)
        if found == -math.inf:
            return -1.0
        log_gain = x + logspace.log_one_minus_exp(-x)
        return log_factor + found - log_gain + _ROUNDING * (t + abs(found) + x + abs(log_gain))

    low, high = _LOG_LEAST, 0.0
    while excess(high) > 0.0:
        low, high = high, high + 1.0
    if low == _LOG_LEAST and excess(low) <= 0.0:
        return math.exp(low)
    root, step = float(scipy.optimize.brentq(excess, low, high, xtol=_TIGHT, rtol=1e-15)), _TIGHT
    # Only what was tried counts.
    while excess(root) > 0.0:
        root, step = root + step, 2.0 * step
    return math.exp(root)
