r"""The objects of a storage elsewhere in a backup, under the names that they have in a data folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from zetadp.app.certificates.signing.digests import MANIFESTS, sha256_of_file
from zetadp.app.jobs.workspaces import HEAD, JOBS, Head
from zetadp.app.operations.archive import FILES, ArchiveWriter
from zetadp.app.storage.base import KeyTaken, ObjectMissing, Store
from zetadp.app.uploads.storage import DATA_SETS, UPLOADS

LOCAL = ("scratch", "cache", "borrowed", UPLOADS, DATA_SETS)
"""Folders of a data folder that hold only this machine's copies and unfinished files where the storage is elsewhere."""


def add_objects(archive: ArchiveWriter, store: Store, *, job_files: bool) -> int:
    """Add every object; returns their number. Raises StorageUnavailable."""
    count = 0
    for prefix in (UPLOADS, DATA_SETS, MANIFESTS):
        for one in store.listed(f"{prefix}/"):
            count += _added(archive, store, one.key)
    if job_files:
        for job_id in store.names(f"{JOBS}/"):
            count += _add_job(archive, store, f"{JOBS}/{job_id}/")
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


def _add_job(archive: ArchiveWriter, store: Store, prefix: str) -> int:
    """Add a job's objects. What its head names is deleted once the head has moved, so the head is added last, with all that it names."""
    count, added = 0, set[str]()
    while True:
        head = store.get(prefix + HEAD)
        named = [] if head is None else [file.key for file in Head.model_validate_json(head.content).files.values()]
        for key in named:
            if key not in added and (is_there := _added(archive, store, key)):
                added.add(key)
                count += is_there
        if added.issuperset(named):
            break
    for one in store.listed(prefix):
        if one.key not in added and one.key != prefix + HEAD:
            count += _added(archive, store, one.key)
    if head is not None:
        archive.add(f"{FILES}{prefix}{HEAD}", head.content)
        count += 1
    return count


def _added(archive: ArchiveWriter, store: Store, key: str) -> bool:
    """Whether it was there to add."""
    try:
        size = store.facts(key).bytes
        source = store.open(key)
    except ObjectMissing:
        return False
    with source:
        archive.add_stream(FILES + key, source, size)
    return True


def _belonging(files: Path) -> Iterator[Path]:
    for prefix in (UPLOADS, DATA_SETS, MANIFESTS, JOBS):
        for place, _, names in os.walk(files / prefix):
            for name in names:
                path = Path(place) / name
                # A job's log and lock are its worker's own.
                if prefix != JOBS or name == HEAD or len(path.relative_to(files).parts) > 3:
                    yield path
