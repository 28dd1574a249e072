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

    @property
    def coordinates(self) -> int:
        """Length of the flat vector."""
        return sum(self._halves)

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
        pairs, reals = self._halves
        # Of the two kinds most networks have one: every view takes its time in a small step.
        complexes = () if not pairs else _pairs(vector[:pairs] if reals else vector).split_with_sizes(self._complex_sizes)
        numbers = () if not reals else (vector[pairs:] if pairs else vector).split_with_sizes(self._real_sizes)
        named = zip(self.names, self.shapes, (*complexes, *numbers), strict=True)
        return {name: piece if len(shape) == 1 else piece.view(shape) for name, shape, piece in named}

    @cached_property
    def _complex_sizes(self) -> list[int]:
        """Complex numbers in each complex parameter."""
        return [math.prod(shape) for shape, kind in zip(self.shapes, self.complex_kinds, strict=True) if kind]

    @cached_property
    def _real_sizes(self) -> list[int]:
        return [math.prod(shape) for shape, kind in zip(self.shapes, self.complex_kinds, strict=True) if not kind]

    @cached_property
    def _halves(self) -> list[int]:
        """Numbers of the flat vector that belong to complex parameters, and to real ones."""
        return [2 * sum(self._complex_sizes), sum(self._real_sizes)]


def model_tensors(layout: ParameterLayout, parameters: Tensor, *modules: nn.Module) -> dict[str, Tensor]:
    """What a model file holds: what was trained, and the modules' weights that weren't, without which it would be half a network."""
    trained = {name: as_real(value) for name, value in layout.unflatten(parameters).items()}
    kept = {name: as_real(value.detach()) for module in modules for name, value in module.state_dict().items()}
    return kept | trained


def forget_values(network: nn.Module) -> None:
    """Leaves the parameters their names, shapes and types, in the memory of one number each: what they are is in a vector from now on."""
    for parameter in network.parameters():
        parameter.data = parameter.data.new_zeros(()).expand(parameter.shape)


def _pairs(reals: Tensor) -> Tensor:
    return torch.view_as_complex(reals.view(-1, 2))


def as_real(values: Tensor) -> Tensor:
    """A complex tensor with its real pairs as a last axis of 2, without a copy where it isn't lazily conjugated; a real one as it is."""
    return torch.view_as_real(values.resolve_conj() if values.is_conj() else values) if values.is_complex() else values
