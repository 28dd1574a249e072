r"""Receives a body of any size: piece by piece onto the disk, never whole in memory, and kept only if all of it arrived."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar, final

import anyio
from anyio import CancelScope, CapacityLimiter, fail_after, to_thread
from starlette.requests import ClientDisconnect, Request

from zetadp.app.kit.settings import Settings
from zetadp.app.uploads.data_set_definition import DataSetDefinition
from zetadp.app.uploads.data_sets import DataSetService
from zetadp.app.uploads.errors import ReadersBusy, UploadCutOff, UploadTooLarge
from zetadp.app.uploads.resources import DataSet, Upload
from zetadp.app.uploads.service import Begun, UploadAsked, UploadService
from zetadp.mechanisms.errors import InvalidParameter

READERS = 2
"""Files read at the same time; each may take as much memory as one reading process has."""
PIECE = 2**20
"""Bytes written at a time."""
RETRY_SECONDS = 30
_CONTENT_DIGEST = re.compile(r"(?:^|,)\s*sha-256=:([A-Za-z0-9+/=]*):")
_T = TypeVar("_T")


@final
class Turns:
    """Turns for reading files; one object for each application."""

    def __init__(self, settings: Settings) -> None:
        self._patience = 2.0 * settings.reading_seconds
        self._limiter: CapacityLimiter | None = None

    async def reading(self, read: Callable[[], _T]) -> _T:
        """Do it in a thread when its turn comes. Raises ReadersBusy if it doesn't come."""
        if self._limiter is None:  # made inside of the loop that it is for
            self._limiter = CapacityLimiter(READERS)
        token = object()
        try:
            with fail_after(self._patience):
                await self._limiter.acquire_on_behalf_of(token)
        except TimeoutError:
            raise ReadersBusy(RETRY_SECONDS) from None
        try:
            return await to_thread.run_sync(read)
        finally:
            self._limiter.release_on_behalf_of(token)


async def received(request: Request, service: UploadService, turns: Turns, asked: UploadAsked) -> Upload:
    r"""The upload that the request's body makes.

    Raises:
      UploadTooLarge, QuotaExceeded, StorageFull, UploadCutOff, UploadKeyReused, ReadersBusy, InvalidParameter: nothing is kept.
    """
    begun = await to_thread.run_sync(service.begin, asked)
    if isinstance(begun, Upload):
        digest, before = await _digested(request, service), begun
        return await to_thread.run_sync(service.again, before, asked, digest)
    making = begun

    async def make() -> Upload:
        await _written(request, service, making)
        contents = await turns.reading(lambda: service.read(making))
        return await to_thread.run_sync(service.finish, making, contents)

    return await _or_nothing(make, lambda: service.abandon(making))


async def made(service: DataSetService, turns: Turns, definition: DataSetDefinition, key: str | None) -> DataSet:
    """The data set that a definition makes. Raises as ``DataSetService``'s parts; nothing is kept then."""
    begun = await to_thread.run_sync(service.begin, definition, key)
    if isinstance(begun, DataSet):
        return begun
    data_set_id, uploads = begun

    async def make() -> DataSet:
        arrays = await turns.reading(lambda: service.read(data_set_id, definition, uploads))
        return await to_thread.run_sync(service.finish, data_set_id, definition, uploads, arrays)

    return await _or_nothing(make, lambda: service.abandon(data_set_id))


async def _or_nothing(make: Callable[[], Awaitable[_T]], abandon: Callable[[], None]) -> _T:
    try:
        return await make()
    except BaseException:
        with CancelScope(shield=True):  # also where the service is stopped meanwhile
            await to_thread.run_sync(abandon)
        raise


async def _written(request: Request, service: UploadService, begun: Begun) -> None:
    waiting, size = bytearray(), 0
    async for piece in _pieces(request, service.settings.upload_seconds):
        size += len(piece)
        service.check_size(begun, size)
        waiting += piece
        if len(waiting) >= PIECE:
            await to_thread.run_sync(begun.landing.write, waiting)
            waiting = bytearray()
    await to_thread.run_sync(begun.landing.write, waiting)


async def _digested(request: Request, service: UploadService) -> str:
    """The SHA-256 of a body of which nothing is kept."""
    digest, size, limit = hashlib.sha256(), 0, service.settings.upload_bytes
    async for piece in _pieces(request, service.settings.upload_seconds):
        size += len(piece)
        if size > limit:
            raise UploadTooLarge(limit)
        digest.update(piece)
    return digest.hexdigest()


async def _pieces(request: Request, seconds: float) -> AsyncIterator[bytes]:
    """Of the body. Raises UploadCutOff if it ends early or takes too long."""
    size, deadline, stream = 0, anyio.current_time() + seconds, request.stream()
    while True:
        try:
            with fail_after(max(0.0, deadline - anyio.current_time())):
                piece = await anext(stream)
        except StopAsyncIteration:
            return
        except (ClientDisconnect, TimeoutError):
            raise UploadCutOff(size) from None
        size += len(piece)
        yield piece


def content_digest(header: str | None) -> tuple[str, ...]:
    """The SHA-256 in a Content-Digest header (RFC 9530), in hexadecimal; other algorithms are ignored. Raises InvalidParameter.

    >>> content_digest("sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:")
    ('e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855',)
    """
    if header is None:
        return ()
    found = _CONTENT_DIGEST.findall(header)
    if not found and "sha-256" in header.lower():
        raise InvalidParameter("Content-Digest", "like sha-256=:<base64>:", header[:100])
    digests: list[str] = []
    for text in found:
        try:
            raw = base64.b64decode(text, validate=True)
        except binascii.Error:
            raw = b""
        if len(raw) != hashlib.sha256().digest_size:
            raise InvalidParameter("Content-Digest", "like sha-256=:<base64 of 32 bytes>:", text[:100])
        digests.append(raw.hex())
    return tuple(digests)
