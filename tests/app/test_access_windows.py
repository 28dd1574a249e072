"""Counts of requests that several processes of the service share."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from limits import parse
from limits.strategies import FixedWindowRateLimiter

from tests.app.forked import PRELOADED
from zetadp.app.access import windows as windows_module
from zetadp.app.access.windows import BUCKET, Windows

RATE = parse("100/minute")
PROCESSES, TIMES = 4, 60


@pytest.fixture(params=["alone", "shared"])
def windows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Windows]:
    with closing(Windows(None if request.param == "alone" else tmp_path / "rates")) as made:
        yield made


def test_threads_of_a_process_that_is_alone_miss_no_count() -> None:
    with closing(Windows(None)) as windows, ThreadPoolExecutor(8) as threads:
        counts = list(threads.map(lambda _: windows.incr("a", 600), range(2000)))
    assert sorted(counts) == list(range(1, 2001))


def hit(path: Path, hits: multiprocessing.Queue[int]) -> None:
    with closing(Windows(path)) as windows:
        limiter = FixedWindowRateLimiter(windows)
        hits.put(sum(limiter.hit(RATE, "address", "192.0.2.1") for _ in range(TIMES)))


def test_processes_together_are_let_through_as_often_as_one(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    hits: multiprocessing.Queue[int] = context.Queue()
    processes = [context.Process(target=hit, args=(tmp_path / "rates", hits)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    assert sum(hits.get(timeout=60) for _ in processes) == RATE.amount < PROCESSES * TIMES
    for process in processes:
        process.join()


def test_windows_end_and_askers_dont_count_for_one_another(windows: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(windows_module.time, "time", lambda: now)
    assert [windows.incr("a", 60), windows.incr("a", 60), windows.incr("b", 60, 5)] == [1, 2, 5]
    assert (windows.get("a"), windows.get("b"), windows.get("c")) == (2, 5, 0)
    assert windows.get_expiry("a") == 1060.0
    windows.clear("b")
    assert windows.get("b") == 0
    now = 1060.0
    assert windows.get("a") == 0
    assert windows.incr("a", 60) == 1
    windows.reset()
    assert windows.get("a") == 0
    assert windows.check()


def test_where_too_many_count_at_once_the_one_that_ends_first_gives_way(windows: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_module, "BUCKETS", 1)
    for number in range(BUCKET):
        windows.incr(f"{number}", 60 + number)
    assert windows.incr("one more", 600) == 1
    assert [windows.get(f"{number}") for number in range(BUCKET)] == [0] + [1] * (BUCKET - 1)
