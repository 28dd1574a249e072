r"""Reservations that arrive at the same time share one transaction, so that lock, round trip and flush are paid once (group commit).

While one transaction runs, new requests wait in line; the first of them then leads the next transaction for all. Each is still decided
separately, in order of arrival, and gets its answer only after its commit.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar, final

LARGEST = 64
"""The most requests in one transaction, so that nobody waits long for earlier ones."""

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


@final
class _Waiting(Generic[_Asked, _Answer]):
    """A waiting caller; woken with an answer, or without one to lead the next transaction."""

    def __init__(self, asked: _Asked) -> None:
        self.asked = asked
        self.answer: Future[_Answer] = Future()
        self.woken = threading.Event()


@final
class Together(Generic[_Asked, _Answer]):
    r"""Answers calls of many threads in batches, separately for each key.

    Args:
      answer: takes a key and what was asked, at most ``LARGEST``; returns for each, in order, its answer or the exception it is refused
        with. What it raises is everyone's failure.
    """

    def __init__(self, answer: Callable[[tuple[str, str], list[_Asked]], Sequence[_Answer | Exception]]) -> None:
        self._answer = answer
        # Those who wait for each key that somebody is leading; the leader's own call may be among them.
        self._lines: dict[tuple[str, str], deque[_Waiting[_Asked, _Answer]]] = {}
        self._guard = threading.Lock()

    def ask(self, key: tuple[str, str], asked: _Asked) -> _Answer:
        """The answer, once it is committed. Raises the refusal, or the error that all callers get."""
        mine = _Waiting[_Asked, _Answer](asked)
        with self._guard:
            is_leader = key not in self._lines
            self._lines.setdefault(key, deque()).append(mine)
        if not is_leader:
            mine.woken.wait()
        if not mine.answer.done():
            try:
                self._serve(key)  # whoever leads is the first in line, so its own call is answered
            finally:
                self._pass_on(key)
        return mine.answer.result()

    def _serve(self, key: tuple[str, str]) -> None:
        with self._guard:
            line = self._lines[key]
            batch = [line.popleft() for _ in range(min(LARGEST, len(line)))]
        try:
            outcomes = self._answer(key, [one.asked for one in batch])
            for one, outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    one.answer.set_exception(outcome)
                else:
                    one.answer.set_result(outcome)
        except BaseException as failure:
            for one in batch:
                if not one.answer.done():
                    one.answer.set_exception(failure)
        for one in batch:
            one.woken.set()

    def _pass_on(self, key: tuple[str, str]) -> None:
        with self._guard:
            if line := self._lines[key]:
                line[0].woken.set()
            else:
                del self._lines[key]
