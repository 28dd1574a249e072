r"""A linear layer of circulant blocks: 1/b of a dense layer's parameters, and products by fast Fourier transforms."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn

from mechanisms.errors import InvalidParameter
from mechanisms.source import RandomStream


def blocks_of(vector: Tensor, block: int) -> Tensor:
    """(..., length) -> (..., ceil(length / block), block), filled up with zeros."""
    missing = -vector.shape[-1] % block
    padded = nn.functional.pad(vector, (0, missing)) if missing else vector
    return padded.unflatten(-1, (-1, block))


@final
class BlockCirculantLinear(nn.Module):
    r"""x -> W x + bias over the last axis, W of b x b circulant blocks: y_i = sum_j w_ij * x_j, circular convolutions of length b.

    ``weight[i, j]`` (length b) is the first column of block (i, j). Inputs and outputs that are no multiples of b are filled up with
    zeros and cropped, so W is then the upper left corner of a block-circulant matrix. The Fourier transform here is torch's plain
    one, with 1/b in its inverse, for which a product of spectra is the spectrum of the circular convolution.

    Attributes:
      weight: (ceil(outputs / b), ceil(inputs / b), b), complex64 or float32; E|w|^2 = 2 / (inputs + outputs), as in a dense layer.
      bias: (outputs,), or None.
    Source: Ding et al. 2017 (CirCNN); per-sample gradients of such layers: Feng, Xu, Xiang and Qin 2023 (Spectral-DP).
    """

    def __init__(self, inputs: int, outputs: int, block: int, stream: RandomStream, *, is_complex: bool, bias: bool = True) -> None:
        super().__init__()
        if min(inputs, outputs, block) < 1:
            raise InvalidParameter("inputs, outputs and block", "integers >= 1", (inputs, outputs, block))
        self.inputs, self.outputs, self.block = inputs, outputs, block
        shape = (-(-outputs // block), -(-inputs // block), block)
        std = 1.0 / math.sqrt(inputs + outputs)
        if is_complex:
            pairs = std * stream.normal(2 * math.prod(shape)).reshape(*shape, 2)
            weight = torch.view_as_complex(torch.from_numpy(pairs).to(torch.float32).contiguous())
        else:
            weight = torch.from_numpy(math.sqrt(2.0) * std * stream.normal(math.prod(shape)).reshape(shape)).to(torch.float32)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(outputs, dtype=weight.dtype)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.is_complex():
            product = torch.fft.ifft(_multiply(torch.fft.fft(blocks_of(x, self.block)), torch.fft.fft(self.weight)))
        else:
            product = torch.fft.irfft(_multiply(torch.fft.rfft(blocks_of(x, self.block)), torch.fft.rfft(self.weight)), n=self.block)
        output = product.flatten(-2)[..., : self.outputs]
        return output if self.bias is None else output + self.bias


def _multiply(x: Tensor, weight: Tensor) -> Tensor:
    """At every frequency the product of the matrix (out, in) with the vectors: (..., in, f) and (out, in, f) -> (..., out, f)."""
    rows = x.reshape(-1, *x.shape[-2:]).permute(2, 0, 1)
    product = torch.bmm(rows, weight.permute(2, 1, 0))
    return product.permute(1, 2, 0).reshape(*x.shape[:-2], weight.shape[0], -1)
