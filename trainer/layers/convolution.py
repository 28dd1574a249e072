r"""Complex convolutions on planes: one real convolution of twice the channels with the block weight [[Wr, -Wi], [Wi, Wr]].

Inputs and outputs are real (N, 2C, *space), the C real parts first, then the C imaginary parts; parameters stay complex64. Against
PyTorch's own complex convolution this needs no splitting and no interleaving of activations.
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias, final

import torch
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.layers.initialisation import glorot

Sizes: TypeAlias = "int | tuple[int, ...]"
Padding: TypeAlias = "int | tuple[int, ...] | Literal['same', 'valid']"


def block_weight(weight: Tensor, groups: int) -> Tensor:
    r"""The real weight (2 out, 2 in / groups, *kernel) of a complex one; within every group real parts come first."""
    real, imaginary = weight.real, weight.imag
    outputs, inputs, *kernel = weight.shape
    block = torch.stack((torch.stack((real, -imaginary), dim=1), torch.stack((imaginary, real), dim=1)))
    # (2, out, 2, in / groups, *kernel), where the outputs are (groups, out / groups).
    grouped = block.reshape(2, groups, outputs // groups, 2 * inputs, *kernel).transpose(0, 1)
    return grouped.reshape(2 * outputs, 2 * inputs, *kernel)


def transposed_block_weight(weight: Tensor, groups: int) -> Tensor:
    """The real weight (2 in, 2 out / groups, *kernel) of a complex transposed convolution: the conjugate's, seen from its outputs."""
    return block_weight(weight.conj(), groups)


def group_planes(planes: Tensor, groups: int) -> Tensor:
    """(N, 2C, *space) from all real parts before all imaginary parts to that order within each group."""
    if groups == 1:
        return planes
    return planes.unflatten(1, (2, groups, -1)).transpose(1, 2).flatten(1, 3)


def ungroup_planes(planes: Tensor, groups: int) -> Tensor:
    """The inverse of ``group_planes``."""
    if groups == 1:
        return planes
    return planes.unflatten(1, (groups, 2, -1)).transpose(1, 2).flatten(1, 3)


def bias_planes(bias: Tensor | None) -> Tensor | None:
    """(2C,) of (C,): the real parts, then the imaginary parts."""
    return None if bias is None else torch.cat((bias.real, bias.imag))


def _sizes(name: str, value: Sizes, dimensions: int, least: int) -> tuple[int, ...]:
    sizes = (value,) * dimensions if isinstance(value, int) else tuple(value)
    if len(sizes) != dimensions or min(sizes) < least:
        raise InvalidParameter(name, f"an integer, or {dimensions} of them, at least {least}", value)
    return sizes


class PlanarConvolution(nn.Module):
    """The common part of all three: a complex64 weight and bias, and the geometry of the convolution."""

    def __init__(
        self, shape: tuple[int, ...], outputs: int, stream: RandomStream, *, stride: Sizes, dilation: Sizes, groups: int, bias: bool
    ) -> None:
        super().__init__()
        dimensions = len(shape) - 2
        self.stride = _sizes("stride", stride, dimensions, 1)
        self.dilation = _sizes("dilation", dilation, dimensions, 1)
        self.groups = groups
        self.weight = nn.Parameter(glorot(shape, 1, stream))
        self.bias = nn.Parameter(torch.zeros(outputs, dtype=torch.complex64)) if bias else None


def _check_groups(inputs: int, outputs: int, groups: int) -> None:
    if groups < 1 or inputs % groups or outputs % groups:
        raise InvalidParameter("groups", f"a divisor of {inputs} inputs and of {outputs} outputs", groups)


def _padding(padding: Padding, stride: Sizes, dimensions: int) -> tuple[int, ...] | str:
    if not isinstance(padding, str):
        return _sizes("padding", padding, dimensions, 0)
    if padding == "same" and stride not in {1, (1,) * dimensions}:
        raise InvalidParameter("stride", "1 where the padding is 'same'", stride)
    return padding


class ForwardConvolution(PlanarConvolution):
    r"""The common part for one and two axes: construction and zero padding. Subclasses choose the number of axes.

    Attributes:
      order: of an image's output in memory. Channels last is the faster one on a CPU where convolutions follow each other.
    """

    DIMENSIONS: ClassVar[int]
    order: torch.memory_format = torch.channels_last

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: Sizes,
        stream: RandomStream,
        *,
        stride: Sizes = 1,
        padding: Padding = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        _check_groups(inputs, outputs, groups)
        shape = (outputs, inputs // groups, *_sizes("kernel", kernel, self.DIMENSIONS, 1))
        super().__init__(shape, outputs, stream, stride=stride, dilation=dilation, groups=groups, bias=bias)
        self.padding = _padding(padding, stride, self.DIMENSIONS)


def convolved_1d(of: ForwardConvolution, planes: Tensor, filters: Tensor) -> Tensor:
    """What these complex filters give of planes (N, 2 inputs, length), with everything else as the module has it."""
    weight, bias = block_weight(filters, of.groups), bias_planes(of.bias)
    grouped = group_planes(planes, of.groups)
    output = nn.functional.conv1d(grouped, weight, None, of.stride, of.padding, of.dilation, of.groups)
    ungrouped = ungroup_planes(output, of.groups)
    return ungrouped if bias is None else ungrouped + bias[:, None]


def convolved_2d(of: ForwardConvolution, planes: Tensor, filters: Tensor) -> Tensor:
    """The same of planes (N, 2 inputs, height, width)."""
    # The output has the weight's order.
    weight = block_weight(filters, of.groups).contiguous(memory_format=of.order)
    grouped = group_planes(planes, of.groups)
    bias = bias_planes(of.bias)
    if of.groups == 1:
        return nn.functional.conv2d(grouped, weight, bias, of.stride, of.padding, of.dilation)
    output = nn.functional.conv2d(grouped, weight, None, of.stride, of.padding, of.dilation, of.groups)
    ungrouped = ungroup_planes(output, of.groups)
    return ungrouped if bias is None else ungrouped + bias[:, None, None]


@final
class PlanarConv1d(ForwardConvolution):
    """(N, 2 inputs, length) -> (N, 2 outputs, length'), float32 planes; zero padding."""

    DIMENSIONS: ClassVar[int] = 1

    def forward(self, planes: Tensor) -> Tensor:
        return convolved_1d(self, planes, self.weight)


@final
class PlanarConv2d(ForwardConvolution):
    """(N, 2 inputs, height, width) -> (N, 2 outputs, height', width'), float32 planes; zero padding."""

    DIMENSIONS: ClassVar[int] = 2

    def forward(self, planes: Tensor) -> Tensor:
        return convolved_2d(self, planes, self.weight)


@final
class PlanarConvTranspose2d(PlanarConvolution):
    """(N, 2 inputs, height, width) -> (N, 2 outputs, height', width'), float32 planes: the adjoint geometry of a convolution."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: Sizes,
        stream: RandomStream,
        *,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        _check_groups(inputs, outputs, groups)
        shape = (inputs, outputs // groups, *_sizes("kernel", kernel, 2, 1))
        super().__init__(shape, outputs, stream, stride=stride, dilation=dilation, groups=groups, bias=bias)
        self.padding = _sizes("padding", padding, 2, 0)
        self.output_padding = _sizes("output_padding", output_padding, 2, 0)

    def forward(self, planes: Tensor) -> Tensor:
        weight = transposed_block_weight(self.weight, self.groups).contiguous(memory_format=torch.channels_last)
        output = nn.functional.conv_transpose2d(
            group_planes(planes, self.groups), weight, None, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )
        ungrouped, bias = ungroup_planes(output, self.groups), bias_planes(self.bias)
        return ungrouped if bias is None else ungrouped + bias[:, None, None]
