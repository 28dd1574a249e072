r"""A calculating process that is asked for more memory than it may have refuses that question, and answers the next one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from zetadp.app.computing import calculator
from zetadp.app.computing.calculator import Calculator
from zetadp.app.computing.frames import Frame
from zetadp.app.kit.settings import Settings

LIMIT = 2**28


def head(headers: list[list[str]]) -> dict[str, Any]:
    return {
        "method": "POST",
        "path": "/v1/profiles",
        "query": "",
        "headers": headers,
        "seconds": 20.0,
        "request_id": "r",
        "is_whole": True,
    }


async def answered(asked: Calculator, question: dict[str, Any], body: bytes) -> list[Frame]:
    return [frame async for frame in asked.answer(question, body, 60.0)]


@pytest.mark.parametrize("by_shortcut", [False, True])
def test_too_much_memory_is_refused_and_the_process_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_shortcut: bool) -> None:
    monkeypatch.setattr(calculator, "PROCESS", "tests.app.greedy")

    async def ask() -> list[tuple[int, bytes]]:
        process = await Calculator.started(Settings(data_dir=tmp_path, calculation_bytes=LIMIT), niceness=0)
        found: list[tuple[int, bytes]] = []
        try:
            for megabytes in (50, 1000, 50):
                headers = [["content-type", "application/json"]] if by_shortcut else []
                frames = await answered(process, head(headers), str(megabytes).encode())
                found.append((frames[0].head["status"], b"".join(frame.body for frame in frames[1:-1])))
        finally:
            process.end()
        return found

    first, refused, last = asyncio.run(ask())
    assert first == (200, str(50 * 2**20).encode()), first
    assert last == first
    assert refused[0] == 422
    assert json.loads(refused[1])["type"] == "memory-limit-reached"
