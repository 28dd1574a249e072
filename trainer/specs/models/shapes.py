r"""How every layer changes a record's shape: a network that doesn't fit its data is refused before torch is loaded.

Shapes are (features,) or (channels, *spatial), in complex numbers for complex networks and in real ones otherwise: real pairs start
with twice the channels, all real parts first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import final

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataSetFacts
from zetadp.trainer.specs.models.blocks import Branch, LayerShapes, branches_of, outputs_of
from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    Adapted,
    AdaptiveAveragePool,
    AdaptiveMaxPool,
    AveragePool,
    Block,
    BlockCirculantLinear,
    ChannelAffine,
    Columns,
    Convolution,
    Dropout,
    FilterBank,
    Flatten,
    Fourier,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LayerSpec,
    Linear,
    MaxPool,
    Residual,
    Scattering,
    TransposedConvolution,
    Unflatten,
)
from zetadp.trainer.specs.models.model_spec import ComplexMlp, ComplexUnet, Sequential
from zetadp.trainer.specs.models.named_networks import ModelSpec
from zetadp.trainer.specs.models.parameter_counts import Numbers, Shape, module_name, parameter_shapes
from zetadp.trainer.specs.models.sequence_layers import Embedding, PositionEmbedding, PositionNorm, Recurrent, SelfAttention
from zetadp.trainer.specs.models.weights import FIELD, GivenWeights

Keeping = Activation | ChannelAffine | Dropout | Fourier | GroupNorm | LayerNorm | InstanceNorm | PositionEmbedding | PositionNorm
"""Layers that keep a record's shape."""

LARGEST_WEIGHTS = 2**28
"""Real numbers in a network's weights: 1 GiB of float32. Noise, gradient and optimizer state are each as large."""
LARGEST_ACTIVATIONS = 2**28
"""Real numbers in one record's activations, all layers together."""


def as_sequential(mlp: ComplexMlp, classes: int) -> Sequential:
    """The perceptron as layers in a row; it has one more linear layer than hidden widths."""
    layers: list[LayerSpec] = []
    for width in mlp.hidden:
        layers += [Linear(outputs=width), Activation(name=mlp.activation)]
    return Sequential(numbers="complex", layers=(*layers, Linear(outputs=classes)), head=mlp.head)


def check_model(model: ModelSpec, facts: DataSetFacts) -> None:
    """Whether the network takes the data set's records and answers its task, and given weights are what it needs; loads no torch.

    Raises:
      InvalidParameter: it doesn't, or it is too large; the message names the layer by its number, counted from 0. Or the file of given
        weights isn't there, isn't the one meant, or isn't of this network.
    """
    if isinstance(model, ComplexUnet):
        _check_unet(model, facts)
        return
    if isinstance(model, ComplexMlp):
        if facts.task != "classification" or len(facts.shape) != 1:
            raise InvalidParameter("model", "another network for this data set: complex_mlp classifies flat records", facts.shape)
        model = as_sequential(model, _classes(facts))
    stages = sequential_shapes(model, facts)
    if isinstance(model.initial_weights, GivenWeights):
        model.initial_weights.read({name: shape for name, (_, shape) in given_parameters(model, stages).items()})


def given_parameters(model: Sequential, stages: tuple[LayerShapes, ...]) -> dict[str, tuple[str, Shape]]:
    """Names in the file of the parameters that start at given weights: the name in the network, and the shape; none where all are drawn.

    Raises:
      InvalidParameter: no layer is left to train, or none of the given ones has weights.
    """
    given = model.initial_weights
    if not isinstance(given, GivenWeights):
        return {}
    if all(leaf.is_kept or not leaf.own for stage in stages[given.frozen_layers :] for leaf in stage.leaves):
        raise InvalidParameter(f"{FIELD}.frozen_layers", "such that a layer with weights remains to be trained", given.frozen_layers)
    expected = {name: found for stage in stages[: given.given_layers] for name, found in stage.stored_parameters.items()}
    if not expected:
        raise InvalidParameter(f"{FIELD}.given_layers", "such that a layer with weights is among them", given.given_layers)
    return expected


def sequential_shapes(model: Sequential, facts: DataSetFacts) -> tuple[LayerShapes, ...]:
    """Every layer's shapes.

    Raises:
      InvalidParameter: a layer doesn't take what the one before it gives, or the last output isn't what the task requires.
    """
    if isinstance(model.layers[0], Embedding) and facts.is_complex:
        raise InvalidParameter("model.layers[0]", "another layer for complex data (embedding takes whole numbers)", "embedding")
    if model.numbers == "real" and facts.is_complex:
        raise InvalidParameter("model.numbers", "complex or real_pairs for complex data", "real")
    shape = start = input_shape(model, facts)
    parts = 2 if model.numbers == "complex" else 1
    stages: list[LayerShapes] = []
    for place, layer in enumerate(model.layers):
        if model.numbers == "real_pairs" and isinstance(layer, Fourier) and shape[0] % 2:
            raise InvalidParameter(
                f"model.layers[{place}]", "applied to an even number of channels or features, half of them imaginary", shape[0]
            )
        at = _Place(f"model.layers[{place}]", module_name(place, layer), _stored_name(place, layer))
        stages.append(_stage(at, layer, shape, model.numbers))
        shape = stages[-1].outputs
    _check_end(model, shape, start, facts)
    _check_size(sum(stage.weights for stage in stages), parts * sum(stage.activations for stage in stages))
    return tuple(stages)


def each_layer(model: Sequential, facts: DataSetFacts) -> Iterator[LayerShapes]:
    """Every layer that isn't made of others, those in blocks instead of the blocks. Raises as ``sequential_shapes``."""
    for stage in sequential_shapes(model, facts):
        yield from stage.leaves


@final
@dataclass(frozen=True)
class _Place:
    """Where a layer is: for messages, in the network, and in a file of given weights."""

    at: str
    name: str
    stored: str | None
    is_kept: bool = False

    def within(self, branch: Branch, number: int, layer: LayerSpec, of: Block) -> _Place:
        """A layer's place in a block's branch."""
        at, name = f"{self.at}.{branch.name}[{number}]", f"{self.name}.{branch.name}.{module_name(number, layer)}"
        if isinstance(of, Adapted):
            # The base stands in a file as it would without its adapter, which stands in none.
            return _Place(f"{self.at}.{branch.name}", name, self.stored, is_kept=True) if branch.is_kept else _Place(at, name, None)
        stored = None if self.stored is None else f"{self.stored}.{branch.name}.{_stored_name(number, layer)}"
        return _Place(at, name, stored)


def _stored_name(number: int, layer: LayerSpec) -> str:
    return module_name(number, layer.base if isinstance(layer, Adapted) else layer)


def _stage(place: _Place, layer: LayerSpec, shape: Shape, numbers: Numbers) -> LayerShapes:
    if not isinstance(layer, Block):
        own, outputs = parameter_shapes(layer, shape, numbers), shape_after(place.at, layer, shape)
        return LayerShapes(place.name, place.stored, layer, shape, outputs, own, place.is_kept)
    branches: list[tuple[LayerShapes, ...]] = []
    ends: list[Shape] = []
    for branch in branches_of(place.at, layer, shape):
        stages: list[LayerShapes] = []
        for number, inner in enumerate(branch.layers):
            before = stages[-1].outputs if stages else branch.inputs
            stages.append(_stage(place.within(branch, number, inner, layer), inner, before, numbers))
        branches.append(tuple(stages))
        ends.append(stages[-1].outputs if stages else branch.inputs)
    return LayerShapes(place.name, place.stored, layer, shape, outputs_of(place.at, layer, shape, ends), {}, branches=tuple(branches))


def input_shape(model: Sequential, facts: DataSetFacts) -> Shape:
    """A record as the network's first layer sees it."""
    return (2 * facts.shape[0], *facts.shape[1:]) if model.numbers == "real_pairs" else facts.shape


def _classes(facts: DataSetFacts) -> int:
    if facts.classes is None:
        raise InvalidParameter("model", "one that outputs images: this data set has no classes", "a classifier")
    return facts.classes


def _check_end(model: Sequential, shape: Shape, start: Shape, facts: DataSetFacts) -> None:
    if facts.task == "reconstruction":
        if not facts.is_complex and len(facts.shape) != 1:
            raise InvalidParameter("data", "complex images or flat rows of real numbers, for a reconstruction", facts.shape)
        what = "images" if facts.is_complex else "real rows"
        if (model.numbers == "real") == facts.is_complex:
            expected = "complex or real_pairs" if facts.is_complex else "real"
            raise InvalidParameter("model.numbers", f"{expected} where {what} are reconstructed", model.numbers)
        if model.head != "none":
            raise InvalidParameter("model.head", f"none where {what} are reconstructed", model.head)
        if shape != start:
            raise InvalidParameter("model.layers", f"such that the output has the shape of the input {what}, {start}", shape)
        return
    if model.numbers == "complex" and model.head == "none":
        raise InvalidParameter("model.head", "one that turns complex outputs into real class scores", "none")
    if shape != (_classes(facts),):
        raise InvalidParameter("model.layers", f"such that the output is {facts.classes} class scores", shape)


def _check_size(weights: int, activations: int) -> None:
    if weights > LARGEST_WEIGHTS:
        raise InvalidParameter("model", f"at most {LARGEST_WEIGHTS} real numbers in weights", weights)
    if activations > LARGEST_ACTIVATIONS:
        raise InvalidParameter("model", f"at most {LARGEST_ACTIVATIONS} real numbers in one record's activations", activations)


def shape_after(name: str, layer: LayerSpec, shape: Shape) -> Shape:
    """The shape after a layer. ``name`` is the layer's place, for the message."""
    if isinstance(layer, Keeping):
        _check_keeping(name, layer, shape)
        return shape
    match layer:
        case Linear() | BlockCirculantLinear():
            if len(shape) != 1:
                raise InvalidParameter(name, f"after a flatten layer ({layer.kind} takes flat records)", f"a record of shape {shape}")
            largest = max(shape[0], layer.outputs)
            if isinstance(layer, BlockCirculantLinear) and layer.block > largest:
                # One block would hold the whole matrix and more numbers than it has rows or columns.
                expected = f"at most max(inputs, outputs) = {largest}, the larger of {shape[0]} inputs and {layer.outputs} outputs"
                raise InvalidParameter(f"{name}.block", expected, layer.block)
            if isinstance(layer, Linear):
                _check_standardised(name, layer, shape[0])
            return (layer.outputs,)
        case Flatten():
            return (math.prod(shape),)
        case Unflatten():
            wanted = (layer.channels, layer.height, layer.width)
            if len(shape) != 1 or math.prod(wanted) != shape[0]:
                raise InvalidParameter(
                    name, f"applied to flat records of {math.prod(wanted)} numbers (unflatten)", f"a record of shape {shape}"
                )
            return wanted
        case Residual() | SelfAttention() | Recurrent() | Adapted():
            raise AssertionError("a block's shape is that of its branches")
        case Columns() | Embedding():
            return _sequence_of(name, layer, shape)
        case _:
            return _after_spatial(name, layer, shape)


def _sequence_of(name: str, layer: Columns | Embedding, shape: Shape) -> Shape:
    """The sequence that a record becomes."""
    if isinstance(layer, Embedding):
        if len(shape) != 1:
            raise InvalidParameter(name, "applied to flat records (embedding)", f"a record of shape {shape}")
        return (layer.outputs, shape[0])
    if len(shape) != 3:
        raise InvalidParameter(name, "applied to images (columns)", f"a record of shape {shape}")
    return (shape[0] * shape[1], shape[2])


def norm_groups(layer: GroupNorm | LayerNorm | InstanceNorm, channels: int) -> int:
    """Groups that the channels are normalised in."""
    match layer:
        case GroupNorm():
            return layer.groups
        case LayerNorm():
            return 1
        case InstanceNorm():
            return channels


def _check_keeping(name: str, layer: Keeping, shape: Shape) -> None:
    match layer:
        case GroupNorm() | LayerNorm() | InstanceNorm():
            _check_groups(name, "groups", norm_groups(layer, shape[0]), shape)
        case PositionEmbedding() | PositionNorm():
            if len(shape) != 2:
                raise InvalidParameter(name, f"applied to sequences (channels, length) ({layer.kind})", f"a record of shape {shape}")
            if isinstance(layer, PositionNorm) and shape[0] < 3:
                # Of two numbers only their order, or direction, is left; complex ones have a singular covariance.
                raise InvalidParameter(name, "applied to places of at least three channels (position_norm)", f"a record of shape {shape}")
        case _:
            pass


def _check_groups(name: str, field: str, groups: int, shape: Shape) -> None:
    if shape[0] % groups:
        raise InvalidParameter(f"{name}.{field}", f"a divisor of {shape[0]} channels", groups)
    if math.prod(shape) == groups:
        # The only number of a group is its own mean: what comes out would be the same for every record.
        raise InvalidParameter(name, "applied where every group has at least two numbers", f"{groups} groups of a record of shape {shape}")


def _after_spatial(
    name: str,
    layer: Convolution | TransposedConvolution | AveragePool | MaxPool | AdaptiveAveragePool | AdaptiveMaxPool | FilterBank | Scattering,
    shape: Shape,
) -> Shape:
    channels, *spatial = shape
    if len(spatial) != 2 and (len(spatial) != 1 or isinstance(layer, TransposedConvolution | FilterBank | Scattering)):
        axes = "two" if isinstance(layer, TransposedConvolution | FilterBank | Scattering) else "one or two"
        raise InvalidParameter(name, f"applied to records with {axes} spatial axes ({layer.kind})", f"a record of shape {shape}")
    match layer:
        case Convolution():
            if channels % layer.groups or layer.outputs % layer.groups:
                raise InvalidParameter(f"{name}.groups", f"a divisor of {channels} inputs and {layer.outputs} outputs", layer.groups)
            _check_standardised(name, layer, channels // layer.groups * layer.kernel ** len(spatial))
            reach = layer.dilation * (layer.kernel - 1) + 1
            sizes = [(size + 2 * layer.padding - reach) // layer.stride + 1 for size in spatial]
            channels = layer.outputs
        case TransposedConvolution():
            sizes = [(size - 1) * layer.stride - 2 * layer.padding + layer.kernel for size in spatial]
            channels = layer.outputs
        case AveragePool():
            sizes = [(size - layer.kernel) // layer.stride + 1 for size in spatial]
        case MaxPool():
            sizes = [(size + 2 * layer.padding - layer.kernel) // layer.stride + 1 for size in spatial]
        case AdaptiveAveragePool() | AdaptiveMaxPool():
            # A window for each output, none of them empty.
            sizes = [layer.size if layer.size <= size else 0 for size in spatial]
        case FilterBank():
            sizes = [size // layer.pool for size in spatial]
            channels *= len(layer.wavelengths) * layer.orientations + 1
        case Scattering():
            # Mirroring at the edges takes more pixels than a step.
            sizes = [size >> layer.scales if size > 2**layer.scales else 0 for size in spatial]
            channels *= scattering_paths(layer)
    if min(sizes) < 1:
        raise InvalidParameter(name, f"small enough for its input ({layer.kind})", f"a record of shape {shape}")
    if isinstance(layer, Scattering) and layer.normalisation_groups is not None:
        _check_groups(name, "normalisation_groups", layer.normalisation_groups, (channels, *sizes))
    return (channels, *sizes)


def _check_standardised(name: str, layer: Linear | Convolution, weights: int) -> None:
    if layer.standardised and weights == 1:
        raise InvalidParameter(f"{name}.standardised", "false where an output has a single weight, which less its mean is 0", True)


def scattering_paths(layer: Scattering) -> int:
    """Channels that one channel becomes: the average, one for each wavelet, and one for each wavelet behind a finer one.

    >>> scattering_paths(Scattering(scales=2, orientations=8, depth=2, normalisation_groups=None))
    81
    """
    first = layer.scales * layer.orientations
    return 1 + first + (first * layer.orientations * (layer.scales - 1) // 2 if layer.depth == 2 else 0)


def _check_unet(model: ComplexUnet, facts: DataSetFacts) -> None:
    if facts.task != "reconstruction" or not facts.is_complex or len(facts.shape) != 3:
        raise InvalidParameter("model", "another network: complex_unet reconstructs complex images (channels, height, width)", facts.shape)
    multiple = 2**model.pools
    if any(size % multiple or size < 2 * multiple for size in facts.shape[1:]):
        # At the lowest level at least two positions along each axis remain: a norm over one position has nothing to normalise.
        raise InvalidParameter("model.pools", f"such that height and width are multiples of {multiple} and greater than it", facts.shape)
    _check_size(2 * unet_weights(model, facts.shape[0]), 2 * _unet_activations(model, facts.shape))


def unet_weights(model: ComplexUnet, image_channels: int) -> int:
    """Complex numbers in the U-Net's convolutions; norms and activations have next to none."""
    widths = [image_channels, *(model.channels * 2**level for level in range(model.pools + 1))]
    down = sum(9 * (before * after + after * after) for before, after in pairwise(widths))
    # Upwards a 2 x 2 transposed convolution halves the channels, and the skipped connection doubles them again.
    up = sum(4 * 2 * width * width + 9 * (2 * width * width + width * width) for width in widths[1:-1])
    return down + up + model.channels * image_channels + image_channels


def _unet_activations(model: ComplexUnet, shape: Shape) -> int:
    # Five convolutions a level, each followed by a norm and an activation; a level has twice the channels and a quarter of the positions.
    first = model.channels * math.prod(shape[1:])
    return sum(15 * first // 2**level for level in range(model.pools + 1))
