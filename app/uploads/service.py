r"""Operations on uploads. A file is received in four steps: reserve space, write the body, read the file, and answer."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import final

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from zetadp.app.kit.database import Database, new_id, now
from zetadp.app.kit.disk import check_room
from zetadp.app.kit.settings import Settings
from zetadp.app.storage.base import StorageUnavailable
from zetadp.app.storage.opening import storage_of
from zetadp.app.tables.uploads import UploadRow
from zetadp.app.uploads.errors import QuotaExceeded, UploadCutOff, UploadKeyReused, UploadNotFound, UploadTooLarge
from zetadp.app.uploads.housekeeping import give_up_overdue
from zetadp.app.uploads.quota import free_bytes
from zetadp.app.uploads.reader import Reader
from zetadp.app.uploads.resources import Upload, UploadPage
from zetadp.app.uploads.storage import Landing, unfinished_path, upload_key
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.formats import Contents, FormatName

RECEIVING, STORED = "receiving", "stored"


@final
@dataclass(frozen=True)
class UploadAsked:
    r"""What a request says about its file.

    Attributes:
      length: in bytes; None if the body comes in an unknown number of pieces.
      digests: every SHA-256 that the client states.
    """

    name: str
    format: FormatName
    length: int | None
    digests: tuple[str, ...]
    key: str | None


@final
@dataclass(frozen=True)
class Begun:
    """An upload that is being received: ``room`` bytes are reserved for it."""

    id: str
    asked: UploadAsked
    room: int
    used: int
    landing: Landing


@final
class UploadService:
    """The uploads of one tenant; it can't see those of another."""

    def __init__(self, settings: Settings, database: Database, reader: Reader, tenant: str) -> None:
        self._settings = settings
        self._database = database
        self._reader = reader
        self._tenant = tenant

    @property
    def settings(self) -> Settings:
        """The service's settings."""
        return self._settings

    def begin(self, asked: UploadAsked) -> Begun | Upload:
        r"""Reserve space for a file; or, with a key that was used before, return the upload that it made then.

        Raises:
          UploadTooLarge, QuotaExceeded, StorageFull: there is no room; nothing is kept.
          UploadKeyReused: the key's upload isn't done yet.
        """
        settings, moment = self._settings, now()
        if asked.length is not None and asked.length > settings.upload_bytes:
            raise UploadTooLarge(settings.upload_bytes)
        check_room(settings, asked.length or 0)
        give_up_overdue(settings, self._database, self._tenant)
        with self._database.writing() as session:
            free = free_bytes(session, self._tenant, settings.tenant_bytes)
            if (before := self._made_before(session, asked)) is not None:
                return before
            room = min(settings.upload_bytes, free) if asked.length is None else asked.length
            if room > free or free <= 0:
                raise QuotaExceeded(asked.length or 1, settings.tenant_bytes - free, settings.tenant_bytes)
            row = UploadRow(
                id=new_id(),
                tenant=self._tenant,
                state=RECEIVING,
                created=moment,
                due=moment + timedelta(seconds=settings.upload_seconds + 10.0 * settings.reading_seconds),
                name=asked.name,
                format=asked.format,
                bytes=room,
                idempotency_key=asked.key,
            )
            session.add(row)
        try:
            key = upload_key(self._tenant, row.id)
            landing = Landing(unfinished_path(settings, self._tenant, row.id), storage_of(settings).store, key)
        except BaseException:
            self._forget(row.id)
            raise
        return Begun(row.id, asked, room, settings.tenant_bytes - free, landing)

    def check_size(self, begun: Begun, size: int) -> None:
        """Check that this many bytes fit. Raises UploadTooLarge, QuotaExceeded."""
        if size > begun.room:
            if begun.room == self._settings.upload_bytes:
                raise UploadTooLarge(begun.room)
            raise QuotaExceeded(size, begun.used, self._settings.tenant_bytes)

    def read(self, begun: Begun) -> Contents:
        r"""The contents of the received file.

        Raises:
          InvalidParameter: it isn't what the client declared.
          StorageFull: it couldn't be written to the disk.
        """
        begun.landing.settle()
        check_digests(begun.asked, begun.landing.sha256)
        return self._reader.inspect(begun.landing.part, begun.asked.format)

    def finish(self, begun: Begun, contents: Contents) -> Upload:
        """Store the file. Raises StorageUnavailable, and UploadCutOff if that took longer than its space was reserved for."""
        begun.landing.land()
        with self._database.writing() as session:
            row = session.get(UploadRow, begun.id, with_for_update=True)
            if row is None or row.state != RECEIVING:
                raise UploadCutOff(begun.landing.size)
            row.state, row.bytes, row.sha256 = STORED, begun.landing.size, begun.landing.sha256
            row.contents = contents.model_dump_json()
            session.flush()
            return _resource(row)

    def abandon(self, begun: Begun) -> None:
        """Remove everything of it, file and reserved space."""
        begun.landing.abandon()
        self._forget(begun.id)

    def again(self, before: Upload, asked: UploadAsked, sha256: str) -> Upload:
        """The upload that an Idempotency-Key made, for a repeated request with this body. Raises UploadKeyReused."""
        check_digests(asked, sha256)
        if (before.name, before.format, before.sha256) != (asked.name, asked.format, sha256):
            assert asked.key is not None  # that is how it was found
            raise UploadKeyReused(asked.key, is_done=True)
        return before

    def get(self, upload_id: str) -> Upload:
        """One upload. Raises UploadNotFound."""
        with self._database.reading() as session:
            return _resource(self._found(session.get(UploadRow, upload_id), upload_id))

    def page(self, before: str | None, limit: int) -> UploadPage:
        """At most ``limit`` uploads that are older than ``before``, newest first."""
        query = select(UploadRow).where(UploadRow.tenant == self._tenant, UploadRow.state == STORED)
        if before is not None:
            query = query.where(UploadRow.id < before)
        with self._database.reading() as session:
            rows = list(session.scalars(query.order_by(UploadRow.id.desc()).limit(limit + 1)))
        return UploadPage(uploads=tuple(_resource(row) for row in rows[:limit]), next=rows[limit - 1].id if len(rows) > limit else None)

    def delete(self, upload_id: str) -> None:
        """Delete the file. Data sets made from it stay: they have their own arrays. Raises UploadNotFound."""
        with self._database.writing() as session:
            row = self._found(session.get(UploadRow, upload_id, with_for_update=True), upload_id)
            session.delete(row)
        with suppress(StorageUnavailable):  # what is left has no row, and is swept
            storage_of(self._settings).store.delete([upload_key(self._tenant, upload_id)])

    def _made_before(self, session: Session, asked: UploadAsked) -> Upload | None:
        if asked.key is None:
            return None
        query = select(UploadRow).where(UploadRow.tenant == self._tenant, UploadRow.idempotency_key == asked.key)
        row = session.scalar(query)
        if row is None:
            return None
        if row.state != STORED:
            raise UploadKeyReused(asked.key, is_done=False)
        return _resource(row)

    def _found(self, row: UploadRow | None, upload_id: str) -> UploadRow:
        if row is None or row.tenant != self._tenant or row.state != STORED:
            raise UploadNotFound(upload_id)
        return row

    def _forget(self, upload_id: str) -> None:
        with self._database.writing() as session:
            session.execute(delete(UploadRow).where(UploadRow.id == upload_id, UploadRow.state == RECEIVING))


def check_digests(asked: UploadAsked, sha256: str) -> None:
    """Raises InvalidParameter if the client stated another digest."""
    for digest in asked.digests:
        if digest != sha256:
            raise InvalidParameter("sha256", f"the digest of the received body, {sha256}", digest)


def _resource(row: UploadRow) -> Upload:
    assert row.contents is not None  # it is stored
    assert row.sha256 is not None
    contents = Contents.model_validate_json(row.contents)
    return Upload.model_validate(
        {
            "id": row.id,
            "name": row.name,
            "format": row.format,
            "bytes": row.bytes,
            "sha256": row.sha256,
            "created": row.created,
            "arrays": contents.arrays,
            "left_out": contents.left_out,
        }
    )
