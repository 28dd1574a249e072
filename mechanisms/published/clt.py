r"""Gaussian DP of sampled noise by a central limit theorem, as tables of experiments use it. NOT A BOUND: it is asymptotic (errata Z13).

The zeta-DP paper's epsilons come out of the formula for uniform samples with the multiplier that its Algorithm 1 prints (errata Z14).
Source of both formulas: Bu, Dong, Long and Su 2020, "Deep learning with Gaussian differential privacy", sections 2 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable

_SERIES_BELOW = 0.05
"""Where the difference of the two error functions below loses more than two digits."""


def clt_mu_poisson(sampling_probability: float, noise_multiplier: float, steps: float) -> float:
    r"""mu = q sqrt(T (e^(1/sigma^2) - 1)) for Poisson samples, in the limit of many steps. Below the truth in all of errata Z13's cases.

    Args:
      sampling_probability: q, in (0, 1].
      noise_multiplier: sigma, > 0: deviation of each real component over the l2 sensitivity.
      steps: T, >= 1.

    >>> round(clt_mu_poisson(0.063, 5.0, 1587), 6)
    0.50701
    """
    return _times_root(sampling_probability * math.sqrt(steps), _inverse_square(noise_multiplier), math.expm1)


def clt_mu_uniform(sampling_probability: float, noise_multiplier: float, steps: float) -> float:
    r"""mu = sqrt(2) q sqrt(T (e^(1/sigma^2) Phi(1.5/sigma) + 3 Phi(-0.5/sigma) - 2)) for uniform samples, in the limit of many steps.

    Args as in ``clt_mu_poisson``.

    >>> round(clt_mu_uniform(0.063, 5.0, 1587), 6)
    0.545779
    """
    u = 1.0 / noise_multiplier
    return _times_root(math.sqrt(2.0) * sampling_probability * math.sqrt(steps), _inverse_square(noise_multiplier), lambda x: _excess(x, u))


def _inverse_square(noise_multiplier: float) -> float:
    return (1.0 / noise_multiplier) ** 2 if noise_multiplier > 1e-150 else math.inf


def _excess(x: float, u: float) -> float:
    """e^x Phi(1.5 u) + 3 Phi(-0.5 u) - 2 with x = u^2, without subtracting near-equal numbers."""
    return math.expm1(x) * _normal_cdf(1.5 * u) + _odd_rest(u)


def _odd_rest(u: float) -> float:
    """(Phi(1.5 u) - 1/2) - 3 (Phi(u / 2) - 1/2): the terms linear in u cancel exactly."""
    if u >= _SERIES_BELOW:
        return 0.5 * math.erf(1.5 * u / math.sqrt(2.0)) - 1.5 * math.erf(0.5 * u / math.sqrt(2.0))
    total, factor = 0.0, u / math.sqrt(2.0 * math.pi)
    for n in range(1, 10):
        factor *= -u * u / (2.0 * n)
        total += factor / (2 * n + 1) * (1.5 ** (2 * n + 1) - 3.0 * 0.5 ** (2 * n + 1))
    return total


def _normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def _times_root(factor: float, x: float, of: Callable[[float], float]) -> float:
    """factor sqrt(of(x)), infinite where e^x leaves the range of floats long before its root would."""
    if x > 700.0:
        # Here both formulas are e^x times 1, to 300 digits.
        log = math.log(factor) + 0.5 * x if factor > 0.0 else -math.inf
        return math.exp(log) if log < 709.0 else math.inf
    return factor * math.sqrt(of(x))
