r"""Layers on complex parts that commute with a turn of all numbers by one angle; linear ones are torch's own, without bias."""

from __future__ import annotations

from zetadp.trainer.algorithms.obfuscation.layers.delta import Delta, delta
from zetadp.trainer.algorithms.obfuscation.layers.dropout import JointDropout
from zetadp.trainer.algorithms.obfuscation.layers.magnitude_norm import MagnitudeNorm
from zetadp.trainer.algorithms.obfuscation.layers.parts import aligned, from_parts, halves, to_parts, turned, turned_back
from zetadp.trainer.algorithms.obfuscation.layers.pooling import MaxPool

__all__ = [
    "Delta",
    "JointDropout",
    "MagnitudeNorm",
    "MaxPool",
    "aligned",
    "delta",
    "from_parts",
    "halves",
    "to_parts",
    "turned",
    "turned_back",
]
