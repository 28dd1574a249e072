r"""The paper whose statements these are, the proof of what is true, and lines of a derivation that use that proof."""

from __future__ import annotations

from zetadp.app.calculators.compare import point_comparisons as points
from zetadp.mechanisms import Step

PAPER = "spectral_dp"
PROOF = "mechanisms/proofs/spectral.md"


def step(symbol: str, value: float | str, formula: str, source: str = PROOF) -> Step:
    """One line of a derivation."""
    return points.step(symbol, value, formula, source)
