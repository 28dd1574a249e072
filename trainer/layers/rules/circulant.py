r"""Block-circulant linear layers: at every frequency a small linear layer, so all rules of linear layers hold frequency by frequency.

With spectra a_j of the input's blocks and g_i of the output gradient's, the gradient of block (i, j) has the spectrum gain sum_p g_i
conj(a_j) over a unit's positions p (``BlockSpectra``): of rank one at every frequency where there is one position. A block's squared norm
is the sum over frequencies. The clipped sum is one real matrix product at each row of the transforms, as in a backward pass, and one
transform of the whole sum. What a layer crops or fills up with zeros is filled up with zeros here, before any transform. Source: Feng,
Xu, Xiang and Qin 2023 (Spectral-DP), whose per-frequency gradients these are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import cast, final

import torch
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.layers.block_spectra import BlockSpectra, column_sums
from zetadp.trainer.layers.circulant import BlockCirculantLinear, blocks_of
from zetadp.trainer.layers.rules.base import (
    COMBINED,
    EXPLICIT_SLACK,
    LayerGradients,
    Use,
    WritableGradients,
    added,
    adds_little,
    at_once_on,
    cancellation,
    converted_parts,
    doubled,
    gram_squared_norms,
    squared_rows,
    weighted_rows,
)
from zetadp.trainer.layers.rules.linear import EXPLICIT_NUMBERS, as_positions


def block_circulant(module: nn.Module, uses: Sequence[Use], units: int) -> LayerGradients:
    """The rule of ``BlockCirculantLinear``."""
    layer = cast("BlockCirculantLinear", module)
    gradients = _joined([as_positions(use.gradient, units) for use in uses])
    inputs = _joined([as_positions(use.input, units) for use in uses]).to(gradients.dtype)  # complex weights take real numbers too
    spectra = BlockSpectra.whole(layer.block, is_complex=layer.weight.is_complex())
    return BlockCirculantGradients(inputs, gradients, spectra, has_bias=layer.bias is not None)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=1)


@final
class BlockCirculantGradients(WritableGradients):
    r"""Per-unit gradients of a layer's weight, or of the frequencies in ``spectra`` alone, and of its bias.

    Attributes of the construction: ``inputs``, (units, positions, inputs), and ``gradients``, (units, positions, outputs).
    """

    def __init__(self, inputs: Tensor, gradients: Tensor, spectra: BlockSpectra, *, has_bias: bool) -> None:
        self._inputs, self._gradients, self._spectra, self._has_bias = inputs, gradients, spectra, has_bias

    def low_passed(self, kept: int) -> BlockCirculantGradients:
        r"""The gradients after the orthogonal projection of each block of the weight, a real vector, onto its lowest frequencies.

        Norms and sums are of what is left, in the weight's own domain, and no other frequency is computed. The bias is unchanged.

        Args:
          kept: K, the first frequencies of ``rfft``; in [1, block // 2 + 1], where the last keeps all. Of each block's real dimensions
            min(2 K - 1, block) are left, as of ``LowPass((block,), (K,))``.
        Raises:
          InvalidParameter: complex weights, whose frequencies come in no conjugate pairs, or a number out of its range.
        """
        if self._spectra.is_complex:
            raise InvalidParameter("low_passed", "a layer with real weights: complex ones have no conjugate pairs", "complex weights")
        block, most = self._spectra.block, self._spectra.kept
        if not 1 <= kept <= most:
            raise InvalidParameter("kept", f"at least 1 and at most {most} frequencies of a block of {block}", kept)
        spectra = BlockSpectra(block, kept, is_complex=False)
        return BlockCirculantGradients(self._inputs, self._gradients, spectra, has_bias=self._has_bias)

    def squared_norms(self) -> Tensor:
        positions, own = self._inputs.shape[1], self._spectra.singles + 2 * self._spectra.pairs
        a, g = (squared_rows(rows[:own].flatten(0, 1)).view(own, -1) for rows in (self._factors, self._slopes))
        weight = self._spectra.products_norms(a, g) if positions == 1 else self._sums_norms()
        of_a, of_g = column_sums(a), column_sums(g)
        if self._spectra.is_whole:
            of_inputs, of_gradients = of_a, of_g / self._spectra.numbers
        else:
            of_inputs, of_gradients = squared_rows(self._inputs), squared_rows(self._gradients)
        # A transform leaves rounding errors of its whole block's size at every frequency, also where next to nothing is.
        norms = weight + cancellation(of_inputs, of_g) + self._spectra.block * cancellation(of_a, of_gradients)
        if not self._has_bias:
            return norms
        if positions == 1:
            return norms + of_gradients
        return norms + squared_rows(self._bias_gradients) + EXPLICIT_SLACK * positions * of_gradients

    def weighted_sum(self, factors: Tensor, sample: int = 0) -> dict[str, Tensor]:
        block = self._spectra.block
        blocks = (-(-values.shape[2] // block) for values in (self._gradients, self._inputs))
        total = {"weight": self._inputs.new_empty(*blocks, block)}
        if self._has_bias:
            total["bias"] = self._gradients.new_empty(self._gradients.shape[2])
        self.write_weighted_sum(factors, total, sample)
        return total

    def write_weighted_sum(self, factors: Tensor, into: Mapping[str, Tensor], sample: int = 0) -> None:
        a, g, weights = self._factors, self._slopes, factors[:, None, None]
        # Whichever is smaller.
        a, g = (a * weights, g) if a.shape[3] <= g.shape[3] else (a, g * weights)
        weight = into["weight"]
        if a.shape[2] == 1 and adds_little(len(factors), sample, COMBINED) and weight.dtype == self._inputs.dtype:
            self._spectra.write_correlations(torch.bmm(g.flatten(1, 2).mT, a.flatten(1, 2)), weight)
        else:
            parts = converted_parts(len(factors), a.shape[0] * a.shape[2] * (a.shape[3] + g.shape[3]), a.device)
            total = added(parts, lambda part: torch.bmm(g[:, part].double().flatten(1, 2).mT, a[:, part].double().flatten(1, 2)))
            exact = torch.empty_like(weight, dtype=doubled(weight[:0]).dtype)
            self._spectra.write_correlations(total, exact)
            weight.copy_(exact)
        if self._has_bias:
            into["bias"].copy_(weighted_rows(self._bias_gradients, factors, sample))

    @cached_property
    def _factors(self) -> Tensor:
        """(rows, units, positions, blocks of the input)."""
        return self._spectra.factors(blocks_of(self._inputs, self._spectra.block))

    @cached_property
    def _slopes(self) -> Tensor:
        """(rows, units, positions, blocks of the output)."""
        return self._spectra.slopes(blocks_of(self._gradients, self._spectra.block))

    @cached_property
    def _bias_gradients(self) -> Tensor:
        return self._gradients[:, 0] if self._gradients.shape[1] == 1 else self._gradients.sum(dim=1)

    def _sums_norms(self) -> Tensor:
        """Squared norms of the weight's gradient, of units of several positions."""
        sizes = [self._spectra.singles, *[self._spectra.pairs] * 3]
        a, a_real, a_imaginary, _ = self._factors.split(sizes)
        g, difference, minus_sum, g_imaginary = self._slopes.split(sizes)
        of_singles = _squared_sums(a, g)
        g_real = 0.5 * (difference - minus_sum)
        return of_singles + _squared_sums(torch.complex(a_real, a_imaginary), torch.complex(g_real, g_imaginary))


def _squared_sums(inputs: Tensor, gradients: Tensor) -> Tensor:
    """||sum_p g_p conj(a_p)||^2 over all frequencies, (units,), of (frequencies, units, positions, blocks)."""
    frequencies, units, positions, of_a = inputs.shape
    of_g = gradients.shape[3]
    if not frequencies:
        return torch.zeros(units, device=inputs.device)
    a, g = inputs.flatten(0, 1), gradients.flatten(0, 1)
    if positions * (of_a + of_g) < of_a * of_g:
        norms = gram_squared_norms(a, g)
    else:
        together = max(1, at_once_on(inputs.device, EXPLICIT_NUMBERS) // (of_a * of_g))
        norms = torch.cat([squared_rows(g.mT @ a.conj()) for a, g in zip(a.split(together), g.split(together), strict=True)])
    return column_sums(norms.view(frequencies, units))
