from __future__ import annotations

import threading
import time

import pytest

from zetadp.accountants import deadline
from zetadp.accountants.deadline import time_limit
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.routes.rdp.rdp import RdpAccountant
from zetadp.mechanisms import Gaussian, Sensitivity
from zetadp.mechanisms.errors import TimeLimitReached


def _spin() -> None:
    while True:
        deadline.check()


def test_a_loop_that_checks_is_stopped_and_not_before_its_time() -> None:
    started = time.monotonic()
    with pytest.raises(TimeLimitReached), time_limit(0.02):
        _spin()
    assert time.monotonic() - started >= 0.02


def test_without_a_limit_nothing_is_stopped() -> None:
    deadline.check()


def test_the_error_names_the_limit() -> None:
    with pytest.raises(TimeLimitReached, match=r"longer than the limit of 1e-09 s"), time_limit(1e-9):
        deadline.check()


def test_a_limit_ends_with_its_block() -> None:
    with pytest.raises(TimeLimitReached), time_limit(1e-9):
        deadline.check()
    deadline.check()


def test_an_inner_limit_cannot_outlast_the_outer_one() -> None:
    with pytest.raises(TimeLimitReached, match="1e-09"), time_limit(1e-9), time_limit(60.0):
        deadline.check()


def test_a_limit_holds_for_its_own_thread_alone() -> None:
    stopped: list[bool] = []
    with time_limit(1e-9):
        thread = threading.Thread(target=lambda: (deadline.check(), stopped.append(False)))
        thread.start()
        thread.join()
    assert stopped == [False]


def test_a_calculation_that_nobody_waits_for_is_stopped() -> None:
    gone = threading.Event()
    with time_limit(60.0, lambda: not gone.is_set()):
        deadline.check()
        with time_limit(30.0):
            deadline.check()
            gone.set()
            with pytest.raises(TimeLimitReached):
                deadline.check()
    deadline.check()


def test_renyi_accounting_of_many_releases_looks_at_its_limit() -> None:
    moves = Sensitivity(l2=1.0, adjacency="add_remove", unit="record")
    parts = {Leaf(0.01, Gaussian(std=1.0 + 0.01 * k, sensitivity=moves)): 10 for k in range(50)}
    looks = 0

    def is_wanted() -> bool:
        nonlocal looks
        looks += 1
        return looks < 25  # so many releases, of the first order

    with pytest.raises(TimeLimitReached), time_limit(3600.0, is_wanted):
        RdpAccountant().of_parts(parts).epsilon(1e-5)
    assert looks == 25
