r"""Streams outlive the moment in which their key was checked: a watch tells them when the key ended."""

from __future__ import annotations

import time
from typing import final

from anyio import to_thread
from fastapi import Request

from app.access.caller import Admission
from app.access.service import KeyService

LOOK_SECONDS = 1.0


@final
class KeyWatch:
    """Looks once a second at most, however often it is asked."""

    def __init__(self, keys: KeyService, key_id: str) -> None:
        self._keys = keys
        self._key_id = key_id
        self._looked = time.monotonic()

    async def has_ended(self) -> bool:
        """Whether the key was revoked or has expired, as of the last look."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return False
        self._looked = time.monotonic()
        return not await to_thread.run_sync(self._keys.is_valid, self._key_id)


def key_watch(request: Request) -> KeyWatch:
    """The watch of the key that this request shows; for routes that need one."""
    admission: Admission = request.state.admission
    if admission.caller is None or admission.caller.key_id is None:
        raise admission.refused()
    return KeyWatch(request.app.state.keys, admission.caller.key_id)
