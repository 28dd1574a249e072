r"""The networks of the complex-feature obfuscation paper as values: encoder, processing module and decoder. Free of torch.

The encoder ends with the critic's generator, a 3 x 3 convolution (section 5.1, baseline 3), if the method has one. The processing module
is the part that the cloud runs: on complex features every layer of it must commute with multiplication by e^(i theta) (paper, eq. 5).
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, final

from pydantic import Field, Strict, model_validator

from zetadp.mechanisms.base import Positive, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.specs.models.layer_numbers import Width
from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    AdaptiveAveragePool,
    AveragePool,
    Convolution,
    Dropout,
    Flatten,
    GroupNorm,
    LayerSpec,
    Linear,
    MaxPool,
)

CHANNEL_MEAN = "channel_mean"


@final
class Delta(Value):
    r"""The paper's activation: f |f| / max(|f|, c), which keeps the phase (eq. 6).

    Attributes:
      threshold: c > 0, or ``channel_mean``: c_k = mean of |f| over the positions of channel k of the same record.
    """

    kind: Literal["delta"] = "delta"
    threshold: Literal["channel_mean"] | Positive = CHANNEL_MEAN


@final
class MagnitudeNorm(Value):
    r"""f / sqrt(E |f|^2), one statistic per channel, over records and positions of public training batches, then frozen.

    Statistics of the current batch, as the paper prints them (eq. 7), would make one user's feature depend on another's (errata O13).
    """

    kind: Literal["magnitude_norm"] = "magnitude_norm"


@final
class Skip(Value):
    """f + layers(f); where their shapes differ, the shortcut is a 1 x 1 convolution of the needed stride, without bias."""

    kind: Literal["skip"] = "skip"
    layers: Annotated[tuple[ProcessingLayer, ...], Field(min_length=1, max_length=16)]


ProcessingLayer = Annotated[LayerSpec | Delta | MagnitudeNorm | Skip, Field(discriminator="kind")]
"""A request may name any layer; layers that aren't equivariant are refused by name."""


@final
class LeNet(Value):
    """LeCun et al. 1998: the encoder is the first convolution, the decoder the softmax layer. Images of 8 x 8 pixels or more.

    Attributes:
      width: channels of the first convolution, 6 in 1998; all other layers grow with it. In measurements, rotated features needed more
        of them than real ones for equally good answers; each channel's magnitude may depend on the counterpart too, which averages out.
    """

    kind: Literal["lenet"] = "lenet"
    width: Annotated[Width, Field(le=1024)] = 6


@final
class ResNet(Value):
    r"""He et al. 2016 for small images, 6 n + 2 layers. c is 1 in every activation of the processing module.

    Attributes:
      depth: 20, 32, 44, 56 or 110.
      variant: alpha: the decoder is everything after the first feature map of a quarter of the image's size; beta: it is the last residual
        block and what follows. The encoder of both ends before the first feature map of half the image's size.
      width: channels of the first stage; 16 in the paper.
    """

    kind: Literal["resnet"] = "resnet"
    depth: Literal[20, 32, 44, 56, 110]
    variant: Literal["alpha", "beta"]
    width: Width = 16


@final
class Vgg16(Value):
    """Simonyan and Zisserman 2015: the encoder ends before the last feature map of a quarter of the image's size, the decoder is dense.

    Attributes:
      width: channels of the first block; 64 in the paper.
    """

    kind: Literal["vgg16"] = "vgg16"
    width: Width = 64


@final
class AlexNet(Value):
    """Krizhevsky et al. 2012: the encoder is the first three convolutions, the decoder is dense.

    Attributes:
      width: channels of the first convolution; 64 for small images.
    """

    kind: Literal["alexnet"] = "alexnet"
    width: Width = 64


@final
class CustomNetwork(Value):
    r"""Layers in sequence.

    Attributes:
      encoder: real layers from an image to its feature.
      processing: layers that commute with a turn of all numbers by one angle.
      decoder: real layers from the processed feature to the last hidden one; the linear layer to the classes is added after them.
    Raises:
      ValidationError: a layer of ``processing`` breaks equivariance, named with its place and the reason.
    """

    kind: Literal["custom"] = "custom"
    encoder: Annotated[tuple[LayerSpec, ...], Field(min_length=1, max_length=64)]
    processing: Annotated[tuple[ProcessingLayer, ...], Field(min_length=1, max_length=64)]
    decoder: Annotated[tuple[LayerSpec, ...], Field(max_length=64)] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_equivariant("processing", self.processing)
        return self


Architecture = Annotated[LeNet | ResNet | Vgg16 | AlexNet | CustomNetwork, Field(discriminator="kind")]

Classes = Annotated[int, Strict(), Field(ge=0, le=65535)]

_LINEAR = (AveragePool, AdaptiveAveragePool, Flatten)
_BY_MAGNITUDE = (MaxPool,)


def _check_equivariant(where: str, layers: tuple[ProcessingLayer, ...]) -> None:
    for place, layer in enumerate(layers):
        at = f"{where}[{place}]"
        match layer:
            case Skip():
                _check_equivariant(f"{at}.layers", layer.layers)
            case Convolution() | Linear() if layer.bias:
                expected = "without bias in the processing module (a constant isn't rotated with the feature)"
                raise InvalidParameter(f"{at}.bias", f"false: {layer.kind} {expected}", True)
            case Activation():
                raise InvalidParameter(at, "delta instead of an activation of real and imaginary parts, which a rotation mixes", layer.name)
            case GroupNorm():
                raise InvalidParameter(at, "magnitude_norm instead of a norm that shifts means", layer.kind)
            case Delta() | MagnitudeNorm() | Convolution() | Linear() | Dropout():
                pass
            case _ if isinstance(layer, (*_LINEAR, *_BY_MAGNITUDE)):
                pass
            case _:
                expected = "convolution or linear without bias, delta, magnitude_norm, max_pool, average_pool, dropout, flatten or skip"
                raise InvalidParameter(at, expected, layer.kind)
