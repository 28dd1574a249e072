r"""The way to sites over NVFLARE: the controller of a job there connects to a local socket here, and may come again."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import final

from zetadp.trainer.sites.frames import LOOK_SECONDS
from zetadp.trainer.sites.local_line import LocalLine, listening


@final
class FlareLine(LocalLine):
    r"""A ``LocalLine`` which waits for the controller.

    Args:
      path: where it listens, alone. A socket that is there from a run before is removed.
      waited: as a ``LocalLine``'s.
    """

    def __init__(self, path: Path, waited: Callable[[], None]) -> None:
        super().__init__(waited)
        self._path = path
        self._open = ExitStack()
        self._listening: socket.socket | None = None
        self._newest: bytes | None = None

    def send(self, frame: bytes) -> None:
        self._newest = frame
        self._told()

    def receive(self, seconds: float) -> bytes | None:
        assert self._listening is not None  # inside the context
        try:
            frame = super().receive(seconds)
        except OSError:
            frame = self._lost()
        # What a controller sent before another one came is taken first.
        if frame is None and select.select([self._listening], [], [], 0.0)[0]:
            self._taken()
        return frame

    def _start(self) -> None:
        self._listening = self._open.enter_context(listening(self._path, 1))
        self._relay = self._accepted(self._listening, lambda _seconds: None)

    def _lost(self) -> None:
        self._waited()
        # What is left of a frame would be read as the next one.
        with suppress(OSError):
            self._connected.shutdown(socket.SHUT_RDWR)
        time.sleep(LOOK_SECONDS)

    def _taken(self) -> None:
        """The controller that came last is the one that there is, and is told the newest request."""
        assert self._listening is not None  # inside the context
        self._connected.close()
        self._relay = self._accepted(self._listening, lambda _seconds: None)
        self._told()

    def _told(self) -> None:
        if self._newest is None:
            return
        try:
            super().send(self._newest)
        except OSError:
            # Half a frame may have gone: nothing may follow it. Whoever comes is told it whole.
            with suppress(OSError):
                self._connected.shutdown(socket.SHUT_RDWR)

    def _end(self) -> None:
        super()._end()
        self._open.close()
