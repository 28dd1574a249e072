r"""Whose statements these are, where their truth is proved, and lines of a derivation that rest on that proof."""

from __future__ import annotations

from app.calculators.compare import point_comparisons as points
from mechanisms import Step

PAPER = "spectral_dp"
PROOF = "mechanisms/proofs/spectral.md"


def step(symbol: str, value: float | str, formula: str, source: str = PROOF) -> Step:
    """One line of a derivation."""
    return points.step(symbol, value, formula, source)
