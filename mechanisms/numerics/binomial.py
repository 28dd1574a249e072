r"""The binomial distribution: weights, and tails as upper bounds, far below what a float of 1 minus something could hold."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np

_DIGITS = 60
_TERMS = 2**16
_SLACK = 1e-9
"""More than the rounding of the ratios' products, of their sum and of its logarithm: at most 2^16 of a few 1e-16 each."""


def binomial_weights(size: int, probability: float) -> list[float]:
    """Of 0, ..., size successes; every one is the float at or just above its exact value."""
    with localcontext() as context:
        context.prec = _DIGITS
        success, failure = Decimal(probability), 1 - Decimal(probability)
        exact = [math.comb(size, j) * success**j * failure ** (size - j) for j in range(size + 1)]
    return [float(weight) if Decimal(float(weight)) >= weight else math.nextafter(float(weight), math.inf) for weight in exact]


def log_binomial_tail(number: int, probability: float, least: int) -> float:
    r"""log of an upper bound on P[Bin(number, probability) >= least], at most 0; -inf if it is impossible.

    Above the mean it is tight to about 1e-9, or to the share of the tail that is beyond 65 536 terms. Up to the mean it is 0: such tails
    are never small.

    Args:
      number: trials, >= 0.
      probability: of each, in (0, 1).
      least: successes.

    >>> round(log_binomial_tail(10, 0.5, 9), 8) == round(math.log(11 / 1024), 8)
    True
    """
    if least <= 0:
        return 0.0
    if least > number:
        return -math.inf
    odds = probability / (1.0 - probability)
    first = (number - least) / (least + 1.0) * odds
    if not first < 1.0 - 1e-12:
        return 0.0
    # The ratios of neighbouring probabilities fall, so that from any term on the rest is at most a geometric series.
    k = np.arange(least, min(least + _TERMS, number), dtype=np.float64)
    ratios = (number - k) / (k + 1.0) * odds
    terms = np.cumprod(np.append(1.0, ratios))
    last = (number - (least + len(k))) / (least + len(k) + 1.0) * odds
    total = float(terms.sum()) + float(terms[-1]) * last / (1.0 - last)
    return min(_log_probability(number, probability, least) + math.log(total) + _SLACK, 0.0)


def _log_probability(number: int, probability: float, successes: int) -> float:
    """log P[Bin(number, probability) = successes], rounded from 60 digits."""
    with localcontext() as context:
        context.prec = _DIGITS
        q = Decimal(probability)
        ways = _log_factorial(number) - _log_factorial(successes) - _log_factorial(number - successes)
        return float(ways + successes * q.ln() + (number - successes) * (1 - q).ln())


def _log_factorial(n: int) -> Decimal:
    """log n!, from Stirling's series at 64 and more, where its first terms left out are below 1e-25."""
    shift = max(0, 64 - n)
    x = Decimal(n + shift + 1)
    series = sum((Decimal(c) / (d * x ** (2 * k + 1)) for k, (c, d) in enumerate(_STIRLING)), Decimal(0))
    value = (x - Decimal("0.5")) * x.ln() - x + (2 * _pi()).ln() / 2 + series
    for k in range(shift):
        value -= Decimal(n + 1 + k).ln()
    return value


_STIRLING = ((1, 12), (-1, 360), (1, 1260), (-1, 1680), (1, 1188), (-691, 360360), (1, 156), (-3617, 122400))


def _pi() -> Decimal:
    return Decimal("3.14159265358979323846264338327950288419716939937510582097494")
