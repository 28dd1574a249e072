r"""The complex multilayer perceptron of the zeta-DP paper (A.6.5)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import final

from torch import Tensor, nn

from mechanisms.source import RandomStream
from trainer.layers import ComplexLinear, cardioid, crelu, magnitude, real_part
from trainer.models.spec import ComplexMlp

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"cardioid": cardioid, "crelu": crelu}
HEADS: dict[str, Callable[[Tensor], Tensor]] = {"magnitude": magnitude, "real_part": real_part}


@final
class ComplexMlpNetwork(nn.Module):
    """Complex features (..., features) to real class scores (..., classes)."""

    def __init__(self, spec: ComplexMlp, features: int, classes: int, stream: RandomStream) -> None:
        super().__init__()
        widths = (features, *spec.hidden, classes)
        self.layers = nn.ModuleList(ComplexLinear(inputs, outputs, stream) for inputs, outputs in pairwise(widths))
        self._activation = ACTIVATIONS[spec.activation]
        self._head = HEADS[spec.head]

    def forward(self, z: Tensor) -> Tensor:
        *hidden, last = self.layers
        for layer in hidden:
            z = self._activation(layer(z))
        return self._head(last(z))


def build(spec: ComplexMlp, features: int, classes: int, stream: RandomStream) -> ComplexMlpNetwork:
    """The network with fresh weights from ``stream``, which is public."""
    return ComplexMlpNetwork(spec, features, classes, stream)
