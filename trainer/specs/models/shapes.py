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
from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    AdaptiveAveragePool,
    AdaptiveMaxPool,
    AveragePool,
    BlockCirculantLinear,
    ChannelAffine,
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
from zetadp.trainer.specs.models.model_spec import ComplexMlp, ComplexUnet, ModelSpec, Sequential
from zetadp.trainer.specs.models.parameter_counts import Numbers, Shape, module_name, parameter_shapes
from zetadp.trainer.specs.models.weights import FIELD, GivenWeights

LARGEST_WEIGHTS = 2**28
"""Real numbers in a network's weights: 1 GiB of float32. Noise, gradient and optimizer state are each as large."""
LARGEST_ACTIVATIONS = 2**28
"""Real numbers in one record's activations, all layers together."""


@final
@dataclass(frozen=True)
class LayerShapes:
    r"""One layer of a network that fits.

    Attributes:
      inputs, outputs: the record before and after it.
      parameters: full names and shapes in real numbers.
      branches: the layers of a residual block and those of its shortcut.
    """

    inputs: Shape
    outputs: Shape
    parameters: dict[str, Shape]
    branches: tuple[tuple[LayerShapes, ...], ...] = ()

    @property
    def weights(self) -> int:
        """Real numbers in its parameters."""
        return sum(math.prod(shape) for shape in self.parameters.values())

    @property
    def activations(self) -> int:
        """Numbers of one record that it computes, complex ones counted once."""
        return math.prod(self.outputs) + sum(inner.activations for branch in self.branches for inner in branch)


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
        model.initial_weights.read(given_parameters(model, stages))


def given_parameters(model: Sequential, stages: tuple[LayerShapes, ...]) -> dict[str, Shape]:
    """Names and shapes of the parameters that start at given weights; none where all weights are drawn.

    Raises:
      InvalidParameter: no layer is left to train, or none of the given ones has weights.
    """
    given = model.initial_weights
    if not isinstance(given, GivenWeights):
        return {}
    if not any(stage.parameters for stage in stages[given.frozen_layers :]):
        raise InvalidParameter(f"{FIELD}.frozen_layers", "such that a layer with weights remains to be trained", given.frozen_layers)
    expected = {name: shape for stage in stages[: given.given_layers] for name, shape in stage.parameters.items()}
    if not expected:
        raise InvalidParameter(f"{FIELD}.given_layers", "such that a layer with weights is among them", given.given_layers)
    return expected


def sequential_shapes(model: Sequential, facts: DataSetFacts) -> tuple[LayerShapes, ...]:
    """Every layer's shapes.

    Raises:
      InvalidParameter: a layer doesn't take what the one before it gives, or the last output isn't what the task requires.
    """
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
        stages.append(_stage(f"model.layers[{place}]", module_name(place, layer), layer, shape, model.numbers))
        shape = stages[-1].outputs
    _check_end(model, shape, start, facts)
    _check_size(sum(stage.weights for stage in stages), parts * sum(stage.activations for stage in stages))
    return tuple(stages)


def each_layer(model: Sequential, facts: DataSetFacts) -> Iterator[tuple[str, LayerSpec, LayerShapes]]:
    """Every layer's name in the built network, those in residual blocks instead of the blocks. Raises as ``sequential_shapes``."""
    for place, (layer, stage) in enumerate(zip(model.layers, sequential_shapes(model, facts), strict=True)):
        module = module_name(place, layer)
        if not isinstance(layer, Residual):
            yield module, layer, stage
            continue
        for (branch, layers), stages in zip(layer.branches, stage.branches, strict=True):
            for number, (inner, its) in enumerate(zip(layers, stages, strict=True)):
                yield f"{module}.{branch}.{module_name(number, inner)}", inner, its


def _stage(at: str, module: str, layer: LayerSpec, shape: Shape, numbers: Numbers) -> LayerShapes:
    """``at``: the layer's place, for messages; ``module``: its name in the built network."""
    if not isinstance(layer, Residual):
        own = parameter_shapes(layer, shape, numbers)
        return LayerShapes(shape, shape_after(at, layer, shape), {f"{module}.{name}": size for name, size in own.items()})
    branches: list[tuple[LayerShapes, ...]] = []
    for branch, layers in layer.branches:
        stages: list[LayerShapes] = []
        for place, inner in enumerate(layers):
            before = stages[-1].outputs if stages else shape
            stages.append(_stage(f"{at}.{branch}[{place}]", f"{module}.{branch}.{module_name(place, inner)}", inner, before, numbers))
        branches.append(tuple(stages))
    outputs, beside = (stages[-1].outputs if stages else shape for stages in branches)
    if outputs != beside:
        raise InvalidParameter(f"{at}.shortcut", f"such that its output has the shape of the layers', {outputs}", beside)
    own = {name: size for stages in branches for stage in stages for name, size in stage.parameters.items()}
    return LayerShapes(shape, outputs, own, tuple(branches))


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
    match layer:
        case Linear() | BlockCirculantLinear():
            if len(shape) != 1:
                raise InvalidParameter(name, f"after a flatten layer ({layer.kind} takes flat records)", f"a record of shape {shape}")
            largest = max(shape[0], layer.outputs)
            if isinstance(layer, BlockCirculantLinear) and layer.block > largest:
                # One block would hold the whole matrix and more numbers than it has rows or columns.
                expected = f"at most max(inputs, outputs) = {largest}, the larger of {shape[0]} inputs and {layer.outputs} outputs"
                raise InvalidParameter(f"{name}.block", expected, layer.block)
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
        case Activation() | ChannelAffine() | Dropout() | Fourier():
            return shape
        case Residual():
            raise AssertionError("a residual block's shape is that of its branches")
        case GroupNorm() | LayerNorm() | InstanceNorm():
            _check_norm(name, layer, shape)
            return shape
        case _:
            return _after_spatial(name, layer, shape)


def norm_groups(layer: GroupNorm | LayerNorm | InstanceNorm, channels: int) -> int:
    """Groups that the channels are normalised in."""
    match layer:
        case GroupNorm():
            return layer.groups
        case LayerNorm():
            return 1
        case InstanceNorm():
            return channels


def _check_norm(name: str, layer: GroupNorm | LayerNorm | InstanceNorm, shape: Shape) -> None:
    _check_groups(name, "groups", norm_groups(layer, shape[0]), shape)


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
