r"""Which records belong to which unit of privacy, and which units live where."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mechanisms.source import RandomStream


def members_of(users: NDArray[Any], records_per_user: int) -> Tensor:
    r"""The records of each user, the first ``records_per_user`` of them in the data set's order: nobody else's records change them.

    Args:
      users: whose each record is, 0 .. users - 1 without gaps, (records,).
    Returns:
      (users, records of the largest user, at most ``records_per_user``), int64, padded with -1.
    """
    order = np.argsort(users, kind="stable")
    counts = np.bincount(users)
    starts = np.cumsum(counts) - counts
    place = np.arange(len(users)) - starts[users[order]]
    kept = place < records_per_user
    members = np.full((len(counts), min(int(counts.max()), records_per_user)), -1, dtype=np.int64)
    members[users[order][kept], place[kept]] = order[kept]
    return torch.from_numpy(members)


def dealt(sizes: Sequence[int], seed: int) -> tuple[Tensor, ...]:
    """The numbers of the units at each node, ascending, dealt at random from a public seed: (size,), int64, for each of the sizes."""
    # Another purpose than any private randomness, so that no stream of a reproducible run is seen here.
    keys = RandomStream.from_seed(seed, "public distribution of units to nodes").uniform(sum(sizes))
    places = np.split(np.argsort(keys, kind="stable"), np.cumsum(sizes)[:-1])
    return tuple(torch.from_numpy(np.sort(place).astype(np.int64)) for place in places)


def seed_of(seed: int, purpose: str) -> int:
    """A seed for one of several parts of a reproducible run, in 0 .. 2^63 - 1."""
    return int.from_bytes(hashlib.sha256(f"zetadp seed {purpose} {seed}".encode()).digest()[:8], "big") >> 1
