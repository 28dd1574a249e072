r"""The complex linear layer on planes: it follows convolutions without first turning their output into complex tensors."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.layers.convolution import block_weight
from zetadp.trainer.layers.initialisation import glorot


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
