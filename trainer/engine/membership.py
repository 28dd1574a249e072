r"""Which records belong to which unit of privacy, and which units are at which site."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zetadp.trainer.data.splits import Keys, dealt, numbered
from zetadp.trainer.specs.sampling import InTurns, Sampling


def members_of(users: NDArray[Any], records_per_user: int) -> Tensor:
    r"""The records of each user, the first ``records_per_user`` in the data set's order: other users' records don't affect the choice.

    Args:
      users: for each record its user's key, (records,).
    Returns:
      (users, records of the largest user, at most ``records_per_user``), int64, padded with -1.
    """
    users = numbered(users)
    order = np.argsort(users, kind="stable")
    counts = np.bincount(users)
    starts = np.cumsum(counts) - counts
    place = np.arange(len(users)) - starts[users[order]]
    kept = place < records_per_user
    members = np.full((len(counts), min(int(counts.max()), records_per_user)), -1, dtype=np.int64)
    members[users[order][kept], place[kept]] = order[kept]
    return torch.from_numpy(members)


def at_one_place(units: int, _keys: Callable[[], Keys]) -> tuple[Tensor, ...]:
    """All units in one place."""
    return (torch.arange(units),)


def at_nodes(nodes: int, seed: int, _units: int, keys: Callable[[], Keys]) -> tuple[Tensor, ...]:
    """The units at each node, see ``units_at_nodes``; ``keys`` gives the units' keys."""
    return units_at_nodes(keys(), nodes, seed)


def units_at_nodes(keys: Keys, nodes: int, seed: int) -> tuple[Tensor, ...]:
    r"""The numbers of the units at each node, ascending int64: a node may have none.

    A unit's node follows from the public seed and the unit alone, so one more unit moves nobody else.

    Args:
      keys: the units' keys, (units,); units with the same key are at the same node.
    """
    places = dealt(keys, nodes, seed, "distribution of units to nodes")
    return tuple(torch.from_numpy(np.flatnonzero(places == node).astype(np.int64)) for node in range(nodes))


def groups_of(sampling: Sampling, keys: Callable[[], Keys]) -> Tensor | None:
    r"""The group of each unit, (units,), int64, with cyclic sampling; None with any other.

    A unit's group follows from the public seed and the unit's key alone, so one more unit moves nobody else.

    Args:
      keys: gives the units' keys; units with the same key are in the same group.
    """
    if not isinstance(sampling, InTurns):
        return None
    return torch.from_numpy(dealt(keys(), sampling.groups, sampling.seed, "groups that take turns"))


def seed_of(seed: int, purpose: str) -> int:
    """A seed for one of several parts of a reproducible run, in 0 .. 2^63 - 1."""
    return int.from_bytes(hashlib.sha256(f"zetadp seed {purpose} {seed}".encode()).digest()[:8], "big") >> 1
