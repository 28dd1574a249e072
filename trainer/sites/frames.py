r"""Frames over a local socket: 8 bytes of length, big-endian, and as many bytes. Flower's side has the same few lines, without zetadp."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable
from typing import Final

from zetadp.trainer.sites.messages import HEAD

PIECE: Final = 2**20
LOOK_SECONDS: Final = 0.2
"""How often whoever waits for a frame looks whether it should stop."""


def send(connection: socket.socket, frame: bytes) -> None:
    """Raises OSError if the other end is gone."""
    connection.sendall(len(frame).to_bytes(8, "big"))
    connection.sendall(frame)


def receive(connection: socket.socket, admitted: Callable[[bytes], int]) -> bytes | None:
    r"""The next frame; None at the end of the connection. The connection's timeout is for all of it, as it is in ``socket.sendall``.

    Args:
      admitted: a frame's first bytes, its header and signature among them -> the most bytes that the frame may have. Of a longer one the
        first bytes alone are given, and the rest is dropped as it comes: memory is for those who have signed.
    Raises:
      OSError: the connection broke, or not all of the frame came in time.
    """
    seconds = connection.gettimeout()
    try:
        return _frame(connection, admitted, math.inf if seconds is None else time.monotonic() + seconds)
    finally:
        connection.settimeout(seconds)


def _frame(connection: socket.socket, admitted: Callable[[bytes], int], deadline: float) -> bytes | None:
    length = _bytes(connection, 8, deadline)
    if length is None:
        return None
    size = int.from_bytes(length, "big")
    head = _bytes(connection, min(size, HEAD), deadline)
    if head is None or size == len(head):
        return head
    if size <= admitted(head):
        rest = _bytes(connection, size - len(head), deadline)
        return None if rest is None else head + rest
    left = size - len(head)
    while left:
        dropped = _piece(connection, left, deadline)
        if not dropped:
            return None
        left -= len(dropped)
    return head


def _bytes(connection: socket.socket, count: int, deadline: float) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        part = _piece(connection, count - len(parts), deadline)
        if not part:
            return None
        parts += part
    return bytes(parts)


def _piece(connection: socket.socket, most: int, deadline: float) -> bytes:
    if deadline < math.inf:
        left = deadline - time.monotonic()
        if left <= 0.0:
            raise TimeoutError("the rest of a message didn't come in time")
        connection.settimeout(left)
    return connection.recv(min(most, PIECE))
