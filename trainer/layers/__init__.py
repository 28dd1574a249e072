r"""Layers of complex-valued networks, on native complex tensors or on planes; every gradient is finite, at 0 too."""

from __future__ import annotations

from trainer.layers.activations import (
    Elementwise,
    cardioid,
    conj_mish,
    crelu,
    igaussian,
    mish,
    modrelu,
    separable_sigmoid,
    separable_tanh,
    siglog,
    zrelu,
)
from trainer.layers.circulant import BlockCirculantLinear
from trainer.layers.convolution import PlanarConv1d, PlanarConv2d, PlanarConvTranspose2d
from trainer.layers.heads import magnitude, magnitude_softmax, real_part
from trainer.layers.linear import ComplexLinear
from trainer.layers.planes import FromPlanes, ToPlanes, from_planes, join, split, to_planes
from trainer.layers.trainable_activations import ACTIVATIONS, COMPLEX_ACTIVATIONS, REAL_ACTIVATIONS, TrainableCardioid, TrainableModRelu

__all__ = [
    "ACTIVATIONS",
    "COMPLEX_ACTIVATIONS",
    "REAL_ACTIVATIONS",
    "BlockCirculantLinear",
    "ComplexLinear",
    "Elementwise",
    "FromPlanes",
    "PlanarConv1d",
    "PlanarConv2d",
    "PlanarConvTranspose2d",
    "ToPlanes",
    "TrainableCardioid",
    "TrainableModRelu",
    "cardioid",
    "conj_mish",
    "crelu",
    "from_planes",
    "igaussian",
    "join",
    "magnitude",
    "magnitude_softmax",
    "mish",
    "modrelu",
    "real_part",
    "separable_sigmoid",
    "separable_tanh",
    "siglog",
    "split",
    "to_planes",
    "zrelu",
]
