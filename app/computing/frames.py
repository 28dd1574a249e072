r"""What the service and its calculating processes say to each other over a socket: a head of JSON and a body, each with its length."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, cast, final

_LENGTHS = struct.Struct("!II")

Kind = Literal["ask", "gone", "start", "part", "end"]
"""``ask`` and ``gone`` (nobody waits any more) go to the process; ``start``, ``part`` and ``end`` of an answer come from it."""


@final
class Frame(NamedTuple):
    r"""One message.

    Attributes:
      number: of the question that it belongs to.
      head: JSON values, by the kind.
    """

    kind: Kind
    number: int
    head: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it
    body: bytes = b""

    def packed(self) -> bytes:
        """As it is sent."""
        head = json.dumps([self.kind, self.number, self.head]).encode()
        return _LENGTHS.pack(len(head), len(self.body)) + head + self.body


@final
class Line(asyncio.Protocol):
    r"""One end of the socket, for an event loop. Messages are taken out of what arrives as it arrives, without a task that waits for them.

    Args:
      heard: is called with each message.
      lost: is called once the other side is gone, in the middle of a message too.
    """

    def __init__(self, heard: Callable[[Frame], None], lost: Callable[[], None]) -> None:
        self._heard, self._lost = heard, lost
        self._arrived = bytearray()
        self._transport: asyncio.Transport | None = None
        self._has_room = asyncio.Event()
        self._has_room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._arrived += data
        begins = 0
        while len(self._arrived) >= begins + _LENGTHS.size:
            head_bytes, body_bytes = _LENGTHS.unpack_from(self._arrived, begins)
            head_begins = begins + _LENGTHS.size
            body_begins = head_begins + head_bytes
            if len(self._arrived) < body_begins + body_bytes:
                break
            kind, number, head = json.loads(self._arrived[head_begins:body_begins])
            begins = body_begins + body_bytes
            self._heard(Frame(kind, number, head, bytes(self._arrived[body_begins:begins])))
        del self._arrived[:begins]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        self._transport = None
        self._has_room.set()
        self._lost()

    def pause_writing(self) -> None:
        self._has_room.clear()

    def resume_writing(self) -> None:
        self._has_room.set()

    def write(self, data: bytes) -> None:
        """Send these messages; to whoever is gone, nothing."""
        if self._transport is not None:
            self._transport.write(data)

    async def drained(self) -> None:
        """Wait until the other side has read most of what was sent."""
        await self._has_room.wait()

    def listen(self, is_wanted: bool) -> None:
        """Whether more is read for now."""
        if self._transport is not None and self._transport.is_reading() != is_wanted:
            (self._transport.resume_reading if is_wanted else self._transport.pause_reading)()

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()
