r"""Environmental noise in the SPOF paper's Theorem 1, Proposition 4 and Appendices C, E and F as printed (errata S19 to S24)."""

from __future__ import annotations

import math

from zetadp.mechanisms.analysis.environmental_noise import log_normal_cdf
from zetadp.mechanisms.published import spof

CLAIMED_PROBABILITY = 0.5
"""Pr[b_max < 1] >= 0.5 "for sufficiently large environmental noise": Figure 5, Remark 2 and Proposition 4 (S24)."""
NOISELESS_MULTIPLIER = 1.0
"""The b_j that the comparison b_j < 1 assumes for noiseless inputs; by (36) and (39) it is l (S20)."""


def inverse(x: float, h: float) -> float:
    """Equation (50): y = x / (1 - h x + h), solved wrongly from x = y / (1 + h (y - 1)) (S22); infinite from x = 1 + 1/h on."""
    room = 1.0 - h * (x - 1.0)
    return x / room if room > 0.0 else math.inf


def cdf(x: float, h: float, std: float) -> float:
    """The distribution function that (50) leads to, Phi(ln y / std).

    >>> round(cdf(0.5, 0.5, 1.0), 12)
    0.179757213896
    """
    y = inverse(x, h)
    if std == 0.0:
        return 1.0 if y >= 1.0 else 0.0
    return math.exp(log_normal_cdf(math.log(y) / std)) if y < math.inf else 1.0


def pdf(x: float, h: float, std: float) -> float:
    """Equation (53) with the density of e^D: (1 + h) / (std sqrt(2 pi) x (1 - h x + h)) e^{-(ln y)^2 / (2 std^2)}."""
    y = inverse(x, h)
    if y == math.inf:
        return 0.0
    room = 1.0 - h * (x - 1.0)
    exponent = -0.5 * (math.log(y) / std) ** 2 - math.log(std) - math.log(x) - math.log(room)
    return (1.0 + h) / math.sqrt(2.0 * math.pi) * math.exp(exponent)


def mass_on_support(h: float, std: float) -> float:
    """The mass that (53) puts on (0, 1/h), outside which b can't lie: Phi(-2 ln h / std).

    >>> round(mass_on_support(0.5, 1.0), 3), round(mass_on_support(0.7, 2.0), 3), mass_on_support(0.0, 1.0)
    (0.917, 0.639, 1.0)
    """
    if h == 0.0 or std == 0.0:
        return 1.0
    return math.exp(log_normal_cdf(-2.0 * math.log(h) / std))


def variance_of_weighted_noise(noise_std: float, weight_norm: float) -> float:
    """Appendix F.II: Var(W . n) = sigma^2 |W|_2, where the square of the norm belongs (S23)."""
    return noise_std * noise_std * weight_norm


def sensitivity(features: int, b: float) -> float:
    """Appendix C.II with (23): b_j times 3 n / 2 (S20)."""
    return b * spof.sensitivity(features)


def noisy_loss(x: float, z: float, b: float, t: float) -> float:
    """Equation (13) for one feature: alpha_3 is multiplied by b instead of b^2 (S19).

    >>> noisy_loss(0.5, 1.0, 2.0, 0.3) == math.log(2.0)
    True
    """
    shifted = z - t / b
    return math.log(2.0) + b * (0.5 - x) * shifted + b * (0.5 * x - 0.25) * shifted * shifted
