r"""From the gradient of the weights that a standardised layer applies to that of the weights that are trained.

Each output's n weights w are applied as w' = s (w - m), s = (n (v + FLOOR))^(-1/2) for their mean m and variance v
(``layers.standardised``). As real pairs the derivative of w' is s (1 - w' w'^T) (1 - P), where P takes the mean: both factors are symmetric
and commute, so a gradient g of w' gives

    s (g - mean(g) - w' <w', g>)

of w, <., .> of real pairs. s is multiplied into the gradient of the layer's output, before anything else. What is left never makes a
gradient longer, since \|w'\| < 1, and is linear, so the pulled back sum is the sum of what is pulled back.
Proof: mechanisms/proofs/standardised_weights.md.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from zetadp.trainer.layers.rules.base import doubled, in_order
from zetadp.trainer.layers.rules.patches import Geometry
from zetadp.trainer.layers.standardised import centred_and_scale


@final
class StandardisedFilters:
    r"""The pull-back of a convolution's filters, a ``PullBack``.

    Args:
      weight: what is trained, (groups * outputs, channels, *kernel), real or complex.
    """

    def __init__(self, weight: Tensor, geometry: Geometry) -> None:
        centred, scale = centred_and_scale(doubled(weight))
        applied = centred * scale
        parts = torch.stack((applied.real, applied.imag)) if applied.is_complex() else applied[None]
        # (parts, groups, outputs, channels, kernel_height, kernel_width)
        split = parts.reshape(geometry.parts, geometry.groups, -1, weight.shape[1], *geometry.kernel)
        by_row = split.permute(4, 0, 1, 5, 3, 2).unsqueeze(1)
        at_once = by_row.movedim(0, 3).flatten(3, 4)[None]
        kind = weight.real.dtype if weight.is_complex() else weight.dtype
        self._scale = scale.flatten().to(kind).repeat(geometry.parts)[:, None, None]
        self._applied = {(len(one), dtype): one.to(dtype).contiguous() for one in (by_row, at_once) for dtype in {kind, torch.float64}}

    def scaled(self, gradients: Tensor) -> Tensor:
        """The gradients (N, parts * groups * outputs, height, width), times s."""
        return gradients * self._scale

    def __call__(self, gradients: Tensor) -> Tensor:
        """What is left of gradients of the applied filters that are times s already; they are overwritten."""
        applied = self._applied[len(gradients), gradients.dtype]
        numbers = gradients.shape[0] * gradients.shape[4] * gradients.shape[5]
        gradients -= _sums(gradients) / numbers
        along = _sums(gradients * applied).sum(dim=2, keepdim=True)
        return gradients.addcmul_(applied, along, value=-1.0)


def _sums(values: Tensor) -> Tensor:
    """Over rows, columns and channels, as a product with ones: torch's own sum over axes but the last takes several times longer."""
    rows, *outer, columns, channels, outputs = values.shape
    flat = values.reshape(rows, -1, columns * channels, outputs)
    return in_order(torch.matmul(flat.new_ones(1, columns * channels), flat).unbind()).view(1, *outer, 1, 1, outputs)
