r"""How each layer changes a record's shape: a network that doesn't fit its images is refused before torch is loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.specs.models.layer_numbers import RealActivation
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
    Linear,
    MaxPool,
    TransposedConvolution,
    Unflatten,
)
from zetadp.trainer.specs.models.parameter_counts import Shape, parameter_shapes
from zetadp.trainer.specs.models.shapes import LARGEST_ACTIVATIONS, LARGEST_WEIGHTS, shape_after
from zetadp.trainer.specs.obfuscation.architectures import Architecture, Delta, MagnitudeNorm, ProcessingLayer, Skip
from zetadp.trainer.specs.obfuscation.blueprints import Blueprint, Layers, blueprint, conventional, generator
from zetadp.trainer.specs.obfuscation.methods import Method, NoisyRotation, Original, Rotation

Offered = (
    Activation
    | AdaptiveAveragePool
    | AdaptiveMaxPool
    | AveragePool
    | Convolution
    | Dropout
    | Flatten
    | GroupNorm
    | InstanceNorm
    | LayerNorm
    | Linear
    | MaxPool
    | TransposedConvolution
    | Unflatten
)
"""Layers of encoder and decoder, besides those that stand for their real counterparts there."""


@final
@dataclass(frozen=True)
class Divided:
    r"""A network that fits: its layers as built, and the shape of a feature.

    Attributes:
      blueprint: with the generator, the linear layer to the classes, and for a baseline a conventional processing module.
      turned: whether the processing module is for complex features.
      image, feature: a record before and after the encoder, (channels, height, width).
      parameters: the number of real numbers in the weights.
    """

    blueprint: Blueprint
    turned: bool
    image: Shape
    feature: Shape
    parameters: int


def divided(network: Architecture, method: Method, image: Shape, classes: int) -> Divided:
    r"""The architecture as ``method`` divides it. Loads no torch.

    Raises:
      InvalidParameter: a layer doesn't accept the previous one's output, the encoder's feature isn't an image, or the network is too large.
    """
    parts = blueprint(network, image)
    plain = Tally("network.encoder")
    feature = plain.through(parts.encoder, image)
    if len(feature) != 3:
        raise InvalidParameter("network.encoder", "such that a feature is an image (channels, height, width)", feature)
    added = () if isinstance(method, Original) else (generator(feature[0]),)
    turned = isinstance(method, Rotation | NoisyRotation)
    whole = Blueprint(
        encoder=(*parts.encoder, *added),
        processing=parts.processing if turned else conventional(parts.processing),
        decoder=(*parts.decoder, Linear(outputs=classes)),
    )
    tallies = Tally("network.encoder"), Tally("network.processing", 2 if turned else 1), Tally("network.decoder")
    shape = image
    for tally, layers in zip(tallies, (whole.encoder, whole.processing, whole.decoder), strict=True):
        shape = tally.through(layers, shape)
    weights, activations = sum(tally.weights for tally in tallies), sum(tally.activations for tally in tallies)
    if weights > LARGEST_WEIGHTS:
        raise InvalidParameter("network", f"at most {LARGEST_WEIGHTS} real numbers in weights", weights)
    if activations > LARGEST_ACTIVATIONS:
        raise InvalidParameter("network", f"at most {LARGEST_ACTIVATIONS} real numbers in one record's activations", activations)
    return Divided(whole, turned, image, feature, weights)


def shortcut(name: str, before: Shape, after: Shape) -> Convolution | None:
    r"""The convolution on the shortcut around a skip's layers; None if the record can pass unchanged.

    Raises:
      InvalidParameter: no 1 x 1 convolution of any stride fits.
    """
    if before == after:
        return None
    if len(before) == 3 and len(after) == 3:
        stride = math.ceil(before[1] / after[1])
        if tuple((size - 1) // stride + 1 for size in before[1:]) == after[1:]:
            return Convolution(outputs=after[0], kernel=1, stride=stride, bias=False)
    raise InvalidParameter(name, "around layers that keep a record's shape or reduce an image's sides by a common stride", (before, after))


@final
class Tally:
    """Goes through a module's layers and counts: ``parts`` numbers for each, 2 where they are complex."""

    def __init__(self, name: str, parts: int = 1) -> None:
        self._name, self._parts = name, parts
        self.weights, self.activations = 0, 0

    def through(self, layers: Layers, shape: Shape) -> Shape:
        """The shape after the layers. Raises InvalidParameter if one doesn't accept its input."""
        return self._through(self._name, layers, shape)

    def _through(self, name: str, layers: Layers, shape: Shape) -> Shape:
        for place, layer in enumerate(layers):
            shape = self._after(f"{name}[{place}]", layer, shape)
            self.activations += self._parts * math.prod(shape)
        return shape

    def _after(self, name: str, layer: ProcessingLayer, shape: Shape) -> Shape:
        match layer:
            case Delta():
                return shape
            case MagnitudeNorm():
                # The weight and bias of the batch norm that it stands for; the norm of complex features has none.
                self.weights += 2 * shape[0] if self._parts == 1 else 0
                return shape
            case Skip():
                after = self._through(f"{name}.layers", layer.layers, shape)
                around = shortcut(name, shape, after)
                self.weights += 0 if around is None else self._weights(around, shape)
                return after
            case _:
                offered = _offered(name, layer)
                after = shape_after(name, offered, shape)
                self.weights += self._weights(offered, shape)
                return after

    @staticmethod
    def _weights(layer: Offered, shape: Shape) -> int:
        return sum(math.prod(size) for size in parameter_shapes(layer, shape, "real").values())


def _offered(name: str, layer: ProcessingLayer) -> Offered:
    if not isinstance(layer, Offered):
        raise InvalidParameter(name, "a convolution, linear layer, activation, norm, pool, dropout or flatten", layer.kind)
    if isinstance(layer, Activation) and layer.name not in RealActivation.__args__:
        raise InvalidParameter(name, f"one of {', '.join(RealActivation.__args__)}, for real numbers", layer.name)
    return layer
