r"""Counts of requests in fixed windows: a table in memory, which all processes of one service on one machine share if it is a file's."""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import struct
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import final

from limits.storage import Storage

_ENTRY = struct.Struct("<QdQ")
"""Digest of the key, end of its window (seconds since 1970), count."""
BUCKET = 16
"""Entries in which a key may be. If all are in use by others, the one whose window ends first is given up: it counts anew."""
BUCKETS = 2**13


@final
class Windows(Storage):
    r"""Fixed windows for the library ``limits``, whose own storage in memory starts a thread for nearly each count.

    A lock on the file makes each count atomic; the kernel gives it back if its holder dies. The counts last as long as the file.

    Args:
      path: the file that processes share; None for a process that is alone.
    """

    STORAGE_SCHEME = None

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self._file = None if path is None else path.open("a+b")
        size = BUCKETS * BUCKET * _ENTRY.size
        with self._held():
            if self._file is not None and os.fstat(self._file.fileno()).st_size < size:
                self._file.truncate(size)
        self._table = mmap.mmap(-1 if self._file is None else self._file.fileno(), size)
        self._lock = threading.Lock()

    def close(self) -> None:
        """No count is asked for any more."""
        self._table.close()
        if self._file is not None:
            self._file.close()

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Count, in a window of ``expiry`` seconds from the first count on; the count."""
        digest, place = _place(key)
        moment = time.time()
        with self._lock, self._held():
            at, ends, count = self._found(digest, place, moment)
            if ends <= moment:
                ends, count = moment + expiry, 0
            _ENTRY.pack_into(self._table, at, digest, ends, count + amount)
        return count + amount

    def get(self, key: str) -> int:
        digest, place = _place(key)
        moment = time.time()
        with self._lock, self._held():
            return self._found(digest, place, moment)[2]

    def get_expiry(self, key: str) -> float:
        digest, place = _place(key)
        moment = time.time()
        with self._lock, self._held():
            _, ends, _ = self._found(digest, place, moment)
            return max(ends, moment)

    def check(self) -> bool:
        return not self._table.closed

    def reset(self) -> int | None:
        with self._lock, self._held():
            self._table[:] = bytes(len(self._table))
        return None

    def clear(self, key: str) -> None:
        digest, place = _place(key)
        with self._lock, self._held():
            at, _, _ = self._found(digest, place, time.time())
            if _ENTRY.unpack_from(self._table, at)[0] == digest:
                _ENTRY.pack_into(self._table, at, 0, 0.0, 0)

    @property
    def base_exceptions(self) -> type[Exception] | tuple[type[Exception], ...]:
        return OSError

    def _found(self, digest: int, place: int, moment: float) -> tuple[int, float, int]:
        """Where the key's entry is or may be, the end of its window and its count; both 0 if it has none."""
        free, soonest = place, float("inf")
        for at in range(place, place + BUCKET * _ENTRY.size, _ENTRY.size):
            own, ends, count = _ENTRY.unpack_from(self._table, at)
            if own == digest:
                return (at, ends, count) if ends > moment else (at, 0.0, 0)
            ends = ends if ends > moment else 0.0
            if ends < soonest:
                free, soonest = at, ends
        return free, 0.0, 0

    @contextmanager
    def _held(self) -> Generator[None]:
        if self._file is None:
            yield
            return
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)


def _place(key: str) -> tuple[int, int]:
    """Its digest, never 0, and where its bucket begins."""
    digest = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") | 1
    return digest, (digest >> 1) % BUCKETS * BUCKET * _ENTRY.size
