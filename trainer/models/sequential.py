r"""Networks of layers in a row, with the change of number format put in where a complex layer needs the other one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.data.base import DataSetFacts
from zetadp.trainer.layers.blocks import sequences
from zetadp.trainer.layers.blocks.adapted import Adapted as AdaptedModule
from zetadp.trainer.layers.blocks.channel_affine import ChannelAffine as ChannelAffineModule
from zetadp.trainer.layers.blocks.residual import ResidualBlock
from zetadp.trainer.layers.filter_bank import GaborModulus
from zetadp.trainer.layers.planes import FromPlanes, ToPlanes
from zetadp.trainer.layers.pooling import RectifiedMeans
from zetadp.trainer.layers.scattering import Scattering as ScatteringModule
from zetadp.trainer.models import complex_layers, real_layers
from zetadp.trainer.models.scaling import scale_to_unit_outputs
from zetadp.trainer.specs.models.blocks import GATES, LayerShapes, branches_of
from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    Adapted,
    AdaptiveAveragePool,
    AdaptiveMaxPool,
    AveragePool,
    Block,
    BlockCirculantLinear,
    ByNumbers,
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
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.parameter_counts import module_name
from zetadp.trainer.specs.models.sequence_layers import Embedding, PositionEmbedding, PositionNorm, Recurrent, SelfAttention
from zetadp.trainer.specs.models.shapes import given_parameters, sequential_shapes
from zetadp.trainer.specs.models.weights import GivenWeights

Format = Literal["native", "planes", "real"]
"""Complex tensors, the same as planes, or the numbers of a real network, which are never converted."""

NATIVE = (BlockCirculantLinear, Fourier)
"""Linear layers take either format: after convolutions they stay on planes."""

PLANES = (
    Convolution,
    TransposedConvolution,
    AveragePool,
    MaxPool,
    AdaptiveAveragePool,
    AdaptiveMaxPool,
    GroupNorm,
    LayerNorm,
    InstanceNorm,
    FilterBank,
    PositionEmbedding,
    PositionNorm,
    SelfAttention,
    Recurrent,
)


@final
class ZeroImaginary(nn.Module):
    """Real (N, C, *spatial) to the planes (N, 2C, *spatial) of the same numbers as complex ones."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((x, torch.zeros_like(x)), dim=1)


@final
class _Row:
    """Modules in a row, named by their layer's number, and the format that numbers have behind the last one."""

    def __init__(self, numbers: Format) -> None:
        self.numbers: Format = numbers
        self.modules: OrderedDict[str, nn.Module] = OrderedDict()

    def add(self, name: str, module: nn.Module) -> None:
        self.modules[name] = module

    def convert(self, name: str, wanted: Format) -> None:
        """Puts a conversion in where the format isn't the wanted one."""
        if "real" in {self.numbers, wanted} or self.numbers == wanted:
            return
        self.add(f"{name}_{wanted}", ToPlanes() if wanted == "planes" else FromPlanes())
        self.numbers = wanted


def build_sequential(spec: Sequential, facts: DataSetFacts, stream: RandomStream) -> nn.Sequential:
    """The network with fresh weights from ``stream``, which is public, drawn layer after layer; given ones then replace them.

    Raises:
      InvalidParameter: the network doesn't fit the data set, or the file of given weights isn't what the spec says.
    """
    shapes = sequential_shapes(spec, facts)
    row = _Row("native" if spec.numbers == "complex" and facts.is_complex else "planes" if spec.numbers == "complex" else "real")
    if not facts.is_complex and spec.numbers != "real":
        if not isinstance(spec.layers[0], Embedding):  # takes whole numbers, and gives planes
            row.add("input", ZeroImaginary())
    elif spec.numbers == "real_pairs":
        row.add("input", ToPlanes())
    _fill_row(row, spec.layers, shapes, stream)
    _end(row, spec, facts)
    network = nn.Sequential(row.modules)
    if isinstance(spec.initial_weights, GivenWeights):
        given = given_parameters(spec, shapes)
        arrays = spec.initial_weights.read({stored: shape for stored, (_, shape) in given.items()})
        _fill(network, {given[stored][0]: array for stored, array in arrays.items()})
        _freeze(network, spec)
    elif spec.initial_weights == "unit_outputs":
        scale_to_unit_outputs(network, facts, stream)
    return network


def _fill_row(row: _Row, layers: Sequence[LayerSpec], stages: Sequence[LayerShapes], stream: RandomStream) -> None:
    """Adds the layers, with conversions where they need the other format."""
    for place, (layer, stage) in enumerate(zip(layers, stages, strict=True)):
        name = module_name(place, layer)
        if isinstance(layer, NATIVE):
            row.convert(name, "native")
        elif isinstance(layer, PLANES):
            row.convert(name, "planes")
        if isinstance(layer, Block):
            _add_block(row, name, layer, stage, stream)
        elif isinstance(layer, AveragePool) and (rectifier := _rectifier(row, layers[:place], stage)) is not None:
            row.modules[rectifier] = nn.Identity()
            row.add(name, RectifiedMeans(layer.kernel, layer.stride))
        else:
            row.add(name, _module(layer, stage, row.numbers, stream))


def _rectifier(row: _Row, before: Sequence[LayerSpec], stage: LayerShapes) -> str | None:
    """The name of the relu that a row of images ends with, of real numbers or planes: averages right behind it do its work too."""
    last = before[-1] if before else None
    if not isinstance(last, Activation) or last.name != ("relu" if row.numbers == "real" else "crelu") or len(stage.inputs) != 3:
        return None
    name = module_name(len(before) - 1, last)
    return name if next(reversed(row.modules)) == name else None


def _fill(network: nn.Sequential, arrays: dict[str, NDArray[np.float32]]) -> None:
    parameters = dict(network.named_parameters())
    with torch.no_grad():
        for name, array in arrays.items():
            values = torch.from_numpy(array)
            parameters[name].copy_(torch.view_as_complex(values) if parameters[name].is_complex() else values)


def _freeze(network: nn.Sequential, spec: Sequential) -> None:
    """Frozen parameters require no gradient; ``trainer.models.front`` splits their layers off."""
    for place, layer in enumerate(spec.layers[: spec.frozen_layers]):
        network.get_submodule(module_name(place, layer)).requires_grad_(requires_grad=False)
    for module in network.modules():
        if isinstance(module, AdaptedModule):
            module.keep_base()


def _end(row: _Row, spec: Sequential, facts: DataSetFacts) -> None:
    if facts.task == "reconstruction":
        if not facts.is_complex:
            return
        # Both formats of a complex image end as complex numbers; the two halves of a real pair's channels are such planes too.
        row.numbers = "planes" if row.numbers == "real" else row.numbers
        row.convert("output", "native")
    elif spec.head != "none":
        row.convert("head", "native")
        row.add("head", complex_layers.head(spec.head))


def _add_block(row: _Row, name: str, layer: Block, stage: LayerShapes, stream: RandomStream) -> None:
    """Adds the block; numbers then have the format that they have behind its first branch."""
    branches: list[_Row] = []
    for branch, stages in zip(branches_of(name, layer, stage.inputs), stage.branches, strict=True):
        made = _Row(row.numbers)
        _fill_row(made, branch.layers, stages, stream)
        if branches:
            made.convert("sum", branches[0].numbers)
        branches.append(made)
    rows = [nn.Sequential(branch.modules) for branch in branches]
    parts = 1 if row.numbers == "real" else 2
    match layer:
        case Residual():
            row.add(name, ResidualBlock(*rows))
        case Adapted():
            *_, last = (module for module in rows[1].modules() if hasattr(module, "weight"))
            nn.init.zeros_(last.get_parameter("weight"))
            row.add(name, AdaptedModule(*rows))
        case SelfAttention():
            row.add(name, sequences.SelfAttention(rows[0], rows[1], rows[2], rows[3], layer.heads, parts))
        case Recurrent():
            returns_sequence = layer.returns == "sequence"
            row.add(name, sequences.Recurrent(rows[0], rows[1], GATES[layer.cell], parts, returns_sequence=returns_sequence))
    row.numbers = branches[0].numbers


def _module(layer: LayerSpec, stage: LayerShapes, numbers: Format, stream: RandomStream) -> nn.Module:
    if isinstance(layer, Flatten | Unflatten | Columns | FilterBank | Scattering | Fourier):
        return _fixed_module(layer, stage, numbers)
    assert not isinstance(layer, Block)  # it is made of modules
    if isinstance(layer, BlockCirculantLinear):
        return complex_layers.block_circulant(layer, stage.inputs[0], stream, is_complex=numbers != "real")
    if isinstance(layer, ChannelAffine | Embedding | PositionEmbedding | PositionNorm):
        return _either_module(layer, stage, stream, is_complex=numbers != "real")
    if isinstance(layer, Linear) and numbers == "planes":
        return complex_layers.planar_linear(layer, stage.inputs[0], stream)
    return _real_module(layer, stage, stream) if numbers == "real" else _complex_module(layer, stage, stream)


def _either_module(
    layer: ChannelAffine | Embedding | PositionEmbedding | PositionNorm, stage: LayerShapes, stream: RandomStream, *, is_complex: bool
) -> nn.Module:
    """Layers whose module is the same for both kinds of numbers."""
    match layer:
        case ChannelAffine():
            return ChannelAffineModule(stage.inputs[0], is_complex=is_complex)
        case Embedding():
            return sequences.TokenEmbedding(layer.entries, layer.outputs, stream, is_complex=is_complex)
        case PositionEmbedding():
            return sequences.PositionEmbedding(stage.inputs[0], stage.inputs[1], is_complex=is_complex)
        case PositionNorm():
            return sequences.PositionNorm(stage.inputs[0], is_complex=is_complex)


def _fixed_module(
    layer: Flatten | Unflatten | Columns | FilterBank | Scattering | Fourier, stage: LayerShapes, numbers: Format
) -> nn.Module:
    match layer:
        case Flatten():
            # Planes too: all real parts, then all imaginary parts.
            return nn.Flatten(1)
        case Unflatten():
            parts = 2 if numbers == "planes" else 1
            return nn.Unflatten(1, (parts * layer.channels, layer.height, layer.width))
        case Columns():
            # Of planes too: channels are the outer index.
            return nn.Flatten(1, 2)
        case FilterBank():
            return GaborModulus(layer.wavelengths, layer.orientations, layer.size, layer.pool)
        case Scattering():
            sizes = {"scales": layer.scales, "orientations": layer.orientations, "depth": layer.depth}
            return ScatteringModule(*stage.inputs[1:], **sizes, groups=layer.normalisation_groups)
        case Fourier():
            return complex_layers.UnitaryFourier(is_pairs=numbers == "real")


def _real_module(layer: ByNumbers, stage: LayerShapes, stream: RandomStream) -> nn.Module:
    match layer:
        case Linear():
            return real_layers.real_linear(layer, stage.inputs[0], stream)
        case Convolution() | TransposedConvolution():
            return real_layers.real_convolution(layer, stage.inputs, stream)
        case Activation():
            return real_layers.real_activation(layer, stage.inputs[0])
        case GroupNorm() | LayerNorm() | InstanceNorm():
            return real_layers.real_norm(layer, stage.inputs[0])
        case Dropout():
            return nn.Dropout(layer.probability)
        case _:
            return real_layers.real_pool(layer, stage.inputs)


def _complex_module(layer: ByNumbers, stage: LayerShapes, stream: RandomStream) -> nn.Module:
    match layer:
        case Linear():
            return complex_layers.complex_linear(layer, stage.inputs[0], stream)
        case Convolution() | TransposedConvolution():
            return complex_layers.complex_convolution(layer, stage.inputs, stream)
        case Activation():
            return complex_layers.complex_activation(layer, stage.inputs[0])
        case GroupNorm() | LayerNorm() | InstanceNorm():
            return complex_layers.complex_norm(layer, stage.inputs[0])
        case Dropout():
            return complex_layers.dropout(layer.probability)
        case _:
            return complex_layers.complex_pool(layer)
