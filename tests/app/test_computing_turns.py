"""Whose turn it is among those who wait for a calculation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from zetadp.app.computing.errors import CalculatorsBusy
from zetadp.app.computing.turns import FORGETTING_SECONDS, MOST_REMEMBERED, Turns, Use


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def settled() -> None:
    """Every task that can go on has."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_use_is_forgotten_by_half_each_time() -> None:
    clock = Clock()
    use = Use(clock)
    use.add("a", 8.0)
    clock.now = 2 * FORGETTING_SECONDS
    assert use.of("a") == 2.0
    use.add("a", 1.0)
    assert use.of("a") == 3.0
    assert use.of("b") == 0.0


def test_of_very_many_askers_the_earliest_are_forgotten() -> None:
    use = Use(Clock())
    for number in range(MOST_REMEMBERED + 5):
        use.add(str(number), 1.0)
    assert [use.of(str(number)) for number in (0, 4, 5)] == [0.0, 0.0, 1.0]


def test_the_next_is_whoever_used_least() -> None:
    async def work() -> None:
        use = Use(Clock())
        use.add("heavy", 10.0)
        use.add("light", 1.0)
        turns: Turns[str] = Turns(use, 10, 60.0)
        order: list[str] = []

        async def wait(who: str) -> None:
            await turns.taken(who)
            order.append(who)

        tasks = [asyncio.create_task(wait(who)) for who in ("heavy", "heavy", "light", "new")]
        await settled()
        for _ in tasks:
            turns.given("process")
            await settled()
        assert order == ["new", "light", "heavy", "heavy"]

    run(work())


def test_what_is_free_is_taken_at_once_and_whoever_left_gets_no_turn() -> None:
    async def work() -> None:
        turns: Turns[str] = Turns(Use(Clock()), 10, 60.0)
        turns.given("process")
        assert await turns.taken("a") == "process"
        leaving, staying = asyncio.create_task(turns.taken("b")), asyncio.create_task(turns.taken("c"))
        await settled()
        leaving.cancel()
        await settled()
        turns.given("process")
        assert await staying == "process"

    run(work())


def test_whoever_leaves_in_the_moment_of_its_turn_gives_it_on() -> None:
    async def work() -> None:
        turns: Turns[str] = Turns(Use(Clock()), 10, 60.0)
        leaving, staying = asyncio.create_task(turns.taken("a")), asyncio.create_task(turns.taken("b"))
        await settled()
        turns.given("process")
        leaving.cancel()  # before it has seen its turn
        assert await asyncio.wait_for(staying, 10) == "process"
        assert leaving.cancelled()

    run(work())


def test_too_many_and_too_long_are_refused_with_when_to_come_again() -> None:
    async def work() -> None:
        turns: Turns[str] = Turns(Use(Clock()), 1, 0.01)
        waiting = asyncio.create_task(turns.taken("a"))
        await settled()
        with pytest.raises(CalculatorsBusy) as refused:
            await turns.taken("b")
        assert refused.value.headers["Retry-After"]
        with pytest.raises(CalculatorsBusy):
            await waiting
        turns.given("process")
        assert await turns.taken("a") == "process"

    run(work())
