r"""All parameters of a network as one flat real vector: the thing that is clipped, released and optimized."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self, final

import torch
from torch import Tensor, nn


@final
@dataclass(frozen=True)
class ParameterLayout:
    r"""Names, shapes and kinds of a network's parameters, in the order of the flat vector.

    A complex parameter is the pairs (real part, imaginary part) of its entries, two numbers each, so the vector's l2 norm is the one
    that clipping bounds and that noise is calibrated to. Complex parameters stand first: every pair then starts at an even place, which
    a complex view of the vector needs.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    complex_kinds: tuple[bool, ...]

    @classmethod
    def of(cls, network: nn.Module) -> Self:
        """A parameter that several modules share is one parameter, under its first name."""
        named = sorted(network.named_parameters(), key=lambda item: not item[1].is_complex())
        return cls(
            tuple(name for name, _ in named),
            tuple(tuple(parameter.shape) for _, parameter in named),
            tuple(parameter.is_complex() for _, parameter in named),
        )

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Real numbers in each parameter."""
        return tuple(math.prod(shape) * (2 if kind else 1) for shape, kind in zip(self.shapes, self.complex_kinds, strict=True))

    @property
    def coordinates(self) -> int:
        """Length of the flat vector."""
        return sum(self.sizes)

    @property
    def real_parameters(self) -> int:
        """Real numbers in the network: a complex parameter counts twice."""
        return self.coordinates

    def flatten(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """The named tensors as one vector (coordinates,), float32 (float64 where they are)."""
        if not self.names:
            return torch.zeros(0)
        return torch.cat([as_real(parameters[name].detach()).reshape(-1) for name in self.names])

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """The named tensors as views of the vector (coordinates,)."""
        pieces = vector.split(self.sizes)
        kinds = zip(self.names, self.shapes, self.complex_kinds, pieces, strict=True)
        return {name: torch.view_as_complex(piece.view(*shape, 2)) if kind else piece.view(shape) for name, shape, kind, piece in kinds}


def as_real(values: Tensor) -> Tensor:
    """A complex tensor with its real pairs as a last axis of 2, without a copy where it isn't lazily conjugated; a real one as it is."""
    return torch.view_as_real(values.resolve_conj() if values.is_conj() else values) if values.is_complex() else values
