r"""Gaussian differential privacy in closed form and log space: the pair N(0, 1) against N(mu, 1).

With x = eps/mu - mu/2, y = x + mu and r(t) = erfcx(t / sqrt 2), the Mills ratio (1 - Phi(t)) / phi(t) times sqrt(2 / pi),

    delta     = Phi(-x) - e^eps Phi(-y) = e^{-x^2/2} (r(x) - r(y)) / 2,
    1 - delta = Phi(x) + e^eps Phi(-y)  = e^{-x^2/2} (r(-x) + r(y)) / 2.

The first form keeps delta far below the smallest float, the second keeps 1 - delta. If r(x) and r(y) nearly cancel, ``mills.py`` computes
their difference differently. Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2022, Corollary 2.13. Rounding: proofs/gdp_numerics.md.
"""

from __future__ import annotations

import math
import sys
from typing import TypeAlias

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics.mills import (
    CANCELS_BELOW,
    SQRT_HALF,
    Real,
    log_cancelled_differences,
    log_difference,
    log_differences,
)

Floats: TypeAlias = NDArray[np.float64]

LOG_DELTA_ERROR = 2e-13
"""Error of ``gdp_log_delta``: at most LOG_DELTA_ERROR + 2e-15 |log delta| for mu <= 1e14 (proofs/gdp_numerics.md, which takes the
accuracy of exp, log and erfcx for granted). Measured against 60 and more digits, the largest error is a quarter of it."""

NEAR_ONE_ERROR = 3e-12
"""Relative error of log delta for delta near 1; 1e-299 more where 1 - delta underflows."""

NEAR_ONE = -0.066
"""log delta above which ``NEAR_ONE_ERROR`` is the smaller one."""

_ROUNDED_QUOTIENT_MATTERS = 16.0
_CERTAIN = -40.0
_BEYOND_ALL_FLOATS = 1e150
_CHUNK = 4096
_SPLIT = 134217729.0
_SPLITS = 1e100
"""Beyond it the split could overflow; ``LOG_DELTA_ERROR`` claims nothing there."""
_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


def log_delta_error(log_delta: float) -> float:
    """Bound on the absolute error of a ``gdp_log_delta`` with the result ``log_delta``; this is the relative error of delta itself."""
    if log_delta == -math.inf:
        return 0.0
    return (LOG_DELTA_ERROR if log_delta < NEAR_ONE else NEAR_ONE_ERROR * abs(log_delta) + 1e-299) + 2e-15 * abs(log_delta)


def gdp_log_delta(mu: float, epsilon: float) -> float:
    """log delta(epsilon) of mu-GDP.

    Args:
      mu: >= 0, finite.
      epsilon: >= 0; infinity gives -infinity.
    Raises:
      InvalidParameter: an argument out of its range.

    >>> round(math.exp(gdp_log_delta(1.0, 1.0)), 12)
    0.126936737507
    >>> round(gdp_log_delta(1.0, 40.0), 9)
    -788.423412774
    """
    if not 0.0 <= mu < math.inf:
        raise InvalidParameter("mu", "finite and >= 0", mu)
    if not epsilon >= 0.0:
        raise InvalidParameter("epsilon", ">= 0", epsilon)
    if mu == 0.0 or epsilon == math.inf:
        return -math.inf
    quotient = epsilon / mu
    x = quotient - 0.5 * mu
    if _ROUNDED_QUOTIENT_MATTERS < mu <= _SPLITS and _CERTAIN < x < 0.5 * quotient:
        x += _quotient_error(mu, epsilon, quotient)
    if x > _BEYOND_ALL_FLOATS:
        # An upper bound (the other factor is below 1), and finite: such a delta is small beyond all floats but isn't 0.
        return max(-0.5 * x * x, -sys.float_info.max)
    if x < 0.0:
        complement = (
            0.5 * math.exp(-0.5 * x * x) * (float(scipy.special.erfcx(-x * SQRT_HALF)) + float(scipy.special.erfcx((x + mu) * SQRT_HALF)))
        )
        if complement < 0.5:
            return math.log1p(-complement)
    return log_difference(x, mu) - 0.5 * x * x


def _quotient_error(mu: Real, epsilon: Real, quotient: Real) -> Real:
    """The error of fl(eps / mu), eps/mu - quotient: the product quotient * mu is split exactly, for mu <= 1e100. Dekker 1971."""
    carry_q, carry_m = _SPLIT * quotient, _SPLIT * mu
    high_q, high_m = carry_q - (carry_q - quotient), carry_m - (carry_m - mu)
    low_q, low_m = quotient - high_q, mu - high_m
    product = quotient * mu
    error = ((high_q * high_m - product) + high_q * low_m + low_q * high_m) + low_q * low_m
    return ((epsilon - product) - error) / mu


def gdp_log_deltas(mu: ArrayLike, epsilon: ArrayLike) -> Floats:
    """``gdp_log_delta`` element by element, the arguments broadcast against each other, with the same bound on the error.

    >>> gdp_log_deltas(1.0, [1.0, 40.0]).round(6)
    array([  -2.064066, -788.423413])
    """
    mus, epsilons = np.broadcast_arrays(np.asarray(mu, dtype=np.float64), np.asarray(epsilon, dtype=np.float64))
    if not bool(np.all((mus >= 0.0) & (mus < math.inf))):
        raise InvalidParameter("mu", "finite and >= 0", mus)
    if not bool(np.all(epsilons >= 0.0)):
        raise InvalidParameter("epsilon", ">= 0", epsilons)
    result = np.empty(mus.shape)
    flat, flat_mus, flat_epsilons = result.reshape(-1), mus.reshape(-1), epsilons.reshape(-1)
    with np.errstate(all="ignore"):
        # Pieces that stay in the processor's cache.
        for start in range(0, flat.size, _CHUNK):
            piece = slice(start, start + _CHUNK)
            flat[piece] = _log_deltas(flat_mus[piece], flat_epsilons[piece])
    return result


def _log_deltas(mu: Floats, epsilon: Floats) -> Floats:
    quotient = epsilon / mu
    x = quotient - 0.5 * mu
    rounded = np.flatnonzero((mu > _ROUNDED_QUOTIENT_MATTERS) & (mu <= _SPLITS) & (x > _CERTAIN) & (x < 0.5 * quotient))
    if rounded.size:
        x[rounded] += _quotient_error(mu[rounded], epsilon[rounded], quotient[rounded])
    square = 0.5 * x * x
    is_cancelled = (mu < CANCELS_BELOW * (x + 1.5)) & (x >= 0.0)
    cancelled = np.flatnonzero(is_cancelled)
    if not cancelled.size:
        result = _log_as_written(x, mu, square)
    else:
        result = np.empty(x.shape)
        result[cancelled] = log_cancelled_differences(x[cancelled], mu[cancelled]) - square[cancelled]
        if cancelled.size < x.size:
            others = np.flatnonzero(~is_cancelled)
            result[others] = _log_as_written(x[others], mu[others], square[others])
    beyond = x > _BEYOND_ALL_FLOATS
    if beyond.any():
        result[beyond] = np.maximum(-square[beyond], -sys.float_info.max)
    trivial = (mu == 0.0) | (epsilon == math.inf)
    if trivial.any():
        result[trivial] = -math.inf
    return result


def _log_as_written(x: Floats, mu: Floats, square: Floats) -> Floats:
    """log delta where r(x) and r(y) hardly cancel, or where x < 0."""
    near, far = scipy.special.erfcx(np.abs(x) * SQRT_HALF), scipy.special.erfcx((x + mu) * SQRT_HALF)
    result = np.log(0.5 * (near - far)) - square
    negative = np.flatnonzero(x < 0.0)
    if negative.size:
        # ``near`` holds r(-x) there; if delta is the smaller one, that is used.
        complement = 0.5 * np.exp(-square[negative]) * (near[negative] + far[negative])
        result[negative] = np.log1p(-complement)
        small = negative[complement >= 0.5]
        result[small] = log_differences(x[small], mu[small]) - square[small]
    return result


def log_delta_slopes(mu: float, epsilon: float) -> tuple[float, float, float]:
    """``gdp_log_delta`` for mu > 0 with its derivatives, by epsilon -e^eps Phi(-y) / delta and by mu phi(x) / delta.

    The derivatives are for iterations only: nothing is claimed about their error.
    """
    x = epsilon / mu - 0.5 * mu
    if 0.0 <= x < 1e3 and CANCELS_BELOW * (x + 1.5) <= mu <= _ROUNDED_QUOTIENT_MATTERS:
        far = float(scipy.special.erfcx((x + mu) * SQRT_HALF))
        difference = float(scipy.special.erfcx(x * SQRT_HALF)) - far
        return math.log(0.5 * difference) - 0.5 * x * x, -far / difference, _SQRT_2_OVER_PI / difference
    log_delta = gdp_log_delta(mu, epsilon)
    scale = 0.5 * math.exp(min(-0.5 * x * x - log_delta, 700.0))
    return log_delta, -scale * float(scipy.special.erfcx((x + mu) * SQRT_HALF)), _SQRT_2_OVER_PI * scale


def _normal_cdf(x: float) -> float:
    return float(scipy.special.ndtr(x))


def trade_off_error(mu: float, alpha: float) -> float:
    """Bound on the relative error of ``gdp_trade_off``: 2e-15 of each quantile, and beta falls up to |z| times as fast as z."""
    if not 0.0 < alpha < 1.0:
        return 0.0
    quantile = abs(float(scipy.special.ndtri(alpha)))
    z = -float(scipy.special.ndtri(alpha)) - mu
    return min(1.0, 1e-13 + 2e-15 * max(1.0, abs(z)) * (quantile + mu))


def gdp_trade_off(mu: float, alpha: float) -> float:
    """The attacker's smallest false negative rate at false positive rate ``alpha``: Phi(Phi^-1(1 - alpha) - mu).

    Args:
      mu: >= 0, finite.
      alpha: in [0, 1].

    >>> round(gdp_trade_off(0.5, 0.5), 12)
    0.308537538726
    """
    if not (mu >= 0.0 and math.isfinite(mu)):
        raise InvalidParameter("mu", "finite and >= 0", mu)
    if not 0.0 <= alpha <= 1.0:
        raise InvalidParameter("alpha", "in [0, 1]", alpha)
    return _normal_cdf(-float(scipy.special.ndtri(alpha)) - mu)
