r"""Dropout of complex parts with one mask for both: dropping them apart would change the phase (errata O15)."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter


@final
class JointDropout(nn.Module):
    """While training, each complex number is 0 with this probability, else divided by 1 - probability; from torch's own generator."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        if not 0.0 <= probability < 1.0:
            raise InvalidParameter("probability", "a number in [0, 1)", probability)
        self._probability = probability

    def forward(self, parts: Tensor) -> Tensor:
        if not self.training or self._probability == 0.0:
            return parts
        both = parts.unflatten(0, (2, -1))
        keep = torch.empty_like(both[0]).bernoulli_(1.0 - self._probability).div_(1.0 - self._probability)
        return (both * keep).flatten(0, 1)
