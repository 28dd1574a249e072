r"""The way to sites through another program's server, which connects to a local socket here and takes frames on from there."""

from __future__ import annotations

import fcntl
import os
import select
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.sites import frames
from zetadp.trainer.sites.frames import LOOK_SECONDS
from zetadp.trainer.sites.messages import HEAD

MESSAGE_SECONDS: Final = 600.0
"""For a whole message: the other program may be at work before it takes one."""


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


@contextmanager
def locked(path: Path, name: str) -> Generator[None]:
    r"""Nobody else holds this lock file meanwhile; a process that is killed holds it no more.

    Args:
      name: of what it protects, for the error.
    Raises:
      InvalidParameter: another process holds it; the error says which one.
    """
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise InvalidParameter(name, "one that no other process uses", f"{path}, which process {file.read()} holds") from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextmanager
def listening(path: Path, backlog: int) -> Generator[socket.socket]:
    r"""A socket on which only this user's processes can connect, removed in the end. A lock file beside it keeps others from taking it.

    Raises:
      InvalidParameter: another process listens there, or there is something else than a socket.
    """
    with locked(path.with_name(f"{path.name}.lock"), "socket"):
        # A killed process may have left it.
        if os.path.lexists(path) and not path.is_socket():
            raise InvalidParameter("socket", "a path where nothing is, or a socket", str(path))
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as found:
            before = os.umask(0o077)
            try:
                found.bind(str(path))
                found.listen(backlog)
            finally:
                os.umask(before)
            try:
                yield found
            finally:
                path.unlink(missing_ok=True)
