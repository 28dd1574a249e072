r"""Whose turn it is when more is asked than can be calculated: that of whoever used the least processor time of late."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar, final

from zetadp.app.computing.errors import CalculatorsBusy

FORGETTING_SECONDS = 30.0
"""What somebody used counts half as much after this time."""
MOST_REMEMBERED = 10_000
"""Askers whose use is remembered; the one who asked longest ago is forgotten first."""

_Taken = TypeVar("_Taken")


@final
class Use:
    """Processor time that each asker used of late, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._used: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def of(self, who: str) -> float:
        seconds, at = self._used.get(who, (0.0, 0.0))
        return seconds * 0.5 ** ((self._clock() - at) / FORGETTING_SECONDS)

    def add(self, who: str, seconds: float) -> None:
        self._used[who] = (self.of(who) + seconds, self._clock())
        self._used.move_to_end(who)
        while len(self._used) > MOST_REMEMBERED:
            self._used.popitem(last=False)


@final
class Turns(Generic[_Taken]):
    r"""Things that are taken, used by one at a time and given back.

    Args:
      use: by which the next is chosen.
      most_waiting: how many may wait at once.
      wait_seconds: how long each may wait.
    """

    def __init__(self, use: Use, most_waiting: int, wait_seconds: float) -> None:
        self._use = use
        self._most_waiting = most_waiting
        self._wait_seconds = wait_seconds
        self._free: deque[_Taken] = deque()
        self._waiting: dict[str, deque[asyncio.Future[_Taken]]] = {}
        self._count = 0

    @property
    def is_free(self) -> bool:
        """Whether one can be taken without a wait."""
        return bool(self._free)

    async def taken(self, who: str) -> _Taken:
        """One of them, when it is this asker's turn. Raises CalculatorsBusy if too many wait, or it didn't come in time."""
        if self._free:
            return self._free.popleft()
        if self._count >= self._most_waiting:
            raise CalculatorsBusy(self._count, 0.0)
        turn: asyncio.Future[_Taken] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append(turn)
        self._count += 1
        try:
            await asyncio.wait((turn,), timeout=self._wait_seconds)
        except asyncio.CancelledError:
            if turn.done():  # its turn came in the moment in which it left
                self.given(turn.result())
            raise
        finally:
            self._count -= 1
            self._leave(who, turn)
        if not turn.done():
            raise CalculatorsBusy(self._count, self._wait_seconds)
        return turn.result()

    def _leave(self, who: str, turn: asyncio.Future[_Taken]) -> None:
        turns = self._waiting.get(who)
        if turns is None or turn not in turns:
            return
        turns.remove(turn)
        if not turns:
            del self._waiting[who]

    def given(self, thing: _Taken) -> None:
        """It is free: for the next who waits, or whoever comes."""
        if not self._waiting:
            self._free.append(thing)
            return
        who = min(self._waiting, key=self._use.of)
        turns = self._waiting[who]
        turns.popleft().set_result(thing)
        if not turns:
            del self._waiting[who]
