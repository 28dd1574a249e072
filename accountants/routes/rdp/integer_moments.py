r"""Renyi divergences of a sampled Gaussian release at whole orders: a binomial sum of positive terms instead of a quadrature.

For P = (1 - q) N(0, 1) + q N(s, 1) against Q = N(0, 1) and a whole order a >= 2

    E_Q[(dP/dQ)^a] = sum_k C(a, k) (1 - q)^(a - k) q^k e^{(k^2 - k) s^2 / 2},

since E_Q e^{k (s x - s^2 / 2)} = e^{(k^2 - k) s^2 / 2}. Weights sum to 1: the moment minus 1 is the same sum with expm1 of the exponent;
nothing cancels in it. Order a of Q against P is no larger: Mironov, Talwar and Zhang 2019, Theorem 5, whose mirror is x -> s - x.
"""

from __future__ import annotations

import math
from functools import lru_cache

from zetadp.accountants.pairs import Pair

LARGEST_ORDER = 256
"""Beyond it the quadrature is as fast, and its allowance of 1e-9 doesn't matter."""

_UNIT = 2.0**-53
_NEGLIGIBLE = 60.0
"""Terms below e^-60 of the largest one add less than a rounding, and their errors don't count."""


def covers(pair: Pair, order: float) -> bool:
    """Whether ``renyi`` supports this pair and order: one sampled Gaussian shift, a whole order from 2 to ``LARGEST_ORDER``."""
    if not (2.0 <= order <= LARGEST_ORDER and order == math.floor(order)) or pair.shown < 1.0 or pair.worst_of_both:
        return False
    sampled = pair.lower.shifts == (0.0,) and len(pair.upper.shifts) == 2 and pair.upper.shifts[0] == 0.0
    return sampled and pair.family.gdp_mu(pair.distance) is not None


@lru_cache(maxsize=4096)
def renyi(pair: Pair, order: int) -> float:
    r"""Upper bound on the Renyi divergence of both directions, off by a few roundings only.

    Every term's logarithm is a sum of four numbers, each correct to 3 units in its last place. For the sum of positive terms, the largest
    such error counts, plus one unit for each term added.

    Args:
      order: a >= 2, for which ``covers`` is true.

    >>> from zetadp.accountants.densities import GAUSSIAN
    >>> from zetadp.accountants.densities.mixtures import Mixture
    >>> round(renyi(Pair(GAUSSIAN, Mixture((0.99, 0.01), (0.0, 1.0)), Mixture((1.0,), (0.0,))), 2), 12)
    0.000171813422
    """
    q, s = pair.upper.weights[1], pair.upper.shifts[1]
    log_q, log_rest = math.log(q), math.log1p(-q)
    terms: list[tuple[float, float]] = []
    for k in range(2, order + 1):
        exponent = 0.5 * (k * k - k) * s * s
        # log(e^y - 1) = y + log(1 - e^-y), without overflow.
        log_gain = exponent + math.log(-math.expm1(-exponent))
        parts = math.log(math.comb(order, k)), (order - k) * log_rest, k * log_q, log_gain
        terms.append((math.fsum(parts), math.fsum(abs(part) for part in parts) + exponent))
    peak = max(value for value, _ in terms)
    error = max(size for value, size in terms if value >= peak - _NEGLIGIBLE) * 4.0 * _UNIT + (order + 8.0) * _UNIT
    total = math.fsum(math.exp(value - peak) for value, _ in terms)
    log_excess = peak + math.log(total) + error
    # log(1 + e^x), for any x.
    log_moment = log_excess + math.log1p(math.exp(-log_excess)) if log_excess > 0.0 else math.log1p(math.exp(log_excess))
    # Below the normal floats roundings are absolute, and a divergence is never 0.
    return log_moment / (order - 1) * (1.0 + 8.0 * _UNIT) + 4.0 * math.ulp(0.0)
