r"""From Renyi divergence to epsilon at one order, and back, rounded to the safe side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from zetadp.mechanisms.errors import InvalidParameter

_ROUNDING = 1e-14
"""Allowance for the roundings of a conversion, relative to the sum of its terms' sizes: some thirty units in the last place."""


def renyi_epsilon(order: float, value: float, log_delta: float) -> float:
    """epsilon at delta of a pair with Renyi divergence at most ``value`` at this order; may be negative.

    Canonne, Kamath and Steinke 2020, Proposition 12: R + log(1 - 1/a) - (log delta + log a) / (a - 1).

    >>> round(renyi_epsilon(10.0, 1.0, math.log(1e-5)), 6)
    1.918011
    """
    terms = _terms(order, log_delta)
    return value + math.fsum(terms) + _ROUNDING * (value + math.fsum(abs(term) for term in terms))


def renyi_value(order: float, epsilon: float, log_delta: float) -> float:
    """The largest Renyi divergence at this order that implies (epsilon, delta), rounded down; may be negative: no value does then."""
    terms = _terms(order, log_delta)
    return epsilon - math.fsum(terms) - 2.0 * _ROUNDING * (epsilon + math.fsum(abs(term) for term in terms))


def _terms(order: float, log_delta: float) -> tuple[float, float, float]:
    # log(1 - 1/a) by way of a - 1, which is exact for orders below 2.
    return math.log(order - 1.0) - math.log(order), -log_delta / (order - 1.0), -math.log(order) / (order - 1.0)


def renyi_loss(orders: Sequence[float], limits: Sequence[Fraction], parts: Sequence[Fraction | None], log_failure: float) -> float:
    """An epsilon that the loss exceeds with at most this probability, each order answering for its share: Markov's inequality.

    Pr[L >= epsilon] <= e^{(a - 1)(R - epsilon)} with R the order's part of its limit; None where that was exceeded.
    """
    log_share = log_failure - math.log(len(orders))
    found = [
        float(part * limit) - log_share / (order - 1.0)
        for order, limit, part in zip(orders, limits, parts, strict=True)
        if part is not None
    ]
    if not found:
        raise InvalidParameter("sums", "within at least one limit", parts)
    return min(found) * (1.0 + _ROUNDING)
