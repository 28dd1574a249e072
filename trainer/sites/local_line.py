r"""The way to sites through another program's server, which connects to a local socket here and takes frames on from there."""

from __future__ import annotations

import os
import select
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.sites import frames
from zetadp.trainer.sites.messages import HEAD

LOOK_SECONDS: Final = 0.2
MESSAGE_SECONDS: Final = 600.0


class LocalLine(ABC):
    r"""A ``Line``; as a context, whatever connects is there, or waited for.

    Args:
      waited: called again and again while it is waited for; what it raises ends the waiting.
    Attributes:
      largest: the most bytes of an answer; of a longer one only the first are taken.
    """

    def __init__(self, waited: Callable[[], None]) -> None:
        self._waited = waited
        self.largest = HEAD
        self._relay: socket.socket | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_raised: object) -> None:
        self._end()

    def send(self, frame: bytes) -> None:
        frames.send(self._connected, frame)

    def receive(self, seconds: float) -> bytes | None:
        relay = self._connected
        if not select.select([relay], [], [], seconds)[0]:
            return None
        frame = frames.receive(relay, lambda _head: self.largest)
        return self._lost() if frame is None else frame

    @abstractmethod
    def _start(self) -> None:
        """Until ``_relay`` is connected."""

    @abstractmethod
    def _lost(self) -> None:
        """The relay closed its connection. Raises ConnectionError unless it may come again."""

    def _end(self) -> None:
        if self._relay is not None:
            self._relay.close()

    @property
    def _connected(self) -> socket.socket:
        assert self._relay is not None  # inside the context
        return self._relay

    def _accepted(self, listening: socket.socket, still_comes: Callable[[float], None]) -> socket.socket:
        """The next connection. ``still_comes`` is called with the seconds so far, and raises where nobody can come any more."""
        seconds = 0.0
        while not select.select([listening], [], [], LOOK_SECONDS)[0]:
            self._waited()
            seconds += LOOK_SECONDS
            still_comes(seconds)
        connection, _ = listening.accept()
        connection.settimeout(MESSAGE_SECONDS)
        return connection


def remove_left(path: Path) -> None:
    """Removes a socket that a killed process left. Raises InvalidParameter if something else is there."""
    if os.path.lexists(path) and not path.is_socket():
        raise InvalidParameter("socket", "a path where nothing is, or a socket", str(path))
    path.unlink(missing_ok=True)


def listen(path: Path, backlog: int) -> socket.socket:
    """A socket on which only this user's processes can connect."""
    found = socket.socket(socket.AF_UNIX)
    before = os.umask(0o077)
    try:
        found.bind(str(path))
        found.listen(backlog)
    except BaseException:
        found.close()
        raise
    finally:
        os.umask(before)
    return found
