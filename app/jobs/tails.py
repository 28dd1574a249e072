r"""Reading the newest events of a job once for all who follow it: two hundred followers cost the database as much as one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import final

from anyio import to_thread

from app.jobs.events import JobEventRecord
from app.jobs.service import JobService

Read = tuple[list[JobEventRecord], bool]


@final
class Tails:
    r"""Reads that are under way or fresh, by tenant, job, kinds and position. Of one event loop.

    Args:
      fresh_seconds: for how long what was read counts as what is there.
    """

    def __init__(self, fresh_seconds: float) -> None:
        self._fresh_seconds = fresh_seconds
        self._reads: dict[tuple[str, str, str, int], tuple[float, asyncio.Task[Read]]] = {}

    async def read(self, service: JobService, job_id: str, after: int, kinds: Sequence[str]) -> Read:
        """As ``service.events``. Raises as that does."""
        self._forget_old()
        key = (service.tenant, job_id, kinds[0], after)
        if key not in self._reads:
            # Each read is short and gives its connection and thread back: a thousand waiting streams hold neither.
            self._reads[key] = (time.monotonic(), asyncio.create_task(to_thread.run_sync(service.events, job_id, after, kinds)))
        # Shielded: a follower that leaves mustn't end the read that the others wait for.
        return await asyncio.shield(self._reads[key][1])

    def _forget_old(self) -> None:
        oldest = time.monotonic() - self._fresh_seconds
        for key, (begun, task) in list(self._reads.items()):
            if begun >= oldest:
                return  # in order of their beginning
            if task.done():
                del self._reads[key]
