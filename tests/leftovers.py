r"""Nothing of a test outlives the tests: no thread and no process that one of them started."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest

PATIENCE_SECONDS = 30.0
"""How long threads and processes that were told to end may take, on a busy machine."""
OF_PYTHON = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")
"""Processes that Python keeps for the life of this one."""

_first_seen: dict[str, str] = {}
"""By thread or process: the test after which there was one that hadn't been there before it."""


@pytest.fixture(scope="session", autouse=True)
def nothing_outlives_the_tests() -> Generator[None]:
    """Set up before every other fixture, so torn down after all of them."""
    before = _running()
    yield
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := _running() - before:
        if time.monotonic() >= deadline:
            pytest.fail("left running:\n" + "\n".join(f"{one}, there since {_first_seen.get(one, 'the end')}" for one in sorted(left)))
        time.sleep(0.05)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is None or nextitem.path != item.path:  # not after each of thousands of tests: what a file leaves is told by its last one
        for one in _running():
            _first_seen.setdefault(one, item.nodeid)


def _running() -> set[str]:
    """The threads of this process, and its children and those of its fork server that haven't ended."""
    threads = {f"thread {thread.name} ({thread.ident})" for thread in threading.enumerate()}
    return threads | {f"process {pid}: {command}" for pid, command in _children("self")}


def _children(pid: str) -> Generator[tuple[str, str]]:
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in _text(listed).split():
            if not (command := _text(Path(f"/proc/{child}/cmdline")).replace("\0", " ").strip()):
                continue  # it has ended and waits to be reaped
            if any(name in command for name in OF_PYTHON):
                yield from _children(child)
            else:
                yield child, command


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has ended meanwhile
        return ""
