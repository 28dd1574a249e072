r"""A local cache of objects by their digest, shared by all processes that have its folder.

A file appears in it whole, after its digest was checked, and never changes. Users get a link of their own to it, so that nothing in use is
lost when the cache drops what was used longest ago. A link takes no room of its own as long as the cache has the file too.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import final

from zetadp.app.storage.base import ObjectDamaged

LOCK, PART = ".lock-", ".part-"
OLDEST_PART_SECONDS = 86_400.0
"""An unfinished file of this age is of a process that died."""
UNUSED_SECONDS = 7 * 86_400.0
"""What nobody has used for so long goes whether or not there is room: what was deleted in the store must go here too."""


@final
class Cache:
    r"""Files of one folder, named by their SHA-256.

    Args:
      limit_bytes: what they may take together. A larger object isn't kept at all.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit = limit_bytes

    def link(self, sha256: str, bytes_: int, into: Path, fetch: Callable[[Path], str]) -> None:
        r"""Make ``into`` a read-only file with these contents; of several processes that want it at once, one fetches it.

        Args:
          fetch: writes it into a new file and returns its digest.
        Raises:
          ObjectDamaged: what was fetched has another digest.
          OSError: ``into`` exists, or there is no room.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if bytes_ > self._limit:
            _check(sha256, fetch(into), into)
            return
        kept = self._folder / sha256
        # One of a few locks: their files stay, since deleting a lock's file would let two processes hold it.
        with _locked(self._folder / f"{LOCK}{sha256[:2]}"):
            if _linked(kept, into):
                return
            part = self._folder / f"{PART}{secrets.token_hex(8)}"
            try:
                _check(sha256, fetch(part), part)
                part.chmod(0o400)
                part.replace(kept)
            finally:
                part.unlink(missing_ok=True)
            os.link(kept, into)
        self.shrink()

    def shrink(self) -> None:
        """Drop what nobody has used for long, and then what was used longest ago until the rest fits."""
        found: list[tuple[float, int, Path]] = []
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        moment = time.time()
        with _locked(self._folder / f"{LOCK}all"):
            for path in self._folder.iterdir():
                with suppress(FileNotFoundError):
                    status = path.stat()
                    is_part = path.name.startswith(PART)
                    if moment - status.st_mtime > (OLDEST_PART_SECONDS if is_part else UNUSED_SECONDS) and not path.name.startswith(LOCK):
                        path.unlink()
                    elif not is_part and not path.name.startswith(LOCK):
                        found.append((status.st_mtime, status.st_size, path))
            total = sum(size for _, size, _ in found)
            for _, size, path in sorted(found):
                if total <= self._limit:
                    return
                path.unlink(missing_ok=True)
                total -= size


def _linked(kept: Path, into: Path) -> bool:
    try:
        os.link(kept, into)
    except FileNotFoundError:
        return False
    with suppress(FileNotFoundError):  # dropped since: what was linked stays
        os.utime(kept)
    return True


def _check(expected: str, got: str, file: Path) -> None:
    if got != expected:
        file.unlink()
        raise ObjectDamaged(file.name, expected, got)


@contextmanager
def _locked(path: Path) -> Generator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
