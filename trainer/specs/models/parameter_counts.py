r"""Names and shapes of a network's parameters, from its spec: what a file of weights must contain. Without torch."""

from __future__ import annotations

from typing import Literal

from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    BlockCirculantLinear,
    ChannelAffine,
    Convolution,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LayerSpec,
    Linear,
    TransposedConvolution,
)
from zetadp.trainer.specs.models.sequence_layers import Embedding, PositionEmbedding, PositionNorm

Shape = tuple[int, ...]
Numbers = Literal["complex", "real", "real_pairs"]

ONE_BIAS = frozenset({"trainable_cardioid", "modrelu"})
"""Activations with one bias for all features."""
BIAS_PER_FEATURE = frozenset({"trainable_cardioid_per_feature", "modrelu_per_feature"})


def module_name(place: int, layer: LayerSpec) -> str:
    """The layer's name in the built network; its parameters' names are this, a dot, and ``weight`` or ``bias``.

    >>> module_name(3, Linear(outputs=10))
    '3_linear'
    """
    return f"{place}_{layer.kind}"


def parameter_shapes(layer: LayerSpec, inputs: Shape, numbers: Numbers) -> dict[str, Shape]:
    """Of a layer on records of shape ``inputs``: each parameter's shape in real numbers, a complex one's with a last axis of 2.

    >>> parameter_shapes(Linear(outputs=10), (784,), "complex")
    {'weight': (10, 784, 2), 'bias': (10, 2)}
    """
    if isinstance(layer, Activation):
        # Biases of angles and magnitudes are real in complex networks too.
        return {"bias": (1,)} if layer.name in ONE_BIAS else {"bias": inputs[:1]} if layer.name in BIAS_PER_FEATURE else {}
    pair = (2,) if numbers == "complex" else ()
    return {name: (*shape, *pair) for name, shape in _weight_and_bias(layer, inputs).items()}


def _weight_and_bias(layer: LayerSpec, inputs: Shape) -> dict[str, Shape]:
    match layer:
        case GroupNorm() | LayerNorm() | InstanceNorm() | ChannelAffine() | PositionNorm():
            return {"weight": inputs[:1], "bias": inputs[:1]}
        case PositionEmbedding():
            return {"weight": inputs}
        case Embedding():
            return {"weight": (layer.entries, layer.outputs)}
        case Linear() | BlockCirculantLinear() | Convolution() | TransposedConvolution():
            bias: dict[str, Shape] = {"bias": (layer.outputs,)} if layer.bias else {}
            return {"weight": _weight(layer, inputs), **bias}
        case _:
            return {}


def _weight(layer: Linear | BlockCirculantLinear | Convolution | TransposedConvolution, inputs: Shape) -> Shape:
    channels, axes = inputs[0], len(inputs) - 1
    match layer:
        case Linear():
            return (layer.outputs, channels)
        case BlockCirculantLinear():
            return (-(-layer.outputs // layer.block), -(-channels // layer.block), layer.block)
        case Convolution():
            return (layer.outputs, channels // layer.groups, *(layer.kernel,) * axes)
        case TransposedConvolution():
            return (channels, layer.outputs, *(layer.kernel,) * axes)
