r"""Layers that are made of others: which ones, what each of them takes, and the shapes of what fits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.specs.models.layer_spec import Adapted, Block, Convolution, LayerSpec, Linear, Recurrent, Residual, SelfAttention
from zetadp.trainer.specs.models.parameter_counts import Shape
from zetadp.trainer.specs.models.sequence_layers import LONGEST_RECURRENCE

GATES = {"rnn": 1, "gru": 3}


@final
@dataclass(frozen=True)
class Branch:
    r"""A row of layers in a block.

    Attributes:
      inputs: the record that its first layer takes.
      is_kept: its weights are given and never trained.
    """

    name: str
    layers: Sequence[LayerSpec]
    inputs: Shape
    is_kept: bool = False


@final
@dataclass(frozen=True)
class LayerShapes:
    r"""One layer of a network that fits.

    Attributes:
      name: in the built network; its own parameters' names are this, a dot, and ``weight`` or ``bias``.
      stored: the same in a file of given weights; None for what such a file doesn't have.
      inputs, outputs: the record before and after it.
      own: its own parameters by their own names, with shapes in real numbers.
      is_kept: these are given and never trained.
      branches: the layers of a block, branch by branch.
    """

    name: str
    stored: str | None
    layer: LayerSpec
    inputs: Shape
    outputs: Shape
    own: dict[str, Shape]
    is_kept: bool = False
    branches: tuple[tuple[LayerShapes, ...], ...] = ()

    @property
    def leaves(self) -> Iterator[LayerShapes]:
        """Itself, or the layers that it is made of, down to those that aren't made of others."""
        if not self.branches:
            yield self
        for branch in self.branches:
            for inner in branch:
                yield from inner.leaves

    @property
    def parameters(self) -> dict[str, Shape]:
        """Full names and shapes in real numbers, of kept ones too."""
        return {f"{leaf.name}.{own}": shape for leaf in self.leaves for own, shape in leaf.own.items()}

    @property
    def stored_parameters(self) -> dict[str, tuple[str, Shape]]:
        """By names in a file of given weights: the full name, and the shape in real numbers."""
        leaves = ((leaf, leaf.stored) for leaf in self.leaves)
        return {f"{stored}.{own}": (f"{leaf.name}.{own}", shape) for leaf, stored in leaves if stored for own, shape in leaf.own.items()}

    @property
    def weights(self) -> int:
        """Real numbers in its parameters."""
        return sum(math.prod(shape) for shape in self.parameters.values())

    @property
    def activations(self) -> int:
        """Numbers of one record that it computes, complex ones counted once."""
        inside = sum(inner.activations for branch in self.branches for inner in branch)
        match self.layer:
            case SelfAttention():
                inside += self.layer.heads * self.inputs[1] ** 2
            case Recurrent():
                inside += 2 * GATES[self.layer.cell] * self.layer.outputs * self.inputs[1]
            case _:
                pass
        return math.prod(self.outputs) + inside


def branches_of(at: str, layer: Block, shape: Shape) -> tuple[Branch, ...]:
    """What a block is made of, for records of this shape. ``at``: its place, for messages."""
    match layer:
        case Residual():
            return Branch("layers", layer.layers, shape), Branch("shortcut", layer.shortcut, shape)
        case Adapted():
            return Branch("base", (layer.base,), shape, is_kept=True), Branch("adapter", layer.adapter, shape)
        case SelfAttention():
            _check_sequence(at, layer, shape)
            if layer.width % layer.heads:
                raise InvalidParameter(f"{at}.heads", f"a divisor of the width, {layer.width}", layer.heads)
            inner, of_values = (_of_places(width, layer.adapter_rank) for width in (layer.width, shape[0]))
            three = (Branch(name, (inner,), shape) for name in ("query", "key", "value"))
            return (*three, Branch("output", (of_values,), (layer.width, *shape[1:])))
        case Recurrent():
            _check_sequence(at, layer, shape)
            if shape[1] > LONGEST_RECURRENCE:
                raise InvalidParameter(at, f"applied to at most {LONGEST_RECURRENCE} places (recurrent)", shape[1])
            outputs = GATES[layer.cell] * layer.outputs
            of_state = Branch("recurrent", (Linear(outputs=outputs),), (layer.outputs,))
            return Branch("inputs", (Convolution(outputs=outputs, kernel=1),), shape), of_state


def _of_places(outputs: int, rank: int | None) -> Convolution | Adapted:
    """A linear map of every place's channels, by itself or kept beside an adapter."""
    kept = Convolution(outputs=outputs, kernel=1)
    if rank is None:
        return kept
    narrow, wide = (Convolution(outputs=width, kernel=1, bias=False) for width in (rank, outputs))
    return Adapted(base=kept, adapter=(narrow, wide))


def outputs_of(at: str, layer: Block, shape: Shape, ends: Sequence[Shape]) -> Shape:
    """A block's output; ``ends``: what its branches end with."""
    match layer:
        case SelfAttention():
            return shape
        case Recurrent():
            return (layer.outputs, shape[1]) if layer.returns == "sequence" else (layer.outputs,)
        case _:
            beside, whose = ("shortcut", "layers'") if isinstance(layer, Residual) else ("adapter", "base's")
            if ends[0] != ends[1]:
                raise InvalidParameter(f"{at}.{beside}", f"such that its output has the shape of the {whose}, {ends[0]}", ends[1])
            return ends[0]


def _check_sequence(at: str, layer: SelfAttention | Recurrent, shape: Shape) -> None:
    if len(shape) != 2:
        raise InvalidParameter(at, f"applied to sequences (channels, length) ({layer.kind})", f"a record of shape {shape}")
