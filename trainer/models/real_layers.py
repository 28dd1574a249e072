r"""Layers with real weights: torch's own modules, so that every rule for them applies, with weights from the public stream.

torch's modules draw their weights from a global generator; these are created without weights and then filled.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.layers import REAL_ACTIVATIONS
from zetadp.trainer.layers.pooling import equal_windows
from zetadp.trainer.layers.standardised import StandardisedConv1d, StandardisedConv2d, StandardisedLinear
from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    AdaptiveAveragePool,
    AdaptiveMaxPool,
    AveragePool,
    Convolution,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    Linear,
    MaxPool,
    TransposedConvolution,
)
from zetadp.trainer.specs.models.shapes import Shape, norm_groups


def real_glorot(shape: Shape, stream: RandomStream) -> Tensor:
    """A weight (a, b, *kernel), float32, with E w^2 = 2 / ((a + b) prod kernel): as |w|^2 of a complex one. Glorot and Bengio 2010."""
    std = math.sqrt(2.0 / ((shape[0] + shape[1]) * math.prod(shape[2:])))
    return torch.from_numpy(std * stream.normal(math.prod(shape)).reshape(shape)).to(torch.float32)


def real_linear(layer: Linear, inputs: int, stream: RandomStream) -> nn.Module:
    """``nn.Linear`` with Glorot weights and a bias of 0."""
    kind = StandardisedLinear if layer.standardised else nn.Linear
    return _filled(skip_init(kind, inputs, layer.outputs, bias=layer.bias), stream)


def real_convolution(layer: Convolution | TransposedConvolution, shape: Shape, stream: RandomStream) -> nn.Module:
    """``nn.Conv1d``, ``nn.Conv2d`` or ``nn.ConvTranspose2d`` with Glorot weights and a bias of 0."""
    sizes = (shape[0], layer.outputs, layer.kernel)
    if isinstance(layer, TransposedConvolution):
        module = skip_init(nn.ConvTranspose2d, *sizes, stride=layer.stride, padding=layer.padding, bias=layer.bias)
        return _filled(module, stream)
    if layer.standardised:
        kind = StandardisedConv1d if len(shape) == 2 else StandardisedConv2d
    else:
        kind = nn.Conv1d if len(shape) == 2 else nn.Conv2d
    geometry = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation, "groups": layer.groups}
    return _filled(skip_init(kind, *sizes, **geometry, bias=layer.bias), stream)


def real_pool(layer: AveragePool | MaxPool | AdaptiveAveragePool | AdaptiveMaxPool, shape: Shape) -> nn.Module:
    """torch's pooling over the record's one or two spatial axes."""
    flat = len(shape) == 2
    match layer:
        case AveragePool():
            return (nn.AvgPool1d if flat else nn.AvgPool2d)(layer.kernel, layer.stride)
        case MaxPool():
            return (nn.MaxPool1d if flat else nn.MaxPool2d)(layer.kernel, layer.stride, layer.padding)
        case AdaptiveAveragePool():
            window = None if flat else equal_windows(shape[1:], (layer.size, layer.size))
            if window is not None:
                return nn.AvgPool2d((window[0], window[1]))
            return (nn.AdaptiveAvgPool1d if flat else nn.AdaptiveAvgPool2d)(layer.size)
        case AdaptiveMaxPool():
            return (nn.AdaptiveMaxPool1d if flat else nn.AdaptiveMaxPool2d)(layer.size)


def real_norm(layer: GroupNorm | LayerNorm | InstanceNorm, channels: int) -> nn.Module:
    """``nn.GroupNorm``: of one group for layer norm, of one channel a group for instance norm; none keeps running statistics."""
    return nn.GroupNorm(norm_groups(layer, channels), channels)


def real_activation(layer: Activation, features: int) -> nn.Module:
    """An elementwise function of real numbers."""
    return REAL_ACTIVATIONS[layer.name](features)


def _filled(module: nn.Module, stream: RandomStream) -> nn.Module:
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(real_glorot(tuple(parameter.shape), stream) if name == "weight" else torch.zeros_like(parameter))
    return module
