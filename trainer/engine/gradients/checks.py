r"""What is refused before training starts, because it would make the guarantee or the gradient wrong."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call  # pyright: ignore[reportPrivateImportUsage]
from torch.nn.modules.batchnorm import _BatchNorm

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.engine.finite import all_finite
from zetadp.trainer.engine.gradients.inputs import label, parts_of
from zetadp.trainer.engine.gradients.lazy_rows import LazyRows
from zetadp.trainer.engine.gradients.probe import SEED, are_alike, made_up_features, made_up_parameters, mode, some_targets, uneven
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.engine.torch_seed import torch_seeded
from zetadp.trainer.layers.flat_parameters import as_real

RECORDS = 4

SINGLE, DOUBLE = (torch.float32, torch.complex64), (torch.float64, torch.complex128)
"""All parameters are of one precision: they are one vector."""

AGREEMENT = 1e-3
"""Relative to the largest output. Another batch size rounds differently, by 1e-5 at most; mixed records differ by far more."""

EQUALITY = 1e-5
"""The same between batches of one size, where the other records' rows are computed by the same operations."""


def check_problem(problem: Problem) -> None:
    r"""Refuses what can't be trained on privately.

    Raises:
      InvalidParameter: parameters aren't of one precision, single or double; data have wrong shapes, types, NaN or labels; members share
        records; the network mixes records or keeps statistics of them; the losses aren't one real number for each record separately.
    """
    _check_parameters(problem.network)
    _check_data(problem)
    if problem.members is not None:
        _check_members(problem.members, len(problem.features))
    _check_modules(problem.network)
    outputs = _check_outputs(problem)
    _check_labels(problem, outputs)
    _check_losses(problem, outputs)


def _check_parameters(network: nn.Module) -> None:
    parameters = dict(network.named_parameters())
    if not parameters:
        raise InvalidParameter("network", "one with parameters", "none")
    is_double = next(iter(parameters.values())).dtype in DOUBLE
    for name, parameter in parameters.items():
        if parameter.dtype not in (*SINGLE, *DOUBLE):
            # Half precision would round norms and sums by more than the clipping margin; complex half lacks most kernels.
            raise InvalidParameter(f"network.{name}", "float32 or complex64, or float64 or complex128", str(parameter.dtype))
        if (parameter.dtype in DOUBLE) != is_double:
            raise InvalidParameter(f"network.{name}", "of the first parameter's precision", str(parameter.dtype))
        if not parameter.requires_grad:
            raise InvalidParameter(f"network.{name}", "trainable (a constant belongs in a buffer)", "requires_grad=False")


def _check_data(problem: Problem) -> None:
    parts = parts_of(problem.features)
    records = len(problem.features) if all(part.dim() for part in parts.values()) else 0
    if not records:
        shapes = [tuple(problem.features.shape)] if len(parts) == 1 else [tuple(part.shape) for part in parts.values()]
        raise InvalidParameter("features", "(records, ...) with at least one record", ", ".join(map(str, shapes)))
    if problem.targets.shape[:1] != (records,):
        raise InvalidParameter("targets", f"({records}, ...), one for each record", tuple(problem.targets.shape))
    features = {"features" if len(parts) == 1 else label(key): part for key, part in parts.items()}
    for name, values in {**features, "targets": problem.targets}.items():
        if values.dtype in (torch.float16, torch.bfloat16, torch.complex32):
            raise InvalidParameter(name, "in single precision", str(values.dtype))
    check_finite(problem.features, problem.targets)


def check_finite(features: Tensor, targets: Tensor) -> None:
    """Raises InvalidParameter if records or targets have NaN or infinity; lazy rows were gone through when they were made."""
    parts = {} if isinstance(features, LazyRows) else parts_of(features)
    named = {"features" if len(parts) == 1 else label(key): part for key, part in parts.items()}
    for name, values in {**named, **({} if isinstance(targets, LazyRows) else {"targets": targets})}.items():
        if not all_finite(values):
            raise InvalidParameter(name, "finite everywhere", "NaN or infinity")


def _check_members(members: Tensor, records: int) -> None:
    if members.dim() != 2 or not members.numel() or members.dtype != torch.int64:
        raise InvalidParameter("members", "(units, records_per_unit), int64", f"{tuple(members.shape)}, {members.dtype}")
    if int(members.min()) < -1 or int(members.max()) >= records:
        raise InvalidParameter("members", f"record numbers from 0 to {records - 1}, or -1", f"{int(members.min())} to {int(members.max())}")
    real = members >= 0
    if not bool(real[:, 0].all()) or bool((real[:, 1:] & ~real[:, :-1]).any()):
        raise InvalidParameter("members", "at least one record in each unit, and padding only after its records", "padding before a record")
    numbers = members[real]
    if len(numbers.unique()) != len(numbers):
        # It would count twice, and one of its two units wouldn't be protected from the other's presence.
        raise InvalidParameter("members", "units that share no record", "a record that appears twice")


def _check_modules(network: nn.Module) -> None:
    for name, module in network.named_modules():
        if isinstance(module, _BatchNorm):
            raise InvalidParameter(
                f"network.{name}", "a layer that doesn't mix records (group or layer norm, for example)", type(module).__name__
            )


def _check_outputs(problem: Problem) -> Tensor:
    """Outputs (RECORDS, ...) of made-up records, in the mode the network is in."""
    network, features = problem.network, made_up_features(problem.features, RECORDS)
    if are_alike(features):
        expected = "at least two different ones, so that it shows whether the network mixes records"
        raise InvalidParameter("features", expected, "records of whole numbers that are all the same")
    values = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    before = {name: tensor.clone() for name, tensor in (*values.items(), *network.named_buffers())}
    for training in (True, False):
        with mode(network, training):
            _ = _run("network", lambda records: functional_call(network, values, (records,)), features, SEED)
        for name, tensor in (*values.items(), *network.named_buffers()):
            if not torch.equal(tensor, before[name]):
                tensor.copy_(before[name])
                raise InvalidParameter(f"network.{name}", "unchanged by a forward pass (a statistic of records is private)", "changed")
        with mode(network, training):
            _check_separate("network", lambda records: functional_call(network, values, (records,)), features)
        # A parameter that is 0 at the start may make the network mix records later.
        later = made_up_parameters(network)
        with mode(network, training):
            _check_mixes_nothing("network", lambda records, later=later: functional_call(network, later, (records,)), uneven(features))
    return _run("network", network, features, SEED)


def _check_labels(problem: Problem, outputs: Tensor) -> None:
    """Labels have to be class numbers: torch silently ignores some others."""
    targets = problem.targets
    if targets.dtype == torch.int64 and targets.dim() == 1 and outputs.dim() == 2:
        least, largest = (targets.least, targets.largest) if isinstance(targets, LazyRows) else (int(targets.min()), int(targets.max()))
        classes = outputs.shape[1]
        if least < 0 or largest >= classes:
            raise InvalidParameter("targets", f"classes from 0 to {classes - 1}", f"{least} to {largest}")


def _check_losses(problem: Problem, outputs: Tensor) -> None:
    targets = some_targets(problem, RECORDS)
    numbers = torch.arange(RECORDS, device=outputs.device)
    losses = _run("losses", lambda rows: problem.losses(outputs[rows], targets[rows]), numbers, SEED)
    if losses.shape != (RECORDS,) or not losses.is_floating_point():
        expected = "one real number for each record (reduction='none')"
        raise InvalidParameter("losses", expected, f"{losses.dtype} of shape {tuple(losses.shape)} for {RECORDS} records")
    _check_separate("losses", lambda rows: problem.losses(outputs[rows], targets[rows]), numbers)
    if targets.dim() == 1:
        # Of different classes: a loss may weight classes by how often they occur.
        kinds = problem.targets.unique()
        others = kinds[numbers % len(kinds)]
        _check_mixes_nothing("losses", lambda rows: problem.losses(outputs[rows], others[rows]), numbers)


def _check_separate(what: str, function: Callable[[Tensor], Tensor], records: Tensor) -> None:
    """Each row of the result depends on its own record only: not on another's values, and not on how many there are."""
    together = _run(what, function, records, SEED)
    if together.shape[:1] != (len(records),):
        raise InvalidParameter(what, f"a function that returns one result for each of {len(records)} records", tuple(together.shape))
    if not bool(as_real(together).isfinite().all()):
        raise InvalidParameter(what, "finite on standard normal features", "NaN or infinity")
    _check_mixes_nothing(what, function, records)


def _check_mixes_nothing(what: str, function: Callable[[Tensor], Tensor], records: Tensor) -> None:
    together = _run(what, function, records, SEED)
    for row in range(len(records)):
        # Under the same masks, where there are any: one record is replaced by another, and the results of the rest mustn't change.
        rows = torch.arange(len(records), device=records.device)
        rest = rows != row
        if not _same(_run(what, function, records[torch.where(rest, rows, rows.roll(1))], SEED)[rest], together[rest], EQUALITY):
            raise InvalidParameter(what, "a function of each record separately", "one that mixes records")
    if not _same(_run(what, function, records, SEED + 1), together, 0.0):
        return  # random (dropout): one record at a time would get other masks
    alone = [_run(what, function, records[row : row + 1], SEED) for row in range(len(records))]
    if not _same(torch.cat(alone), together, AGREEMENT):
        raise InvalidParameter(what, "a function of each record separately", "one that depends on the number of records")


def _same(results: Tensor, expected: Tensor, tolerance: float) -> bool:
    """Two numbers that both aren't finite count as the same: a made-up network may overflow."""
    if results.shape != expected.shape:
        return False
    finite = as_real(expected).isfinite()
    if not torch.equal(as_real(results).isfinite(), finite):
        return False
    found, wanted = as_real(results)[finite], as_real(expected)[finite]
    return not len(wanted) or bool((found - wanted).abs().amax() <= tolerance * wanted.abs().amax())


def _run(what: str, function: Callable[[Tensor], Tensor], records: Tensor, seed: int) -> Tensor:
    try:
        with torch.no_grad(), torch_seeded(records.device, seed):
            result: object = function(records.clone())  # the function may change it in place
    except (RuntimeError, IndexError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidParameter(what, "a function of data of these shapes and types", reason) from error
    if not isinstance(result, Tensor):
        raise InvalidParameter(what, "a function whose result is one tensor", type(result).__name__)
    return result
