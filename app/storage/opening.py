r"""The storage of a service: the store that its settings name, and what a process of this machine does with it."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import final
from urllib.parse import urlsplit

from zetadp.app.kit.settings import Settings
from zetadp.app.storage.base import Store
from zetadp.app.storage.cache import Cache
from zetadp.app.storage.folder import FolderStore
from zetadp.app.storage.s3 import S3Store

CACHE, BORROWED = "cache", "borrowed"
"""Folders in ``data_dir``."""
OLDEST_BORROWED_SECONDS = 86_400.0


@final
class Storage:
    r"""A store and this machine's copies of what is in it.

    Attributes:
      store: where all objects are.
      is_elsewhere: whether it is not a folder of this machine.
    """

    def __init__(self, store: Store, cache: Cache, borrowed: Path, *, is_elsewhere: bool) -> None:
        self.store = store
        self.is_elsewhere = is_elsewhere
        self._cache = cache
        self._borrowed = borrowed

    def prepare(self) -> None:
        """At the start of a process that depends on it: check the store, and drop old copies. Raises as ``Store.check``."""
        self.store.check()
        self._cache.shrink()

    def lay_out(self, key: str, into: Path, sha256: str | None = None) -> None:
        r"""Make ``into`` a read-only file with the object's contents, which are checked.

        Args:
          sha256: of the object as the caller knows it; None for what the store says.
        Raises:
          ObjectMissing, ObjectDamaged, StorageUnavailable: it can't be read.
          OSError: ``into`` exists, or there is no room.
        """
        facts = self.store.facts(key)
        self._cache.link(sha256 or facts.sha256, facts.bytes, into, lambda file: self.store.fetch(key, file))

    @contextmanager
    def at_hand(self, key: str, sha256: str | None = None) -> Generator[Path]:
        """A file with the object's contents, to read while the context lasts. Raises as ``lay_out``."""
        if (path := self.store.path(key)) is not None:
            yield path
            return
        copy = self.borrow(key, sha256)
        try:
            yield copy
        finally:
            copy.unlink(missing_ok=True)

    def borrow(self, key: str, sha256: str | None = None) -> Path:
        """A file of its own with the object's contents, for whoever deletes it afterwards. Raises as ``lay_out``."""
        self._borrowed.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in self._borrowed.iterdir():
            try:
                if time.time() - left.stat().st_ctime > OLDEST_BORROWED_SECONDS:
                    left.unlink()
            except FileNotFoundError:
                continue
        copy = self._borrowed / secrets.token_hex(16)
        self.lay_out(key, copy, sha256)
        return copy


def storage_of(settings: Settings) -> Storage:
    """The storage that the settings name; one for each process. Raises InvalidParameter if it can't be used."""
    return _storage(settings.storage_url, settings.data_dir.absolute(), settings.storage_cache_bytes, os.getpid())


@lru_cache(maxsize=8)
def _storage(url: str, data_dir: Path, cache_bytes: int, _process: int) -> Storage:
    # A process that was forked makes its own: connections and threads of a store don't come along.
    store: Store
    if url:
        place = urlsplit(url)
        store = S3Store(place.netloc, place.path.strip("/"))
    else:
        store = FolderStore(data_dir)
    return Storage(store, Cache(data_dir / CACHE, cache_bytes), data_dir / BORROWED, is_elsewhere=bool(url))
