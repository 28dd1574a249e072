r"""The form of a backup: a gzipped tar file of the database's rows, the data folder's files, and last a manifest with the digest of each.

The rows are JSON, so that a backup moves between SQLite and PostgreSQL. It is written and read as a stream, and fits through a pipe.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated, Any, Literal, Self, final

from pydantic import AwareDatetime, Field, ValidationError
from sqlalchemy import JSON, BigInteger, Boolean, Column, Double, Float, Integer, LargeBinary, String, TableClause, Text, column, table
from sqlalchemy.types import TypeEngine

from zetadp.app.kit.database import UtcTime
from zetadp.mechanisms.base import Value

MANIFEST = "manifest.json"
FILES, ROWS = "files/", "rows/"
LARGEST_CHUNK = 4 * 2**20
"""Bytes of rows in one member; a tar file tells each member's size before the member."""
PIECE = 2**20
COMPRESSION = 1
"""Rows shrink nearly as much as at the highest level, models not at all."""

Kind = Literal["text", "int", "float", "bool", "time", "json", "bytes"]
StorageKind = Literal["folder", "elsewhere"]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class BackupUnusable(Exception):
    """A backup that can't be restored here; the text says why, and nothing was changed."""


@final
class TableDump(Value):
    """A table: its columns in the order in which rows give them, and how many rows there are."""

    name: str
    columns: tuple[tuple[str, Kind], ...]
    rows: int

    def clause(self) -> TableClause:
        """To insert with, whatever the models say by now."""
        return table(self.name, *(column(name, _TYPES[kind]) for name, kind in self.columns))

    def row(self, values: Sequence[Any]) -> dict[str, Any]:
        """The row that these JSON values stand for."""
        return {name: _read(kind, value) for (name, kind), value in zip(self.columns, values, strict=True)}


@final
class LedgerEnd(Value):
    """A ledger and its last entry in a backup: the backup doesn't contain later spends."""

    ledger: str
    tenant: str
    name: str
    entries: int
    head: str
    time: AwareDatetime


@final
class Manifest(Value):
    r"""What a backup holds.

    Attributes:
      revision: of the tables.
      made: when it began; it contains nothing later.
      job_files: whether it contains the jobs' folders: checkpoints, logs, artifacts.
      storage: of the service: its data folder, or one elsewhere, where unfinished jobs keep their checkpoints in another form.
      members: SHA-256 of every other member.
    """

    format: Literal["zetadp-backup-1"] = "zetadp-backup-1"
    version: str
    revision: str
    made: AwareDatetime
    job_files: bool
    storage: StorageKind
    tables: tuple[TableDump, ...]
    ledgers: tuple[LedgerEnd, ...]
    members: dict[str, Digest]


@final
class ArchiveWriter:
    """Writes members one after the other and remembers their digests. A context manager; the manifest comes last."""

    def __init__(self, out: IO[bytes]) -> None:
        self._gzip = gzip.GzipFile(fileobj=out, mode="wb", compresslevel=COMPRESSION, mtime=0)
        self._tar = tarfile.open(fileobj=self._gzip, mode="w|", format=tarfile.PAX_FORMAT)  # noqa: SIM115 (closed on leaving)
        self.members: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        # After an error it lacks its manifest, and nobody takes it for a whole one; it is closed here and not at any time later.
        with nullcontext() if kind is None else suppress(OSError), self._gzip, self._tar:
            pass

    def add(self, name: str, content: bytes) -> None:
        """Add a member with these bytes."""
        self._add(name, io.BytesIO(content), len(content), 0.0)

    def add_file(self, name: str, path: Path) -> bool:
        """Add a plain file at its current length; False if it is gone or isn't one."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return False
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return False
            self._add(name, file, status.st_size, status.st_mtime)
        return True

    def add_stream(self, name: str, source: IO[bytes], size: int) -> None:
        """Add a member of so many bytes. Raises OSError if the source ends too early."""
        self._add(name, source, size, 0.0)

    def finish(self, manifest: Manifest) -> None:
        """Add the last member, the manifest."""
        self.add(MANIFEST, manifest.model_dump_json(indent=1).encode())

    def _add(self, name: str, source: IO[bytes], size: int, modified: float) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mtime, member.mode = size, modified, 0o600
        digesting = _Digesting(source)
        self._tar.addfile(member, digesting)  # raises where the source ends too early
        self.members[name] = digesting.sha256


@final
class _Digesting(io.RawIOBase):
    """A reader that computes the digest of what is read through it."""

    def __init__(self, source: IO[bytes]) -> None:
        super().__init__()
        self._source = source
        self._digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._source.read(size)
        self._digest.update(piece)
        return piece

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def unpack(source: IO[bytes], folder: Path) -> Manifest:
    r"""Unpack a backup into an empty folder, each file readable only by its owner, and check the digests.

    Raises:
      BackupUnusable: it isn't a backup, has another format, is cut off or damaged.
    """
    found: dict[str, str] = {}
    manifest: Manifest | None = None
    try:
        with gzip.GzipFile(fileobj=source, mode="rb") as unzipped, tarfile.open(fileobj=unzipped, mode="r|") as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isreg() else None
                if content is None or manifest is not None or not _is_ours(member.name) or member.name in found:
                    raise BackupUnusable(f"the backup has an unexpected member: {member.name[:200]!a}")
                if member.name == MANIFEST:
                    manifest = Manifest.model_validate_json(content.read())
                else:
                    found[member.name] = _stored(content, folder / member.name, member.mtime)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise BackupUnusable(f"the backup can't be read to its end ({type(error).__name__}): it is cut off or not a backup") from error
    except ValidationError as error:
        raise BackupUnusable("this version doesn't know the format of the backup's manifest") from error
    if manifest is None:
        raise BackupUnusable("the backup has no manifest: it is cut off or not a backup")
    if found != manifest.members:
        wrong = sorted(name for name in found.keys() | manifest.members.keys() if found.get(name) != manifest.members.get(name))
        raise BackupUnusable(f"the backup is damaged: {len(wrong)} of its members differ from its manifest, the first is {wrong[0]!a}")
    return manifest


def kind_of(stored: Column[Any]) -> Kind:
    """How values of this column are written."""
    found: Kind | None = next((kind for known, kind in _KINDS.items() if isinstance(stored.type, known)), None)
    assert found is not None, f"a backup can't hold column {stored}: give its type a kind"
    return found


def written(kind: Kind, value: Any) -> Any:
    """The JSON value of a column's."""
    if value is None:
        return None
    if kind == "time":
        return value.isoformat()
    return base64.b64encode(value).decode() if kind == "bytes" else value


def rows_of(folder: Path, dump: TableDump) -> Iterator[dict[str, Any]]:
    """The unpacked rows of a table, in order."""
    place = folder / ROWS / dump.name
    for path in sorted(place.iterdir()) if place.is_dir() else ():
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                yield dump.row(json.loads(line))


def _read(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if kind == "time":
        return datetime.fromisoformat(value).astimezone(UTC)
    return base64.b64decode(value) if kind == "bytes" else value


def _is_ours(name: str) -> bool:
    if name == MANIFEST:
        return True
    parts = name.split("/")
    return name.startswith((FILES, ROWS)) and not any(part in ("", ".", "..") for part in parts) and "\0" not in name


def _stored(content: IO[bytes], path: Path, modified: float) -> str:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    digest = hashlib.sha256()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        while piece := content.read(PIECE):
            digest.update(piece)
            file.write(piece)
    os.utime(path, (modified, modified))
    return digest.hexdigest()


_TYPES: Mapping[Kind, TypeEngine[Any]] = {
    "text": Text(),
    "int": BigInteger(),
    "float": Double(),
    "bool": Boolean(),
    "time": UtcTime(),
    "json": JSON(none_as_null=True),
    "bytes": LargeBinary(),
}
_KINDS: Mapping[type[Any], Kind] = {
    UtcTime: "time",
    Boolean: "bool",
    JSON: "json",
    LargeBinary: "bytes",
    Integer: "int",
    Float: "float",
    String: "text",
}
