r"""Made-up records that show, before training, what a network does with real records. No outcome depends on anybody's data values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from zetadp.trainer.engine.gradients.inputs import is_numeric, mapped, parts_of
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.layers.flat_parameters import as_real

ROWS_TRIED = 64
"""Records among which different ones are looked for."""

SEED = 20240601
"""The seed of the made-up records and of every run on them: a network with dropout is compared under the same masks."""


def made_up_features(of: Tensor, records: int) -> Tensor:
    """Standard normal real components of these features' shape, type and device; whole numbers are those of existing, different records."""
    generator = torch.Generator().manual_seed(SEED)

    def made_up(part: Tensor) -> Tensor:
        shape = (records, *part.shape[1:])
        if part.is_complex():
            pairs = torch.randn(*shape, 2, generator=generator, dtype=torch.float32)
            return torch.view_as_complex(pairs).to(part.device, part.dtype)
        if part.is_floating_point():
            return torch.randn(shape, generator=generator, dtype=torch.float32).to(part.device, part.dtype)
        return part

    all_numeric = all(is_numeric(part) for part in parts_of(of).values())
    return mapped(some_rows(of, 1) if all_numeric else _different_rows(of, records), made_up)


def are_alike(records: Tensor) -> bool:
    """Whether made-up records don't differ, since they are of whole numbers and the data don't have others."""
    return all(torch.equal(part[0], part[1]) for part in parts_of(records).values())


def uneven(features: Tensor) -> Tensor:
    """The same records, with sizes from 0.1 to 10 and zeros at the end (as in padded sequences), in no order; integers stay as they are."""
    return mapped(features, _uneven)


def _uneven(features: Tensor) -> Tensor:
    if not is_numeric(features):
        return features
    records = len(features)
    sizes = torch.tensor([3.0, 0.1, 10.0, 1.0])[torch.arange(records) % 4].reshape(-1, *(1 for _ in features.shape[1:]))
    result = features * sizes.to(features.device)
    for axis in range(1, features.dim()):
        lengths = torch.tensor([0.7, 1.0, 0.4, 0.9])[torch.arange(records) % 4] * features.shape[axis]
        kept = torch.arange(features.shape[axis]) < lengths.ceil()[:, None]
        result = result * kept.reshape(records, *(1,) * (axis - 1), -1, *(1,) * (features.dim() - axis - 1)).to(features.device)
    return result


def made_up_parameters(network: nn.Module) -> dict[str, Tensor]:
    r"""Parameters as they might be later: the network's own and random numbers of half their size, or of half 1 / sqrt(inputs) if larger.

    At the start a layer may be 0 (the end of a residual branch, a gate, a last layer), which hides what it lets through later.
    """
    generator = torch.Generator().manual_seed(SEED)
    result: dict[str, Tensor] = {}
    for name, parameter in network.named_parameters():
        value = parameter.detach().clone()
        real = as_real(value)  # a view
        inputs = value[0].numel() if value.dim() > 1 else 1
        size = max(float(real.square().mean().sqrt()), inputs**-0.5) if real.numel() else 0.0
        real.add_(0.5 * size * torch.randn(real.shape, generator=generator).to(real.device))
        result[name] = value
    return result


def some_targets(problem: Problem, records: int) -> Tensor:
    """Existing targets: valid inputs of a loss can't be made up."""
    return some_rows(problem.targets, records)


def some_rows(values: Tensor, records: int) -> Tensor:
    """Evenly spaced rows, from the first to the last, since neighbours may be of one class. Some repeat where there are too few."""
    return values[torch.linspace(0, len(values) - 1, records).long().to(values.device)]


def _different_rows(features: Tensor, records: int) -> Tensor:
    """Rows whose whole numbers differ from the row's before them, as far as there are any among the rows that are tried.

    A row that is put in the place of an equal one wouldn't show that the network mixes them.
    """
    tried = some_rows(features, min(len(features), ROWS_TRIED))
    whole = [part.reshape(len(part), -1).long() for part in parts_of(tried).values() if not is_numeric(part)]
    first: dict[tuple[int, ...], int] = {}
    for row, numbers in enumerate(torch.cat(whole, dim=1).tolist()):
        first.setdefault(tuple(numbers), row)
    kinds = torch.tensor(list(first.values()), device=tried.device)
    return tried[kinds[torch.arange(records, device=tried.device) % len(kinds)]]


@contextmanager
def mode(network: nn.Module, training: bool) -> Iterator[None]:
    """Puts the network in one mode, and restores each module's mode afterwards."""
    before = {name: module.training for name, module in network.named_modules()}
    try:
        network.train(training)
        yield
    finally:
        for name, module in network.named_modules():
            module.training = before[name]


def draws_masks(problem: Problem) -> bool:
    """Whether the network in training mode draws from torch's own generator (dropout does): then that generator's state changes."""
    device = problem.features.device
    state = partial(torch.cuda.get_rng_state, device) if device.type == "cuda" else torch.get_rng_state
    with torch.random.fork_rng([device] if device.type == "cuda" else []), mode(problem.network, training=True), torch.no_grad():
        before = state()
        problem.network(made_up_features(problem.features, 1))
        return not torch.equal(before, state())
