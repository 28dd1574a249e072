r"""The number of largest magnitude in every window of parts. Its place comes from both halves, and both are read there.

It isn't the linear map that the paper's App. A calls it: which number is picked depends on the feature, but not on its angle (errata O14).
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from zetadp.trainer.algorithms.obfuscation.layers.parts import halves


@final
class MaxPool(nn.Module):
    """Windows of parts (2N, C, height, width); the first of equals, and never one of the padding."""

    def __init__(self, kernel: int, stride: int, padding: int = 0) -> None:
        super().__init__()
        self._kernel, self._stride = (kernel, kernel), (stride, stride)
        self._padding = (padding, padding)

    def forward(self, parts: Tensor) -> Tensor:
        re, im = halves(parts.detach())
        # Which number is the largest has no derivative; the number has.
        places = functional.max_pool2d_with_indices((re * re).addcmul_(im, im), self._kernel, self._stride, self._padding)[1]
        picked = parts.flatten(2).gather(2, torch.cat((places, places)).flatten(2))
        return picked.unflatten(2, places.shape[2:])
