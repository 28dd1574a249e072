r"""Ends a worker in time, whatever its queue or its database does.

A worker that is asked to end releases its job, gives up its lease and closes its queue. Each of these may meet a server that accepts
everything and never answers, and Python itself waits without limit, before it ends, for every thread of a ``concurrent.futures`` pool,
daemon or not: DBOS has such threads, which try again for as long as their database is away. So the process is ended here instead.
Nothing is lost: a lease that wasn't given up runs out, and the kernel ends the training process with its worker.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from typing import final

import structlog

LEAVING_SECONDS = 1.0
"""How long unfinished threads may delay the end of a process whose work is done."""
TELLING_SECONDS = 1.0
"""How long the last log line may take: its reader may have stopped reading."""
_POLL_SECONDS = 0.02
_log = structlog.get_logger()


@final
class Shutdown:
    r"""Asks a worker to end, and ends its process if it doesn't within its limit.

    Args:
      limit_seconds: counted from the request to end.

    Attributes:
      stopping: set once it is asked to end.
    """

    def __init__(self, limit_seconds: float) -> None:
        self.stopping = threading.Event()
        self._limit_seconds = limit_seconds
        self._asked: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._watcher = threading.Thread(target=self._watch, name="shutdown", daemon=True)
        self._watcher.start()

    def ask(self) -> None:
        """Ask it to end. Also for signal handlers: ``Event.set`` would wait for ever for a lock that the interrupted code holds."""
        self._asked.put(None)

    def leave(self, code: int) -> None:
        """The work is done: return if nothing delays the end of the process, otherwise end it here with this code."""
        deadline = time.monotonic() + LEAVING_SECONDS
        while left := self._others():
            if time.monotonic() >= deadline:
                _end_process("threads_left", left, code)
            time.sleep(_POLL_SECONDS)

    def _watch(self) -> None:
        self._asked.get()
        self.stopping.set()
        time.sleep(self._limit_seconds)
        _end_process("shutdown_limit_reached", self._others(), 0)

    def _others(self) -> list[str]:
        """Names of the threads other than this one and the watcher, which runs in every worker."""
        own = (threading.current_thread(), self._watcher)
        return [thread.name for thread in threading.enumerate() if thread not in own]


def _end_process(event: str, threads: list[str], code: int) -> None:
    def tell() -> None:
        _log.warning(event, threads=threads)
        sys.stdout.flush()
        sys.stderr.flush()

    telling = threading.Thread(target=tell, daemon=True)
    telling.start()
    telling.join(TELLING_SECONDS)
    os._exit(code)
