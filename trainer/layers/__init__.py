r"""Layers of complex-valued networks, on native complex tensors or on planes; every gradient is finite, at 0 too."""

from __future__ import annotations

from zetadp.trainer.layers.activations import (
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
from zetadp.trainer.layers.blocks.channel_affine import ChannelAffine
from zetadp.trainer.layers.circulant import BlockCirculantLinear
from zetadp.trainer.layers.convolution import PlanarConv1d, PlanarConv2d, PlanarConvTranspose2d
from zetadp.trainer.layers.dropout import ComplexDropout, complex_dropout
from zetadp.trainer.layers.heads import magnitude, magnitude_softmax, real_part
from zetadp.trainer.layers.initialisation import glorot, he
from zetadp.trainer.layers.linear import ComplexLinear, PlanarLinear
from zetadp.trainer.layers.norms import ComplexGroupNorm, ComplexInstanceNorm, ComplexLayerNorm, whiten
from zetadp.trainer.layers.planes import FromPlanes, ToPlanes, from_planes, join, split, to_planes
from zetadp.trainer.layers.pooling import (
    AdaptiveAveragePool,
    AdaptiveMaxPool,
    AveragePool,
    MaxPool,
    adaptive_average_pool,
    adaptive_max_pool,
    average_pool,
    max_pool,
)
from zetadp.trainer.layers.trainable_activations import (
    ACTIVATIONS,
    COMPLEX_ACTIVATIONS,
    REAL_ACTIVATIONS,
    TrainableCardioid,
    TrainableModRelu,
)

__all__ = [
    "ACTIVATIONS",
    "COMPLEX_ACTIVATIONS",
    "REAL_ACTIVATIONS",
    "AdaptiveAveragePool",
    "AdaptiveMaxPool",
    "AveragePool",
    "BlockCirculantLinear",
    "ChannelAffine",
    "ComplexDropout",
    "ComplexGroupNorm",
    "ComplexInstanceNorm",
    "ComplexLayerNorm",
    "ComplexLinear",
    "Elementwise",
    "FromPlanes",
    "MaxPool",
    "PlanarConv1d",
    "PlanarConv2d",
    "PlanarConvTranspose2d",
    "PlanarLinear",
    "ToPlanes",
    "TrainableCardioid",
    "TrainableModRelu",
    "adaptive_average_pool",
    "adaptive_max_pool",
    "average_pool",
    "cardioid",
    "complex_dropout",
    "conj_mish",
    "crelu",
    "from_planes",
    "glorot",
    "he",
    "igaussian",
    "join",
    "magnitude",
    "magnitude_softmax",
    "max_pool",
    "mish",
    "modrelu",
    "real_part",
    "separable_sigmoid",
    "separable_tanh",
    "siglog",
    "split",
    "to_planes",
    "whiten",
    "zrelu",
]
