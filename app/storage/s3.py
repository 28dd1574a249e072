r"""A store in a bucket of S3, or of any store that speaks its protocol and honours ``If-None-Match`` and ``If-Match`` of PUT.

Credentials, region and endpoint come from the environment (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL`` and so on) or from the machine's
role; this module never sees them. ``obstore`` is imported when the first store of a process is made: a service in a folder needs none.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, final

from zetadp.app.storage.base import KeyTaken, Listed, ObjectDamaged, ObjectFacts, ObjectMissing, StorageUnavailable, Stored, checked
from zetadp.mechanisms.errors import InvalidParameter

if TYPE_CHECKING:
    from obstore.store import S3Store as Bucket

DIGEST = "sha256"
"""The metadata field with an object's digest."""
PIECE = 16 * 2**20
"""Bytes of one request: larger files go up in parts and come down in ranges."""
MOST_PARTS = 9000
"""S3 takes at most 10 000 parts of one upload."""
PARTS_AT_ONCE = 4
KEYS_AT_ONCE = 1000
TRIES = 3
CONNECT_SECONDS, REQUEST_SECONDS, RETRY_SECONDS = 5.0, 120.0, 30.0
"""The longest that a connection and one request may take, and how long a failed request is repeated."""
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_T = TypeVar("_T")


@final
class S3Store:
    r"""Objects in a bucket.

    Args:
      bucket: its name.
      prefix: what every key in the bucket begins with, without a slash at its end; may be empty.
    Raises:
      InvalidParameter: ``obstore`` isn't installed, or doesn't accept what the environment says.
    """

    def __init__(self, bucket: str, prefix: str) -> None:
        try:
            import obstore  # a service in a folder doesn't have it
        except ImportError:
            raise InvalidParameter("ZETADP_STORAGE_URL", "empty, or obstore installed (pip install 'zetadp[s3]')", "no obstore") from None
        self._client = obstore
        self._bucket = _bucket(bucket, prefix)

    def check(self) -> None:
        key = f"checks/{secrets.token_hex(16)}"
        try:
            version = self.create(key, b"1")
            for wrong in (lambda: self.create(key, b"2"), lambda: self.replace(key, b"3", '"another"')):
                try:
                    wrong()
                except KeyTaken:
                    continue
                raise InvalidParameter("ZETADP_STORAGE_URL", "a store that honours If-None-Match and If-Match of PUT", "one that doesn't")
            self.replace(key, b"4", version)
        finally:
            with suppress(StorageUnavailable):
                self.delete([key])

    def path(self, key: str) -> Path | None:
        checked(key)
        return None

    def get(self, key: str) -> Stored | None:
        def read() -> Stored:
            found = self._client.get(self._bucket, checked(key))
            return Stored(content=bytes(found.bytes()), version=found.meta["e_tag"] or "")

        try:
            return self._answered(key, read)
        except ObjectMissing:
            return None

    def create(self, key: str, content: bytes) -> str:
        def write() -> str:
            return self._client.put(self._bucket, checked(key), content, mode="create")["e_tag"] or ""

        try:
            return self._written(key, content, write)
        except ObjectMissing:
            raise StorageUnavailable("no bucket") from None

    def replace(self, key: str, content: bytes, version: str) -> str:
        def write() -> str:
            return self._client.put(self._bucket, checked(key), content, mode={"e_tag": version})["e_tag"] or ""

        try:
            return self._written(key, content, write)
        except ObjectMissing:
            raise KeyTaken(key) from None

    def take(self, key: str, file: Path, sha256: str) -> None:
        part = max(PIECE, file.stat().st_size // MOST_PARTS + 1)

        def write() -> None:
            self._client.put(self._bucket, checked(key), file, attributes={DIGEST: sha256}, chunk_size=part, max_concurrency=PARTS_AT_ONCE)

        self._answered(key, write)
        file.unlink()

    def open(self, key: str) -> BufferedReader:
        return BufferedReader(_Reading(self.read, key, self._facts(key)[0]), PIECE)

    def fetch(self, key: str, into: Path) -> str:
        size, stated = self._facts(key)
        digest = hashlib.sha256()
        with into.open("xb") as file:
            for start in range(0, size, PIECE):
                piece = self.read(key, start, min(PIECE, size - start))
                digest.update(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if stated not in ("", got := digest.hexdigest()):
            into.unlink()
            raise ObjectDamaged(key, stated, got)
        return got

    def read(self, key: str, start: int, length: int) -> bytes:
        """So many bytes of it from the byte ``start`` on; at least one. Raises ObjectMissing."""
        return self._answered(key, lambda: bytes(self._client.get_range(self._bucket, checked(key), start=start, length=length)))

    def facts(self, key: str) -> ObjectFacts:
        size, stated = self._facts(key)
        if stated:
            return ObjectFacts(bytes=size, sha256=stated)
        # Somebody else put it there, or it is one of the small ones.
        with self.open(key) as source:
            return ObjectFacts(bytes=size, sha256=hashlib.file_digest(source, "sha256").hexdigest())

    def listed(self, prefix: str) -> Iterator[Listed]:
        place = checked(prefix.rstrip("/"))
        with self._failing(prefix):
            for found in self._client.list(self._bucket, place, chunk_size=KEYS_AT_ONCE):
                for one in found:
                    yield Listed(key=one["path"], bytes=one["size"], modified=one["last_modified"])

    def names(self, prefix: str) -> list[str]:
        place = checked(prefix.rstrip("/"))
        found = self._answered(prefix, lambda: self._client.list_with_delimiter(self._bucket, place))
        keys = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
        return sorted({key.rstrip("/").rpartition("/")[2] for key in keys})

    def delete(self, keys: Iterable[str]) -> None:
        waiting = [checked(key) for key in keys]
        for first in range(0, len(waiting), KEYS_AT_ONCE):
            some = waiting[first : first + KEYS_AT_ONCE]
            self._answered(some[0], lambda some=some: self._client.delete(self._bucket, some))

    def delete_all(self, prefix: str) -> None:
        self.delete([facts.key for facts in self.listed(prefix)])

    def _facts(self, key: str) -> tuple[int, str]:
        """The object's bytes and the digest that it was stored with, or nothing. Raises ObjectMissing."""

        def head() -> tuple[int, str]:
            found = self._client.get(self._bucket, checked(key), options={"head": True})
            return found.meta["size"], found.attributes.get(DIGEST, "")

        return self._answered(key, head)

    def _written(self, key: str, content: bytes, write: Callable[[], str]) -> str:
        try:
            return self._answered(key, write)
        except (KeyTaken, ObjectMissing, StorageUnavailable) as refused:
            # The refusal may be of a repeated request whose first answer was lost: what is there says who wrote it.
            found = self.get(key)
            if found is not None and found.content == content:
                return found.version
            raise refused

    def _answered(self, key: str, ask: Callable[[], _T]) -> _T:
        with self._failing(key):
            return ask()

    @contextmanager
    def _failing(self, key: str) -> Generator[None]:
        """Turns obstore's errors into ours. Their texts are left out: they may quote the endpoint's answer."""
        from obstore import exceptions

        try:
            yield
        except (exceptions.NotFoundError, FileNotFoundError):
            raise ObjectMissing(key) from None
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise KeyTaken(key) from None
        except exceptions.BaseError as error:
            raise StorageUnavailable(type(error).__name__) from None


@final
class _Reading(io.RawIOBase):
    """An object as a stream, read in ranges."""

    def __init__(self, read: Callable[[str, int, int], bytes], key: str, size: int) -> None:
        super().__init__()
        self._read = read
        self._key = key
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride] (as a raw stream's)
        length = min(len(buffer), self._size - self._at)
        if length <= 0:
            return 0
        piece = self._read(self._key, self._at, length)
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


def _bucket(name: str, prefix: str) -> Bucket:
    from obstore import exceptions
    from obstore.store import S3Store as Bucket

    endpoint = next((value for variable in ENDPOINTS if (value := os.environ.get(variable))), None)
    where: dict[str, object] = {"virtual_hosted_style_request": True} if endpoint is None else {"endpoint": endpoint}
    try:
        return Bucket(
            name,
            prefix=prefix or None,
            client_options={
                "allow_http": endpoint is not None and endpoint.startswith("http://"),
                "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
                "timeout": timedelta(seconds=REQUEST_SECONDS),
            },
            retry_config={"max_retries": TRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
            **where,  # pyright: ignore[reportArgumentType]
        )
    except (exceptions.BaseError, ValueError) as error:
        expected = "a bucket that the AWS_ variables of the environment can reach"
        raise InvalidParameter("ZETADP_STORAGE_URL", expected, type(error).__name__) from None
