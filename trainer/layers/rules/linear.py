r"""Linear layers, real and complex: y = W a + b over the last axis.

A record's gradient is the outer product g conj(a)^T, whose norm is |g| |a|: no gradient is built. With more than one position in a unit
(a sequence, a user's records, a module called twice) it is a sum of outer products; its norm comes from Gram matrices over the positions,
or from the gradients themselves, whichever takes fewer multiplications. The clipped sum is one matrix product in every case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import final

import torch
from torch import Tensor, nn

from zetadp.trainer.layers.flat_parameters import as_real
from zetadp.trainer.layers.products import doubles_are_fast
from zetadp.trainer.layers.rules import outer
from zetadp.trainer.layers.rules.base import (
    COMPLEX,
    REAL,
    LayerGradients,
    Use,
    WritableGradients,
    added,
    added_at_once,
    at_once_on,
    cancellation,
    converted_parts,
    doubled,
    exact_sum,
    gram_squared_norms,
    scaled_rows,
    squared_rows,
)

EXPLICIT_NUMBERS = 2**22
"""How many numbers of explicit gradients are held at once."""


def linear(module: nn.Module, uses: Sequence[Use], units: int) -> LayerGradients:
    """The rule of ``nn.Linear`` and ``ComplexLinear``."""
    has_bias = getattr(module, "bias", None) is not None
    if len(uses) == 1 and uses[0].input.dim() == 2 and uses[0].input.shape[0] == units:
        return OuterProducts(uses[0].input, uses[0].gradient, has_bias, uses[0].squared_input)
    a = torch.cat([as_positions(use.input, units) for use in uses], dim=1)
    g = torch.cat([as_positions(use.gradient, units) for use in uses], dim=1)
    return OuterProductSums(a, g, has_bias)


def as_positions(values: Tensor, units: int) -> Tensor:
    """(units * records, ..., features) -> (units, positions, features)."""
    return values.reshape(units, -1, values.shape[-1])


class _WeightedSum(WritableGradients):
    """The common part of both: computes the sums from the weighted gradients of every position."""

    def __init__(self, a: Tensor, g: Tensor, has_bias: bool) -> None:
        self._a, self._g, self._has_bias = a, g, has_bias

    def weighted_sum(self, factors: Tensor, sample: int = 0) -> dict[str, Tensor]:
        total = {"weight": self._a.new_empty(self._g.shape[-1], self._a.shape[-1])}
        if self._has_bias:
            total["bias"] = self._g.new_empty(self._g.shape[-1])
        self.write_weighted_sum(factors, total, sample)
        return total

    def write_weighted_sum(self, factors: Tensor, into: Mapping[str, Tensor], sample: int = 0) -> None:
        a, g, weight, units = self._a, self._g, into["weight"], self._a.shape[0]
        at_once = added_at_once(units, sample, COMPLEX if a.is_complex() else REAL) if a.dim() == 2 else 0
        bias = into["bias"] if self._has_bias else None
        if at_once and outer.is_taken(g, a):
            of_slopes: list[Tensor] = []
            _write(weight, a.dtype, lambda total: of_slopes.append(outer.write_weighted_sum(g, factors, a, total, at_once)))
            if bias is not None:
                bias.copy_(of_slopes[0])
            return
        if at_once == units:
            weighted = scaled_rows(g, factors)
            _write(weight, a.dtype, lambda total: _write_product(weighted, a, total))
            if bias is not None and bias.dtype == weighted.dtype:
                torch.sum(weighted, dim=0, out=bias)
                return
        elif at_once and not doubles_are_fast(a.device):
            _write(weight, a.dtype, lambda total: _write_products(g, factors, a, total, at_once))
        else:
            numbers = (a.shape[-1] + g.shape[-1]) * (1 if a.dim() == 2 else a.shape[1])
            _write_exact(g, factors, a, weight, converted_parts(units, numbers, a.device))
        if bias is not None:
            bias.copy_(exact_sum(scaled_rows(g, factors).flatten(0, -2)))


def _write(into: Tensor, dtype: torch.dtype, write: Callable[[Tensor], None]) -> None:
    """Lets ``write`` overwrite the tensor, or where it has another type one of this type, which is then copied."""
    if into.dtype == dtype:
        write(into)
        return
    total = torch.empty_like(into, dtype=dtype)
    write(total)
    into.copy_(total)


def _write_exact(g: Tensor, factors: Tensor, a: Tensor, into: Tensor, parts: Sequence[slice]) -> None:
    """The sum in float64, of products of these parts of the units."""
    if len(parts) == 1 and into.dtype == doubled(into[:0]).dtype:
        # A sum of its own would be written and read once more, twice as wide.
        _write_product(doubled(scaled_rows(g, factors)).flatten(0, -2), doubled(a).flatten(0, -2), into)
        return
    # BLAS conjugates while it transposes; this leaves conj(W), which is smaller than a.
    total = added(parts, lambda part: doubled(scaled_rows(g[part], factors[part])).flatten(0, -2).mH @ doubled(a[part]).flatten(0, -2))
    into.copy_(total.conj())


def _write_products(g: Tensor, factors: Tensor, a: Tensor, into: Tensor, at_once: int) -> None:
    """The sum of products of ``at_once`` units each, which are weighted where they are multiplied: not all of them are held at once."""
    parts = [slice(first, first + at_once) for first in range(0, len(a), at_once)]
    part = torch.empty_like(into)
    # As real numbers: adding complex ones multiplies them by 1 first.
    sums, added_to = as_real(part), as_real(into)
    for own in parts:
        torch.mm(scaled_rows(g[own], factors[own]).mH, a[own], out=part if own.start else into)
        if own.start:
            added_to += sums
    if into.is_complex():
        into.conj_physical_()


def _write_product(weighted: Tensor, a: Tensor, into: Tensor) -> None:
    """g^T conj(a)."""
    if a.shape[0] <= into.shape[0] or not a.is_complex():
        torch.mm(weighted.t(), a.conj(), out=into)  # copies the conjugate of a
    else:
        torch.mm(weighted.mH, a, out=into).conj_physical_()


@final
class OuterProducts(_WeightedSum):
    """One position in each unit; ``a``: (units, inputs), ``g``: (units, outputs), ``squares``: of a's rows where they are known."""

    def __init__(self, a: Tensor, g: Tensor, has_bias: bool, squares: Tensor | None) -> None:
        super().__init__(a, g, has_bias)
        self._squares = squares

    def squared_norms(self) -> Tensor:
        bias = 1.0 if self._has_bias else 0.0  # its input is 1
        of_inputs = squared_rows(self._a, plus=bias) if self._squares is None else self._squares + bias
        return of_inputs.mul_(squared_rows(self._g))


@final
class OuterProductSums(_WeightedSum):
    """Several positions in each unit; ``a``: (units, positions, inputs), ``g``: (units, positions, outputs)."""

    def squared_norms(self) -> Tensor:
        positions, inputs, outputs = self._a.shape[1], self._a.shape[2], self._g.shape[2]
        gram = positions * (inputs + outputs) < inputs * outputs
        weight = gram_squared_norms(self._a, self._g) if gram else self._explicit_squared_norms()
        norms = weight + squared_rows(self._g.sum(dim=1)) if self._has_bias else weight
        # The bias's input is 1 at every position.
        return norms + cancellation(squared_rows(self._a, plus=positions if self._has_bias else 0.0), squared_rows(self._g))

    def _explicit_squared_norms(self) -> Tensor:
        together = max(1, at_once_on(self._a.device, EXPLICIT_NUMBERS) // (self._a.shape[2] * self._g.shape[2]))
        parts = zip(self._a.split(together), self._g.split(together), strict=True)
        return torch.cat([squared_rows(g.mT @ a.conj()) for a, g in parts])
