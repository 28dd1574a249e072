r"""A given layer that is kept as it is, and a trained one beside it."""

from __future__ import annotations

from typing import final

from torch import Tensor, nn


@final
class Adapted(nn.Module):
    """x -> base(x) + adapter(x)."""

    def __init__(self, base: nn.Module, adapter: nn.Module) -> None:
        super().__init__()
        self.base, self.adapter = base, adapter

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.adapter(x)

    def keep_base(self) -> None:
        """Makes constants of the base's parameters: they are in a model's file, and never trained, clipped or noised."""
        for part in self.base.modules():
            for name, parameter in list(part.named_parameters(recurse=False)):
                delattr(part, name)
                part.register_buffer(name, parameter.detach().clone())
