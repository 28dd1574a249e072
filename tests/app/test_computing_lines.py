"""What the service and its calculating processes send each other, however it arrives."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from multiprocessing.process import BaseProcess
from typing import Any, cast

import pytest

from zetadp.app.computing.calculator import MOST_HELD_BYTES, Calculator
from zetadp.app.computing.errors import CalculatorLost
from zetadp.app.computing.frames import Frame, Line

FRAMES = [Frame("ask", 1, {"path": "/ü"}, b"\x00body"), Frame("gone", 1), Frame("part", 2, {}, bytes(300))]


class Process:
    def kill(self) -> None:
        pass


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60.0))


@asynccontextmanager
async def connected(answer: Callable[[Line, Frame], None]) -> AsyncGenerator[Calculator]:
    """A calculator whose process answers each message like this."""
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    process = Line(lambda frame: answer(process, frame), lambda: None)
    await loop.create_connection(lambda: process, sock=theirs)
    calculator = Calculator(cast("BaseProcess", Process()))
    await loop.create_connection(lambda: calculator._line, sock=ours)
    try:
        yield calculator
    finally:
        calculator.end()
        process.close()
        await asyncio.sleep(0.01)  # for the loop to close both sockets


@pytest.mark.parametrize("size", [1, 7, 50, 10_000])
def test_messages_are_the_same_in_whatever_pieces_they_arrive(size: int) -> None:
    async def work() -> None:
        heard: list[Frame] = []
        line = Line(heard.append, lambda: None)
        sent = b"".join(frame.packed() for frame in FRAMES)
        for begin in range(0, len(sent), size):
            line.data_received(sent[begin : begin + size])
        assert heard == FRAMES

    run(work())


def test_a_process_that_ends_in_the_middle_of_an_answer_is_lost() -> None:
    async def work() -> None:
        def answer(line: Line, frame: Frame) -> None:
            line.write(Frame("start", frame.number, {"status": 200}).packed() + b"\x00\x00")
            line.close()

        async with connected(answer) as calculator:
            with pytest.raises(CalculatorLost):
                await calculator.whole({}, b"", 3600.0)
            with pytest.raises(CalculatorLost):
                await calculator.settled(60.0)

    run(work())


def test_a_long_answer_waits_for_its_reader_and_arrives_whole() -> None:
    parts = 64
    content = bytes(MOST_HELD_BYTES // 4)

    async def work() -> None:
        sent = 0
        sending: list[asyncio.Task[None]] = []

        def answer(line: Line, frame: Frame) -> None:
            async def send() -> None:
                nonlocal sent
                for _ in range(parts):
                    line.write(Frame("part", frame.number, {}, content).packed())
                    await line.drained()
                    sent += 1
                line.write(Frame("end", frame.number, {"seconds": 0.0, "is_late": False}).packed())

            sending.append(asyncio.get_running_loop().create_task(send()))

        async with connected(answer) as calculator:
            reading = calculator.answer({}, b"", 3600.0)
            received = [await anext(reading)]
            before = -1
            while before != sent:  # until the process gets no further
                before = sent
                await asyncio.sleep(0.05)
            assert sent < parts
            received += [frame async for frame in reading]
            assert [len(frame.body) for frame in received] == [len(content)] * parts + [0]

    run(work())


def test_what_an_asker_who_left_has_not_read_is_no_answer_to_the_next() -> None:
    async def work() -> None:
        def answer(line: Line, frame: Frame) -> None:
            if frame.kind == "ask" and frame.number == 1:
                line.write(Frame("part", 1, {}, b"for nobody").packed())
            elif frame.kind == "gone":
                line.write(Frame("end", 1, {"seconds": 2.0, "is_late": False}).packed())
            else:
                line.write(Frame("end", frame.number, {"seconds": 0.0, "is_late": False}).packed())

        async with connected(answer) as calculator:
            first = asyncio.create_task(calculator.whole({}, b"", 3600.0))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait((first,))
            assert await calculator.settled(60.0) == 2.0
            assert [frame.kind for frame in await calculator.whole({}, b"", 3600.0)] == ["end"]

    run(work())


def test_an_answer_that_never_ends_is_given_up() -> None:
    async def work() -> None:
        async with connected(lambda line, frame: line.write(Frame("start", frame.number, {}).packed())) as calculator:
            reading = calculator.answer({}, b"", 0.05)
            assert (await anext(reading)).kind == "start"
            with pytest.raises(TimeoutError):
                await anext(reading)
            with pytest.raises(TimeoutError):
                await calculator.whole({}, b"", 0.05)

    run(work())
