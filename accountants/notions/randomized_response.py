r"""Randomised response: the pair (p, 1 - p) against (1 - p, p) with p = e^epsilon / (1 + e^epsilon).

It dominates every epsilon-DP mechanism (Kairouz, Oh and Viswanath 2015), and it is what the symmetric constraints of RDP and zCDP
lead to as well (proofs/notions.md, sections 2, 5 and 6). All functions take and give decimals within ``digits.precise``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal

from zetadp.accountants.notions.digits import ONE, TWO, ZERO, exp, expm1, log1p

_LARGE = Decimal(40)
_FIVE = Decimal(5)
_FLOAT_STEPS, _STEPS = 40, 60
_CLOSE = Decimal("1e-20")
"""A step from so near leaves an error of 1e-34: slopes are known to some 15 digits, and their own changes are smaller still."""


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

    def near(epsilon: float) -> tuple[float, float]:
        half = 0.5 * epsilon
        return epsilon * math.tanh(half), math.tanh(half) + (half / math.cosh(half) ** 2 if half < 300.0 else 0.0)

    return ZERO if rho == ZERO else _root(concentration, near, rho, (TWO * rho).sqrt() + rho)


def epsilon_of_renyi(order: Decimal, value: Decimal) -> Decimal:
    """The epsilon at which randomised response has this Renyi divergence, to all but the last few digits."""
    a = float(order)

    def near(epsilon: float) -> tuple[float, float]:
        half, wide = 0.5 * epsilon, (2.0 * a - 1.0) * 0.5 * epsilon
        if a * half < 1e-4:
            return 0.5 * a * epsilon * epsilon, a * epsilon
        slope = (0.5 * (2.0 * a - 1.0) * math.tanh(wide) - 0.5 * math.tanh(half)) / (a - 1.0)
        if wide > 20.0:
            return epsilon + (math.log1p(math.exp(-2.0 * wide)) - math.log1p(math.exp(-epsilon))) / (a - 1.0), slope
        return math.log1p(2.0 * math.sinh(a * half) * math.sinh((a - 1.0) * half) / math.cosh(half)) / (a - 1.0), slope

    if value == ZERO:
        return ZERO
    # renyi <= order epsilon^2 / 2 and renyi <= epsilon.
    return _root(lambda e: renyi(e, order), near, value, max((TWO * value / order).sqrt(), value))


def _root(function: Callable[[Decimal], Decimal], near: Callable[[float], tuple[float, float]], value: Decimal, start: Decimal) -> Decimal:
    """Of an increasing function, by Newton's steps in the logarithms of both; ``near`` gives it with its slope in floats, for the start."""
    x, target = float(start), float(value)
    for _ in range(_FLOAT_STEPS):
        got, slope = near(x)
        if not (got > 0.0 and slope > 0.0):
            break
        step = math.log(target / got) * got / (x * slope)
        x *= math.exp(max(-5.0, min(5.0, step)))
        if abs(step) < 1e-14:
            break
    root = Decimal(x)
    for _ in range(_STEPS):
        reached = function(root)
        gap = value / reached - ONE
        got, slope = near(float(root))
        rate = got / (float(root) * slope) if got > 0.0 and slope > 0.0 else 1.0
        root *= exp(max(-_FIVE, min(_FIVE, log1p(gap) * Decimal(rate))))
        if abs(gap) < _CLOSE:
            break
    return root


def _sinh(x: Decimal) -> Decimal:
    up = expm1(x)
    return (up + up / (ONE + up)) / TWO
