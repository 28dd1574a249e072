r"""Public train/test splits that don't change for anybody else when one unit is added or removed.

The side of a unit is a function of a public seed and of the unit alone: of its user's name, of its own bytes, or, if neighbours
replace a unit and nobody comes or goes, of its place. A draw among all units, or within groups of them, would move others with each of
them: under add_remove the training data of neighbours would then differ in hundreds of records. The sizes of the sides aren't fixed.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Strict

from zetadp.mechanisms.errors import InvalidParameter

SplitSeed = Annotated[int, Strict(), Field(ge=0, lt=2**53)]
SplitBy = Literal["content", "position"]
"""What decides a record's side: its own bytes or name, for neighbours under add_remove or zero_out; its place, under replace_one."""
Keys = NDArray[np.int64]
"""A number of 64 bits for each record or its user that depends on nothing else."""

_PURPOSE = "train/test split"


def name_keys(names: NDArray[Any]) -> Keys:
    r"""For each record the key of a name: its own, or its user's.

    Args:
      names: words or finite numbers, (records,). A whole number has one key, whatever its type.
    Raises:
      InvalidParameter: two different names have the same key.

    >>> bool(name_keys(np.array(["12", "7"]))[0] == name_keys(np.array([12.0]))[0])
    True
    """
    known, member = np.unique(names, return_inverse=True)
    keys = np.array([_key(_spelled(name).encode()) for name in known.tolist()], dtype=np.int64)
    if len(np.unique(keys)) != len(keys):
        # They would be one unit with one bound: if one of them left, the sum would move by two.
        raise InvalidParameter("data", "a data set whose names have different 64-bit hashes", "two with the same hash")
    return keys[member]


def record_keys(*arrays: NDArray[Any]) -> Keys:
    """For each record the key of its numbers in all of the arrays, (records,): for example of its features and its target.

    Two records with the same key are placed together and are still separate units. A transform's last bits aren't the same on every
    machine, so keys are made of what was measured.
    """
    rows = [array.astype(array.dtype.newbyteorder("<"), order="C", copy=False) for array in arrays]
    return np.array([_key(b"".join(row.tobytes() for row in record)) for record in zip(*rows, strict=True)], dtype=np.int64)


def dealt(keys: Keys, parts: int, seed: int, purpose: str) -> Keys:
    """Which of ``parts`` >= 1 equally likely parts each key belongs to, 0 .. parts - 1, by a hash that the public seed keys."""
    return np.array([number * parts >> 64 for number in _hashed(keys, seed, purpose)], dtype=np.int64)


def is_chosen(keys: Keys, share: float, seed: int, purpose: str) -> NDArray[np.bool_]:
    """Whether a key belongs to the ``share`` in (0, 1) of all that is chosen, by a hash that the public seed keys."""
    threshold = int(share * 2.0**64)
    return np.array([number < threshold for number in _hashed(keys, seed, purpose)], dtype=bool)


def sides(keys: Keys, seed: int, test_fraction: float) -> tuple[NDArray[Any], NDArray[Any]]:
    r"""Record numbers for training and for the test, in the data set's order; records of one key are on one side.

    Args:
      test_fraction: of the keys, expected to be held out; in (0, 1).
    Raises:
      InvalidParameter: a side without any.
    """
    held_out = is_chosen(keys, test_fraction, seed, _PURPOSE)
    if held_out.all() or not held_out.any():
        empty = "training" if held_out.all() else "held-out"
        raise InvalidParameter("data.split_seed", "a seed that leaves records on both sides", f"no {empty} records, with {seed}")
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def by_record(split_by: SplitBy, keys: Keys, seed: int, test_fraction: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """``sides`` of records with these keys, or of their places. Raises as that does."""
    return sides(keys if split_by == "content" else np.arange(len(keys), dtype=np.int64), seed, test_fraction)


def numbered(keys: NDArray[Any]) -> NDArray[np.int64]:
    """Keys as 0 .. different ones - 1 in their order."""
    return np.unique(keys, return_inverse=True)[1].astype(np.int64)


def _spelled(name: object) -> str:
    return str(int(name)) if isinstance(name, float) and name.is_integer() else str(name)


def _key(identity: bytes) -> int:
    """Two identities out of 10^6 have the same key with probability 3e-8."""
    return int.from_bytes(hashlib.blake2b(identity, digest_size=8).digest(), "little", signed=True)


def _hashed(keys: Keys, seed: int, purpose: str) -> list[int]:
    """A number in 0 .. 2^64 - 1 for each key."""
    secret = hashlib.sha256(f"zetadp {purpose} {seed}".encode()).digest()
    found = {
        key: int.from_bytes(hashlib.blake2b(key.to_bytes(8, "little", signed=True), key=secret, digest_size=8).digest(), "little")
        for key in np.unique(keys).tolist()
    }
    return [found[key] for key in keys.tolist()]
