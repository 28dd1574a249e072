r"""A block of a residual network."""

from __future__ import annotations

from typing import final

from torch import Tensor, nn


@final
class ResidualBlock(nn.Module):
    """x -> layers(x) + shortcut(x), both of one shape; an empty shortcut is x itself."""

    def __init__(self, layers: nn.Sequential, shortcut: nn.Sequential) -> None:
        super().__init__()
        self.layers, self.shortcut = layers, shortcut

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x) + self.shortcut(x)
