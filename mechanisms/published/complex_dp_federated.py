r"""Theorem 1 of "Complex-valued federated learning with differential privacy and MRI applications" as printed (errata C3)."""

from __future__ import annotations

import math


def theorem_1_mu(l2: float, l2_real: float, l2_imag: float, std: float, correlation: float) -> float:
    r"""sqrt((Delta^2 + 2 |rho| Delta_Re Delta_Im) / (sigma^2 (1 - rho^2))): valid, and tight only for rho = 0 and unbounded parts.

    Args:
      l2, l2_real, l2_imag: sensitivities of the query, its real and its imaginary part.
      std: sigma of each real component, > 0.
      correlation: rho, in (-1, 1).
    """
    rho = abs(correlation)
    return math.hypot(l2, math.sqrt(2.0 * rho) * math.sqrt(l2_real) * math.sqrt(l2_imag)) / (std * math.sqrt((1.0 - rho) * (1.0 + rho)))
