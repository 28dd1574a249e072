r"""Layers as values: named in a spec, covered by a certificate's digest. Free of torch."""

from __future__ import annotations

import operator
from typing import Annotated, Literal, Self, final

from pydantic import Field, Strict, model_validator

from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.specs.models.layer_numbers import (
    ComplexActivation,
    DropProbability,
    Extent,
    Flag,
    Padding,
    RealActivation,
    Wavelength,
    Width,
)
from zetadp.trainer.specs.models.sequence_layers import Embedding, PositionEmbedding, PositionNorm, Recurrent, SelfAttention


@final
class Linear(Value):
    """W x + b over the features of a record, which must be flat.

    Attributes:
      standardised: each output's weights are applied less their mean and over their norm, as those of a convolution.
    """

    kind: Literal["linear"] = "linear"
    outputs: Width
    bias: Flag = True
    # Left out of JSON where false: most are not.
    standardised: Flag = Field(default=False, exclude_if=operator.not_)


@final
class BlockCirculantLinear(Value):
    """A linear layer whose weight is made of circulant blocks: 1/block of the dense layer's numbers.

    Attributes:
      outputs: of the layer; any number.
      block: rows and columns of a block; at most the larger of inputs and outputs. Inputs and outputs that aren't multiples of it are
        filled up with zeros and cropped: the weight is then the upper left corner of a block-circulant one.
    """

    kind: Literal["block_circulant_linear"] = "block_circulant_linear"
    outputs: Width
    block: Extent
    bias: Flag = True


@final
class Convolution(Value):
    """Over one or two spatial axes, as many as the record has; zeros are padded on both sides.

    Attributes:
      standardised: each output channel's weights are applied less their mean and over their norm, as ``trainer.layers.standardised``
        says; what is trained, clipped and noised are the weights before that. A gain for each channel is a ``channel_affine`` behind it.
    """

    kind: Literal["convolution"] = "convolution"
    outputs: Width
    kernel: Extent
    stride: Extent = 1
    padding: Padding = 0
    dilation: Extent = 1
    groups: Width = 1
    bias: Flag = True
    # Left out of JSON where false: most are not.
    standardised: Flag = Field(default=False, exclude_if=operator.not_)


@final
class TransposedConvolution(Value):
    """The adjoint of a convolution's shape: (size - 1) stride - 2 padding + kernel along each of two spatial axes."""

    kind: Literal["transposed_convolution"] = "transposed_convolution"
    outputs: Width
    kernel: Extent
    stride: Extent = 1
    padding: Padding = 0
    bias: Flag = True


@final
class Activation(Value):
    """Elementwise; complex names in complex networks, real ones in real networks."""

    kind: Literal["activation"] = "activation"
    name: ComplexActivation | RealActivation


@final
class AveragePool(Value):
    """Means of kernel-sized windows."""

    kind: Literal["average_pool"] = "average_pool"
    kernel: Extent
    stride: Extent


@final
class MaxPool(Value):
    """The largest number of each window; of complex ones that of largest magnitude.

    Attributes:
      padding: places on each side that are never the largest; at most half the kernel.
    """

    kind: Literal["max_pool"] = "max_pool"
    kernel: Extent
    stride: Extent
    padding: Padding = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if 2 * self.padding > self.kernel:
            raise InvalidParameter("padding", f"at most half the kernel, {self.kernel}", self.padding)
        return self


@final
class AdaptiveAveragePool(Value):
    """Means over size windows along every spatial axis."""

    kind: Literal["adaptive_average_pool"] = "adaptive_average_pool"
    size: Extent


@final
class AdaptiveMaxPool(Value):
    """The largest number, by magnitude where complex, of size windows along every spatial axis."""

    kind: Literal["adaptive_max_pool"] = "adaptive_max_pool"
    size: Extent


@final
class GroupNorm(Value):
    """Each record's channels are normalised in groups (complex: whitened); affine per channel."""

    kind: Literal["group_norm"] = "group_norm"
    groups: Width


@final
class LayerNorm(Value):
    """Group norm with one group."""

    kind: Literal["layer_norm"] = "layer_norm"


@final
class InstanceNorm(Value):
    """Group norm with a group for every channel."""

    kind: Literal["instance_norm"] = "instance_norm"


@final
class ChannelAffine(Value):
    """weight x + bias with one weight and one bias for each channel, or feature: what a batch norm with fixed statistics computes."""

    kind: Literal["channel_affine"] = "channel_affine"


@final
class Dropout(Value):
    """Sets each number to zero with this probability while training, real and imaginary part together."""

    kind: Literal["dropout"] = "dropout"
    probability: DropProbability


@final
class Flatten(Value):
    """(channels, *spatial) to (channels x positions,)."""

    kind: Literal["flatten"] = "flatten"


@final
class Unflatten(Value):
    """A flat record of channels x height x width numbers as an image, rows first; the data themselves keep their shape."""

    kind: Literal["unflatten"] = "unflatten"
    channels: Width
    height: Width
    width: Width


@final
class Columns(Value):
    """An image as the sequence of its columns: (channels, height, width) to (channels x height, width); a spectrogram's are its times."""

    kind: Literal["columns"] = "columns"


@final
class FilterBank(Value):
    """|x * psi| for fixed Gabor filters psi, and x, averaged over squares: nothing is learned, so it comes before all weights.

    Attributes:
      wavelengths: in pixels; each with ``orientations`` filters.
      orientations: angles, equally spaced in half a turn.
      size: pixels along a filter's side; odd.
      pool: pixels along the side of a square that is averaged over.
    """

    kind: Literal["filter_bank"] = "filter_bank"
    wavelengths: Annotated[tuple[Wavelength, ...], Field(min_length=1, max_length=16)]
    orientations: Annotated[int, Strict(), Field(ge=1, le=64)]
    size: Annotated[int, Strict(), Field(ge=1, le=127)]
    pool: Extent

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.size % 2 == 0:
            raise InvalidParameter("size", "odd (a filter has a centre pixel)", self.size)
        return self


@final
class Scattering(Value):
    r"""The scattering transform of real images (channels, height, width): fixed wavelets, so it comes before all weights.

    Each channel becomes 1 + L J + L^2 J (J - 1) / 2 channels of height // 2^J times width // 2^J numbers for J scales, L orientations
    and depth 2. It is a public function of one record. Normalising by means and variances of the whole training set, as some others
    do after such features, is not offered: those are a release with a privacy cost of its own (errata P24).

    Attributes:
      scales: J; height and width are greater than 2^J.
      orientations: L, equally spaced in half a turn; the wavelets are made for 8.
      depth: 1 or 2, the most wavelets applied one after the other.
      normalisation_groups: the output channels are shifted and scaled, in this many groups of neighbours, to mean 0 and variance 1, by
        one record's own numbers; None for not at all.
    Sources: Bruna and Mallat 2013; Tramer and Boneh 2021, with J = 2, L = 8 and 27 groups.
    """

    kind: Literal["scattering"] = "scattering"
    scales: Annotated[int, Strict(), Field(ge=1, le=6)]
    orientations: Annotated[int, Strict(), Field(ge=1, le=16)] = 8
    depth: Literal[1, 2] = 2
    normalisation_groups: Width | None


@final
class Fourier(Value):
    """The unitary Fourier transform over a record's spatial axes (a flat record's features): fixed, public, no parameters."""

    kind: Literal["fourier"] = "fourier"


ByNumbers = (
    Linear
    | Convolution
    | TransposedConvolution
    | Activation
    | AveragePool
    | MaxPool
    | AdaptiveAveragePool
    | AdaptiveMaxPool
    | GroupNorm
    | LayerNorm
    | InstanceNorm
    | Dropout
)
"""Layers whose modules in complex networks aren't those in real ones."""

Base = Linear | Convolution | BlockCirculantLinear


@final
class Adapted(Value):
    r"""x -> base(x) + adapter(x): a given layer that is kept as it is, and a small one beside it that is trained.

    Two linear layers of few units between make LoRA; a block-circulant layer makes fine-tuning in spectral form. The adapter's last layer
    with weights starts at 0, so training starts from the given network.

    Attributes:
      base: with weights from the model's given weights, under the name that it would have by itself.
      adapter: its output has the base's shape; at most 4 layers.
    Source: Hu et al. 2021, arXiv:2106.09685.
    """

    kind: Literal["adapted"] = "adapted"
    base: Annotated[Base, Field(discriminator="kind")]
    adapter: Annotated[tuple[Annotated[Base | Activation, Field(discriminator="kind")], ...], Field(min_length=1, max_length=4)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if isinstance(self.adapter[-1], Activation):
            raise InvalidParameter("adapter", "layers of which the last one has weights", self.adapter[-1].kind)
        return self


Plain = BlockCirculantLinear | ChannelAffine | PositionEmbedding | PositionNorm | ByNumbers

PlainLayer = Annotated[Plain | SelfAttention | Recurrent | Adapted, Field(discriminator="kind")]
"""What a residual block is made of."""


@final
class Residual(Value):
    r"""x -> layers(x) + shortcut(x): a block of a residual network (He, Zhang, Ren and Sun 2016).

    Attributes:
      layers: at most 16.
      shortcut: what x passes to take the shape of the layers' output, for example a convolution with kernel 1 and a stride; none for x
        itself.
    """

    kind: Literal["residual"] = "residual"
    layers: Annotated[tuple[PlainLayer, ...], Field(min_length=1, max_length=16)]
    shortcut: Annotated[tuple[PlainLayer, ...], Field(max_length=4)] = ()


Block = Residual | SelfAttention | Recurrent | Adapted
"""Layers that are made of others."""
Fixed = Flatten | Unflatten | Columns | FilterBank | Scattering | Fourier
LayerSpec = Annotated[Plain | Block | Fixed | Embedding, Field(discriminator="kind")]
