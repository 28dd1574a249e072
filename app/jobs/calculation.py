r"""Calculations as jobs: those that take longer than a request may wait."""

from __future__ import annotations

from typing import Annotated, Literal, Self, final

from pydantic import Field, model_validator

from app.calculators.batches import LARGEST_BATCH, BatchLine
from app.calculators.schemas import TRAINING, Calibration, CalibrationRequest, Profile, ProfileRequest, example
from mechanisms.base import Positive, Value
from mechanisms.errors import InvalidParameter

CalculationKind = Literal["profile", "calibration", "batch"]
KINDS: tuple[CalculationKind, ...] = ("profile", "calibration", "batch")


@final
class Calculation(Value):
    """What to calculate: a profile, a calibration, or up to 1000 profiles; exactly one of the three."""

    model_config = example({"profile": {"event": TRAINING, "deltas": [1e-5]}})

    profile: ProfileRequest | None = None
    calibration: CalibrationRequest | None = None
    batch: Annotated[tuple[ProfileRequest, ...], Field(max_length=LARGEST_BATCH)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise InvalidParameter("calculation", "exactly one of profile, calibration, batch", given or "none of them")
        return self


@final
class CalculationDocument(Value):
    """A calculation as sent, and how long it may take."""

    calculation: Calculation
    seconds: Positive

    def child_request(self) -> str:
        """What the calculating child reads."""
        return self.model_dump_json()


@final
class CalculationResult(Value):
    """What came of it, under the same name; the other two are null."""

    profile: Profile | None = None
    calibration: Calibration | None = None
    batch: tuple[BatchLine, ...] | None = None
