r"""The complex linear layer, on complex tensors and on planes: there it follows convolutions without first turning their output."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.layers.convolution import block_weight
from zetadp.trainer.layers.initialisation import glorot


@final
class ComplexLinear(nn.Module):
    """z -> W z + b over the last axis: (..., inputs) -> (..., outputs), complex64."""

    def __init__(self, inputs: int, outputs: int, stream: RandomStream) -> None:
        super().__init__()
        self.weight = nn.Parameter(glorot((outputs, inputs), 1, stream))
        self.bias = nn.Parameter(torch.zeros(outputs, dtype=torch.complex64))

    def forward(self, z: Tensor) -> Tensor:
        # ``nn.functional.linear`` takes no hidden conjugate: this is the plain bilinear product.
        return nn.functional.linear(z, self.weight, self.bias)


@final
class PlanarLinear(nn.Module):
    """z -> W z + b on planes: (N, 2 inputs) -> (N, 2 outputs), float32, as one real product; W and b are complex64."""

    def __init__(self, inputs: int, outputs: int, stream: RandomStream, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(glorot((outputs, inputs), 1, stream))
        self.bias = nn.Parameter(torch.zeros(outputs, dtype=torch.complex64)) if bias else None

    def forward(self, planes: Tensor) -> Tensor:
        bias = None if self.bias is None else torch.cat((self.bias.real, self.bias.imag))
        return nn.functional.linear(planes, block_weight(self.weight, 1), bias)
