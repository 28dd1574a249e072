r"""A store in a folder: keys are paths below it. Machines that share the folder share the store."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path
from typing import final

from zetadp.app.storage.base import KeyTaken, Listed, ObjectFacts, ObjectMissing, Stored, checked

DRAFT, GONE, LOCK = ".draft-", ".gone-", ".lock"
"""Beginnings of the names of files that aren't objects: unfinished, being deleted, or locks."""


@final
class FolderStore:
    """Objects as files, readable only by the service's own account."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def check(self) -> None:
        """Does nothing: the conditions are the file system's."""

    def path(self, key: str) -> Path:
        return self._folder / checked(key)

    def get(self, key: str) -> Stored | None:
        try:
            content = self.path(key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Stored(content=content, version=_version(content))

    def create(self, key: str, content: bytes) -> str:
        path = self._place(key)
        with self._draft(path, content) as draft:
            try:
                # A link appears whole or not at all, and never replaces.
                os.link(draft, path)
            except FileExistsError:
                before = self.get(key)
                if before is None or before.content != content:
                    raise KeyTaken(key) from None
        sync_folder(path.parent)
        return _version(content)

    def replace(self, key: str, content: bytes, version: str) -> str:
        path = self._place(key)
        with (path.parent / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = self.get(key)
            if before is None or (before.version != version and before.content != content):
                raise KeyTaken(key)
            with self._draft(path, content) as draft:
                draft.replace(path)
        sync_folder(path.parent)
        return _version(content)

    def take(self, key: str, file: Path, sha256: str) -> None:  # noqa: ARG002 (of a file on a disk of its own nobody asks it)
        path = self._place(key)
        file.replace(path)
        sync_folder(path.parent)

    def open(self, key: str) -> BufferedReader:
        try:
            return self.path(key).open("rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise ObjectMissing(key) from None

    def fetch(self, key: str, into: Path) -> str:
        with self.open(key) as source, into.open("xb") as file:
            shutil.copyfileobj(source, file, 2**20)
            file.flush()
            os.fsync(file.fileno())
        return self.facts(key).sha256

    def facts(self, key: str) -> ObjectFacts:
        with self.open(key) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return ObjectFacts(bytes=file.tell(), sha256=digest)

    def listed(self, prefix: str) -> Iterator[Listed]:
        for place, folders, names in os.walk(self._folder / checked(prefix.rstrip("/"))):
            folders[:] = sorted(name for name in folders if not name.startswith(GONE))
            for name in sorted(names):
                path = Path(place) / name
                if name.startswith((DRAFT, LOCK)) or path.is_symlink():
                    continue
                with suppress(FileNotFoundError):
                    status = path.stat()
                    key = path.relative_to(self._folder).as_posix()
                    yield Listed(key=key, bytes=status.st_size, modified=datetime.fromtimestamp(status.st_mtime, UTC))

    def names(self, prefix: str) -> list[str]:
        folder = self._folder / checked(prefix.rstrip("/"))
        try:
            # What a process began to delete and didn't is still there, under its name.
            return sorted({path.name.removeprefix(GONE) for path in folder.iterdir() if not path.name.startswith((DRAFT, LOCK))})
        except FileNotFoundError:
            return []

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            with suppress(NotADirectoryError):
                self.path(key).unlink(missing_ok=True)

    def delete_all(self, prefix: str) -> None:
        remove_folder(self._folder / checked(prefix.rstrip("/")))

    def _place(self, key: str) -> Path:
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path

    @contextmanager
    def _draft(self, path: Path, content: bytes) -> Generator[Path]:
        """A file with this content on the disk, next to ``path``; gone afterwards."""
        draft = path.with_name(f"{DRAFT}{secrets.token_hex(8)}")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            yield draft
        finally:
            draft.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush the folder's entries to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_folder(folder: Path) -> None:
    """Remove the folder with its contents, if it exists; it is renamed first, so that nobody finds half of it."""
    gone = folder.with_name(f"{GONE}{folder.name}")
    shutil.rmtree(gone, ignore_errors=True)  # of a process that died at this
    with suppress(FileNotFoundError):
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _version(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
