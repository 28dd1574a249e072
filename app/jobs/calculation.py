r"""Calculations as jobs, for those that take too long for a request."""

from __future__ import annotations

from typing import Annotated, Literal, Self, final

from pydantic import Field, model_validator

from zetadp.app.calculators.batches import LARGEST_BATCH, BatchLine
from zetadp.app.calculators.calibrations import Calibration, CalibrationRequest, Sweep, SweepRequest
from zetadp.app.calculators.schemas import TRAINING, Profile, ProfileRequest, example
from zetadp.mechanisms.base import Positive, Value
from zetadp.mechanisms.errors import InvalidParameter

CalculationKind = Literal["profile", "batch", "calibration", "sweep"]
KINDS: tuple[CalculationKind, ...] = ("profile", "batch", "calibration", "sweep")


@final
class Calculation(Value):
    """What to calculate: a profile or up to 1000 of them, a calibration or a sweep of them; exactly one of the four."""

    model_config = example({"profile": {"event": TRAINING, "deltas": [1e-5]}})

    profile: ProfileRequest | None = None
    batch: Annotated[tuple[ProfileRequest, ...], Field(max_length=LARGEST_BATCH)] | None = None
    calibration: CalibrationRequest | None = None
    sweep: SweepRequest | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise InvalidParameter("calculation", "exactly one of " + ", ".join(KINDS), given or "none of them")
        return self


@final
class CalculationDocument(Value):
    """A calculation as sent, with its time limit."""

    calculation: Calculation
    seconds: Positive

    def child_request(self) -> str:
        """What the calculating child reads."""
        return self.model_dump_json()


@final
class CalculationResult(Value):
    """The calculation's result, under the same name; the others are null."""

    profile: Profile | None = None
    batch: tuple[BatchLine, ...] | None = None
    calibration: Calibration | None = None
    sweep: Sweep | None = None
