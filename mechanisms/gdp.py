r"""Gaussian differential privacy in closed form and log space: the pair N(0, 1) against N(mu, 1).

With x = eps/mu - mu/2 and y = x + mu, and the Mills ratio R(t) = (1 - Phi(t)) / phi(t), e^eps phi(y) = phi(x) gives

    delta     = Phi(-x) - e^eps Phi(-y) = phi(x) (R(x) - R(y)),
    1 - delta = Phi(x) + e^eps Phi(-y)  = Phi(x) + phi(x) R(y).

The first form keeps delta far below the smallest float, the second keeps 1 - delta; R(x) - R(y) is taken as an integral of positive
terms where the two ratios nearly cancel. Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2022, Corollary 2.13.
"""

from __future__ import annotations

import math
import sys

import numpy as np
from scipy import special

from mechanisms import logspace
from mechanisms.errors import InvalidParameter

LOG_DELTA_ERROR = 2e-13
"""Error of ``gdp_log_delta``: at most LOG_DELTA_ERROR + 2e-15 |log delta|. Measured against 60 and more digits, a fifth of it is used."""

_QUADRATURE_STEP = 1.0 / 32.0
_CANCELLATION_LIMIT = 30.0


def log_delta_error(log_delta: float) -> float:
    """Bound on the absolute error of a ``gdp_log_delta`` that came out as ``log_delta``; relative error of delta itself."""
    return LOG_DELTA_ERROR + 2e-15 * abs(log_delta) if math.isfinite(log_delta) else 0.0


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
    if not (mu >= 0.0 and math.isfinite(mu)):
        raise InvalidParameter("mu", "finite and >= 0", mu)
    if not epsilon >= 0.0:
        raise InvalidParameter("epsilon", ">= 0", epsilon)
    if mu == 0.0 or epsilon == math.inf:
        return -math.inf
    x = epsilon / mu - 0.5 * mu
    if x > 1e150:
        # An upper bound (the other factor is below 1), and finite: such a delta is small beyond all floats but isn't 0.
        return max(-0.5 * x * x, -sys.float_info.max)
    y = epsilon / mu + 0.5 * mu
    if x < 0.0:
        complement = _normal_cdf(x) + math.exp(-0.5 * x * x - logspace.LOG_SQRT_2PI) * logspace.mills_ratio(y)
        if complement < 0.5:
            return math.log1p(-complement)
    log_density = -0.5 * x * x - logspace.LOG_SQRT_2PI
    return log_density + _log_mills_difference(x, mu)


def _normal_cdf(x: float) -> float:
    return float(special.ndtr(x))


def _log_mills_difference(x: float, mu: float) -> float:
    """log(R(x) - R(x + mu)) for mu > 0, without cancellation."""
    if x > 1e8:
        # R(t) = 1/t (1 - 1/t^2 + ...): the correction is below 1e-16.
        return math.log(mu) - math.log(x) - math.log(x + mu)
    near, far = logspace.mills_ratio(x), logspace.mills_ratio(x + mu)
    if near < _CANCELLATION_LIMIT * (near - far):
        return math.log(near - far)
    # R(x) = int_0^inf e^{-xt - t^2/2} dt, hence the difference is int e^{-xt - t^2/2} (1 - e^{-mu t}) dt. Here x > -1/2. The integrand
    # is analytic; t = exp(pi/2 sinh(u)) / rate makes it decay doubly exponentially, and the trapezoid rule converges likewise.
    rate = 0.5 * (x + math.sqrt(x * x + 4.0))
    u = np.arange(-128, 82) * _QUADRATURE_STEP
    t = np.exp(0.5 * math.pi * np.sinh(u)) / rate
    slope = 0.5 * math.pi * np.cosh(u) * t
    return math.log(float(_QUADRATURE_STEP * np.sum(slope * np.exp(-x * t - 0.5 * t * t) * -np.expm1(-mu * t))))


def trade_off_error(mu: float, alpha: float) -> float:
    """Bound on the relative error of ``gdp_trade_off``: 2e-15 of each quantile, and beta falls up to |z| times as fast as z."""
    if not 0.0 < alpha < 1.0:
        return 0.0
    quantile = abs(float(special.ndtri(alpha)))
    z = -float(special.ndtri(alpha)) - mu
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
    return _normal_cdf(-float(special.ndtri(alpha)) - mu)
