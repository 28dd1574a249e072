r"""The complex linear layer."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn

from mechanisms.source import RandomStream


def complex_glorot(outputs: int, inputs: int, stream: RandomStream) -> Tensor:
    r"""Weights (outputs, inputs), complex64, with E|w|^2 = 2 / (inputs + outputs): each real component has half of it.

    Drawn as real pairs. The stream is public: initial weights carry no data. Source: Trabelsi et al. 2018, section 3.6.
    """
    std = 1.0 / math.sqrt(inputs + outputs)
    pairs = std * stream.normal(2 * outputs * inputs).reshape(outputs, inputs, 2)
    return torch.view_as_complex(torch.from_numpy(pairs).to(torch.float32).contiguous())


@final
class ComplexLinear(nn.Module):
    """z -> W z + b over the last axis: (..., inputs) -> (..., outputs), complex64."""

    def __init__(self, inputs: int, outputs: int, stream: RandomStream) -> None:
        super().__init__()
        self.weight = nn.Parameter(complex_glorot(outputs, inputs, stream))
        self.bias = nn.Parameter(torch.zeros(outputs, dtype=torch.complex64))

    def forward(self, z: Tensor) -> Tensor:
        # ``nn.functional.linear`` takes no hidden conjugate: this is the plain bilinear product.
        return nn.functional.linear(z, self.weight, self.bias)
