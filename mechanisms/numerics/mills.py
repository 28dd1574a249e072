r"""Differences of the Mills ratio R(t) = (1 - Phi(t)) / phi(t) = sqrt(pi/2) r(t), r(t) = erfcx(t / sqrt 2), without cancellation.

Three forms, depending on x and mu (proofs/gdp_numerics.md bounds the error of each):

- r(x) - r(x + mu) as written for mu >= (x + 3/2) / 25, where a fortieth of r(x), and mostly more, is left;
- for smaller mu and x < 7 the odd derivatives of R at the middle c = x + mu/2, all of one sign,
  R(x) - R(x + mu) = -2 sum_k (mu/2)^{2k+1} R^{(2k+1)}(c) / (2k+1)!, with R^{(n+1)} = c R^{(n)} + n R^{(n-1)};
- for smaller mu and x >= 7 Laplace's continued fraction 1 / R(t) = t + K_1(t), K_n(t) = n / (t + K_{n+1}(t)), whose differences obey a
  recursion: with D_n = (K_n(x) - K_n(x + mu)) / mu, D_n = K_n(x) K_n(x + mu) (1 - D_{n+1}) / n, and
  R(x) - R(x + mu) = mu (1 - D_1) / ((x + K_1(x)) (x + mu + K_1(x + mu))).
"""

from __future__ import annotations

import math
from typing import TypeAlias, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

Real = TypeVar("Real", float, Floats)

SQRT_HALF = math.sqrt(0.5)
_SQRT_HALF_PI = math.sqrt(0.5 * math.pi)

CANCELS_BELOW = 0.04
_FRACTION_FROM = 7.0
_LEVELS = ((50.0, 5), (20.0, 8), (10.0, 12), (_FRACTION_FROM, 16))
"""The number of levels of the fraction that are enough from each x on; the proof carries the truncated part through it as an interval."""

_LEAST_MU, _LARGEST_X = 1e-100, 1e50
"""Within these the product of mu and the quotient has a logarithm; beyond, it could underflow, and each has its own."""

_LOG_SCALE = -0.5 * math.log(2.0 * math.pi)
"""log(r / (2 R)), a half of sqrt(2 / pi)."""


def log_difference(x: float, mu: float) -> float:
    """log((r(x) - r(x + mu)) / 2) for x > -0.68 and mu > 0.

    >>> round(math.exp(log_difference(0.0, 1.0)), 12), round(log_difference(3.0, 1e-200), 9)
    (0.238421708135, -463.886704658)
    """
    if mu >= CANCELS_BELOW * (x + 1.5):
        return math.log(0.5 * (float(scipy.special.erfcx(x * SQRT_HALF)) - float(scipy.special.erfcx((x + mu) * SQRT_HALF))))
    if x >= _FRACTION_FROM:
        quotient = _by_fraction(x, mu, next(levels for least, levels in _LEVELS if x >= least))
    else:
        middle = x + 0.5 * mu
        quotient = _by_derivatives(middle, mu, _SQRT_HALF_PI * float(scipy.special.erfcx(middle * SQRT_HALF)))
    return (math.log(mu * quotient) if mu > _LEAST_MU and x < _LARGEST_X else math.log(mu) + math.log(quotient)) + _LOG_SCALE


def log_differences(x: Floats, mu: Floats) -> Floats:
    """``log_difference`` element by element."""
    result = np.log(0.5 * (scipy.special.erfcx(x * SQRT_HALF) - scipy.special.erfcx((x + mu) * SQRT_HALF)))
    cancelled = np.flatnonzero(mu < CANCELS_BELOW * (x + 1.5))
    if cancelled.size:
        result[cancelled] = log_cancelled_differences(x[cancelled], mu[cancelled])
    return result


def log_cancelled_differences(x: Floats, mu: Floats) -> Floats:
    """``log_difference`` element by element where mu < CANCELS_BELOW (x + 3/2)."""
    quotient = np.empty(x.shape)
    top = math.inf
    for least, levels in _LEVELS:
        tier = np.flatnonzero((x >= least) & (x < top))
        if tier.size:
            quotient[tier] = _by_fractions(x[tier], mu[tier], levels)
        top = least
    middling = np.flatnonzero(x < _FRACTION_FROM)
    if middling.size:
        chosen_mu = mu[middling]
        middle = x[middling] + 0.5 * chosen_mu
        quotient[middling] = _by_derivatives(middle, chosen_mu, _SQRT_HALF_PI * scipy.special.erfcx(middle * SQRT_HALF))
    result = np.log(mu * quotient) + _LOG_SCALE
    apart = (mu <= _LEAST_MU) | (x >= _LARGEST_X)
    if apart.any():
        result[apart] = np.log(mu[apart]) + np.log(quotient[apart]) + _LOG_SCALE
    return result


def _by_derivatives(c: Real, mu: Real, r0: Real) -> Real:
    """(R(c - mu/2) - R(c + mu/2)) / mu, from r0 = R(c)."""
    square = mu * mu
    r1 = c * r0 - 1.0
    r2 = c * r1 + r0
    r3 = c * r2 + 2.0 * r1
    r4 = c * r3 + 3.0 * r2
    r5 = c * r4 + 4.0 * r3
    r6 = c * r5 + 5.0 * r4
    r7 = c * r6 + 6.0 * r5
    r9 = c * (c * r7 + 7.0 * r6) + 8.0 * r7
    # 24 = 2^2 3!, 80 = 2^2 5! / 3!, 168 = 2^2 7! / 5!, 288 = 2^2 9! / 7!.
    return -(r1 + square / 24.0 * (r3 + square / 80.0 * (r5 + square / 168.0 * (r7 + square / 288.0 * r9))))


def _by_fraction(x: float, mu: float, levels: int) -> float:
    """(R(x) - R(x + mu)) / mu."""
    y = x + mu
    near = far = difference = 0.0
    for n in range(levels, 0, -1):
        near, far = n / (x + near), n / (y + far)
        difference = near * far * (1.0 - difference) / n
    return (1.0 - difference) / ((x + near) * (y + far))


def _by_fractions(x: Floats, mu: Floats, levels: int) -> Floats:
    """``_by_fraction`` element by element: the same operations, in arrays that stay in the processor's cache."""
    y = x + mu
    near, far, difference, product = (np.zeros_like(x) for _ in range(4))
    for n in range(levels, 0, -1):
        np.divide(n, np.add(x, near, out=near), out=near)
        np.divide(n, np.add(y, far, out=far), out=far)
        np.multiply(near, far, out=product)
        product *= np.subtract(1.0, difference, out=difference)
        np.divide(product, n, out=difference)
    return (1.0 - difference) / ((x + near) * (y + far))
