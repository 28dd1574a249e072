r"""What a network takes of each record where that is more than one tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast, final

import numpy as np
import torch
from torch import Tensor

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.layers.flat_parameters import as_real

LABELS = "labels"
"""The name of the target where a record's inputs have names."""


@final
class Inputs:
    r"""Several tensors (records, ...), which a module takes by place or by name; as far as the engine asks a tensor of features for them.

    Attributes:
      parts: by the argument's place, from 0, or by its name.
    Raises:
      InvalidParameter: there is none, or their numbers of records differ.
    """

    def __init__(self, parts: Mapping[int | str, Tensor]) -> None:
        counts = {label(key): len(part) if part.dim() else 0 for key, part in parts.items()}
        if len(set(counts.values())) != 1:
            raise InvalidParameter("data", "inputs of as many records each", counts)
        self.parts = dict(parts)

    @property
    def arguments(self) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """By place and by name, as a call takes them."""
        places = sorted(key for key in self.parts if isinstance(key, int))
        return tuple(self.parts[place] for place in places), {key: part for key, part in self.parts.items() if isinstance(key, str)}

    @property
    def device(self) -> torch.device:
        return next(iter(self.parts.values())).device

    def __len__(self) -> int:
        return len(next(iter(self.parts.values())))

    def __getitem__(self, rows: Tensor | slice) -> Inputs:
        return self.mapped(lambda part: part[rows])

    def __setitem__(self, rows: slice, values: Inputs) -> None:
        for key, part in self.parts.items():
            part[rows] = values.parts[key]

    def mapped(self, function: Callable[[Tensor], Tensor]) -> Inputs:
        """The same arguments with the function's results."""
        return Inputs({key: function(part) for key, part in self.parts.items()})

    def index_select(self, axis: int, rows: Tensor) -> Inputs:
        return self.mapped(lambda part: part.index_select(axis, rows))

    def clone(self) -> Inputs:
        return self.mapped(torch.clone)

    def to(self, device: torch.device) -> Inputs:
        return self.mapped(lambda part: part.to(device))


Features = Tensor | Inputs


class Digest(Protocol):
    """As hashlib has them."""

    def update(self, data: memoryview, /) -> None: ...


def mapped(features: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """The function's results for every tensor in the features, in the same form."""
    several: object = features
    return cast("Tensor", several.mapped(function)) if isinstance(several, Inputs) else function(features)


def parts_of(features: object) -> dict[int | str, Tensor]:
    """Every tensor in the features, by place or name; of features that are read when they are asked for, of one record."""
    several: object = getattr(features, "one", features)
    return several.parts if isinstance(several, Inputs) else {0: cast("Tensor", several)}


def is_numeric(part: Tensor) -> bool:
    """Whether numbers can be made up for it, and gradients flow into it: whole numbers name something."""
    return part.is_complex() or part.is_floating_point()


def label(key: int | str) -> str:
    """An input's name in a refusal."""
    return f"input {key + 1}" if isinstance(key, int) else f"input {key!r}"


def inputs_and_target(item: object) -> tuple[dict[int | str, Any], Any]:
    r"""What a module takes of a record, or of all of them, by place from 0 or by name, and the target.

    (input, target), (input, ..., target), ((input, ...), target), ({name: input}, target), or {name: input, "labels": target}, as Hugging
    Face's data sets have it.
    """
    if isinstance(item, Mapping):
        named = dict(cast("Mapping[str, Any]", item))
        if LABELS not in named or len(named) < 2:
            raise InvalidParameter("data", f"names with {LABELS!r} among them, the target, and an input", list(named))
        target = named.pop(LABELS)
        return {**named}, target
    if not isinstance(item, tuple | list) or len(item) < 2:
        raise InvalidParameter("data", "items (features, target), or (input, ..., target)", type(item).__name__)
    inputs, target = cast("Sequence[Any]", item[:-1]), item[-1]
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        return dict(inputs[0]), target
    if len(inputs) == 1 and isinstance(inputs[0], tuple) and any(isinstance(one, Tensor | np.ndarray) for one in inputs[0]):
        inputs = inputs[0]
    return dict(enumerate(inputs)), target


def features_of(parts: dict[int | str, Tensor]) -> Features:
    """The only input by place, or all of them."""
    return parts[0] if set(parts) == {0} else Inputs(parts)


def add_to_digest(digest: Digest, features: Features, targets: Tensor) -> None:
    """The numbers of records, for a digest of all. They aren't copied where they lie in memory one after the other."""
    for one in (*parts_of(features).values(), targets):
        digest.update(np.ascontiguousarray(as_real(one).cpu().numpy()).data)


def kinds_of(features: Features, targets: Tensor) -> str:
    """Types and shapes of one record: what all have in common."""
    described = [f"{label(key)}: {part.dtype}, {tuple(part.shape[1:])}" for key, part in parts_of(features).items()]
    return "; ".join((*described, f"target: {targets.dtype}, {tuple(targets.shape[1:])}"))
