r"""The calculators as one service offers them: each request with a time limit, and events asked about before answered at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, final

from fastapi import Request

from accountants.deadline import time_limit
from app.calculators.cache import ProfileCache
from app.calculators.calibrations import Calibration, CalibrationRequest, Sweep, SweepRequest, compute_calibration, compute_sweep
from app.calculators.schemas import Profile, ProfileRequest
from app.settings import Settings

_Answer = TypeVar("_Answer")


@final
class Calculators:
    """Raises TimeLimitReached from every method, beside the accountants' errors."""

    def __init__(self, settings: Settings) -> None:
        self._seconds = settings.calculation_seconds
        self._batch_seconds = settings.batch_seconds
        self._cache = ProfileCache(settings.profile_cache_bytes)

    @property
    def batch_seconds(self) -> float:
        """How long a whole batch may take."""
        return self._batch_seconds

    def profile(self, request: ProfileRequest) -> Profile:
        """As ``compute_profile``."""
        with time_limit(self._seconds):
            return self._cache.profile(request)

    def calibration(self, request: CalibrationRequest) -> Calibration:
        """As ``compute_calibration``."""
        with time_limit(self._seconds):
            return compute_calibration(request)

    def sweep(self, request: SweepRequest) -> Sweep:
        """As ``compute_sweep``."""
        with time_limit(self._seconds):
            return compute_sweep(request)

    def within_limit(self, compute: Callable[[], _Answer]) -> _Answer:
        """What ``compute`` answers, if it does in time."""
        with time_limit(self._seconds):
            return compute()


def calculators(request: Request) -> Calculators:
    """The calculators of the application that serves this request."""
    found: Calculators = request.app.state.calculators
    return found
