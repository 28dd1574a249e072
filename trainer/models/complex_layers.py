r"""Layers with complex weights, from their specs: linear ones work on native complex tensors, all with spatial axes on planes."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor, nn

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.layers import COMPLEX_ACTIVATIONS, ComplexLinear, magnitude, magnitude_softmax, real_part
from zetadp.trainer.layers.circulant import BlockCirculantLinear as BlockCirculantModule
from zetadp.trainer.layers.convolution import PlanarConv1d, PlanarConv2d, PlanarConvTranspose2d
from zetadp.trainer.layers.dropout import ComplexDropout
from zetadp.trainer.layers.linear import PlanarLinear
from zetadp.trainer.layers.norms import ComplexGroupNorm, ComplexInstanceNorm, ComplexLayerNorm
from zetadp.trainer.layers.planes import from_planes, to_planes
from zetadp.trainer.layers.pooling import adaptive_average_pool, adaptive_max_pool, average_pool, max_pool
from zetadp.trainer.layers.standardised import StandardisedComplexLinear, StandardisedPlanarConv1d, StandardisedPlanarConv2d
from zetadp.trainer.specs.models.layer_numbers import Head
from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    AdaptiveAveragePool,
    AdaptiveMaxPool,
    AveragePool,
    BlockCirculantLinear,
    Convolution,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    Linear,
    MaxPool,
    TransposedConvolution,
)
from zetadp.trainer.specs.models.shapes import Shape

HEADS: dict[Head, Callable[[Tensor], Tensor]] = {
    "magnitude": magnitude,
    "real_part": real_part,
    "magnitude_softmax": magnitude_softmax,
}


@final
class Applied(nn.Module):
    """A function of a batch that doesn't mix records, as a module without parameters."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._function = function

    def forward(self, x: Tensor) -> Tensor:
        return self._function(x)


@final
class UnitaryFourier(nn.Module):
    """The unitary transform over a record's spatial axes, or a flat record's features; of complex tensors, or of planes."""

    def __init__(self, *, is_pairs: bool) -> None:
        super().__init__()
        self._is_pairs = is_pairs

    def forward(self, x: Tensor) -> Tensor:
        z = from_planes(x) if self._is_pairs else x
        spectrum = torch.fft.fftn(z, dim=tuple(range(min(2, z.ndim - 1), z.ndim)), norm="ortho")
        return to_planes(spectrum) if self._is_pairs else spectrum


def complex_linear(layer: Linear, inputs: int, stream: RandomStream) -> nn.Module:
    """``ComplexLinear``, without a bias if the spec has none."""
    if layer.standardised:
        return StandardisedComplexLinear(inputs, layer.outputs, stream, bias=layer.bias)
    module = ComplexLinear(inputs, layer.outputs, stream)
    if not layer.bias:
        module.register_parameter("bias", None)
    return module


def planar_linear(layer: Linear, inputs: int, stream: RandomStream) -> nn.Module:
    """The same on planes."""
    kind = StandardisedComplexLinear if layer.standardised else PlanarLinear
    return kind(inputs, layer.outputs, stream, bias=layer.bias)


def block_circulant(layer: BlockCirculantLinear, inputs: int, stream: RandomStream, *, is_complex: bool) -> nn.Module:
    """The layer with complex or real weights."""
    return BlockCirculantModule(inputs, layer.outputs, layer.block, stream, is_complex=is_complex, bias=layer.bias)


def complex_convolution(layer: Convolution | TransposedConvolution, shape: Shape, stream: RandomStream) -> nn.Module:
    """On planes, over the record's one or two spatial axes."""
    sizes = (shape[0], layer.outputs, layer.kernel, stream)
    if isinstance(layer, TransposedConvolution):
        return PlanarConvTranspose2d(*sizes, stride=layer.stride, padding=layer.padding, bias=layer.bias)
    if layer.standardised:
        kind = StandardisedPlanarConv1d if len(shape) == 2 else StandardisedPlanarConv2d
    else:
        kind = PlanarConv1d if len(shape) == 2 else PlanarConv2d
    return kind(*sizes, stride=layer.stride, padding=layer.padding, dilation=layer.dilation, groups=layer.groups, bias=layer.bias)


def complex_activation(layer: Activation, features: int) -> nn.Module:
    """On either format, detected from the input's type; a trainable one has one bias, or one for each of ``features``."""
    return COMPLEX_ACTIVATIONS[layer.name](features)


def complex_norm(layer: GroupNorm | LayerNorm | InstanceNorm, channels: int) -> nn.Module:
    """On planes: whitens each record's groups of channels."""
    match layer:
        case GroupNorm():
            return ComplexGroupNorm(layer.groups, channels)
        case LayerNorm():
            return ComplexLayerNorm(channels)
        case InstanceNorm():
            return ComplexInstanceNorm(channels)


def complex_pool(layer: AveragePool | MaxPool | AdaptiveAveragePool | AdaptiveMaxPool) -> nn.Module:
    """On planes, over one or two spatial axes."""
    match layer:
        case AveragePool():
            return Applied(lambda x: average_pool(x, layer.kernel, layer.stride))
        case MaxPool():
            return Applied(lambda x: max_pool(x, layer.kernel, layer.stride, layer.padding))
        case AdaptiveAveragePool():
            return Applied(lambda x: adaptive_average_pool(x, layer.size))
        case AdaptiveMaxPool():
            return Applied(lambda x: adaptive_max_pool(x, layer.size))


def dropout(probability: float) -> nn.Module:
    """On either format: a complex number is kept or dropped as a whole."""
    return ComplexDropout(probability)


def head(name: Head) -> nn.Module:
    """From complex outputs (n, classes) to real scores."""
    return Applied(HEADS[name])
