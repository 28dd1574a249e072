r"""Frames over a local socket: 8 bytes of length, big-endian, and as many bytes. Flower's side has the same few lines, without zetadp."""

from __future__ import annotations

import socket
from collections.abc import Callable

from zetadp.trainer.sites.messages import HEAD

PIECE = 2**20


def send(connection: socket.socket, frame: bytes) -> None:
    """Raises OSError if the other end is gone."""
    connection.sendall(len(frame).to_bytes(8, "big"))
    connection.sendall(frame)


def receive(connection: socket.socket, admitted: Callable[[bytes], int]) -> bytes | None:
    r"""The next frame; None at the end of the connection.

    Args:
      admitted: a frame's first bytes, its header and signature among them -> the most bytes that the frame may have. Of a longer one the
        first bytes alone are given, and the rest is dropped as it comes: memory is for those who have signed.
    Raises:
      OSError: the connection broke, or nothing came in time.
    """
    length = _bytes(connection, 8)
    if length is None:
        return None
    size = int.from_bytes(length, "big")
    head = _bytes(connection, min(size, HEAD))
    if head is None or size == len(head):
        return head
    if size <= admitted(head):
        rest = _bytes(connection, size - len(head))
        return None if rest is None else head + rest
    left = size - len(head)
    while left:
        dropped = connection.recv(min(left, PIECE))
        if not dropped:
            return None
        left -= len(dropped)
    return head


def _bytes(connection: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(min(count - len(parts), PIECE))
        if not part:
            return None
        parts += part
    return bytes(parts)
