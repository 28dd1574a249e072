r"""A caller's module and loss, as the engine takes them, and what can be said about them."""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.engine.gradients.inputs import Inputs
from zetadp.trainer.layers.flat_parameters import as_real

CODE_FILE = "module-code.sha256"
SHAPELESS = "its parameters have no shape yet"


def trainable(module: nn.Module) -> nn.Module:
    r"""A copy in training mode in which frozen parameters are constants: what requires no gradient isn't trained, clipped or noised.

    It takes all its inputs as one argument, as ``Problem`` has them.

    Raises:
      InvalidParameter: nothing is trainable, or a lazy layer hasn't seen an example.
    """
    if any(is_lazy(parameter) for parameter in module.parameters()):
        raise InvalidParameter("module", "one that was called once on an example", SHAPELESS)
    found = copy.deepcopy(module).train()
    for _, part in list(found.named_modules()):
        for name, parameter in list(part.named_parameters(recurse=False)):
            if not parameter.requires_grad:
                delattr(part, name)
                part.register_buffer(name, parameter.detach().clone())
    if not any(True for _ in found.parameters()):
        raise InvalidParameter("module", "one with parameters that require a gradient", "none that does")
    plain = found.forward

    def forward(features: Tensor | Inputs) -> object:
        by_place, by_name = features.arguments if isinstance(features, Inputs) else ((features,), {})
        result: object = plain(*by_place, **by_name)
        logits = getattr(result, "logits", None)  # of what Hugging Face's models return
        return logits if isinstance(logits, Tensor) else result

    found.forward = forward
    return found


def released(module: nn.Module, trained: dict[str, Tensor]) -> nn.Module:
    """A copy of the caller's module with these values of its trained parameters."""
    found = copy.deepcopy(module)
    with torch.no_grad():
        for name, parameter in found.named_parameters():
            if name in trained:
                parameter.copy_(trained[name])
    return found


def contents(module: nn.Module, trained: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a model file: trained, frozen and other buffers, complex ones as real pairs."""
    tensors = {name: value for name, value in module.state_dict().items() if isinstance(value, Tensor)} | trained
    return {name: as_real(value.detach()).clone() for name, value in tensors.items()}


def losses_of(loss: Callable[..., Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    r"""Each record's own loss.

    Torch's losses are asked for ``reduction="none"``; the numbers of one record are then averaged, or summed if the loss was to sum.
    Any other function has to return one loss for each record.
    """
    reduction = getattr(loss, "reduction", None)
    if isinstance(loss, nn.Module) and reduction in ("mean", "sum"):
        each = copy.deepcopy(loss)
        setattr(each, "reduction", "none")  # noqa: B010 - a module's attributes have no types
        return partial(_reduced, each, reduction)
    if not isinstance(loss, nn.Module) and "reduction" in _arguments(loss):
        return partial(_reduced, partial(loss, reduction="none"), "mean")
    return loss


def _reduced(loss: Callable[[Tensor, Tensor], Tensor], reduction: str, outputs: Tensor, targets: Tensor) -> Tensor:
    found = loss(outputs, targets)
    if found.dim() < 2:
        return found
    return found.flatten(1).mean(dim=1) if reduction == "mean" else found.flatten(1).sum(dim=1)


def _arguments(function: Callable[..., Any]) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # written in C
        return set()


def name_of(what: object) -> str:
    """A function's or an object's name, in words for a spec."""
    if isinstance(what, partial):
        settings = ", ".join(f"{name}={value!r}" for name, value in what.keywords.items())
        return f"{name_of(what.func)}({settings})"[:4000]
    return (repr(what) if isinstance(what, nn.Module) else str(getattr(what, "__qualname__", type(what).__qualname__)))[:4000]


def code_of(module: nn.Module, *functions: object) -> str:
    r"""A line for each class in the module and each function: digest of its source (dashes where it has none) and name, sorted.

    One more line is for the module's structure.

    Args:
      functions: loss, optimizer, schedule: functions, classes, or objects of them; of a ``partial``, what it calls. None for none.
    """
    lines = {f"{_source(one)}  {one.__module__}.{one.__qualname__}" for one in defined(module, *functions)}
    return "".join(f"{line}\n" for line in sorted((*lines, f"{_sha256(repr(module))}  (structure)")))


def defined(module: nn.Module, *functions: object) -> set[Any]:
    """The classes of the module's parts, and the functions or classes behind ``functions``."""
    return {type(part) for part in module.modules()} | {_definition(one) for one in functions if one is not None}


def _definition(function: object) -> Any:
    while isinstance(function, partial):
        function = function.func
    return function if hasattr(function, "__qualname__") else type(function)


def weights_of(module: nn.Module, but: Collection[str] = ()) -> str:
    """SHA-256 of the weights that the module came with, without those of these names."""
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        if isinstance(value, Tensor) and name not in but:
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(as_real(value.detach()).cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _source(what: Any) -> str:
    try:
        return _sha256(inspect.getsource(what))
    except (OSError, TypeError):  # typed at a prompt: the digest of nothing would pass for one
        return "-" * 64


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
