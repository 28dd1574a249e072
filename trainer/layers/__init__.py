r"""Layers of complex-valued networks on native complex tensors; every gradient is finite, at 0 too."""

from __future__ import annotations

from trainer.layers.activations import cardioid, crelu
from trainer.layers.heads import magnitude, real_part
from trainer.layers.linear import ComplexLinear

__all__ = ["ComplexLinear", "cardioid", "crelu", "magnitude", "real_part"]
