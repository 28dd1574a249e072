r"""Names of workers that were given none: valid, different on different hosts, and free for the next one on the same."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tests.app.jobs_harness import wait_until
from zetadp.app.jobs.errors import ExecutorBusy
from zetadp.app.kit.settings import ExecutorName
from zetadp.app.worker.naming import MOST_NUMBERS, names, sole_executor

NAME: TypeAdapter[str] = TypeAdapter(ExecutorName)
DEVICES = ("auto", "cpu", "cuda", "cuda:1", "cuda:999")


@settings(max_examples=50)
@given(host=st.text(max_size=300), device=st.sampled_from(DEVICES))
def test_every_default_name_is_valid_and_no_two_are_the_same(host: str, device: str) -> None:
    found = list(names(None, host, device))
    assert len(set(found)) == len(found) == MOST_NUMBERS
    for name in found[:: MOST_NUMBERS // 3]:
        NAME.validate_python(name)


@pytest.mark.parametrize(
    ("one", "other"), [("ward 3", "ward-3"), ("x" * 63, "x" * 62), ("x" * 80 + "1", "x" * 80 + "2"), ("", "host"), ("-a", "a"), ("ä", "ö")]
)
def test_hosts_that_look_alike_once_they_are_cut_have_different_names(one: str, other: str) -> None:
    assert next(names(None, one, "auto")) != next(names(None, other, "auto"))


def test_usual_hosts_are_readable() -> None:
    assert next(names(None, "gpu-7.hospital.example", "cuda:1")) == "gpu-7.hospital.example-cuda-1"
    assert next(names(None, "3f1c9a2b7d10", "auto")) == "3f1c9a2b7d10-auto"


def test_name_is_held_by_one_and_the_lock_says_which_it_is(tmp_path: Path) -> None:
    with sole_executor(tmp_path, "a", 0.0) as first, sole_executor(tmp_path, "b", 0.0) as second:
        assert first != second
        with pytest.raises(ExecutorBusy, match="a worker named 'a' is already running"), sole_executor(tmp_path, "a", 0.05):
            pass
    with sole_executor(tmp_path, "a", 0.0) as again:
        assert again == first


def test_lock_that_is_let_go_in_a_moment_is_waited_for(tmp_path: Path) -> None:
    held, waits = threading.Event(), threading.Event()

    def hold() -> None:
        with sole_executor(tmp_path, "a", 0.0):
            held.set()
            waits.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    wait_until(held.is_set)
    threading.Timer(0.1, waits.set).start()
    with sole_executor(tmp_path, "a", 60.0):
        pass
    holder.join()
