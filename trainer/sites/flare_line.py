r"""The way to sites over NVFLARE: the controller of a job there connects to a local socket here, and may come again."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import final

from zetadp.trainer.sites import frames
from zetadp.trainer.sites.local_line import LOOK_SECONDS, LocalLine, listen


@final
class FlareLine(LocalLine):
    r"""A ``LocalLine`` which waits for the controller.

    Args:
      path: where it listens. What is there from a run before is removed.
      waited: as a ``LocalLine``'s.
    """

    def __init__(self, path: Path, waited: Callable[[], None]) -> None:
        super().__init__(waited)
        self._path = path
        self._listening: socket.socket | None = None
        self._newest: bytes | None = None

    def send(self, frame: bytes) -> None:
        self._newest = frame
        # If it is gone, the next look finds that out, and whoever comes is told the newest request.
        with suppress(OSError):
            super().send(frame)

    def receive(self, seconds: float) -> bytes | None:
        try:
            return super().receive(seconds)
        except ConnectionError:
            return self._lost()

    def _start(self) -> None:
        self._path.unlink(missing_ok=True)
        self._listening = listen(self._path, 1)
        self._relay = self._accepted(self._listening, lambda _seconds: None)

    def _lost(self) -> None:
        assert self._listening is not None  # inside the context
        self._waited()
        if not select.select([self._listening], [], [], LOOK_SECONDS)[0]:
            return
        self._connected.close()
        self._relay = self._accepted(self._listening, lambda _seconds: None)
        if self._newest is not None:
            with suppress(OSError):
                frames.send(self._relay, self._newest)

    def _end(self) -> None:
        super()._end()
        if self._listening is not None:
            self._listening.close()
            self._path.unlink(missing_ok=True)
