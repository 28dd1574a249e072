r"""Reservations that come at the same moment share one transaction (group commit): lock, journey to the server and flush are paid once for all.

While one transaction runs, whoever asks meanwhile waits in line; the first of them then answers for all. Each is still decided by
itself, in the order of arrival, and learns its answer only after the commit that holds it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar, final

LARGEST = 64
"""Requests in one transaction, so that nobody waits long for those before."""

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")
Outcome = _Answer | Exception


@final
@dataclass
class _Line(Generic[_Asked, _Answer]):
    """Those who ask for the same thing; ``people`` counts who is in it, so that an empty one is forgotten."""

    turn: threading.Lock = field(default_factory=threading.Lock)
    waiting: deque[tuple[_Asked, Future[_Answer]]] = field(default_factory=deque)
    people: int = 0


@final
class Together(Generic[_Asked, _Answer]):
    r"""Answers calls of many threads in batches, for each key by itself.

    Args:
      answer: takes a key and what was asked, at most ``LARGEST``; returns for each, in order, its answer or the exception it is refused
        with. What it raises is everyone's failure.
    """

    def __init__(self, answer: Callable[[tuple[str, str], list[_Asked]], list[Outcome[_Answer]]]) -> None:
        self._answer = answer
        self._lines: dict[tuple[str, str], _Line[_Asked, _Answer]] = {}
        self._guard = threading.Lock()

    def ask(self, key: tuple[str, str], asked: _Asked) -> _Answer:
        """The answer, once it stands. Raises what it was refused with, or what went wrong for all."""
        mine: Future[_Answer] = Future()
        with self._guard:
            line = self._lines.setdefault(key, _Line())
            line.people += 1
            line.waiting.append((asked, mine))
        try:
            while not mine.done():
                with line.turn:
                    if not mine.done():
                        self._serve(key, line)
        finally:
            with self._guard:
                line.people -= 1
                if not line.people:
                    del self._lines[key]
        return mine.result()

    def _serve(self, key: tuple[str, str], line: _Line[_Asked, _Answer]) -> None:
        with self._guard:
            batch = [line.waiting.popleft() for _ in range(min(LARGEST, len(line.waiting)))]
        try:
            outcomes = self._answer(key, [asked for asked, _ in batch])
        except BaseException as failure:
            for _, future in batch:
                future.set_exception(failure)
            return
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
