r"""From layers as values to torch modules, with fresh weights from a public stream: real numbers in, or complex ones as parts."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.algorithms.obfuscation import layers as equivariant
from zetadp.trainer.models import real_layers
from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    AdaptiveAveragePool,
    AdaptiveMaxPool,
    AveragePool,
    Convolution,
    Dropout,
    Flatten,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LayerSpec,
    Linear,
    MaxPool,
    TransposedConvolution,
    Unflatten,
)
from zetadp.trainer.specs.models.parameter_counts import Shape, module_name
from zetadp.trainer.specs.models.shapes import shape_after
from zetadp.trainer.specs.obfuscation.architectures import Delta, MagnitudeNorm, ProcessingLayer, Skip
from zetadp.trainer.specs.obfuscation.blueprints import Layers
from zetadp.trainer.specs.obfuscation.shapes import Divided, shortcut


@final
class SkipConnection(nn.Module):
    """x + layers(x), of real numbers or of parts; a shortcut of other shape goes through a convolution without bias."""

    def __init__(self, layers: nn.Sequential, shortcut: nn.Module) -> None:
        super().__init__()
        self.layers, self.shortcut = layers, shortcut

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.layers(x)


@final
class DividedNetwork(nn.Module):
    r"""Encoder, processing module and decoder.

    Attributes:
      encoder: float32 images (records, channels, height, width) to features of the shape ``divided.feature``.
      processing: parts (2 * records, ...) to parts, or for a baseline features (records, ...) to features.
      decoder: real processed features to logits (records, classes).
    """

    def __init__(self, divided: Divided, encoder: nn.Sequential, processing: nn.Sequential, decoder: nn.Sequential) -> None:
        super().__init__()
        self.divided = divided
        self.encoder, self.processing, self.decoder = encoder, processing, decoder


def build(divided: Divided, stream: RandomStream) -> DividedNetwork:
    """The network in training mode, weights drawn from ``stream``, module after module and layer after layer; biases are 0."""
    blueprint = divided.blueprint
    encoder, shape = _row(blueprint.encoder, divided.image, stream, turned=False)
    processing, shape = _row(blueprint.processing, shape, stream, turned=divided.turned)
    decoder, _ = _row(blueprint.decoder, shape, stream, turned=False)
    return DividedNetwork(divided, encoder, processing, decoder)


def parameter_count(network: nn.Module) -> int:
    """The number of numbers in its weights; running statistics aren't trained and don't count."""
    return sum(parameter.numel() for parameter in network.parameters())


def _row(layers: Layers, shape: Shape, stream: RandomStream, *, turned: bool) -> tuple[nn.Sequential, Shape]:
    """The layers' modules, named as elsewhere, and the shape of a record after them."""
    row = nn.Sequential()
    for place, layer in enumerate(layers):
        name = f"{place}_{layer.kind}" if isinstance(layer, Delta | MagnitudeNorm | Skip) else module_name(place, layer)
        module, shape = _module(layer, shape, stream, turned=turned)
        row.add_module(name, module)
    return row, shape


def _module(layer: ProcessingLayer, shape: Shape, stream: RandomStream, *, turned: bool) -> tuple[nn.Module, Shape]:
    match layer:
        case Delta():
            return equivariant.Delta(layer.threshold) if turned else nn.ReLU(), shape
        case MagnitudeNorm():
            return equivariant.MagnitudeNorm(shape[0]) if turned else _batch_norm(shape), shape
        case Skip():
            inner, after = _row(layer.layers, shape, stream, turned=turned)
            around = shortcut("skip", shape, after)
            shortened = nn.Identity() if around is None else real_layers.real_convolution(around, shape, stream)
            return SkipConnection(inner, shortened), after
        case MaxPool() if turned:
            return equivariant.MaxPool(layer.kernel, layer.stride, layer.padding), shape_after("", layer, shape)
        case Dropout() if turned:
            return equivariant.JointDropout(layer.probability), shape
        case _:
            return _real_module(layer, shape, stream), shape_after("", layer, shape)


def _batch_norm(shape: Shape) -> nn.Module:
    # With a single axis of features there is no image.
    norm = (nn.BatchNorm1d if len(shape) == 1 else nn.BatchNorm2d)(shape[0])
    # It counts batches for an average that isn't used, in a buffer that no checkpoint of flat vectors holds.
    norm.register_buffer("num_batches_tracked", None)
    return norm


def _real_module(layer: LayerSpec, shape: Shape, stream: RandomStream) -> nn.Module:
    """Parts go through the same modules: none of those that reach here on complex numbers has a bias or distinguishes the parts."""
    match layer:
        case Linear():
            return real_layers.real_linear(layer, shape[0], stream)
        case Convolution() | TransposedConvolution():
            return real_layers.real_convolution(layer, shape, stream)
        case Activation():
            return real_layers.real_activation(layer, shape[0])
        case GroupNorm() | LayerNorm() | InstanceNorm():
            return real_layers.real_norm(layer, shape[0])
        case AveragePool() | MaxPool() | AdaptiveAveragePool() | AdaptiveMaxPool():
            return real_layers.real_pool(layer, shape)
        case _:
            return _plain_module(layer)


def _plain_module(layer: LayerSpec) -> nn.Module:
    """Layers that are the same for every shape."""
    match layer:
        case Dropout():
            return nn.Dropout(layer.probability)
        case Unflatten():
            return nn.Unflatten(1, (layer.channels, layer.height, layer.width))
        case _:
            assert isinstance(layer, Flatten)  # nothing else fits: shapes were found before
            return nn.Flatten(1)


def statistics(network: nn.Module) -> Tensor:
    """Running statistics of all norms as one new vector, float32; frozen in evaluation, and part of a model file."""
    values = [buffer.reshape(-1) for buffer in network.buffers()]
    return torch.cat(values) if values else torch.zeros(0)


def set_statistics(network: nn.Module, vector: Tensor) -> None:
    """Restores what ``statistics`` returned."""
    buffers = list(network.buffers())
    for buffer, values in zip(buffers, vector.split([buffer.numel() for buffer in buffers]), strict=True):
        buffer.copy_(values.reshape(buffer.shape))
