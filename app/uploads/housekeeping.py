r"""Removes files that no row refers to: of uploads and data sets that a dead process had begun or deleted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import delete, select

from zetadp.app.kit.database import Database, now
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.uploads import DataSetRow, UploadRow
from zetadp.app.uploads.reader import SCRATCH
from zetadp.app.uploads.storage import NEW, PART, remove_folder

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
    """Give up what was begun and is overdue, and remove unknown files."""
    # The folders are listed first: a row is there before its file, so what has none by then never will have one.
    files, folders = list(_files(settings.uploads_dir)), list(_folders(settings.made_data_sets_dir))
    moment = now()
    with database.writing() as session:
        for row in (UploadRow, DataSetRow):
            session.execute(delete(row).where(row.state.in_(BEGUN), row.due < moment))
        uploads = set(session.scalars(select(UploadRow.id)))
        data_sets = set(session.scalars(select(DataSetRow.id).where(DataSetRow.deleted.is_(None))))
    for path in files:
        if path.name.removesuffix(PART) not in uploads:
            path.unlink(missing_ok=True)
    for folder in folders:
        if folder.name.removeprefix(NEW) not in data_sets:
            remove_folder(folder)
    for folder in _folders(settings.uploads_dir / SCRATCH):
        if moment.timestamp() - folder.stat().st_mtime > OLDEST_SCRATCH_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def _files(place: Path) -> Iterator[Path]:
    for tenant in _folders(place):
        if tenant.name != SCRATCH:
            yield from (path for path in tenant.iterdir() if path.is_file())


def _folders(place: Path) -> Iterator[Path]:
    if place.is_dir():
        yield from (path for path in place.iterdir() if path.is_dir() and not path.is_symlink())
