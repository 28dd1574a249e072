r"""What the service and its calculating processes say to each other over a socket: a head of JSON and a body, each with its length."""

from __future__ import annotations

import json
import struct
from asyncio import IncompleteReadError, StreamReader
from typing import Any, Literal, NamedTuple, final

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


async def received(reader: StreamReader) -> Frame | None:
    """The next message; None once the other side is gone, in the middle of a message too."""
    try:
        head_bytes, body_bytes = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
        kind, number, head = json.loads(await reader.readexactly(head_bytes))
        return Frame(kind, number, head, await reader.readexactly(body_bytes))
    except (IncompleteReadError, ConnectionError):
        return None
