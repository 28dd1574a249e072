r"""Convolutions and linear layers whose weights are standardised: each output's weights, less their mean, over their own norm.

The weight that is applied is w' = (w - m) / sqrt(n (v + FLOOR)), for n weights of an output with mean m and variance v: of
complex ones m is complex, and v the mean of \|w - m\|^2, so that turning w by a phase turns what is applied. Its squares add up
to 1, whatever the size of w. What is trained is w: a record's gradient is pulled back through the formula before it is clipped
(``rules.standardised``). The formula is of parameters alone, so it mixes no records.

Sources: Qiao, Wang, Liu, Shen and Yuille 2019, arXiv:1903.10520; De, Berrada, Hayes, Smith and Balle 2022, arXiv:2204.13650 (in
private training, with group norm).
"""

from __future__ import annotations

from typing import ClassVar, final

import torch
from torch import Tensor, nn

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.layers.convolution import ForwardConvolution, bias_planes, block_weight, convolved_1d, convolved_2d
from zetadp.trainer.layers.initialisation import glorot

FLOOR = 1e-8
"""Added to the variance of a filter's weights: where all are equal, the filter is 0 and not NaN."""


def standardised(weight: Tensor) -> Tensor:
    """(outputs, inputs, *kernel), real or complex: each output's weights with mean 0, and squares that add up to 1."""
    centred, scale = centred_and_scale(weight)
    return centred * scale


def centred_and_scale(weight: Tensor) -> tuple[Tensor, Tensor]:
    """The weights less their mean, and what each output's are multiplied by, real, (outputs, 1, ...)."""
    axes = tuple(range(1, weight.ndim))
    centred = weight - weight.mean(dim=axes, keepdim=True)
    squares = centred.real.square() + centred.imag.square() if centred.is_complex() else centred.square()
    numbers = weight[0].numel()
    return centred, torch.rsqrt(numbers * (squares.mean(dim=axes, keepdim=True) + FLOOR))


@final
class StandardisedConv1d(nn.Conv1d):
    """``nn.Conv1d`` with standardised filters."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name that torch's class gives it
        return self._conv_forward(input, standardised(self.weight), self.bias)


@final
class StandardisedConv2d(nn.Conv2d):
    """``nn.Conv2d`` with standardised filters."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name that torch's class gives it
        return self._conv_forward(input, standardised(self.weight), self.bias)


@final
class StandardisedPlanarConv1d(ForwardConvolution):
    """``PlanarConv1d`` with standardised complex filters."""

    DIMENSIONS: ClassVar[int] = 1

    def forward(self, planes: Tensor) -> Tensor:
        return convolved_1d(self, planes, standardised(self.weight))


@final
class StandardisedPlanarConv2d(ForwardConvolution):
    """``PlanarConv2d`` with standardised complex filters."""

    DIMENSIONS: ClassVar[int] = 2

    def forward(self, planes: Tensor) -> Tensor:
        return convolved_2d(self, planes, standardised(self.weight))


@final
class StandardisedLinear(nn.Linear):
    """``nn.Linear`` with standardised weights."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name that torch's class gives it
        return nn.functional.linear(input, standardised(self.weight), self.bias)


@final
class StandardisedComplexLinear(nn.Module):
    """z -> W z + b with standardised complex weights: of complex numbers over the last axis, or of planes (N, 2 inputs)."""

    def __init__(self, inputs: int, outputs: int, stream: RandomStream, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(glorot((outputs, inputs), 1, stream))
        self.bias = nn.Parameter(torch.zeros(outputs, dtype=torch.complex64)) if bias else None

    def forward(self, z: Tensor) -> Tensor:
        weight = standardised(self.weight)
        if z.is_complex():
            return nn.functional.linear(z, weight, self.bias)
        return nn.functional.linear(z, block_weight(weight, 1), bias_planes(self.bias))
