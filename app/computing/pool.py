r"""The calculating processes of a service, and who is answered by which of them and when.

A question is tried for a moment by the *quick* processes, which always are for such moments alone: most questions need no more. One that
does is asked again, from its beginning, of the *slow* ones, which yield to everything else on the machine. So what is asked often and
answered fast doesn't wait for what is expensive, however many ask for that. In both queues it is the turn of whoever used the least
processor time of late.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, final

import structlog

from zetadp.app.computing.calculator import Calculator
from zetadp.app.computing.errors import CalculatorLost, MachineBusy, TooManyCalculations
from zetadp.app.computing.frames import Frame
from zetadp.app.computing.turns import Turns, Use
from zetadp.app.kit.settings import Settings

QUICK_SECONDS = 0.02
"""Of processor time, for each question, in the quick processes: some times what an ordinary profile takes."""
LARGEST_QUICK_BYTES = 2**14
"""Of a body. To read a larger one takes long by itself: the quick processes aren't asked."""
SLOW_NICENESS = 15
PATIENCE = 30.0
"""A calculation may take so many times its limit on the wall, and at least so many seconds: a busy machine delays answers, and hardly ever
refuses one."""
MOST_WAITING = 1000
"""In each queue; they hold their bodies in memory."""
SETTLING_SECONDS = 5.0
"""Calculations look for their end every few milliseconds; one that doesn't is ended with its process."""
LOST_SECONDS = 10.0
"""What a process that ended with somebody's question counts as: about as much as the longest answer may take."""
RESTART_SECONDS = 1.0
"""Between the end of a process and a new one, if it didn't end with a question in hand."""
_log = structlog.get_logger()


@final
class Pool:
    r"""A service's calculating processes: a context manager, asynchronous.

    Args:
      settings: ``calculating_processes`` is their number, at least two: half of them are quick, the others slow.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        count = settings.calculating_processes
        if count is None:
            count = max(2, len(os.sched_getaffinity(0)) // settings.processes)
        self._use = Use()
        self._quick = self._turns()
        self._slow = self._turns()
        self._in_hand: Counter[str] = Counter()
        self._calculators: set[Calculator] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._lanes = [(self._quick, 0)] * (count // 2) + [(self._slow, SLOW_NICENESS)] * (count - count // 2)

    def _turns(self) -> Turns[Calculator]:
        return Turns(self._use, MOST_WAITING, self._settings.calculation_wait_seconds)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Its processes start now; questions wait until one has."""
        try:
            for lane, niceness in self._lanes:
                self._spawn(self._start(lane, niceness))
            yield
        finally:
            self._is_closed = True
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for calculator in self._calculators:
                calculator.end()

    @contextmanager
    def asked_by(self, who: str, most: int) -> Generator[None]:
        """One question of an address or a key, until it is answered. Raises TooManyCalculations where it has ``most`` already."""
        if self._in_hand[who] >= most:
            raise TooManyCalculations(most)
        self._in_hand[who] += 1
        try:
            yield
        finally:
            self._in_hand[who] -= 1
            if not self._in_hand[who]:
                del self._in_hand[who]

    def has_turn(self, body: bytes) -> bool:
        """Whether a quick process would try a question with this body now, without a wait."""
        return self.is_tried(body) and self._quick.is_free

    @staticmethod
    def is_tried(body: bytes) -> bool:
        """Whether the quick processes try questions with this body at all."""
        return len(body) <= LARGEST_QUICK_BYTES

    async def at_once(self, who: str, head: dict[str, Any], body: bytes) -> list[Frame] | None:
        """The frames of an answer by a quick process, without the last; None if it takes more than a moment. Otherwise as ``slowly``."""
        calculator = await self._quick.taken(who)
        is_free = False
        try:
            frames = await calculator.whole({**head, "seconds": QUICK_SECONDS, "is_whole": True}, body, PATIENCE)
            is_free = True
        except TimeoutError:
            raise MachineBusy(PATIENCE) from None
        finally:
            if not is_free:
                self._spawn(self._take_back(calculator, self._quick, 0, who))
        end = frames.pop()
        self._give_back(calculator, self._quick, who, end)
        return None if end.head["is_late"] else frames

    async def slowly(self, who: str, head: dict[str, Any], body: bytes) -> AsyncGenerator[Frame]:
        r"""The frames of an answer by a slow process, without the last.

        Args:
          who: an address or a key, whose turn it then is.
          head: the request, with ``seconds``, the most processor time that it may take.
        Raises:
          CalculatorsBusy: too many wait, or it waited too long.
          MachineBusy: it has begun, and has had too little of a processor for very long.
          CalculatorLost: the process ended. A calculation that doesn't look at its limit is ended like this.
        """
        wall_seconds = PATIENCE * max(1.0, head["seconds"])
        calculator = await self._slow.taken(who)
        is_free = False
        try:
            async for frame in calculator.answer({**head, "is_whole": False}, body, wall_seconds):
                if frame.kind == "end":
                    is_free = True
                    self._give_back(calculator, self._slow, who, frame)
                else:
                    yield frame
        except TimeoutError:
            raise MachineBusy(wall_seconds) from None
        finally:
            if not is_free:
                self._spawn(self._take_back(calculator, self._slow, SLOW_NICENESS, who))

    def _give_back(self, calculator: Calculator, lane: Turns[Calculator], who: str, end: Frame) -> None:
        self._use.add(who, float(end.head["seconds"]))
        lane.given(calculator)

    async def _take_back(self, calculator: Calculator, lane: Turns[Calculator], niceness: int, who: str) -> None:
        """After a question whose answer nobody read to its end: of a client that has gone, or of a process that has ended."""
        try:
            self._use.add(who, await calculator.settled(SETTLING_SECONDS))
        except CalculatorLost:
            _log.warning("calculator_lost")
            self._use.add(who, LOST_SECONDS)
            calculator.end()
            self._calculators.discard(calculator)
            await self._start(lane, niceness)
        else:
            lane.given(calculator)

    async def _start(self, lane: Turns[Calculator], niceness: int) -> None:
        while not self._is_closed:
            try:
                calculator = await Calculator.started(self._settings, niceness)
            except OSError as error:
                _log.error("calculator_not_started", error=type(error).__name__)
                await asyncio.sleep(RESTART_SECONDS)
                continue
            self._calculators.add(calculator)
            lane.given(calculator)
            return

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
