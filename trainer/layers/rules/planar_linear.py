r"""The linear layer on planes: y = W a + b, where a and y are real parts before imaginary parts.

With one position in each unit the norm is |g| |a|, whichever way the numbers lie, and the clipped sum is one real matrix product M of the
planes: dW = g conj(a)^T has real part M_rr + M_ii and imaginary part M_ir - M_ri. With more positions the planes become complex numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from zetadp.trainer.layers.planes import from_planes
from zetadp.trainer.layers.rules.base import COMPLEX, LayerGradients, Use, adds_little, doubled, scaled_rows, squared_rows
from zetadp.trainer.layers.rules.linear import linear


def planar_linear(module: nn.Module, uses: Sequence[Use], units: int) -> LayerGradients:
    """The rule of ``PlanarLinear``."""
    if len(uses) == 1 and len(uses[0].input) == units:
        return PlanarOuterProducts(uses[0].input, uses[0].gradient, module.bias is not None)
    return linear(module, [Use(from_planes(use.input), from_planes(use.gradient)) for use in uses], units)


@final
class PlanarOuterProducts:
    """One position in each unit; ``a``: (units, 2 inputs), ``g``: (units, 2 outputs), planes."""

    def __init__(self, a: Tensor, g: Tensor, has_bias: bool) -> None:
        self._a, self._g, self._has_bias = a, g, has_bias

    def squared_norms(self) -> Tensor:
        # The bias's input is 1.
        return squared_rows(self._a, plus=1.0 if self._has_bias else 0.0).mul_(squared_rows(self._g))

    def weighted_sum(self, factors: Tensor, sample: int = 0) -> dict[str, Tensor]:
        weighted, a = scaled_rows(self._g, factors), self._a
        if not adds_little(len(a), sample, COMPLEX):
            weighted, a = doubled(weighted), doubled(a)
        (rr, ri), (ir, ii) = (half.unflatten(1, (2, -1)).unbind(1) for half in (weighted.t() @ a).unflatten(0, (2, -1)))
        total = {"weight": torch.complex(rr + ii, ir - ri)}
        return total | ({"bias": torch.complex(*weighted.sum(dim=0).unflatten(0, (2, -1)))} if self._has_bias else {})
