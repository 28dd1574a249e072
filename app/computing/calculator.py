r"""The service's end of one calculating process."""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import socket
from collections import deque
from collections.abc import AsyncGenerator
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import Any, Self, final

import structlog

from zetadp.app.computing.errors import CalculatorLost
from zetadp.app.computing.frames import Frame, Line
from zetadp.app.kit.settings import Settings

_log = structlog.get_logger()


PROCESS = "zetadp.app.calculating"
"""The module that calculates: it stands above all that it calculates with."""


SECRETS = {"admin_key": None, "database_url": None}
"""What a calculating process isn't told."""


MOST_HELD_BYTES = 2**18
"""Of an answer that its reader hasn't taken yet: a process that has sent so much waits."""


def context() -> ForkServerContext:
    """Where calculating processes come from: a server that has loaded what they need, so that a new one is there at once."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload([PROCESS])
    return found


def _run(module: str, line: socket.socket, settings: Settings, niceness: int) -> None:
    importlib.import_module(module).run(line, settings, niceness)


@final
class Calculator:
    """A process that answers one question at a time. ``started`` makes one."""

    def __init__(self, process: BaseProcess) -> None:
        self._process = process
        self._line = Line(self._heard, self._lost)
        self._number = 0
        self._frames: deque[Frame] = deque()
        self._held_bytes = 0
        self._is_lost = False
        self._news: asyncio.Future[None] | None = None

    @classmethod
    async def started(cls, settings: Settings, niceness: int) -> Self:
        """A new process, ready for questions."""
        ours, theirs = socket.socketpair()
        known = Settings.model_validate(settings.model_dump() | SECRETS)
        made = context().Process(target=_run, args=(PROCESS, theirs, known, niceness), name="calculator", daemon=True)
        try:
            await asyncio.to_thread(made.start)
            calculator = cls(made)
            await asyncio.get_running_loop().create_connection(lambda: calculator._line, sock=ours)
            return calculator
        except BaseException:
            ours.close()  # a process that has started ends with its line
            raise
        finally:
            theirs.close()

    async def whole(self, head: dict[str, Any], body: bytes, wall_seconds: float) -> list[Frame]:
        """All frames of the answer, as of ``answer``. If it is cancelled, ``settled`` has to follow."""
        self._ask(head, body)
        async with asyncio.timeout(wall_seconds):
            frames = [await self._next()]
            while frames[-1].kind != "end":
                frames.append(await self._next())
        return frames

    async def answer(self, head: dict[str, Any], body: bytes, wall_seconds: float) -> AsyncGenerator[Frame]:
        """The frames of the answer, the last of kind ``end``. Raises CalculatorLost, and TimeoutError if it doesn't end in so much time.

        If it is closed before that, or raises TimeoutError, ``settled`` has to follow.
        """
        self._ask(head, body)
        until = asyncio.get_running_loop().time() + wall_seconds
        while (frame := await self._next_until(until)).kind != "end":
            yield frame
        yield frame

    async def settled(self, seconds: float) -> float:
        """Tell the process that nobody waits for its answer any more, wait until it has ended, and return the processor time that it took.
        Raises CalculatorLost if it doesn't end within ``seconds``."""
        if not self._is_lost:
            self._line.write(Frame("gone", self._number).packed())
        try:
            async with asyncio.timeout(seconds):
                while (frame := await self._next()).kind != "end":
                    pass
        except TimeoutError:
            _log.warning("calculator_stuck", seconds=seconds)
            raise CalculatorLost from None
        return float(frame.head["seconds"])

    def end(self) -> None:
        """End the process at once, whatever it does."""
        self._line.close()
        self._process.kill()

    def _ask(self, head: dict[str, Any], body: bytes) -> None:
        self._number += 1
        self._line.write(Frame("ask", self._number, head, body).packed())

    async def _next(self) -> Frame:
        while not self._frames:
            if self._is_lost:
                raise CalculatorLost
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        frame = self._frames.popleft()
        self._held_bytes -= len(frame.body)
        self._line.listen(self._held_bytes < MOST_HELD_BYTES)
        return frame

    async def _next_until(self, until: float) -> Frame:
        async with asyncio.timeout_at(until):
            return await self._next()

    def _heard(self, frame: Frame) -> None:
        self._frames.append(frame)
        self._held_bytes += len(frame.body)
        self._line.listen(self._held_bytes < MOST_HELD_BYTES)
        self._tell()

    def _lost(self) -> None:
        self._is_lost = True
        self._tell()

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
