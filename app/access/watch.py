r"""Streams last longer than the check of their key: a watch tells them when the key has ended."""

from __future__ import annotations

import asyncio
import time
from typing import final

from anyio import to_thread
from fastapi import Request

from zetadp.app.access.caller import Admission
from zetadp.app.access.service import KeyService

LOOK_SECONDS = 1.0


@final
class KeyLooks:
    """Checks each key at most once a second, however many of its streams ask and however often. For one event loop."""

    def __init__(self, keys: KeyService) -> None:
        self._keys = keys
        self._looks: dict[str, tuple[float, asyncio.Task[bool]]] = {}

    async def is_valid(self, key_id: str) -> bool:
        """Whether the key was valid at the last check. Raises the database's error if it doesn't answer."""
        moment = time.monotonic()
        for known, (begun, look) in list(self._looks.items()):
            if moment - begun >= LOOK_SECONDS and look.done():
                del self._looks[known]
        if key_id not in self._looks:
            self._looks[key_id] = (moment, asyncio.create_task(to_thread.run_sync(self._keys.is_valid, key_id)))
        # Shielded: a stream that ends mustn't end the look that others wait for.
        return await asyncio.shield(self._looks[key_id][1])


@final
class KeyWatch:
    """The key of one stream."""

    def __init__(self, looks: KeyLooks, key_id: str) -> None:
        self._looks = looks
        self._key_id = key_id

    async def has_ended(self) -> bool:
        """Whether the key was revoked or has expired, as of the last check."""
        return not await self._looks.is_valid(self._key_id)


async def key_watch(request: Request) -> KeyWatch:
    """The watch of this request's key; for routes that need one."""
    admission: Admission = request.state.admission
    if admission.caller is None or admission.caller.key_id is None:
        raise admission.refused()
    state = request.app.state
    if not hasattr(state, "key_looks"):
        state.key_looks = KeyLooks(state.keys)
    return KeyWatch(state.key_looks, admission.caller.key_id)
