r"""The service's end of one calculating process."""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import socket
from collections.abc import AsyncGenerator
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import Any, Self, final

import structlog

from zetadp.app.computing.errors import CalculatorLost
from zetadp.app.computing.frames import Frame, received
from zetadp.app.kit.settings import Settings

_log = structlog.get_logger()


PROCESS = "zetadp.app.calculating"
"""The module that calculates: it stands above all that it calculates with."""


SECRETS = {"admin_key": None, "database_url": None}
"""What a calculating process isn't told."""


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

    def __init__(self, started: BaseProcess, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._process, self._reader, self._writer = started, reader, writer
        self._number = 0

    @classmethod
    async def started(cls, settings: Settings, niceness: int) -> Self:
        """A new process, ready for questions."""
        ours, theirs = socket.socketpair()
        known = Settings.model_validate(settings.model_dump() | SECRETS)
        made = context().Process(target=_run, args=(PROCESS, theirs, known, niceness), name="calculator", daemon=True)
        try:
            await asyncio.to_thread(made.start)
            return cls(made, *await asyncio.open_connection(sock=ours))
        except BaseException:
            ours.close()  # a process that has started ends with its line
            raise
        finally:
            theirs.close()

    async def answer(self, head: dict[str, Any], body: bytes) -> AsyncGenerator[Frame]:
        """The frames of the answer, the last of kind ``end``. Raises CalculatorLost.

        Closed before that, it tells the process that nobody waits any more; ``settled`` then waits until it is free again.
        """
        self._number += 1
        number, is_over = self._number, False
        self._writer.write(Frame("ask", number, head, body).packed())
        try:
            while True:
                frame = await received(self._reader)
                if frame is None:
                    is_over = True
                    raise CalculatorLost
                is_over = frame.kind == "end"
                yield frame
                if is_over:
                    return
        finally:
            if not is_over:
                self._writer.write(Frame("gone", number).packed())

    async def settled(self, seconds: float) -> float:
        """Wait until an answer that nobody waits for has ended, and return the processor time that it took. Raises CalculatorLost if it
        doesn't end within ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                while (frame := await received(self._reader)) is not None:
                    if frame.kind == "end":
                        return float(frame.head["seconds"])
        except TimeoutError:
            _log.warning("calculator_stuck", seconds=seconds)
        raise CalculatorLost

    def end(self) -> None:
        """End the process at once, whatever it does."""
        self._writer.close()
        self._process.kill()
