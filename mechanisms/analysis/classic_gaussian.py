r"""The range in which the classic calibration of Gaussian noise, sigma = c / epsilon with c = sqrt(2 log(1.25 / delta)), keeps its promise.

In that calibration mu = epsilon / c, and the exact delta rises with epsilon from 0 to 1, so there is one epsilon up to which the
promised delta holds. Proof: proofs/classic_gaussian.md. The calibration itself is only quoted, never used.
"""

from __future__ import annotations

import math

import scipy

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics.gdp import gdp_log_delta, log_delta_error

_BEYOND = 60.0
"""At mu / 2 = c + 60 the exact delta differs from 1 by less than any float: the bracket's end."""


def classic_factor(delta: float) -> float:
    r"""c = sqrt(2 log(1.25 / delta)).

    Args:
      delta: in (0, 1).
    """
    if not 0.0 < delta < 1.0:
        raise InvalidParameter("delta", "in (0, 1)", delta)
    return math.sqrt(2.0 * (math.log(1.25) - math.log(delta)))


def largest_classic_epsilon(delta: float) -> float:
    r"""The largest epsilon for which noise of c / epsilon sensitivities really is (epsilon, delta)-DP, rounded down.

    Args:
      delta: in (0, 1).

    >>> round(largest_classic_epsilon(1e-5), 6)
    8.419771
    """
    factor, target = classic_factor(delta), math.log(delta)

    def excess(mu: float) -> float:
        log_delta = gdp_log_delta(mu, factor * mu)
        return max(log_delta + log_delta_error(log_delta), 2.0 * target - 1.0) - target

    mu = float(scipy.optimize.brentq(excess, 0.0, 2.0 * (factor + _BEYOND), xtol=1e-300, rtol=1e-15))
    while excess(mu) > 0.0:
        mu *= 1.0 - 1e-15
    return factor * mu


def classic_noise_renyi(order: float, noise_epsilon: float, delta: float) -> float:
    r"""The Renyi divergence of this order of noise c / noise_epsilon: order noise_epsilon^2 / (2 c^2), exactly.

    Args:
      order: > 1.
      noise_epsilon: the epsilon that the noise was calibrated to, > 0.
      delta: in (0, 1).
    """
    return 0.5 * order * (noise_epsilon / classic_factor(delta)) ** 2


def largest_equivalent_epsilon(delta: float) -> float:
    r"""The largest noise_epsilon for which the classic noise has divergence <= noise_epsilon - log(1 / delta) / (a - 1) at any order a.

    4 L' (1 - sqrt(L / L')) with L = log(1 / delta), L' = log(1.25 / delta).

    >>> round(largest_equivalent_epsilon(1e-5), 4)
    0.4484
    """
    small, large = -math.log(delta), 0.5 * classic_factor(delta) ** 2
    # L' - L is log 1.25; in this form nothing cancels.
    return 4.0 * math.sqrt(large) * math.log(1.25) / (math.sqrt(large) + math.sqrt(small))


def equivalent_orders(noise_epsilon: float, delta: float) -> tuple[float, float] | None:
    r"""The orders a at which classic noise has divergence <= noise_epsilon - log(1 / delta) / (a - 1): an interval, or None.

    With x = a - 1: noise_epsilon x^2 - (4 L' - noise_epsilon) x + 4 L' L / noise_epsilon <= 0.

    >>> equivalent_orders(1.0, 1e-5) is None
    True
    """
    small, large = -math.log(delta), 0.5 * classic_factor(delta) ** 2
    # Their difference, computed without cancellation, is a factor of the discriminant.
    room = largest_equivalent_epsilon(delta) - noise_epsilon
    if room < 0.0:
        return None
    middle = 4.0 * large - noise_epsilon
    upper = 0.5 * (middle + math.sqrt(room * (middle + 4.0 * math.sqrt(large * small)))) / noise_epsilon
    # The product of the roots is 4 L L' / noise_epsilon^2: the smaller one without cancellation.
    return 1.0 + 4.0 * large * small / noise_epsilon / noise_epsilon / upper, 1.0 + upper
