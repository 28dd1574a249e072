r"""The calculators as a service offers them: each request has a time limit, and cached events are answered immediately.

A request is abandoned when its client has gone: typing in a form sends a request with every key, and the plots for the previous key would
otherwise compete with the answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager
from typing import Self, TypeVar, final

from fastapi import Request

from zetadp.accountants.deadline import time_limit
from zetadp.app.calculators.cache import ProfileCache
from zetadp.app.calculators.calibrations import Calibration, CalibrationRequest, Sweep, SweepRequest, compute_calibration
from zetadp.app.calculators.forecasts import refuse_too_long
from zetadp.app.calculators.schemas import Profile, ProfileRequest
from zetadp.app.calculators.sweeps import compute_sweep
from zetadp.app.kit.settings import Settings

_Answer = TypeVar("_Answer")


@final
class Calculators:
    """Every method raises TimeLimitReached in addition to the accountants' errors, and CostTooHigh before it begins."""

    def __init__(self, settings: Settings, cache: ProfileCache | None = None, is_wanted: Callable[[], bool] | None = None) -> None:
        self._settings, self._is_wanted = settings, is_wanted
        self._cache = ProfileCache(settings.profile_cache_bytes) if cache is None else cache

    def asked_by(self, is_wanted: Callable[[], bool]) -> Self:
        """The same calculators, with the same cache, for a client that may leave before the answer comes."""
        return type(self)(self._settings, self._cache, is_wanted)

    @property
    def batch_seconds(self) -> float:
        """The time limit of a whole batch."""
        return self._settings.batch_seconds

    def profile(self, request: ProfileRequest) -> Profile:
        """As ``compute_profile``."""
        with self._limited():
            if not self._cache.knows(request):
                refuse_too_long(request, self._settings.calculation_seconds)
            return self._cache.profile(request)

    def calibration(self, request: CalibrationRequest) -> Calibration:
        """As ``compute_calibration``."""
        with self._limited():
            refuse_too_long(request, self._settings.calculation_seconds)
            return compute_calibration(request)

    def sweep(self, request: SweepRequest) -> Sweep:
        """As ``compute_sweep``."""
        with self._limited():
            refuse_too_long(request, self._settings.calculation_seconds)
            return compute_sweep(request)

    def within_limit(self, compute: Callable[[], _Answer]) -> _Answer:
        """The answer of ``compute``, if it comes in time."""
        with self._limited():
            return compute()

    def _limited(self) -> AbstractContextManager[None]:
        return time_limit(self._settings.calculation_seconds, self._is_wanted)


async def calculators(request: Request) -> AsyncGenerator[Calculators]:
    """The calculators of the application that serves this request, for as long as its client waits."""
    found: Calculators = request.app.state.calculators
    gone = threading.Event()
    watch = asyncio.create_task(_notice_end(request, gone))
    try:
        yield found.asked_by(lambda: not gone.is_set())
    finally:
        watch.cancel()


async def _notice_end(request: Request, gone: threading.Event) -> None:
    """Sets ``gone`` when the connection is closed. The body was already read: nothing else can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    gone.set()
