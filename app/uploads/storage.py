r"""Storage of uploads and data sets: written on this machine's disk first, then put whole into the service's storage.

Names come from ids, never from a client.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import final

from zetadp.app.kit.disk import StorageFull, is_full
from zetadp.app.kit.settings import Settings
from zetadp.app.storage.base import StorageUnavailable, Store

UPLOADS, DATA_SETS = "uploads", "data-sets"
PART, NEW = ".part", ".new-"
"""Suffix of a file, and beginning of the name of a folder, that isn't complete yet."""


def private_folder(folder: Path) -> Path:
    """Makes the folder if it doesn't exist, for this service's own account only."""
    for place in (folder.parent, folder):
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def upload_key(tenant: str, upload_id: str) -> str:
    """Key of an upload. A tenant's name has only lowercase letters, digits and hyphens."""
    return f"{UPLOADS}/{tenant}/{upload_id}"


def data_set_prefix(data_set_id: str) -> str:
    """What the keys of a data set's files begin with; the trainer knows no tenants, so data sets are in one place."""
    return f"{DATA_SETS}/{data_set_id}/"


def unfinished_path(settings: Settings, tenant: str, upload_id: str) -> Path:
    """Where an upload is written until it is stored."""
    return settings.uploads_dir / tenant / f"{upload_id}{PART}"


@contextmanager
def room() -> Generator[None]:
    """Raises StorageFull if the disk has no room."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise StorageFull from error
        raise


@final
class Landing:
    r"""A file that is being received at ``part``, to be stored under ``key``; ``abandon`` removes both."""

    def __init__(self, part: Path, store: Store, key: str) -> None:
        private_folder(part.parent)
        self.part = part
        self._store = store
        self._key = key
        self._digest = hashlib.sha256()
        self.size = 0
        with room():
            self._file = os.fdopen(os.open(self.part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb", buffering=0)

    def write(self, piece: bytes | bytearray) -> None:
        """Append. Raises StorageFull."""
        self._digest.update(piece)
        rest = memoryview(piece)
        with room():
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
        self.size += len(piece)

    @property
    def sha256(self) -> str:
        """SHA-256 of what was written so far."""
        return self._digest.hexdigest()

    def settle(self) -> None:
        """Flush it to the disk, at a path where it can be read but isn't visible to others yet. Raises StorageFull."""
        with room():
            os.fsync(self._file.fileno())
            self._file.close()

    def land(self) -> None:
        """Store it. Raises StorageUnavailable."""
        with room():
            self._store.take(self._key, self.part, self.sha256)

    def abandon(self) -> None:
        """Remove it."""
        with suppress(OSError):
            self._file.close()
        self.part.unlink(missing_ok=True)
        with suppress(StorageUnavailable):  # what is left has no row, and is swept
            self._store.delete([self._key])


def write_whole(path: Path, content: bytes) -> None:
    """Write a new file with this content and flush it to the disk."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
