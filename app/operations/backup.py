r"""Makes a backup while the service runs: the database as of one moment, then the files, which are never changed in place.

Files are read after the rows, since a file exists before the row that refers to it. A checkpoint may be newer than its job's row; this
doesn't release any step a second time, since training continues from the checkpoint.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any, final

from sqlalchemy import Connection, Table, select, text

from zetadp.app.certificates.signing.noise_keys import NOISE_KEYS
from zetadp.app.jobs.workspaces import JOBS
from zetadp.app.kit.database import Database, now, revisions
from zetadp.app.kit.settings import Settings
from zetadp.app.migrations.models import Base
from zetadp.app.operations.archive import (
    FILES,
    LARGEST_CHUNK,
    ROWS,
    ArchiveWriter,
    BackupUnusable,
    Kind,
    LedgerEnd,
    Manifest,
    StorageKind,
    TableDump,
    kind_of,
    written,
)
from zetadp.app.operations.objects import LOCAL, add_objects
from zetadp.app.storage.opening import storage_of
from zetadp.app.tables.ledgers import LedgerEntryRow, LedgerRow
from zetadp.app.tables.operations import BackupRow
from zetadp.mechanisms.base import Value
from zetadp.trainer.request import NOISE_KEY
from zetadp.version import VERSION

NOT_KEPT = frozenset({"backups", "executors", "housekeeping", "job_turns", "launches"})
"""Tables of this service alone: its backups, leases, when a round is due, whose turn it is, and what clusters were asked for."""
DATABASES = ("zetadp.sqlite", "queue.sqlite")
"""Ours is in the backup as rows. The queue's holds only calls that wake idle workers, which also look for jobs themselves."""
UNFINISHED = (".draft-", ".new-", ".part", ".new", ".lock")
SECRET = (NOISE_KEYS,)
"""Folders whose files take the noise away from what was released. No backup has them: it is kept longer, and by more people."""
ROWS_AT_ONCE = 500


@final
class BackedUp(Value):
    """What a backup holds. ``made``: when it began."""

    made: datetime
    rows: int
    files: int
    ledgers: tuple[LedgerEnd, ...]


def back_up(settings: Settings, database: Database, out: IO[bytes], *, job_files: bool) -> BackedUp:
    """Write a backup. Raises BackupUnusable if the tables don't have this version, StorageUnavailable, and OSError if there is no room."""
    made = now()
    with ArchiveWriter(out) as archive:
        with database.snapshot() as connection:
            found = connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
            if list(found) != revisions()[:1]:
                raise BackupUnusable(
                    f"the database has tables of version {', '.join(found)}, this is for {revisions()[0]}: start the service once"
                )
            ledgers = tuple(_ledgers(connection))
            tables = tuple(_dumped(archive, connection, table) for table in _tables())
        storage = storage_of(settings)
        left_out = (*SECRET, *(() if job_files else (JOBS,)), *(LOCAL if storage.is_elsewhere else ()))
        count = sum(archive.add_file(FILES + name, settings.data_dir / name) for name in _files(settings.data_dir, left_out))
        if storage.is_elsewhere:
            count += add_objects(archive, storage.store, settings.data_dir, job_files=job_files)
        archive.finish(
            Manifest(
                version=VERSION,
                revision=revisions()[0],
                made=made,
                job_files=job_files,
                storage=kind_of_storage(settings),
                tables=tables,
                ledgers=ledgers,
                members=archive.members,
            )
        )
    return BackedUp(made=made, rows=sum(table.rows for table in tables), files=count, ledgers=ledgers)


def note_backup(database: Database, done: BackedUp) -> None:
    """Remember that this backup was written whole, for operators: nobody knows whether it is kept, or can be restored."""
    with database.writing() as session:
        session.merge(BackupRow(made=done.made))


def _tables() -> list[Table]:
    """The tables in order: those that others refer to come first."""
    return [table for table in Base.metadata.sorted_tables if table.name not in NOT_KEPT]


def _dumped(archive: ArchiveWriter, connection: Connection, table: Table) -> TableDump:
    columns: tuple[tuple[str, Kind], ...] = tuple((column.name, kind_of(column)) for column in table.columns)
    rows, number = 0, 0
    chunk = bytearray()
    for row in _rows(connection, table):
        values = [written(kind, value) for (_, kind), value in zip(columns, row, strict=True)]
        chunk += json.dumps(values, separators=(",", ":")).encode() + b"\n"
        rows += 1
        if len(chunk) >= LARGEST_CHUNK:
            archive.add(f"{ROWS}{table.name}/{number:08d}.jsonl", bytes(chunk))
            number += 1
            chunk.clear()
    if chunk:
        archive.add(f"{ROWS}{table.name}/{number:08d}.jsonl", bytes(chunk))
    return TableDump(name=table.name, columns=columns, rows=rows)


def _rows(connection: Connection, table: Table) -> Iterator[Any]:
    ordered = select(table).order_by(*table.primary_key.columns).execution_options(yield_per=ROWS_AT_ONCE)
    yield from connection.execute(ordered)


def _ledgers(connection: Connection) -> Iterator[LedgerEnd]:
    last = (LedgerEntryRow.ledger_id == LedgerRow.id) & (LedgerEntryRow.number == LedgerRow.entries)
    found = select(LedgerRow.id, LedgerRow.tenant, LedgerRow.name, LedgerRow.entries, LedgerRow.head, LedgerEntryRow.time)
    for row in connection.execute(found.join(LedgerEntryRow, last).order_by(LedgerRow.id)):
        yield LedgerEnd(ledger=row[0], tenant=row[1], name=row[2], entries=row[3], head=row[4], time=row[5])


def kind_of_storage(settings: Settings) -> StorageKind:
    """As a manifest names it."""
    return "elsewhere" if settings.storage_url else "folder"


def _files(folder: Path, left_out: Sequence[str]) -> Iterator[str]:
    """Names of the plain files to back up, below the data folder but not in these folders of it."""
    for place, folders, names in os.walk(folder):
        here = Path(place)
        is_top = here == folder
        folders[:] = sorted(name for name in folders if not name.startswith(".new-") and not (is_top and name in left_out))
        for name in sorted(names):
            is_database = is_top and name.startswith(DATABASES)
            if not is_database and name != NOISE_KEY and not name.startswith(UNFINISHED) and not name.endswith(UNFINISHED):
                yield (here / name).relative_to(folder).as_posix()
