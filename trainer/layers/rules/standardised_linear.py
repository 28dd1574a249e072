r"""Linear layers whose weights are standardised: the rule of linear layers, behind the pull-back of ``rules.standardised``.

With inputs less their own mean, a, and output gradients times the scales, g, a unit's gradient is that of a linear layer, less
w'_k <w'_k, .> for each output k. So its squared norm is \|sum_p g_p conj(a_p)^T\|^2 - sum_k (2 - \|w'_k\|^2) t_k^2, where
t_k = sum_p Re(g_pk conj(w'_k a_p)). Both terms may be nearly equal, so they are computed in float64, with the slack of linear layers on
top; so is the sum, which is pulled back once. Proof: mechanisms/proofs/standardised_weights.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast, final

import torch
from torch import Tensor, nn

from zetadp.trainer.layers.flat_parameters import as_real
from zetadp.trainer.layers.planes import from_planes
from zetadp.trainer.layers.rules.base import (
    LayerGradients,
    Use,
    cancellation,
    converted_parts,
    doubled,
    gram_squared_norms,
    squared_rows,
    weighted_rows,
)
from zetadp.trainer.layers.rules.linear import OuterProductSums, as_positions
from zetadp.trainer.layers.standardised import centred_and_scale


def standardised_linear(module: nn.Module, uses: Sequence[Use], units: int) -> LayerGradients:
    """The rule of ``StandardisedLinear`` and ``StandardisedComplexLinear``, on planes too."""
    weight = cast("Tensor", module.weight)
    inputs, gradients = (_positions([getattr(use, of) for use in uses], units, weight) for of in ("input", "gradient"))
    return StandardisedProducts(weight, inputs, gradients, has_bias=module.bias is not None)


def _positions(values: Sequence[Tensor], units: int, weight: Tensor) -> Tensor:
    """(units, positions, features), complex where the weight is."""
    numbers = (from_planes(one) if weight.is_complex() and not one.is_complex() else one for one in values)
    return torch.cat([as_positions(one, units) for one in numbers], dim=1)


@final
class StandardisedProducts:
    """Gradients of the trained weight and the bias; ``a``: (units, positions, inputs), ``g``: (units, positions, outputs)."""

    def __init__(self, weight: Tensor, a: Tensor, g: Tensor, *, has_bias: bool) -> None:
        centred, scale = centred_and_scale(doubled(weight))
        self._applied = centred * scale
        self._a = a - a.mean(dim=2, keepdim=True)
        self._g = g * scale.flatten().to(as_real(g).dtype)
        self._bias = g.sum(dim=1) if has_bias else None

    def squared_norms(self) -> Tensor:
        units, positions, inputs = self._a.shape
        outputs = self._g.shape[2]
        norms_of = self._gram_norms if positions * (inputs + outputs) < inputs * outputs else self._explicit_norms
        held = positions * (inputs + outputs) + (0 if norms_of == self._gram_norms else inputs * outputs)
        parts = converted_parts(units, held, self._a.device)
        norms = torch.cat([norms_of(doubled(self._a[part]), doubled(self._g[part])) for part in parts])
        norms = norms.to(as_real(self._g).dtype)
        return norms if self._bias is None else norms + squared_rows(self._bias)

    def weighted_sum(self, factors: Tensor, sample: int = 0) -> dict[str, Tensor]:
        # In float64: what is taken away may be much longer than what is left, and is rounded with it.
        total = {"weight": torch.empty_like(self._applied)}
        OuterProductSums(self._a, self._g, has_bias=False).write_weighted_sum(factors, total, sample)
        pulled = {"weight": self._pulled_back(total["weight"])}
        return pulled if self._bias is None else pulled | {"bias": weighted_rows(self._bias, factors, sample)}

    def _gram_norms(self, a: Tensor, g: Tensor) -> Tensor:
        along = _inner(g, a @ self._applied.mT, 1)
        kept = 2.0 - squared_rows(self._applied)
        return gram_squared_norms(a, g) - along.square() @ kept

    def _explicit_norms(self, a: Tensor, g: Tensor) -> Tensor:
        return squared_rows(self._pulled_back(g.mT @ a.conj())) + cancellation(squared_rows(a), squared_rows(g))

    def _pulled_back(self, gradients: Tensor) -> Tensor:
        """g - w' <w', g> for each output, (..., outputs, inputs); the inputs have no mean, and so g has none."""
        return gradients - self._applied * _inner(self._applied, gradients, -1)[..., None]


def _inner(one: Tensor, other: Tensor, axis: int) -> Tensor:
    """Sums of products over an axis, of real pairs."""
    return (one.real * other.real + one.imag * other.imag).sum(dim=axis) if one.is_complex() else (one * other).sum(dim=axis)
