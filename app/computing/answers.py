r"""Recent answers: the same question is answered at once, without a process. A calculation's answer depends on its request alone."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple, final

from zetadp.app.computing.frames import Frame

OVERHEAD_BYTES = 1000
"""About what an entry takes beside its content."""
LARGEST_SHARE = 8
"""An answer that alone takes more than this part of the room isn't kept."""


@final
class Answer(NamedTuple):
    """How it begins, and its content."""

    start: Frame
    body: bytes


@final
class Answers:
    r"""At most about ``most_bytes`` of them. The least recently used goes first."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[bytes, Answer] = OrderedDict()
        self._bytes = 0

    def found(self, key: bytes) -> Answer | None:
        """The answer to this question, if it is kept."""
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key]

    def keep(self, key: bytes, answer: Answer) -> None:
        """Keep it, if it isn't too large."""
        size = len(answer.body) + OVERHEAD_BYTES
        if size * LARGEST_SHARE > self._most_bytes or key in self._kept:
            return
        self._kept[key] = answer
        self._bytes += size
        while self._bytes > self._most_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= len(oldest.body) + OVERHEAD_BYTES


def digest(head: Mapping[str, object], body: bytes) -> bytes:
    """SHA-256 of what the answer depends on."""
    asked = [head["method"], head["path"], head["query"], head["headers"]]
    return hashlib.sha256(json.dumps(asked).encode() + b"\n" + body).digest()
