r"""Public train/test splits, from a seed and from identities, never from what a record holds.

Our own stream draws them, since NumPy doesn't promise the same permutation from the same seed in its next version.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Strict

from mechanisms.errors import InvalidParameter
from mechanisms.source import RandomStream

SplitSeed = Annotated[int, Strict(), Field(ge=0, lt=2**63)]
_PURPOSE = "train/test split"


def shuffled(count: int, seed: int, purpose: str) -> NDArray[Any]:
    """The numbers 0 .. count - 1 in a random order, int64."""
    return np.argsort(RandomStream.from_seed(seed, purpose).uniform(count), kind="stable")


def by_record(records: int, seed: int, test_fraction: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Record numbers for training and for the test, at least one each.

    Raises:
      InvalidParameter: fewer than two records.
    """
    if records < 2:
        raise InvalidParameter("data", "at least two records, one to train on and one to hold out", records)
    order = shuffled(records, seed, _PURPOSE)
    held_out = min(max(1, round(test_fraction * records)), records - 1)
    return order[held_out:], order[:held_out]


def by_user(users: NDArray[Any], strata: NDArray[Any], seed: int, test_fraction: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Record numbers for training and for the test, in the order of the file, no user on both sides.

    Users are drawn within each stratum, at least one for each side, so that a class that few users have is on both.

    Args:
      users: (records,) identities, any integers.
      strata: (records,) integers; a user belongs to the largest of theirs.
      seed: of the draw.
      test_fraction: of each stratum's users, held out; in (0, 1).
    Raises:
      InvalidParameter: a stratum with fewer than two users.
    """
    names, member = np.unique(users, return_inverse=True)
    stratum = np.full(len(names), np.iinfo(np.int64).min)
    np.maximum.at(stratum, member, strata)
    # One draw for all users, so that the order of strata decides nothing.
    order = shuffled(len(names), seed, _PURPOSE)
    held_out = np.zeros(len(names), dtype=bool)
    for value in np.unique(stratum):
        mine = order[stratum[order] == value]
        if len(mine) < 2:
            raise InvalidParameter("data", f"of at least two users in every group (group {int(value)})", len(mine))
        held_out[mine[: min(max(1, round(test_fraction * len(mine))), len(mine) - 1)]] = True
    return np.flatnonzero(~held_out[member]), np.flatnonzero(held_out[member])


def numbered(users: NDArray[Any]) -> NDArray[Any]:
    """Identities as 0 .. users - 1 in the order of the identities, int64."""
    return np.unique(users, return_inverse=True)[1].astype(np.int64)
