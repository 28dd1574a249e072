r"""Seeding torch's own generators, which dropout and random variants draw from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


def seed_torch(device: torch.device, seed: int) -> None:
    r"""Seeds the generators of the processor and, where ``device`` is one, of all CUDA devices.

    ``torch.manual_seed`` draws the same numbers. But for every kind of accelerator that isn't in use it writes down the whole call stack,
    each time and for good: memory that grows with the steps.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(seed)


def same_draws(device: torch.device) -> Callable[[], None]:
    """A function that takes torch's own generator of this device back to where it is now."""
    if device.type == "cuda":
        state = torch.cuda.get_rng_state(device)
        return lambda: torch.cuda.set_rng_state(state, device)
    state = torch.get_rng_state()
    return lambda: torch.set_rng_state(state)


@contextmanager
def torch_seeded(device: torch.device, seed: int) -> Iterator[None]:
    """Seeds torch's own generators with ``seed``, and restores the processor's and the device's afterwards."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        seed_torch(device, seed)
        yield
