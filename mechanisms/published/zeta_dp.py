r"""Formulas of the zeta-DP paper as printed (errata section 1). Most overclaim: for comparison only."""

from __future__ import annotations

import math
from collections.abc import Sequence

from zetadp.mechanisms.numerics.gdp import gdp_log_delta


def definition_2_sensitivity(gradient_bound: float) -> float:
    """Definition 2: Delta = K_f = sup |grad f|. True only for records one unit apart (Z8)."""
    return gradient_bound


def definition_7_component_std(sigma: float) -> float:
    """Below Definition 7: N_C(0, sigma^2) "adds noise scaled by sqrt(2) sigma to each component". It is sigma / sqrt(2) (Z1)."""
    return math.sqrt(2.0) * sigma


def definition_7_simulated_std(sigma: float) -> float:
    """Below Definition 7: what each component of R^2n would need for the same, "2 sigma". It is sigma / sqrt(2) too (Z1)."""
    return 2.0 * sigma


def theorem_1_mu(l2: float, sigma: float) -> float:
    r"""The mu of Theorem 1 and 3 as printed, Delta / sigma for noise N_C(0, sigma^2). The true one is sqrt(2) Delta / sigma (Z2, Z7).

    Args:
      l2: sensitivity, > 0.
      sigma: the paper's: sqrt(E|n|^2) of one complex coordinate, > 0.
    """
    return l2 / sigma


def theorem_1_log_delta(l2: float, sigma: float, epsilon: float) -> float:
    """log delta(epsilon) of equation (6) as printed."""
    return gdp_log_delta(theorem_1_mu(l2, sigma), epsilon)


def theorem_2_renyi(l2: float, sigma: float, order: float) -> float:
    """Equations (7) and (9) as printed, order Delta^2 / (2 sigma^2); the true one is twice that (Z5)."""
    return 0.5 * order * (l2 / sigma) ** 2


def equation_8_renyi(first: Sequence[complex], second: Sequence[complex], sigma: float, order: float) -> float:
    """Equations (8) and (17) as printed: order <mu_0, mu_1> / (2 sigma^2), the inner product's real part. Z6: it is the squared distance.

    Args:
      first, second: the two means, equally long.
      sigma: > 0.
      order: > 1.
    """
    inner = math.fsum((a / sigma * (b / sigma).conjugate()).real for a, b in zip(first, second, strict=True))
    return 0.5 * order * inner


def theorem_3_sigma(l2: float, mu: float) -> float:
    """Equation (10): the least sigma for mu-GDP as printed, Delta / mu. The true one is sqrt(2) Delta / mu (Z7)."""
    return l2 / mu


def algorithm_1_multiplier(sigma: float) -> float:
    """The noise multiplier that the paper accounts for, sigma, with Algorithm 1 adding N_C(0, sigma^2 B^2). It is sigma / sqrt(2) (Z10)."""
    return sigma


def appendix_5_noise_factor() -> float:
    """Appendix A.5: half gradients, d/d(conj z), would need half the noise of full ones. Clipped and noised, nothing is saved (Z15)."""
    return 0.5
