r"""Formulas of the zeta-DP paper as printed (errata section 1). They overclaim: for comparison only."""

from __future__ import annotations

from mechanisms.gdp import gdp_log_delta


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
