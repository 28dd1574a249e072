r"""Made-up records that show, before training starts, what a network does with real ones. No outcome depends on anybody's data values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from trainer.engine.problem import Problem

SEED = 20240601
"""Of the made-up records, and of every run on them: a network with dropout is compared under the same masks."""


def made_up_features(problem: Problem, records: int) -> Tensor:
    """Standard normal real components in the data's shape, kind and place; integer data are repeated as they are."""
    features = problem.features
    shape = (records, *features.shape[1:])
    generator = torch.Generator().manual_seed(SEED)
    if features.is_complex():
        pairs = torch.randn(*shape, 2, generator=generator, dtype=torch.float32)
        return torch.view_as_complex(pairs).to(features.device, features.dtype)
    if features.is_floating_point():
        return torch.randn(shape, generator=generator, dtype=torch.float32).to(features.device, features.dtype)
    return some_rows(features, records)


def some_targets(problem: Problem, records: int) -> Tensor:
    """Targets that exist: what a loss takes can't be made up."""
    return some_rows(problem.targets, records)


def some_rows(values: Tensor, records: int) -> Tensor:
    """The first rows, from the start again where there are too few."""
    return values[torch.arange(records, device=values.device) % len(values)]


@contextmanager
def same_randomness(device: torch.device, seed: int) -> Iterator[None]:
    """Torch's global generator as after ``seed``, and as before afterwards."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield


@contextmanager
def mode(network: nn.Module, training: bool) -> Iterator[None]:
    """The network in one mode, and each of its modules as before afterwards."""
    before = {name: module.training for name, module in network.named_modules()}
    try:
        network.train(training)
        yield
    finally:
        for name, module in network.named_modules():
            module.training = before[name]
