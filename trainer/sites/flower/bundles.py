r"""A message of Flower's with all of its parts in one request, on both sides.

Flower sends a message and each of its three parts by themselves, and whoever waits for one asks again and again: about fifty requests for a
round of three sites, of which each costs its server more than what it does. Here a request takes a message whole, and one that asks for a
message is answered when there is one. ``bundling.py`` has the server's side.
"""

from __future__ import annotations

NODE_PULL, NODE_PUSH = "/v1/zetadp/node-pull", "/v1/zetadp/node-push"
RELAY_PULL, RELAY_PUSH = "/v1/zetadp/relay-pull", "/v1/zetadp/relay-push"
WAIT_SECONDS = 5.0
"""How long the server keeps a request for a message that doesn't come."""


def joined(parts: list[bytes]) -> bytes:
    """Each part after its length of 8 bytes, big-endian."""
    return b"".join(piece for part in parts for piece in (len(part).to_bytes(8, "big"), part))


def split(whole: bytes) -> list[bytes]:
    """The parts. Raises ValueError if they aren't whole."""
    parts, place = [], 0
    while place < len(whole):
        head = whole[place : place + 8]
        length = int.from_bytes(head, "big")
        part = whole[place + 8 : place + 8 + length]
        if len(head) < 8 or len(part) < length:
            raise ValueError(f"a part of {length} bytes after its length was expected, {len(head) + len(part)} bytes came")
        parts.append(part)
        place += 8 + length
    return parts
