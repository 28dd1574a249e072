r"""All parameters of a network as one flat complex vector: the thing that is clipped, released and optimized."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, final

import torch
from torch import Tensor, nn


@final
@dataclass(frozen=True)
class ParameterLayout:
    r"""Names, shapes and kinds of a network's parameters, in the order of the flat vector.

    A real parameter is a complex coordinate whose imaginary part is 0: noise on that part is dropped after the release.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    complex_kinds: tuple[bool, ...]

    @classmethod
    def of(cls, network: nn.Module) -> Self:
        named = dict(network.named_parameters())
        shapes = tuple(tuple(parameter.shape) for parameter in named.values())
        return cls(tuple(named), shapes, tuple(parameter.is_complex() for parameter in named.values()))

    @property
    def coordinates(self) -> int:
        """Length of the flat vector."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def real_parameters(self) -> int:
        """Real numbers in the network; a complex parameter counts twice."""
        return sum(math.prod(shape) * (2 if kind else 1) for shape, kind in zip(self.shapes, self.complex_kinds, strict=True))

    def flatten(self, parameters: Mapping[str, Tensor], dtype: torch.dtype) -> Tensor:
        """The named tensors as one vector of shape (coordinates,), of a complex type."""
        return torch.cat([parameters[name].detach().to(dtype).reshape(-1) for name in self.names])

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """The named tensors, as views of the vector where they are complex."""
        pieces = vector.split([math.prod(shape) for shape in self.shapes])
        kinds = zip(self.names, self.shapes, self.complex_kinds, pieces, strict=True)
        return {name: (piece if kind else piece.real.contiguous()).reshape(shape) for name, shape, kind, piece in kinds}

    def project(self, vector: Tensor) -> Tensor:
        """The vector with the imaginary part of real parameters set to 0: post-processing of a release."""
        return self.flatten(self.unflatten(vector), vector.dtype)
