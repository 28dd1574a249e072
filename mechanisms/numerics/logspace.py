r"""Arithmetic on logarithms of probabilities, without loss near 0 and near 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

SMALLEST_FLOAT = math.ulp(0.0)


def log_add(a: float, b: float) -> float:
    """log(e^a + e^b)."""
    return float(np.logaddexp(a, b))


def log_sum(values: Sequence[float]) -> float:
    """log of the sum of e^value over all of them.

    >>> round(log_sum([0.0, 0.0]), 9)
    0.693147181
    """
    return float(np.logaddexp.reduce(values))


def log_one_minus_exp(a: float) -> float:
    """log(1 - e^a) for a <= 0; -inf at 0. Maechler 2012.

    >>> log_one_minus_exp(-1e-20) == math.log(1e-20)
    True
    """
    if a == 0.0:
        return -math.inf
    return math.log(-math.expm1(a)) if a > -math.log(2.0) else math.log1p(-math.exp(a))


def exp_up(log_value: float) -> float:
    """e^log_value for an upper bound: never 0 unless the bound itself is, although e^-800 underflows.

    >>> exp_up(-800.0) > 0.0, exp_up(-math.inf)
    (True, 0.0)
    """
    if log_value == -math.inf:
        return 0.0
    return max(math.nextafter(math.exp(log_value), math.inf), SMALLEST_FLOAT)


def exp_down(log_value: float) -> float:
    """e^log_value for a lower bound."""
    return max(0.0, math.nextafter(math.exp(log_value), -math.inf))
