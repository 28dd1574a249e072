r"""Every architecture as a sequence of layers, cut in three; the modules are built from this. Free of torch.

In encoder and decoder, and in the processing module of the baselines, whose numbers are real, ``delta`` stands for ReLU, ``magnitude_norm``
for batch norm, and a convolution or linear layer of the processing module has a bias where no norm follows. He et al. and Krizhevsky et al.
trained this way; VGG-16 was published without norms, but hardly anybody trains it without them today.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import final

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.specs.models.layer_spec import AdaptiveAveragePool, AveragePool, Convolution, Dropout, Flatten, Linear, MaxPool
from zetadp.trainer.specs.models.parameter_counts import Shape
from zetadp.trainer.specs.obfuscation.architectures import (
    AlexNet,
    Architecture,
    CustomNetwork,
    Delta,
    LeNet,
    MagnitudeNorm,
    ProcessingLayer,
    ResNet,
    Skip,
    Vgg16,
)

SMALLEST_SIDES = {"lenet": 8, "resnet": 32, "vgg16": 32, "alexnet": 32}
"""The least pixels along each side of an image that a network takes."""

Layers = tuple[ProcessingLayer, ...]

_POOL = MaxPool(kernel=2, stride=2)
_MEANS = AveragePool(kernel=2, stride=2)


@final
@dataclass(frozen=True)
class Blueprint:
    """The three modules; the generator comes after the encoder, the linear layer to the classes after the decoder."""

    encoder: Layers
    processing: Layers
    decoder: Layers


def blueprint(network: Architecture, image: Shape) -> Blueprint:
    r"""The architecture's blueprint for images (channels, height, width).

    Raises:
      InvalidParameter: the images are too small for it.
    """
    smallest = SMALLEST_SIDES.get(network.kind, 1)
    if min(image[1:]) < smallest:
        raise InvalidParameter(
            "network", f"one for images of this size ({network.kind} needs at least {smallest} x {smallest} pixels)", image
        )
    match network:
        case LeNet():
            return _lenet(network.width)
        case ResNet():
            return _resnet(network)
        case Vgg16():
            return _vgg16(network.width)
        case AlexNet():
            return _alexnet(network.width)
        case CustomNetwork():
            return Blueprint(network.encoder, network.processing, network.decoder)


def generator(channels: int) -> Convolution:
    """The critic's generator, 3 x 3 x K filters (section 5.1, baseline 3); nothing follows it, so that features have both signs."""
    return Convolution(outputs=channels, kernel=3, padding=1)


def conventional(layers: Layers) -> Layers:
    """The layers of a processing module with the biases that they have on real numbers: none is needed before a norm."""
    followed = (*(isinstance(after, MagnitudeNorm) for _, after in pairwise(layers)), False)
    return tuple(_with_bias(layer, bias=not norm) for layer, norm in zip(layers, followed, strict=True))


def _with_bias(layer: ProcessingLayer, *, bias: bool) -> ProcessingLayer:
    match layer:
        case Skip():
            return Skip(layers=conventional(layer.layers))
        case Convolution() | Linear():
            return type(layer).model_validate(layer.model_dump() | {"bias": bias})
        case _:
            return layer


def _lenet(width: int) -> Blueprint:
    # Padded, so that images of 8 x 8 pixels have something left to pool; pooled by means, as LeCun et al. did.
    convolution, activation = Convolution(outputs=(8 * width + 1) // 3, kernel=5, padding=2, bias=False), Delta()
    dense = (Linear(outputs=20 * width, bias=False), activation, Linear(outputs=14 * width, bias=False), activation)
    return Blueprint(
        encoder=(Convolution(outputs=width, kernel=5, padding=2), activation),
        processing=(_MEANS, convolution, activation, _MEANS, Flatten(), *dense),
        decoder=(),
    )


def _resnet(network: ResNet) -> Blueprint:
    blocks, width = (network.depth - 2) // 6, network.width
    first = (*_normed(width, 1), Delta(threshold=1.0), *_blocks(width, 1, blocks))
    # The first feature maps of half and of a quarter of the image's size are those of the first blocks of their stages.
    second, third = (tuple(_blocks(channels, 2, blocks)) for channels in (2 * width, 4 * width))
    processed = 2 if network.variant == "alpha" else len(third) - 2  # a block is a skip and its activation
    head = (AdaptiveAveragePool(size=1), Flatten())
    return Blueprint(encoder=first, processing=(*second, *third[:processed]), decoder=(*third[processed:], *head))


def _normed(channels: int, stride: int) -> Layers:
    return (Convolution(outputs=channels, kernel=3, stride=stride, padding=1, bias=False), MagnitudeNorm())


def _blocks(channels: int, stride: int, count: int) -> Iterator[ProcessingLayer]:
    for place in range(count):
        inner = (*_normed(channels, stride if place == 0 else 1), Delta(threshold=1.0), *_normed(channels, 1))
        yield from (Skip(layers=inner), Delta(threshold=1.0))


def _vgg16(width: int) -> Blueprint:
    def convolutions(channels: int, count: int) -> Layers:
        return (*_normed(channels, 1), Delta()) * count

    early = (*convolutions(width, 2), _POOL, *convolutions(2 * width, 2), _POOL)
    # The third feature map of a quarter of the image's size is the first that the cloud computes.
    late = (*convolutions(4 * width, 1), _POOL, *convolutions(8 * width, 3), _POOL, *convolutions(8 * width, 3), _POOL)
    return Blueprint(encoder=(*early, *convolutions(4 * width, 2)), processing=late, decoder=(Flatten(), *_dense(8 * width)))


def _alexnet(width: int) -> Blueprint:
    def convolution(channels: int, kernel: int, *, bias: bool) -> Layers:
        return (Convolution(outputs=channels, kernel=kernel, padding=kernel // 2, bias=bias), Delta())

    early = (*convolution(width, 5, bias=True), _POOL, *convolution(3 * width, 5, bias=True), _POOL, *convolution(6 * width, 3, bias=True))
    late = (*convolution(4 * width, 3, bias=False), *convolution(4 * width, 3, bias=False), _POOL)
    return Blueprint(encoder=early, processing=late, decoder=(Flatten(), *_dense(16 * width)))


def _dense(width: int) -> Layers:
    return (Linear(outputs=width), Delta(), Dropout(probability=0.5)) * 2
