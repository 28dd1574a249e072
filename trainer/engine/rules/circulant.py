r"""Block-circulant linear layers: at every frequency a small linear layer, so all rules of linear layers hold frequency by frequency.

With plain Fourier transforms A_j of the input's blocks and G_i of the output gradient's, the gradient of block (i, j) has the transform
sum_p G_i conj(A_j), of rank one at every frequency where a unit has one position p. By Parseval the block's squared norm is 1/b times
the sum over all b frequencies. Of real numbers only half the spectrum is computed: its frequencies count twice, except 0 and (b even)
b / 2. What a layer crops or fills up with zeros is filled up with zeros here, before any transform. Source: Feng, Xu, Xiang and Qin
2023 (Spectral-DP), whose per-frequency gradients these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast, final

import torch
from torch import Tensor, nn

from trainer.engine.rules.base import (
    HIDDEN_BY_UNDERFLOW,
    LayerGradients,
    Use,
    cancellation,
    gram_squared_norms,
    scaled_rows,
    squared_rows,
)
from trainer.engine.rules.linear import EXPLICIT_NUMBERS
from trainer.layers.circulant import BlockCirculantLinear, blocks_of


def block_circulant(module: nn.Module, uses: Sequence[Use], units: int) -> LayerGradients:
    """The rule of ``BlockCirculantLinear``."""
    layer = cast("BlockCirculantLinear", module)
    inputs = torch.cat([_positions(use.input, units) for use in uses], dim=1)
    gradients = torch.cat([_positions(use.gradient, units) for use in uses], dim=1)
    return BlockCirculantGradients(inputs, gradients, layer.block, has_bias=layer.bias is not None)


def _positions(values: Tensor, units: int) -> Tensor:
    """(units * records, ..., features) -> (units, positions, features)."""
    return values.reshape(units, -1, values.shape[-1])


@final
class BlockCirculantGradients:
    """``inputs``: (units, positions, inputs), ``gradients``: (units, positions, outputs); spectra have frequencies before these axes."""

    def __init__(self, inputs: Tensor, gradients: Tensor, block: int, *, has_bias: bool) -> None:
        self._block, self._is_complex = block, inputs.is_complex()
        self._inputs, self._gradients = self._spectra(inputs), self._spectra(gradients)
        self._bias = gradients.sum(dim=1) if has_bias else None

    def squared_norms(self) -> Tensor:
        per_frequency = self._norms_per_frequency()
        weights = self._weights(per_frequency)
        norms = (weights[:, None] * per_frequency).sum(dim=0) / self._block
        return norms if self._bias is None else norms + squared_rows(self._bias)

    def weighted_sum(self, factors: Tensor) -> dict[str, Tensor]:
        scaled = self._gradients * factors[:, None, None]
        # Per frequency (outputs, units * positions) times (units * positions, inputs).
        product = torch.bmm(scaled.flatten(1, 2).mT, self._inputs.flatten(1, 2).conj()).permute(1, 2, 0)
        weight = torch.fft.ifft(product) if self._is_complex else torch.fft.irfft(product, n=self._block)
        total = {"weight": weight}
        if self._bias is not None:
            total["bias"] = scaled_rows(self._bias, factors).sum(dim=0)
        return total

    def _spectra(self, values: Tensor) -> Tensor:
        """(units, positions, features) -> (frequencies, units, positions, blocks)."""
        blocks = blocks_of(values, self._block)
        spectra = torch.fft.fft(blocks) if self._is_complex else torch.fft.rfft(blocks)
        return spectra.permute(3, 0, 1, 2).contiguous()

    def _weights(self, like: Tensor) -> Tensor:
        frequencies = torch.arange(len(self._inputs), device=like.device)
        alone = (2 * frequencies) % self._block == 0
        return torch.where(alone | self._is_complex, 1.0, 2.0).to(like.dtype)

    def _norms_per_frequency(self) -> Tensor:
        """(frequencies, units), of the gradients' transforms."""
        frequencies, units, positions, inputs = self._inputs.shape
        outputs = self._gradients.shape[3]
        if positions == 1:
            return _squared_lengths(self._inputs[:, :, 0]) * _squared_lengths(self._gradients[:, :, 0])
        a, g = self._inputs.flatten(0, 1), self._gradients.flatten(0, 1)
        if positions * (inputs + outputs) < inputs * outputs:
            return gram_squared_norms(a, g).unflatten(0, (frequencies, units))
        together = max(1, EXPLICIT_NUMBERS // (inputs * outputs))
        parts = zip(a.split(together), g.split(together), strict=True)
        norms = torch.cat([squared_rows(of_g.mT @ of_a.conj()) for of_a, of_g in parts])
        return (norms + cancellation(squared_rows(a), squared_rows(g))).unflatten(0, (frequencies, units))


def _squared_lengths(values: Tensor) -> Tensor:
    """(frequencies, units, blocks), complex -> (frequencies, units)."""
    return torch.view_as_real(values).square().sum(dim=(2, 3)) + 2 * values.shape[2] * HIDDEN_BY_UNDERFLOW
