r"""Layers on complex parts that commute with a turn of all numbers by one angle; linear ones are torch's own, without bias."""

from __future__ import annotations

from trainer.obfuscation.layers.delta import Delta, delta
from trainer.obfuscation.layers.dropout import JointDropout
from trainer.obfuscation.layers.magnitude_norm import MagnitudeNorm
from trainer.obfuscation.layers.parts import aligned, from_parts, halves, to_parts, turned, turned_back
from trainer.obfuscation.layers.pooling import MaxPool

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
