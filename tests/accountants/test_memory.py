"""Profiles are freed when whoever asks is done, without the garbage collector: their grids take a hundred megabytes."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Generator
from contextlib import suppress

import pytest

from tests.accountants.events import laplace
from tests.selection import chosen
from zetadp import accountants
from zetadp.accountants import Event, PoissonSampled, PrivacyProfile, Repeated
from zetadp.mechanisms.errors import CalibrationFailed, NumericalFloor, UnsupportedEvent

ONCE = laplace(1.0)
OFTEN = Repeated(count=200, event=PoissonSampled(probability=0.01, event=laplace(1.0)))


@pytest.fixture(autouse=True)
def uncollected() -> Generator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def living() -> int:
    return sum(issubclass(type(one), PrivacyProfile) for one in gc.get_objects())  # isinstance() wakes lazy modules


@pytest.mark.parametrize("event", chosen([ONCE, OFTEN], [ONCE]), ids=["once", "often"])
def test_a_profile_that_was_asked_everything_is_freed(event: Event) -> None:
    profile = accountants.profile(event)
    for epsilon in (0.0, 0.3, 1.0, 40.0):  # from 1, the largest loss of one, routes refuse and others are asked
        with suppress(UnsupportedEvent, NumericalFloor):
            profile.delta(epsilon)
    profile.epsilon(1e-5)
    profile.trade_off(0.2)
    profile.rdp(3.0)
    gone = weakref.ref(profile)
    del profile
    assert gone() is None


@pytest.mark.parametrize("delta", chosen([1e-5, 1e-300], [1e-300]))
def test_a_calibration_leaves_no_profile(delta: float) -> None:
    before = living()
    with suppress(CalibrationFailed, NumericalFloor):
        accountants.calibrate_scale(OFTEN, epsilon=1.0, delta=delta)
    assert living() == before


ROOM = """
import resource
from pathlib import Path

from tests.accountants.events import gaussian
from zetadp.accountants import Grouped, RandomlyAllocated, Repeated, profile
from zetadp.accountants.allocation.line import line_at
from zetadp.accountants.allocation.ratio import Ratio

def grouped(steps, std, count):
    return Grouped(size=3, unit="user", event=Repeated(count=count, event=RandomlyAllocated(steps=steps, event=gaussian(std))))

profile(grouped(9, 3.0, 1)).epsilon(1e-3)  # what is loaded when something is first asked
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**29, used + 2**29))
"""
"""Memory of half a gigabyte beyond what a process has that has answered once."""

EPOCHS = [(100, 2.0, 10, 1e-5), (100, 1.0, 1, 1e-6), (1000, 4.0, 1, 1e-10)]


def run_in_little_memory(lines: str) -> None:
    done = subprocess.run([sys.executable, "-c", ROOM + lines], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads how much memory a process has where Linux says so")
@pytest.mark.parametrize(("steps", "std", "count", "delta"), chosen(EPOCHS, EPOCHS[:1]))
def test_a_group_in_a_random_allocation_takes_little_memory(steps: int, std: float, count: int, delta: float) -> None:
    run_in_little_memory(
        f"found = profile(grouped({steps}, {std}, {count})).epsilon({delta})\nassert 0.0 < found.lower < found.upper < 10.0"
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads how much memory a process has where Linux says so")
def test_a_line_of_very_many_panels_is_refused_before_it_is_laid() -> None:
    run_in_little_memory("assert line_at(Ratio((0.97, 0.03), (0.1, 0.3)), 33, 1e-3, 66.0, -20.0) is None")
