r"""Operation counts of the SPOF paper's Appendix G as printed (errata S32: they are what their terms add up to)."""

from __future__ import annotations


def spof_count(features: int, hidden_units: int) -> int:
    """C_SPOF = (19 + l) n."""
    return (19 + hidden_units) * features


def dp_sgd_count(features: int) -> int:
    """C_DP-SGD = 80 n + 283."""
    return 80 * features + 283
