r"""A linear layer of circulant blocks: 1/b of a dense layer's parameters, and a product at each frequency instead of the dense one."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import final

import torch
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.layers.block_spectra import BlockSpectra

SMALL_MATRIX = 2**15
"""Entries of a matrix that is built from its blocks and multiplied as it is: the transforms' calls alone would take longer."""


def blocks_of(vector: Tensor, block: int) -> Tensor:
    """(..., length) -> (..., ceil(length / block), block), filled up with zeros."""
    missing = -vector.shape[-1] % block
    padded = nn.functional.pad(vector, (0, missing)) if missing else vector
    return padded.unflatten(-1, (-1, block))


@final
class BlockCirculantLinear(nn.Module):
    r"""x -> W x + bias over the last axis, W of b x b circulant blocks: y_i = sum_j w_ij * x_j, circular convolutions of length b.

    ``weight[i, j]`` (length b) is the first column of block (i, j). Inputs and outputs that aren't multiples of b are filled up with
    zeros and cropped, so W is then the upper left corner of a block-circulant matrix; a block may be longer than a side of W, or both.
    Three ways to the same product, by size: W itself where it is small, real products of the blocks' spectra (``BlockSpectra``), and
    fast Fourier transforms of long blocks.

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
        with torch.no_grad():
            # Makes the constants: in a transform of torch.func they would stay wrapped for good.
            self(weight.new_zeros(1, inputs))

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.inputs:
            raise InvalidParameter("x", f"a tensor with {self.inputs} features, the number the layer was made for", tuple(x.shape))
        with _full_precision(x.device.type):
            # From half precision, and real numbers for complex weights. A complex input of real weights is left for torch to refuse.
            values = x if x.is_complex() else x.to(self.weight.dtype)
            if self.inputs * self.outputs <= SMALL_MATRIX:
                return nn.functional.linear(values, self._matrix(), self.bias)
            blocks = blocks_of(values, self.block)
            product = _convolved(blocks.reshape(-1, *blocks.shape[-2:]), self.weight)
            output = product.reshape(*x.shape[:-1], -1)[..., : self.outputs]
            return output if self.bias is None else output + self.bias

    def _matrix(self) -> Tensor:
        """W, (outputs, inputs)."""
        places = _places(self.inputs, self.outputs, self.block, self.weight.device)
        return self.weight.reshape(-1).index_select(0, places).view(self.outputs, self.inputs)


def _convolved(x: Tensor, weight: Tensor) -> Tensor:
    """At every frequency the product of the matrix (out, in) with the vectors: (rows, in, b) and (out, in, b) -> (rows, out, b)."""
    spectra = BlockSpectra.whole(weight.shape[-1], is_complex=weight.is_complex())
    if spectra.by_matrix:
        return spectra.convolutions(torch.bmm(spectra.factors(x), spectra.factors(weight).mT))
    if weight.is_complex():
        return torch.fft.ifft(_multiply(torch.fft.fft(x), torch.fft.fft(weight)))
    return torch.fft.irfft(_multiply(torch.fft.rfft(x), torch.fft.rfft(weight)), n=spectra.block)


def _multiply(x: Tensor, weight: Tensor) -> Tensor:
    """(rows, in, f) and (out, in, f) -> (rows, out, f), complex."""
    return torch.bmm(x.permute(2, 0, 1), weight.permute(2, 1, 0)).permute(1, 2, 0)


@cache
def _places(inputs: int, outputs: int, block: int, device: torch.device) -> Tensor:
    """Where in the weight each entry of W stands: (outputs * inputs,)."""
    with torch.inference_mode(mode=False):
        row, column = torch.arange(outputs, device=device)[:, None], torch.arange(inputs, device=device)
        of_block = row // block * -(-inputs // block) + column // block
        return (of_block * block + (row - column) % block).flatten()


def _full_precision(device: str) -> AbstractContextManager[object]:
    """Rounded to half precision, spectra would leave errors as large as the block at every frequency."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()
