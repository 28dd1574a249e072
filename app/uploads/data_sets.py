r"""Operations on data sets: make one from uploads, read, list and delete. A data set never changes."""

from __future__ import annotations

import hashlib
import json
import math
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import final

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from zetadp.app.certificates.signing.canonical import canonical_json
from zetadp.app.certificates.signing.digests import fresh_nonce, sha256_of_file
from zetadp.app.kit.database import Database, new_id, now
from zetadp.app.kit.disk import check_room as check_disk
from zetadp.app.kit.settings import Settings
from zetadp.app.storage.base import StorageUnavailable
from zetadp.app.storage.folder import remove_folder
from zetadp.app.storage.opening import storage_of
from zetadp.app.tables.certificates import CertificateRow
from zetadp.app.tables.job_states import JobState
from zetadp.app.tables.jobs import JobRow
from zetadp.app.tables.uploads import DataSetRow, UploadRow
from zetadp.app.uploads.data_set_definition import ColumnsSource, DataSetDefinition
from zetadp.app.uploads.errors import DataSetInUse, DataSetNotFound, UploadCutOff, UploadKeyReused
from zetadp.app.uploads.housekeeping import give_up_overdue
from zetadp.app.uploads.parser import MadeArrays, ReadableFile
from zetadp.app.uploads.quota import check_room, lock_tenant
from zetadp.app.uploads.reader import Reader
from zetadp.app.uploads.resources import DataSet, DataSetManifest, DataSetPage, ManifestUpload
from zetadp.app.uploads.storage import NEW, data_set_prefix, private_folder, room, upload_key, write_whole
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import NamedDataSet
from zetadp.trainer.data.formats import ArrayFacts, Contents
from zetadp.trainer.data.uploaded import DESCRIPTION_FILE, StoredDataSet, Uploaded

MAKING, READY, DELETED = "making", "ready", "deleted"
OVERHEAD = 2**16
"""Bytes of a data set in addition to its numbers."""


@final
class DataSetService:
    """The data sets of one tenant; it can't see those of another."""

    def __init__(self, settings: Settings, database: Database, reader: Reader, tenant: str) -> None:
        self._settings = settings
        self._database = database
        self._reader = reader
        self._tenant = tenant

    def begin(self, definition: DataSetDefinition, key: str | None) -> tuple[str, dict[str, ManifestUpload]] | DataSet:
        r"""Reserve space for a data set: its id and the uploads it is made from; or, with a key that was used before, what it made then.

        Raises:
          InvalidParameter: an upload or an array isn't there.
          QuotaExceeded, StorageFull: there is no room.
          UploadKeyReused: the key came with another request before.
        """
        digest = hashlib.sha256(json.dumps(definition.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()
        moment = now()
        give_up_overdue(self._settings, self._database, self._tenant)
        with self._database.writing() as session:
            # The tenant's lock comes first: two requests with one key come one after the other.
            lock_tenant(session, self._tenant)
            if key is not None and (before := self._made_before(session, key, digest)) is not None:
                return before
            uploads = self._uploads(session, definition)
            size = _size(definition, {name: _contents(row) for name, row in uploads.items()})
            check_room(session, self._tenant, self._settings.tenant_bytes, size)
            check_disk(self._settings, size)
            row = DataSetRow(
                id=new_id(),
                tenant=self._tenant,
                state=MAKING,
                created=moment,
                due=moment + timedelta(seconds=10.0 * self._settings.reading_seconds),
                bytes=size,
                definition=definition.model_dump_json(),
                idempotency_key=key,
                request_sha256=digest,
            )
            session.add(row)
            return row.id, {name: _manifest_upload(row) for name, row in uploads.items()}

    def read(self, data_set_id: str, definition: DataSetDefinition, uploads: dict[str, ManifestUpload]) -> MadeArrays:
        """Write the arrays on this machine's disk. Raises InvalidParameter and StorageFull, as the reader does, and StorageUnavailable."""
        folder = self._unfinished(data_set_id)
        with room():
            private_folder(folder)
        with self._database.reading() as session:
            kept = session.get_one(DataSetRow, data_set_id).bytes
        storage = storage_of(self._settings)
        with ExitStack() as stack:
            files: dict[str, ReadableFile] = {}
            for name, one in uploads.items():
                with room():
                    path = stack.enter_context(storage.at_hand(upload_key(self._tenant, name), one.sha256))
                files[name] = ReadableFile(path=path, format=one.format)
            return self._reader.make(definition, files, folder, kept)

    def finish(self, data_set_id: str, definition: DataSetDefinition, uploads: dict[str, ManifestUpload], made: MadeArrays) -> DataSet:
        """Store the data set.

        Raises UploadCutOff if making it took longer than its space was reserved for, StorageFull and StorageUnavailable.
        """
        folder, moment = self._unfinished(data_set_id), now()
        manifest = DataSetManifest(
            id=data_set_id,
            created=moment,
            definition=definition,
            uploads=tuple(uploads.values()),
            facts=made.facts,
            arrays_sha256=made.arrays_sha256,
            nonce=fresh_nonce(),
        )
        text = canonical_json(manifest)
        named = NamedDataSet(id=data_set_id, manifest_sha256=hashlib.sha256(text).hexdigest(), words=definition.description)
        stored = StoredDataSet(named=named, facts=made.facts, arrays_sha256=made.arrays_sha256, rebuilds_itself=made.rebuilds_itself)
        with room():
            write_whole(folder / DESCRIPTION_FILE, stored.model_dump_json().encode())
            files = sorted(folder.iterdir())
            size = sum(path.stat().st_size for path in files)
            # Nobody looks for it before its row is ready.
            store, prefix = storage_of(self._settings).store, data_set_prefix(data_set_id)
            for path in files:
                store.take(prefix + path.name, path, sha256_of_file(path))
            folder.rmdir()
        with self._database.writing() as session:
            row = session.get(DataSetRow, data_set_id, with_for_update=True)
            if row is None or row.state != MAKING:
                raise UploadCutOff(size)
            row.state, row.created, row.bytes, row.stored, row.manifest = READY, moment, size, stored.model_dump_json(), text.decode()
            session.flush()
            return _resource(row)

    def abandon(self, data_set_id: str) -> None:
        """Remove everything of it, arrays and reserved space."""
        remove_folder(self._unfinished(data_set_id))
        self._delete_files(data_set_id)
        with self._database.writing() as session:
            session.execute(delete(DataSetRow).where(DataSetRow.id == data_set_id, DataSetRow.state == MAKING))

    def get(self, data_set_id: str) -> DataSet:
        """One data set. Raises DataSetNotFound."""
        with self._database.reading() as session:
            return _resource(self._found(session.get(DataSetRow, data_set_id), data_set_id))

    def manifest(self, data_set_id: str) -> bytes:
        """The exact bytes whose SHA-256 certificates name. Raises DataSetNotFound."""
        with self._database.reading() as session:
            row = self._found(session.get(DataSetRow, data_set_id), data_set_id)
            assert row.manifest is not None  # it is made
            return row.manifest.encode()

    def page(self, before: str | None, limit: int) -> DataSetPage:
        """At most ``limit`` data sets that are older than ``before``, newest first."""
        query = select(DataSetRow).where(DataSetRow.tenant == self._tenant, DataSetRow.state != MAKING)
        if before is not None:
            query = query.where(DataSetRow.id < before)
        with self._database.reading() as session:
            rows = list(session.scalars(query.order_by(DataSetRow.id.desc()).limit(limit + 1)))
        return DataSetPage(data_sets=tuple(_resource(row) for row in rows[:limit]), next=rows[limit - 1].id if len(rows) > limit else None)

    def delete(self, data_set_id: str) -> None:
        """Delete the arrays; if a certificate names the data set, its manifest stays. Raises DataSetNotFound, DataSetInUse."""
        of_it = (JobRow.tenant == self._tenant, JobRow.document[("spec", "data", "data_set")].as_string() == data_set_id)
        with self._database.writing() as session:
            row = self._found(session.get(DataSetRow, data_set_id, with_for_update=True), data_set_id)
            ended = [state for state in JobState if state.is_final]
            running = session.scalar(select(JobRow.id).where(*of_it, JobRow.state.not_in(ended)).limit(1))
            if running is not None:
                raise DataSetInUse(data_set_id, running)
            certified = select(CertificateRow.id).join(JobRow, CertificateRow.job_id == JobRow.id).where(*of_it).limit(1)
            if session.scalar(certified) is None:
                session.delete(row)
            elif row.state != DELETED:
                row.state, row.deleted, row.bytes = DELETED, now(), 0
        self._delete_files(data_set_id)

    def _delete_files(self, data_set_id: str) -> None:
        with suppress(StorageUnavailable):  # what is left has no row, and is swept
            storage_of(self._settings).store.delete_all(data_set_prefix(data_set_id))
        remove_folder(self._settings.made_data_sets_dir / data_set_id)  # where the storage is elsewhere, a copy of its description

    def _unfinished(self, data_set_id: str) -> Path:
        return self._settings.made_data_sets_dir / f"{NEW}{data_set_id}"

    def _made_before(self, session: Session, key: str, digest: str) -> DataSet | None:
        query = select(DataSetRow).where(DataSetRow.tenant == self._tenant, DataSetRow.idempotency_key == key)
        row = session.scalar(query)
        if row is None:
            return None
        if row.request_sha256 != digest or row.state == MAKING:
            raise UploadKeyReused(key, is_done=row.state != MAKING)
        return _resource(row)

    def _uploads(self, session: Session, definition: DataSetDefinition) -> dict[str, UploadRow]:
        found: dict[str, UploadRow] = {}
        for place, source in definition.sources():
            if source.upload in found:
                continue
            row = session.get(UploadRow, source.upload)
            if row is None or row.tenant != self._tenant or row.contents is None:
                raise InvalidParameter(f"{place}.upload", "the id of one of your uploads", source.upload)
            found[source.upload] = row
        return found

    def _found(self, row: DataSetRow | None, data_set_id: str) -> DataSetRow:
        if row is None or row.tenant != self._tenant or row.state == MAKING:
            raise DataSetNotFound(data_set_id)
        return row


def _size(definition: DataSetDefinition, contents: dict[str, dict[str, ArrayFacts]]) -> int:
    """The most bytes that the data set will have. Raises InvalidParameter if an array doesn't exist."""
    width, total = 8 if definition.numbers == "complex" else 4, OVERHEAD
    for place, source in definition.sources():
        arrays = contents[source.upload]
        if isinstance(source, ColumnsSource):
            # The longest: of a table all are of one length, of a two-dimensional array the first axis counts.
            total += len(source.columns) * max(facts.shape[0] if facts.shape else 1 for facts in arrays.values()) * 4
            continue
        for field, name in (("array", source.array), ("imaginary", source.imaginary)):
            if name is not None and name not in arrays:
                raise InvalidParameter(f"{place}.{field}", f"one of {', '.join(list(arrays)[:20])}", name)
        total += math.prod(arrays[source.array].shape) * max(width, 8 if not place.startswith(("features", "held_out.features")) else width)
    return total


def _contents(row: UploadRow) -> dict[str, ArrayFacts]:
    assert row.contents is not None  # the upload is stored
    return {facts.name: facts for facts in Contents.model_validate_json(row.contents).arrays}


def _manifest_upload(row: UploadRow) -> ManifestUpload:
    return ManifestUpload.model_validate({"id": row.id, "format": row.format, "bytes": row.bytes, "sha256": row.sha256})


def _resource(row: DataSetRow) -> DataSet:
    assert row.stored is not None  # it is made
    stored = StoredDataSet.model_validate_json(row.stored)
    return DataSet(
        id=row.id,
        state="deleted" if row.deleted is not None else "ready",
        created=row.created,
        deleted=row.deleted,
        bytes=row.bytes,
        definition=DataSetDefinition.model_validate_json(row.definition),
        facts=stored.facts,
        manifest_sha256=stored.named.manifest_sha256,
        data=Uploaded(data_set=row.id),
    )
