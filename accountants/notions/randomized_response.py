r"""Randomised response: the pair (p, 1 - p) against (1 - p, p) with p = e^epsilon / (1 + e^epsilon).

It dominates every epsilon-DP mechanism (Kairouz, Oh and Viswanath 2015), and it is what the symmetric constraints of RDP and zCDP
lead to as well (proofs/notions.md, sections 2, 5 and 6). All functions take and give decimals within ``digits.precise``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal

from accountants.notions.digits import ONE, TWO, ZERO, exp, expm1, log1p

_LARGE = Decimal(40)


def advantage(epsilon: Decimal) -> Decimal:
    """tanh(epsilon / 2), the total variation distance."""
    return -expm1(-epsilon) / (ONE + exp(-epsilon))


def delta(epsilon: Decimal, at: Decimal) -> Decimal:
    """delta at the epsilon ``at`` >= 0: (e^epsilon - e^at) / (1 + e^epsilon), or 0."""
    return -expm1(at - epsilon) / (ONE + exp(-epsilon)) if at < epsilon else ZERO


def epsilon_at(epsilon: Decimal, delta: Decimal) -> Decimal:
    """The epsilon >= 0 at which delta has come down to this: log(e^epsilon - delta (1 + e^epsilon))."""
    if delta >= advantage(epsilon):
        return ZERO
    return max(ZERO, epsilon + log1p(-delta * (ONE + exp(-epsilon))))


def false_negative_rates(epsilon: Decimal, delta: Decimal, alpha: Decimal) -> tuple[Decimal, Decimal]:
    """1 - delta - e^epsilon alpha, at least 0, and e^-epsilon (1 - delta - alpha): the larger is the curve of (epsilon, delta)."""
    kept = ONE - delta
    if alpha == ZERO:
        return kept, exp(-epsilon) * kept
    # e^epsilon alpha >= 1 leaves nothing of the first line, and its exponential may be beyond every exponent.
    log = epsilon + alpha.ln()
    return (max(ZERO, kept - exp(log)) if log < ZERO else ZERO), exp(-epsilon) * max(ZERO, kept - alpha)


def renyi(epsilon: Decimal, order: Decimal) -> Decimal:
    """log(cosh((2 order - 1) epsilon / 2) / cosh(epsilon / 2)) / (order - 1), for order > 1."""
    if epsilon == ZERO:
        return ZERO
    if (TWO * order - ONE) * epsilon > _LARGE:
        tails = log1p(exp(-(TWO * order - ONE) * epsilon)) - log1p(exp(-epsilon))
        return epsilon + tails / (order - ONE)
    # cosh a / cosh b - 1 = 2 sinh((a + b) / 2) sinh((a - b) / 2) / cosh b, in which nothing cancels.
    half = epsilon / TWO
    excess = TWO * _sinh(order * half) * _sinh((order - ONE) * half) * TWO / (exp(half) + exp(-half))
    return log1p(excess) / (order - ONE)


def concentration(epsilon: Decimal) -> Decimal:
    """The least rho: sup over orders of renyi / order = epsilon tanh(epsilon / 2), its limit at order 1."""
    return epsilon * advantage(epsilon)


def epsilon_of_concentration(rho: Decimal) -> Decimal:
    """The epsilon with epsilon tanh(epsilon / 2) = rho, to all but the last few digits."""

    def slope(epsilon: float) -> float:
        return math.tanh(0.5 * epsilon) + 0.5 * epsilon * _sech_squared(0.5 * epsilon)

    return ZERO if rho == ZERO else _root(concentration, slope, rho, (TWO * rho).sqrt() + rho)


def epsilon_of_renyi(order: Decimal, value: Decimal) -> Decimal:
    """The epsilon at which randomised response has this Renyi divergence, to all but the last few digits."""
    a = float(order)

    def slope(epsilon: float) -> float:
        c = 0.5 * epsilon
        if a * c < 1e-4:
            return 2.0 * a * c
        return (0.5 * (2.0 * a - 1.0) * math.tanh((2.0 * a - 1.0) * c) - 0.5 * math.tanh(c)) / (a - 1.0)

    if value == ZERO:
        return ZERO
    # renyi <= order epsilon^2 / 2 and renyi <= epsilon; from above it comes down to the root since it is nearly convex.
    return _root(lambda e: renyi(e, order), slope, value, max((TWO * value / order).sqrt(), value))


def _root(function: Callable[[Decimal], Decimal], slope: Callable[[float], float], value: Decimal, start: Decimal) -> Decimal:
    """Of an increasing function, by Newton's steps in the logarithms of both; slopes are floats, so a step gains about 15 digits."""
    x = start
    for _ in range(60):
        got = function(x)
        gap = value / got - ONE
        as_float = float(x)
        rate = float(got) / (as_float * slope(as_float)) if 0.0 < as_float < math.inf and slope(as_float) > 0.0 else 1.0
        rate = rate if 0.0 < rate < math.inf else 1.0
        x *= exp(min(max(log1p(gap) if gap > -ONE else -ONE, -ONE * 5), ONE * 5) * Decimal(rate))
        if abs(gap) < Decimal("1e-36"):
            break
    return x


def _sinh(x: Decimal) -> Decimal:
    up = expm1(x)
    return (up + up / (ONE + up)) / TWO


def _sech_squared(x: float) -> float:
    return (1.0 / math.cosh(x)) ** 2 if x < 300.0 else 0.0
