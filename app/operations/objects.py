r"""The objects of a storage elsewhere in a backup, under the names that they have in a data folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import final

from zetadp.app.certificates.signing.digests import MANIFESTS, sha256_of_file
from zetadp.app.jobs.workspaces import HEAD, JOBS, Head
from zetadp.app.operations.archive import FILES, ArchiveWriter
from zetadp.app.storage.base import KeyTaken, ObjectMissing, Store
from zetadp.app.uploads.storage import DATA_SETS, UPLOADS

LOCAL = ("scratch", "cache", "borrowed", UPLOADS, DATA_SETS)
"""Folders of a data folder that hold only this machine's copies and unfinished files where the storage is elsewhere."""


def add_objects(archive: ArchiveWriter, store: Store, data_dir: Path, *, job_files: bool) -> int:
    """Add every object, fetched into the data folder one after the other; returns their number. Raises StorageUnavailable."""
    with tempfile.TemporaryDirectory(prefix=".new-", dir=data_dir) as folder:
        adding = _Adding(archive, store, Path(folder) / "object")
        count = 0
        for prefix in (UPLOADS, DATA_SETS, MANIFESTS):
            for one in store.listed(f"{prefix}/"):
                count += adding.one(one.key)
        if job_files:
            for job_id in store.names(f"{JOBS}/"):
                count += adding.job(f"{JOBS}/{job_id}/")
        return count


def restore_objects(files: Path, store: Store) -> None:
    r"""Move what belongs into the store from the unpacked data folder; the rest stays there.

    A head that is in the store already stays: it is newer than the backup's, and what was released after the backup isn't released again.

    Raises:
      StorageUnavailable: try again; what is in the store by then doesn't harm.
    """
    for path in list(_belonging(files)):
        key = path.relative_to(files).as_posix()
        if path.name == HEAD:
            with suppress(KeyTaken):
                store.create(key, path.read_bytes())
            path.unlink()
        else:
            store.take(key, path, sha256_of_file(path))


@final
class _Adding:
    """Adds objects to a backup, each by way of one file."""

    def __init__(self, archive: ArchiveWriter, store: Store, here: Path) -> None:
        self._archive, self._store, self._here = archive, store, here

    def job(self, prefix: str) -> int:
        """Add a job's objects. What its head names is deleted once that has moved, so the head is added last, with all that it names."""
        count, added = 0, set[str]()
        while True:
            head = self._store.get(prefix + HEAD)
            named = [] if head is None else [file.key for file in Head.model_validate_json(head.content).files.values()]
            for key in named:
                if key not in added and (is_there := self.one(key)):
                    added.add(key)
                    count += is_there
            if added.issuperset(named):
                break
        for one in self._store.listed(prefix):
            if one.key not in added and one.key != prefix + HEAD:
                count += self.one(one.key)
        if head is not None:
            self._archive.add(f"{FILES}{prefix}{HEAD}", head.content)
            count += 1
        return count

    def one(self, key: str) -> bool:
        """Whether it was there to add. A running job may delete it at any time, so nothing is written before all of it is here."""
        self._here.unlink(missing_ok=True)
        try:
            self._store.fetch(key, self._here)
        except ObjectMissing:
            return False
        with self._here.open("rb") as whole:
            self._archive.add_stream(FILES + key, whole, self._here.stat().st_size)
        return True


def _belonging(files: Path) -> Iterator[Path]:
    for prefix in (UPLOADS, DATA_SETS, MANIFESTS, JOBS):
        for place, _, names in os.walk(files / prefix):
            for name in names:
                path = Path(place) / name
                # A job's log and lock are its worker's own.
                if prefix != JOBS or name == HEAD or len(path.relative_to(files).parts) > 3:
                    yield path
