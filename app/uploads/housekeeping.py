r"""Removes files that no row refers to: of uploads and data sets that a dead process had begun or deleted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import delete, select

from zetadp.app.kit.database import Database, now
from zetadp.app.kit.settings import Settings
from zetadp.app.storage.folder import GONE, remove_folder
from zetadp.app.storage.opening import storage_of
from zetadp.app.tables.uploads import DataSetRow, UploadRow
from zetadp.app.uploads.reader import SCRATCH
from zetadp.app.uploads.storage import DATA_SETS, NEW, PART, UPLOADS, data_set_prefix, upload_key

BEGUN = ("receiving", "making")
OLDEST_SCRATCH_SECONDS = 86_400.0


def give_up_overdue(settings: Settings, database: Database, tenant: str) -> None:
    """Free what is reserved for a tenant's uploads and data sets that were never finished."""
    with database.reading() as session:
        overdue = (
            select(row.id).where(row.tenant == tenant, row.state.in_(BEGUN), row.due < now()).limit(1) for row in (UploadRow, DataSetRow)
        )
        found = any(session.scalar(query) is not None for query in overdue)
    if found:
        sweep(settings, database)


def sweep(settings: Settings, database: Database) -> None:
    """Give up what was begun and is overdue, and remove unknown files. Raises StorageUnavailable."""
    store = storage_of(settings).store
    # These are listed first: a row is there before its file, so what has none by then never will have one.
    tenants = [name for name in store.names(f"{UPLOADS}/") if name != SCRATCH]
    stored = [(tenant, name) for tenant in tenants for name in store.names(f"{UPLOADS}/{tenant}/")]
    made = [name for name in store.names(f"{DATA_SETS}/") if not name.startswith(NEW)]
    parts, folders = list(_parts(settings.uploads_dir)), list(_local(settings.made_data_sets_dir))
    moment = now()
    with database.writing() as session:
        for row in (UploadRow, DataSetRow):
            session.execute(delete(row).where(row.state.in_(BEGUN), row.due < moment))
        uploads = set(session.scalars(select(UploadRow.id)))
        data_sets = set(session.scalars(select(DataSetRow.id).where(DataSetRow.deleted.is_(None))))
    store.delete([upload_key(tenant, name) for tenant, name in stored if name.removesuffix(PART) not in uploads])
    for name in made:
        if name not in data_sets:
            store.delete_all(data_set_prefix(name))
    for part in parts:
        if part.name.removesuffix(PART) not in uploads:
            part.unlink(missing_ok=True)
    for folder in folders:
        if folder.name.removeprefix(NEW) not in data_sets:
            remove_folder(folder)
    for folder in _folders(settings.uploads_dir / SCRATCH):
        if moment.timestamp() - folder.stat().st_mtime > OLDEST_SCRATCH_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def _parts(place: Path) -> Iterator[Path]:
    for tenant in _folders(place):
        if tenant.name != SCRATCH:
            yield from tenant.glob(f"*{PART}")


def _local(place: Path) -> Iterator[Path]:
    """Folders of data sets on this machine: unfinished ones, and copies of descriptions where the storage is elsewhere."""
    yield from (folder for folder in _folders(place) if not folder.name.startswith(GONE))


def _folders(place: Path) -> Iterator[Path]:
    if place.is_dir():
        yield from (path for path in place.iterdir() if path.is_dir() and not path.is_symlink())
