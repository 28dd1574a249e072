r"""Waits for a database that is locked or away: tries again with growing pauses, and says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar, final

import structlog

from zetadp.app.kit.database import UNAVAILABLE

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 10.0
"""Pauses between two tries to reach the database."""
SLOW_SECONDS = 5.0
"""A try that takes longer is told of: a locked SQLite file is waited for up to ``database_busy_seconds``."""
_POLL_SECONDS = 0.1
_T = TypeVar("_T")
_log = structlog.get_logger()


@final
class Pauses:
    r"""Growing pauses: each is twice the one before.

    Args:
      first: seconds.
      longest: seconds; no pause is longer.

    >>> pauses = Pauses(1.0, 5.0)
    >>> [pauses.following() for _ in range(5)]
    [1.0, 2.0, 4.0, 5.0, 5.0]
    """

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest
        self._coming = first

    def following(self) -> float:
        """The next pause in seconds."""
        pause = self._coming
        self._coming = min(2.0 * pause, self._longest)
        return pause

    def reset(self) -> None:
        """Begin with the first one again."""
        self._coming = self._first


class Stopped(Exception):
    """It was asked to end before the database answered."""


def when_available(work: Callable[[], _T], stopping: threading.Event) -> _T:
    r"""Do this work, again and again for as long as the database is locked or away.

    Each try has a thread of its own, since it may wait for a lock that nothing interrupts: asked to end, the caller goes on at once, and
    the thread is left to itself.

    Args:
      work: it may be done again after it failed, whatever it had done by then.
      stopping: asks to end.
    Raises:
      Stopped: it was set first.
      Exception: whatever else the work raises.
    """
    pauses, is_silent = Pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS), False
    while True:
        try:
            found = _done(work, stopping)
        except UNAVAILABLE as error:
            is_silent, pause = True, pauses.following()
            _log.warning("database_unavailable", error=type(error).__name__, pause_seconds=pause)
            if stopping.wait(pause):
                raise Stopped from None
        else:
            if is_silent:
                _log.info("database_reached")
            return found


def _done(work: Callable[[], _T], stopping: threading.Event) -> _T:
    result: Future[_T] = Future()

    def do() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=do, name="database", daemon=True).start()
    waited = 0.0
    while not stopping.is_set():
        try:
            return result.result(_POLL_SECONDS)
        except TimeoutError:
            if result.done():
                raise  # the work's own
        before, waited = waited, waited + _POLL_SECONDS
        if before < SLOW_SECONDS <= waited:
            _log.warning("database_slow", seconds=SLOW_SECONDS)
    raise Stopped
