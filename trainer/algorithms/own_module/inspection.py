r"""``check``: whether a module can be trained privately, and if not, which part of it is in the way."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from typing import cast, final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy

from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.algorithms.own_module.preparation import SHAPELESS, trainable
from zetadp.trainer.engine.gradients.checks import DOUBLE, EQUALITY, SINGLE, check_problem
from zetadp.trainer.engine.gradients.inputs import features_of
from zetadp.trainer.engine.gradients.probe import SEED, are_alike, made_up_features, made_up_parameters, mode, uneven
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.engine.gradients.routes import plan_route
from zetadp.trainer.engine.torch_seed import torch_seeded
from zetadp.trainer.layers.flat_parameters import as_real

RECORDS = 4
LARGEST_GROUPS = 32
"""Groups of the norm that replaces a batch norm, at most; fewer where they wouldn't divide the channels."""


@final
class Obstacle(Value):
    r"""A part of a module that keeps it from private training.

    Attributes:
      name: of the part, as in ``named_modules``; empty for the module itself.
      kind: its class.
      why: what it does.
      repair: what to use instead; None where nothing is known.
    """

    name: str
    kind: str
    why: str
    repair: str | None

    def __str__(self) -> str:
        where = f"{self.name} ({self.kind})" if self.name else f"the module ({self.kind})"
        return f"{where}: {self.why}" + ("" if self.repair is None else f"; {self.repair}")


def check(module: nn.Module, example: Tensor | tuple[Tensor, ...] | Mapping[str, Tensor]) -> tuple[Obstacle, ...]:
    r"""What keeps a module from private training; nothing if it can be trained.

    The module is tried on made-up records, with its own parameters and with others, in both modes: each row of its output has to depend on
    the same row of its input alone. What only rare data trigger isn't found.

    Args:
      module: as for ``train``; not changed.
      example: features of at least one record, (records, ...): its shape and type count, and its values where they are whole numbers. A
        tuple of inputs, or inputs by name, for a module that takes several.
    Raises:
      InvalidParameter: the example has whole numbers only, and no two different records.

    >>> found = check(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)), torch.zeros(1, 4))
    >>> print(found[0])
    1 (BatchNorm1d): it normalises with statistics of all records of a batch; use nn.GroupNorm(8, 8)
    """
    if not (found := tuple(_shapeless(module)) or (*_statistics(module), *_types(module))):
        tried = trainable(module)
        parts: dict[int | str, Tensor] = {**example} if isinstance(example, Mapping) else dict(enumerate(_several(example)))
        features = cast("Tensor", features_of(parts))  # the engine asks several inputs only for what they have
        problem = Problem(tried, _sums, features, torch.zeros(len(features), 1), None)
        if are_alike(made_up_features(problem.features, RECORDS)):
            expected = "at least two different records where all inputs are whole numbers, to see whether they are mixed"
            raise InvalidParameter("example", expected, f"{len(features)}, all the same")
        found = tuple(_mixing(problem))
        if not found:
            try:
                check_problem(problem)
                plan_route(problem)
            except InvalidParameter as refused:
                found = (Obstacle(name="", kind=type(module).__name__, why=str(refused), repair=None),)
    return found


def repaired(module: nn.Module) -> nn.Module:
    """A copy in which every batch norm is a group norm of as many channels, with its scale and shift."""
    found = copy.deepcopy(module)
    for name, part in list(found.named_modules()):
        if isinstance(part, _BatchNorm) and name:
            parent, _, own = name.rpartition(".")
            norm = nn.GroupNorm(_groups(part.num_features), part.num_features, eps=part.eps, affine=part.affine)
            if part.affine:
                norm.load_state_dict({"weight": part.weight.detach(), "bias": part.bias.detach()})
            setattr(found.get_submodule(parent), own, norm)
    return found


def _shapeless(module: nn.Module) -> Iterator[Obstacle]:
    for name, part in module.named_modules():
        if any(is_lazy(parameter) for parameter in part.parameters(recurse=False)):
            yield Obstacle(name=name, kind=type(part).__name__, why=SHAPELESS, repair="call the module once on an example")


def _statistics(module: nn.Module) -> Iterator[Obstacle]:
    """Norms whose class says it."""
    for name, part in module.named_modules():
        if isinstance(part, _BatchNorm):
            channels = part.num_features
            why, repair = "it normalises with statistics of all records of a batch", f"use nn.GroupNorm({_groups(channels)}, {channels})"
        elif isinstance(part, _InstanceNorm) and part.track_running_stats:
            why, repair = "it keeps statistics of the records", "give track_running_stats=False"
        else:
            continue
        yield Obstacle(name=name, kind=type(part).__name__, why=why, repair=repair)


def _types(module: nn.Module) -> Iterator[Obstacle]:
    kinds = {one.dtype for one in module.parameters() if one.requires_grad}
    if kinds <= {*SINGLE} or kinds <= {*DOUBLE}:
        return
    for name, part in module.named_modules():
        for own, parameter in part.named_parameters(recurse=False):
            if parameter.requires_grad and parameter.dtype not in SINGLE:
                why = f"{own} is {parameter.dtype}, and gradients are clipped and noised in one precision, single or double"
                yield Obstacle(name=name, kind=type(part).__name__, why=why, repair="call .float(), or .to(torch.complex64), on it")


def _mixing(problem: Problem) -> Iterator[Obstacle]:
    """The first part whose rows move when another record is replaced."""
    features = made_up_features(problem.features, RECORDS)
    own = {name: value.detach().clone() for name, value in problem.network.named_parameters()}
    for training in (True, False):
        for parameters, records in ((own, features), (made_up_parameters(problem.network), uneven(features))):
            for place in range(RECORDS):
                rows = torch.arange(RECORDS, device=records.device)
                rows[place] = (place - 1) % RECORDS
                try:
                    with mode(problem.network, training):
                        before = _outputs(problem.network, parameters, records)
                        after = _outputs(problem.network, parameters, records[rows])
                except (RuntimeError, IndexError, TypeError, ValueError):
                    return  # check_problem says what is wrong
                for (name, expected), (_, found) in zip(before, after, strict=False):
                    if (moved := _moved(expected, found, place)) > EQUALITY:
                        yield _described(problem.network.get_submodule(name), name, moved)
                        return


def _outputs(network: nn.Module, parameters: dict[str, Tensor], records: Tensor) -> list[tuple[str, Tensor]]:
    """What every part returned for these records, in the order in which parts ended."""
    found: list[tuple[str, Tensor]] = []

    def watch(name: str, output: object) -> None:
        first = cast("object", output[0]) if isinstance(output, tuple) and output else output
        if isinstance(first, Tensor) and first.dim() and len(first) == len(records):
            found.append((name, first.detach().clone()))

    hooks = [
        part.register_forward_hook(lambda _part, _given, output, name=name: watch(name, output)) for name, part in network.named_modules()
    ]
    try:
        with torch.no_grad(), torch_seeded(records.device, SEED):
            torch.func.functional_call(network, parameters, (records.clone(),))  # pyright: ignore[reportPrivateImportUsage]
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _moved(expected: Tensor, found: Tensor, place: int) -> float:
    """By how much rows other than the replaced one differ, relative to the largest number in them."""
    if expected.shape != found.shape:
        return math.inf
    rest = [row for row in range(len(expected)) if row != place]
    before, after = as_real(expected)[rest].double(), as_real(found)[rest].double()
    scale = float(before.abs().nan_to_num().amax()) if before.numel() else 0.0
    return float((before - after).abs().nan_to_num().amax()) / scale if scale else 0.0


def _described(part: nn.Module, name: str, moved: float) -> Obstacle:
    repair = None
    if getattr(part, "batch_first", True) is False or getattr(getattr(part, "self_attn", None), "batch_first", True) is False:
        repair = "give batch_first=True, or it takes the records for places of one sequence"
    why = f"it mixes records: when another record was replaced, a row of its output moved by {100.0 * moved:.2g} %"
    return Obstacle(name=name, kind=type(part).__name__, why=why, repair=repair)


def _groups(channels: int) -> int:
    return math.gcd(LARGEST_GROUPS, channels)


def _several(example: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return example if isinstance(example, tuple) else (example,)


def _sums(outputs: Tensor, _targets: Tensor) -> Tensor:
    numbers = as_real(outputs).reshape(len(outputs), -1)
    return numbers @ torch.linspace(-1.0, 2.0, numbers.shape[1], device=numbers.device, dtype=numbers.dtype)
