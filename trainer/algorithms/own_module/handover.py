r"""A training whose steps are taken by the caller's own code: what it gets, what is kept of it, and which steps were begun."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast, final

import torch
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.durable import write_atomically
from zetadp.trainer.engine.checkpoint import checkpointed_step
from zetadp.trainer.engine.run import CHECKPOINT
from zetadp.trainer.errors import CheckpointRefused
from zetadp.trainer.layers.flat_parameters import ParameterLayout, as_real

STRUCTURE = "structure"
"""The tensor of a checkpoint that holds, as JSON, where the others belong."""


class Stateful(Protocol):
    """An optimizer, a schedule, or whatever else has a state of tensors and numbers."""

    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state_dict: Any, /) -> object: ...


@final
class HandedOver:
    """See ``Optimization``. The released gradient goes to the caller, whose own code makes the next parameters of it."""

    described = "the caller's own code between the steps"

    def __init__(self) -> None:
        self.gradient: Tensor | None = None

    def initial(self, _parameters: Tensor, /) -> dict[str, Tensor]:
        return {}

    def updated(self, state: dict[str, Tensor], parameters: Tensor, gradient: Tensor, _step: int, /) -> tuple[Tensor, dict[str, Tensor]]:
        """The parameters as they were."""
        self.gradient = gradient
        return parameters, state


@final
class StepsBegun:
    r"""How many steps of a run were begun, on disk before any of them releases anything: the length of a file, one byte a step.

    Whatever the caller does with a released gradient can't be undone by a crash, and so such a step is never taken again.

    Args:
      folder: of the checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._end = folder / "steps-begun", folder / "ended-early"

    @property
    def count(self) -> int:
        """Over all attempts."""
        return self._path.stat().st_size if self._path.exists() else 0

    @property
    def ended_early(self) -> bool:
        """Whether the caller ended the run before its last planned step."""
        return self._end.exists()

    def begin(self) -> None:
        """Counts one more, durably."""
        if not self._path.exists():
            write_atomically(self._path, b"")
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, b".")
            os.fsync(file)
        finally:
            os.close(file)

    def end_early(self) -> None:
        """No step is begun any more."""
        write_atomically(self._end, b"")


def first_weights(folder: Path, own: str, steps: int) -> str:
    r"""The digest of the weights that the run in this folder began with.

    An interrupted run goes on from the parameters in its checkpoint, whatever weights the program drew this time: those of its first
    attempt count. One that has ended isn't taken for a run from other weights.

    Raises:
      CheckpointRefused: this run would be one.
    """
    path, checkpoint = folder / "initial-weights.sha256", folder / CHECKPOINT
    if not checkpoint.exists():
        write_atomically(path, own.encode())
        return own
    first = path.read_text(encoding="utf-8") if path.exists() else own
    if first != own and (checkpointed_step(checkpoint) >= steps or StepsBegun(folder).ended_early):
        reason = "its training has ended and began with other weights; give another folder, or the same weights (after torch.manual_seed)"
        raise CheckpointRefused(checkpoint.name, reason)
    return first


def hand_over(gradient: Mapping[str, Tensor], module: nn.Module) -> None:
    """Makes the released gradient that of the caller's own parameters."""
    for name, parameter in module.named_parameters():
        if name in gradient:
            parameter.grad = gradient[name].to(parameter.device, copy=True)


def taken(module: nn.Module, layout: ParameterLayout, device: torch.device) -> Tensor:
    r"""The caller's parameters, (coordinates,).

    Raises:
      InvalidParameter: they aren't those that training began with, in name, shape or type.
    """
    found = {name: value for name, value in module.named_parameters() if name in layout.names}
    for name, shape, is_complex in zip(layout.names, layout.shapes, layout.complex_kinds, strict=True):
        if name not in found or tuple(found[name].shape) != shape or found[name].is_complex() != is_complex:
            raise InvalidParameter(f"module.{name}", "of the shape and type that training began with", str(found.get(name)))
    return layout.flatten({name: value.to(device) for name, value in found.items()})


def put(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Gives the caller's parameters these values."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name in values:
                parameter.copy_(values[name])


def packed(kept: Sequence[Stateful]) -> dict[str, Tensor]:
    r"""The states of these objects as named tensors, complex ones as real pairs. Nothing is copied.

    Raises:
      InvalidParameter: a state holds something else than tensors, numbers and texts in dictionaries, lists and tuples.
    """
    tensors: dict[str, Tensor] = {}
    structure = json.dumps([_described(one.state_dict(), tensors) for one in kept])
    return tensors | {STRUCTURE: torch.frombuffer(bytearray(structure.encode()), dtype=torch.uint8)} if kept else {}


def unpack(tensors: Mapping[str, Tensor], kept: Sequence[Stateful]) -> None:
    """Gives these objects the states that ``packed`` found, in the same order."""
    states = json.loads(bytes(tensors[STRUCTURE].cpu().numpy())) if STRUCTURE in tensors else []
    if len(states) != len(kept):
        raise InvalidParameter("keep", f"the {len(states)} objects that the interrupted run kept", len(kept))
    for one, state in zip(kept, states, strict=True):
        one.load_state_dict(_restored(state, tensors))


def _described(value: object, tensors: dict[str, Tensor]) -> object:
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = as_real(value.detach())
        return {"tensor": name, "is_complex": value.is_complex()}
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return {"dict": [[_described(key, tensors), _described(item, tensors)] for key, item in pairs]}
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        return {"tuple" if isinstance(value, tuple) else "list": [_described(item, tensors) for item in items]}
    if value is None or isinstance(value, bool | int | float | str):
        return {"is": value}
    raise InvalidParameter("keep", "objects whose state is tensors, numbers and texts, or they couldn't be resumed", type(value).__name__)


def _restored(described: Any, tensors: Mapping[str, Tensor]) -> Any:
    ((kind, content), *_) = described.items()
    match kind:
        case "tensor":
            value = tensors[content].clone()
            return torch.view_as_complex(value) if described["is_complex"] else value
        case "dict":
            return {_restored(key, tensors): _restored(item, tensors) for key, item in content}
        case "list":
            return [_restored(item, tensors) for item in content]
        case "tuple":
            return tuple(_restored(item, tensors) for item in content)
        case _:
            return content
