r"""Frames over a local socket: 8 bytes of length, big-endian, and as many bytes. Flower's side has the same few lines, without zetadp."""

from __future__ import annotations

import socket

from zetadp.mechanisms.errors import InvalidParameter

LARGEST = 2**34


def send(connection: socket.socket, frame: bytes) -> None:
    """Raises OSError if the other end is gone."""
    connection.sendall(len(frame).to_bytes(8, "big"))
    connection.sendall(frame)


def receive(connection: socket.socket) -> bytes | None:
    r"""The next frame; None at the end of the connection.

    Raises:
      OSError: the connection broke, or nothing came in time.
      InvalidParameter: the frame is too large.
    """
    length = _bytes(connection, 8)
    if length is None:
        return None
    size = int.from_bytes(length, "big")
    if size > LARGEST:
        raise InvalidParameter("frame", f"at most {LARGEST} bytes", size)
    return _bytes(connection, size)


def _bytes(connection: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(min(count - len(parts), 2**20))
        if not part:
            return None
        parts += part
    return bytes(parts)
