r"""Linear layers, real and complex: y = W a + b over the last axis.

A record's gradient is the outer product g conj(a)^T, whose norm is |g| |a|: no gradient is built. With more positions than one in a unit
(a sequence, a user's records, a module called twice) it is a sum of outer products; its norm comes from Gram matrices over the positions,
or from the gradients themselves, whichever takes fewer multiplications. The clipped sum is one matrix product in every case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from trainer.engine.rules.base import LayerGradients, Use, gram_squared_norms, scaled_rows, squared_rows

EXPLICIT_NUMBERS = 2**22
"""Numbers of explicit gradients that are held at once."""


def linear(module: nn.Module, uses: Sequence[Use], units: int) -> LayerGradients:
    """The rule of ``nn.Linear`` and ``ComplexLinear``."""
    has_bias = getattr(module, "bias", None) is not None
    inputs = [as_positions(use.input, units) for use in uses]
    gradients = [as_positions(use.gradient, units) for use in uses]
    a = inputs[0] if len(inputs) == 1 else torch.cat(inputs, dim=1)
    g = gradients[0] if len(gradients) == 1 else torch.cat(gradients, dim=1)
    return OuterProducts(a, g, has_bias) if a.shape[1] == 1 else OuterProductSums(a, g, has_bias)


def as_positions(values: Tensor, units: int) -> Tensor:
    """(units * records, ..., features) -> (units, positions, features)."""
    return values.reshape(units, -1, values.shape[-1])


@final
class OuterProducts:
    """One position in each unit; ``a``: (units, 1, inputs), ``g``: (units, 1, outputs)."""

    def __init__(self, a: Tensor, g: Tensor, has_bias: bool) -> None:
        self._a, self._g, self._has_bias = a[:, 0], g[:, 0], has_bias

    def squared_norms(self) -> Tensor:
        of_inputs = squared_rows(self._a)
        # The bias has input 1.
        return squared_rows(self._g) * (of_inputs + 1.0 if self._has_bias else of_inputs)

    def weighted_sum(self, factors: Tensor) -> dict[str, Tensor]:
        return _summed(self._a, scaled_rows(self._g, factors), self._has_bias)


@final
class OuterProductSums:
    """Several positions in each unit; ``a``: (units, positions, inputs), ``g``: (units, positions, outputs)."""

    def __init__(self, a: Tensor, g: Tensor, has_bias: bool) -> None:
        self._a, self._g, self._has_bias = a, g, has_bias

    def squared_norms(self) -> Tensor:
        positions, inputs, outputs = self._a.shape[1], self._a.shape[2], self._g.shape[2]
        gram = positions * (inputs + outputs) < inputs * outputs
        weight = gram_squared_norms(self._a, self._g) if gram else self._explicit_squared_norms()
        return weight + squared_rows(self._g.sum(dim=1)) if self._has_bias else weight

    def weighted_sum(self, factors: Tensor) -> dict[str, Tensor]:
        return _summed(self._a.flatten(0, 1), scaled_rows(self._g, factors).flatten(0, 1), self._has_bias)

    def _explicit_squared_norms(self) -> Tensor:
        together = max(1, EXPLICIT_NUMBERS // (self._a.shape[2] * self._g.shape[2]))
        parts = zip(self._a.split(together), self._g.split(together), strict=True)
        return torch.cat([squared_rows(g.mT @ a.conj()) for a, g in parts])


def _summed(a: Tensor, weighted: Tensor, has_bias: bool) -> dict[str, Tensor]:
    """Sums over the rows of (rows, inputs) and (rows, outputs)."""
    # conj(W) = (conj(g))^T a takes BLAS's own flags; the conjugate that is left is lazy and falls into the copy to the flat vector.
    total = {"weight": torch.mm(weighted.mH, a).conj()}
    if has_bias:
        total["bias"] = weighted.sum(dim=0)
    return total
