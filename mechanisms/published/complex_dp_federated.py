r"""Formulas of "Complex-valued federated learning with differential privacy and MRI applications" as printed (errata section 2)."""

from __future__ import annotations

import math


def theorem_1_mu(l2: float, l2_real: float, l2_imag: float, std: float, correlation: float) -> float:
    r"""sqrt((Delta^2 + 2 |rho| Delta_Re Delta_Im) / (sigma^2 (1 - rho^2))): valid, and tight only for rho = 0 and unbounded parts (C3).

    Args:
      l2, l2_real, l2_imag: sensitivities of the query, its real and its imaginary part.
      std: sigma of each real component, > 0.
      correlation: rho, in (-1, 1).
    """
    rho = abs(correlation)
    return math.hypot(l2, math.sqrt(2.0 * rho) * math.sqrt(l2_real) * math.sqrt(l2_imag)) / (std * math.sqrt((1.0 - rho) * (1.0 + rho)))


def corollary_1_mu(l2: float, std: float) -> float:
    """Circular noise: Delta / sigma. Below it: "choosing rho != 0 can never improve" on it, false for structured queries (C7)."""
    return l2 / std


def least_mu_at_equal_error(l2: float, total_std: float) -> float:
    """Section 3, on equation (4): circular noise, mu = Delta sqrt(2) / total_std, is optimal at equal mean squared error (C8)."""
    return math.sqrt(2.0) * l2 / total_std


def replaced_mu(mu: float) -> float:
    """Section 2 counts replacing a record among the neighbours, and Algorithm 1 gives it the mu of adding one (C9)."""
    return mu


def per_patient_mu(mu: float) -> float:
    """Section 5, "all stated privacy guarantees are per-patient": the mu of one record, whatever a patient holds (C10)."""
    return mu
