r"""Storage of uploads and data sets; files are written atomically. Names come from ids, never from a client."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import final

from zetadp.app.kit.disk import StorageFull, is_full
from zetadp.app.kit.settings import Settings

PART, NEW = ".part", ".new-"
"""Suffixes of a file and of a folder that isn't complete yet."""


def private_folder(folder: Path) -> Path:
    """Makes the folder if it doesn't exist, for this service's own account only."""
    for place in (folder.parent, folder):
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def upload_path(settings: Settings, tenant: str, upload_id: str) -> Path:
    """Path of an upload. A tenant's name has only lowercase letters, digits and hyphens."""
    return settings.uploads_dir / tenant / upload_id


def data_set_folder(settings: Settings, data_set_id: str) -> Path:
    """Folder of a data set; the trainer knows no tenants, so these folders are in one place."""
    return settings.made_data_sets_dir / data_set_id


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
    r"""A file to be stored at ``path``: next to it until ``land``, and gone after ``abandon``."""

    def __init__(self, path: Path) -> None:
        private_folder(path.parent)
        self._path = path
        self.part = path.with_name(path.name + PART)
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
        """Move it to its final path."""
        self.part.replace(self._path)
        sync_folder(self._path.parent)

    def abandon(self) -> None:
        """Remove it."""
        with suppress(OSError):
            self._file.close()
        self.part.unlink(missing_ok=True)
        self._path.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a new file with this content and flush it to the disk."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Flush the folder's entries to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_folder(folder: Path) -> None:
    """Remove the folder with its contents, if it exists; it is renamed first, so that nobody finds half of it."""
    gone = folder.with_name(f".gone-{folder.name}")
    with suppress(FileNotFoundError):
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
