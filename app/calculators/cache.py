r"""A cache of recent events with their answers: small, bounded and thread-safe."""

from __future__ import annotations

import gc
import hashlib
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import final

import numpy as np

from zetadp.accountants import deadline
from zetadp.app.calculators.profiles import Answers
from zetadp.app.calculators.schemas import Profile, ProfileRequest

MOST_EVENTS = 256
KEPT_FROM_SECONDS = 0.005
"""Processor time of an event's answers from which they are kept: below it, to weigh them costs about what it saves to have them."""
_TURN_SECONDS = 0.05
"""How often a request that waits for another one's answer checks its time limit."""

_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType)
"""Types that belong to the program, not to a value that refers to them."""


@final
class _Entry:
    """One event; the first thread to hold it fills ``answers``."""

    def __init__(self) -> None:
        self.answers: Answers | None = None
        self.bytes = 0
        self._lock = threading.Lock()

    @contextmanager
    def held(self) -> Generator[None]:
        """Holds the entry. Profiles compute lazily and aren't thread-safe: a second thread waits and then finds the answer."""
        while not self._lock.acquire(timeout=_TURN_SECONDS):
            deadline.check()
        try:
            yield
        finally:
            self._lock.release()


@final
class ProfileCache:
    r"""Answers profile requests, cached ones at once. It evicts the least recently used first.

    Args:
      most_bytes: about how much it may cache; an event that alone takes more is never cached.
      kept_from_seconds: an event whose answers took less processor time is computed again each time.
    """

    def __init__(self, most_bytes: int, kept_from_seconds: float = KEPT_FROM_SECONDS) -> None:
        self._most_bytes = most_bytes
        self._kept_from_seconds = kept_from_seconds
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def profile(self, request: ProfileRequest) -> Profile:
        """The same as ``compute_profile``. Raises as it does; nothing is cached for an event whose calculation raised."""
        key = digest(request)
        entry = self._entry(key)
        size: int | None = None
        with entry.held():  # who gives up waiting leaves the entry to the one that fills it
            try:
                begun = time.thread_time()
                # Removed from the entry during the calculation, so that one that is stopped halfway leaves nothing half-made in it.
                answers, entry.answers = entry.answers or Answers(request.event, request.accountant), None
                before = answers.count
                answer = answers.at(request)
                if entry.bytes or time.thread_time() - begun >= self._kept_from_seconds:
                    size = entry.bytes if answers.count == before and entry.bytes else weight(answers)
                    entry.answers = answers
            finally:
                self._settle(key, entry, size)
        return answer

    def knows(self, request: ProfileRequest) -> bool:
        """Whether something of this event is kept, or being computed."""
        return bool(self._entries) and digest(request) in self._entries

    @property
    def bytes(self) -> int:
        """The approximate number of cached bytes."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._entries)

    def _entry(self, key: bytes) -> _Entry:
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            return entry

    def _settle(self, key: bytes, entry: _Entry, size: int | None) -> None:
        """Records an entry's current size, or removes the entry if it is None, and makes room."""
        with self._lock:
            if self._entries.get(key) is not entry:  # removed in the meantime
                return
            self._bytes += (size or 0) - entry.bytes
            entry.bytes = size or 0
            if size is None or size > self._most_bytes:
                self._forget(key)
            while self._bytes > self._most_bytes or len(self._entries) > MOST_EVENTS:
                self._forget(next(iter(self._entries)))

    def _forget(self, key: bytes) -> None:
        self._bytes -= self._entries.pop(key).bytes


def digest(request: ProfileRequest) -> bytes:
    """SHA-256 of the event and the accountant. A validated event has one JSON text: fields in their order, numbers as float64."""
    return hashlib.sha256(f"{request.accountant}\n{request.event.model_dump_json()}".encode()).digest()


def weight(value: object) -> int:
    """Bytes that a value keeps alive: arrays exactly, everything else as Python counts it.

    >>> weight(np.zeros(1000)[::2]) > 8000
    True
    """
    total = 0
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if id(current) in seen or isinstance(current, _SHARED):
            continue
        seen.add(id(current))
        total += sys.getsizeof(current)
        if isinstance(current, np.ndarray):
            waiting.append(current.base)
        waiting += gc.get_referents(current)
    return total
