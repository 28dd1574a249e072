r"""Layers of complex-valued networks on native complex tensors; every gradient is finite, at 0 too."""

from __future__ import annotations

from trainer.layers.activations import cardioid, crelu
from trainer.layers.heads import magnitude, real_part
from trainer.layers.linear import ComplexLinear
from trainer.layers.planes import FromPlanes, ToPlanes, from_planes, join, split, to_planes

__all__ = [
    "ComplexLinear",
    "FromPlanes",
    "ToPlanes",
    "cardioid",
    "crelu",
    "from_planes",
    "join",
    "magnitude",
    "real_part",
    "split",
    "to_planes",
]
