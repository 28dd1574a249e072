r"""The newest events of a job, read and serialised once for all followers: two hundred followers cost little more than one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import structlog
from anyio import to_thread
from fastapi.sse import ServerSentEvent

from zetadp.app.kit.database import UNAVAILABLE
from zetadp.app.submissions.service import JobService

LONGEST_WAIT_SECONDS = 1.0
"""After this time followers learn that nothing came: they have to check their keys, and may have left."""
_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True)
class Told:
    """What came after some event: ``number`` of the last, and whether the history ends with it. Nothing may have come."""

    events: tuple[ServerSentEvent, ...]
    number: int
    is_complete: bool


@final
class Tails:
    r"""Waits that are under way or just over, by tenant, job, kinds and position. For one event loop.

    Args:
      poll_seconds: how often one wait looks into the table.
    """

    def __init__(self, poll_seconds: float) -> None:
        self._poll_seconds = poll_seconds
        self._waits: dict[tuple[str, str, str, int], tuple[float, asyncio.Task[Told]]] = {}

    async def next(self, service: JobService, job_id: str, after: int, kinds: Sequence[str]) -> Told:
        """The next events, as soon as there are any or the history has ended; none after a second. Raises as ``service.events``."""
        self._forget_old()
        key = (service.tenant, job_id, kinds[0], after)
        if key not in self._waits:
            self._waits[key] = (time.monotonic(), asyncio.create_task(self._wait(service, job_id, after, kinds)))
        # Shielded: a follower that leaves mustn't end the wait of the others.
        return await asyncio.shield(self._waits[key][1])

    async def _wait(self, service: JobService, job_id: str, after: int, kinds: Sequence[str]) -> Told:
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while True:
            # Each read is short and gives its connection and thread back: a thousand waiting streams hold neither.
            try:
                records, is_complete = await to_thread.run_sync(service.events, job_id, after, kinds)
            except UNAVAILABLE as error:
                _log.warning("database_unavailable", error=type(error).__name__)
                raise
            if records or is_complete or time.monotonic() >= deadline:
                events = tuple(
                    ServerSentEvent(event=record.data.event, id=str(record.number), raw_data=record.model_dump_json()) for record in records
                )
                return Told(events, records[-1].number if records else after, is_complete)
            await asyncio.sleep(self._poll_seconds)

    def _forget_old(self) -> None:
        # What just came is kept for those who come for it a little later.
        oldest = time.monotonic() - self._poll_seconds / 2
        for key, (begun, wait) in list(self._waits.items()):
            if begun >= oldest:
                return  # in order of their beginning
            if wait.done():
                del self._waits[key]
