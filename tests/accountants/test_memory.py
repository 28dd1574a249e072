"""Profiles are freed when whoever asks is done, without the garbage collector: their grids take a hundred megabytes."""

from __future__ import annotations

import gc
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
