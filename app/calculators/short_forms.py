r"""The commonest questions in one line: numbers in a query instead of an event in a body. The answer shows the event they stand for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, TypeAlias, final

from fastapi import APIRouter, Depends, Query, Response
from pydantic import Field

from zetadp.accountants import Event, Target, short_forms
from zetadp.accountants.short_forms import MOST_STEPS
from zetadp.app.calculators.calibrations import Calibration, CalibrationRequest
from zetadp.app.calculators.limits import Calculators, calculators
from zetadp.app.calculators.schemas import Profile, ProfileRequest
from zetadp.mechanisms.base import LARGEST_SCALE, SMALLEST_SCALE, Value
from zetadp.mechanisms.errors import InvalidParameter

Desk = Annotated[Calculators, Depends(calculators)]
NoiseMultiplier = Annotated[
    float | None,
    Query(
        ge=SMALLEST_SCALE,
        le=LARGEST_SCALE,
        description="Standard deviation of each real component of the noise, divided by the l2 sensitivity. Give it, or epsilon.",
        examples=[1.0],
    ),
]
LaplaceMultiplier = Annotated[
    float | None,
    Query(
        ge=SMALLEST_SCALE,
        le=LARGEST_SCALE,
        description="Scale of the noise, divided by the l1 sensitivity. Give it, or epsilon.",
        examples=[1.0],
    ),
]
Epsilon = Annotated[
    float | None, Query(ge=0.0, le=LARGEST_SCALE, description="The guarantee to find the noise for. Give it, or noise_multiplier.")
]
Delta = Annotated[float, Query(gt=0.0, lt=1.0, description="The delta of the guarantee.", examples=[1e-5])]
SamplingProbability = Annotated[
    float,
    Query(ge=SMALLEST_SCALE, le=1.0, description="Probability with which each record joins a sample, independently.", examples=[0.01]),
]
Steps = Annotated[int, Query(ge=1, le=MOST_STEPS, description="How many noisy sums are released.", examples=[1000])]
Correlation = Annotated[
    float, Query(gt=-1.0, lt=1.0, description="Correlation of the noise's real and imaginary parts; 0 for circular noise.")
]

router = APIRouter()


@final
class ShortProfile(Value):
    """What a noise guarantees.

    Attributes:
      event: what the numbers of the query stand for.
      profile: as `POST /v1/profiles` answers for this event and delta.
    """

    kind: Literal["profile"] = "profile"
    event: Event
    profile: Profile


@final
class ShortCalibration(Value):
    """How much noise a guarantee needs.

    Attributes:
      event: what the numbers of the query stand for, with the noise that was found.
      calibration: as `POST /v1/calibrations` answers for this event with a noise multiplier of 1, and this epsilon and delta.
    """

    kind: Literal["calibration"] = "calibration"
    event: Event
    calibration: Calibration


ShortAnswer: TypeAlias = Annotated[ShortProfile | ShortCalibration, Field(discriminator="kind")]


@router.get("/dp-sgd", summary="Account for DP-SGD, from its numbers", response_model=ShortAnswer)
def account_dp_sgd(
    desk: Desk,
    sampling_probability: SamplingProbability,
    steps: Steps,
    delta: Delta,
    noise_multiplier: NoiseMultiplier = None,
    epsilon: Epsilon = None,
) -> Response:
    """Noisy sums of clipped gradients, each over a Poisson sample: the epsilon of a noise multiplier, or the multiplier for an epsilon.

    Neighbours differ by one record that one of them lacks. Ask about others with the event, which the answer shows.
    """

    def event(multiplier: float) -> Event:
        return short_forms.dp_sgd(noise_multiplier=multiplier, sampling_probability=sampling_probability, steps=steps)

    return _answered(desk, event, noise_multiplier, epsilon, delta)


@router.get("/gaussian", summary="Account for Gaussian noise, from its numbers", response_model=ShortAnswer)
def account_gaussian(desk: Desk, delta: Delta, noise_multiplier: NoiseMultiplier = None, epsilon: Epsilon = None) -> Response:
    """One release with Gaussian noise: the epsilon of a noise multiplier, or the noise multiplier for an epsilon."""
    return _answered(desk, lambda multiplier: short_forms.gaussian(noise_multiplier=multiplier), noise_multiplier, epsilon, delta)


@router.get("/complex-gaussian", summary="Account for complex Gaussian noise, from its numbers", response_model=ShortAnswer)
def account_complex_gaussian(
    desk: Desk, delta: Delta, noise_multiplier: NoiseMultiplier = None, epsilon: Epsilon = None, correlation: Correlation = 0.0
) -> Response:
    """One release with complex Gaussian noise. The noise multiplier is that of the real part, which is that of the imaginary part."""

    def event(multiplier: float) -> Event:
        return short_forms.complex_gaussian(noise_multiplier=multiplier, correlation=correlation)

    return _answered(desk, event, noise_multiplier, epsilon, delta)


@router.get("/laplace", summary="Account for Laplace noise, from its numbers", response_model=ShortAnswer)
def account_laplace(desk: Desk, delta: Delta, noise_multiplier: LaplaceMultiplier = None, epsilon: Epsilon = None) -> Response:
    """One release with Laplace noise: the epsilon of a noise multiplier, or the noise multiplier for an epsilon."""
    return _answered(desk, lambda multiplier: short_forms.laplace(noise_multiplier=multiplier), noise_multiplier, epsilon, delta)


def _answered(
    desk: Calculators, event: Callable[[float], Event], noise_multiplier: float | None, epsilon: float | None, delta: float
) -> Response:
    if (noise_multiplier is None) == (epsilon is None):
        raise InvalidParameter("noise_multiplier", "given, or epsilon instead of it", "neither" if epsilon is None else "both")
    if noise_multiplier is not None:
        given = event(noise_multiplier)
        answer = ShortProfile(event=given, profile=desk.profile(ProfileRequest(event=given, deltas=(delta,))))
    else:
        found = desk.calibration(CalibrationRequest(event=event(1.0), target=Target(epsilon=epsilon, delta=delta)))
        answer = ShortCalibration(event=found.event, calibration=found)
    # Serialised here, in the thread that computed it, as the other calculators do.
    return Response(answer.model_dump_json(), media_type="application/json")
