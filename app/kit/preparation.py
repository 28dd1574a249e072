r"""What an application does once on its database before it is ready. If the database is away then, it starts all the same."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import final

import structlog

from zetadp.app.kit.database import UNAVAILABLE, Database
from zetadp.app.kit.waiting import Stopped, when_available

_log = structlog.get_logger()


@final
class Preparation:
    """Does its work at once if the database answers. Otherwise it tries again in a thread, in the same order, until it is done or closed.

    An application that doesn't start isn't alive, and is started again for nothing; one that isn't prepared isn't ready.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: deque[Callable[[], object]] = deque()
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def do(self, work: Callable[[], object]) -> None:
        """Do this now, or after what waits already. Only what is done now raises its errors here."""
        with self._lock:
            if self._thread is not None:
                self._waiting.append(work)
                return
        try:
            self._database.probe()
            work()
        except UNAVAILABLE as error:
            _log.warning("start_waits_for_database", error=type(error).__name__)
            self._waiting.append(work)
            self._thread = threading.Thread(target=self._catch_up, name="preparation", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Give up what isn't done."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _catch_up(self) -> None:
        try:
            while True:
                when_available(self._waiting[0], self._closing)
                with self._lock:
                    self._waiting.popleft()
                    if not self._waiting:
                        self._thread = None
                        break
            _log.info("start_completed")
        except Stopped:
            pass
        except Exception:
            _log.exception("start_failed")  # what came after it in order isn't done either
