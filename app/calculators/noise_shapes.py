r"""POST /v1/noise-shapes: the complex Gaussian noise with the least mu at a mean squared error, or the least error at a mu."""

from __future__ import annotations

from typing import Annotated, Self, final

from fastapi import APIRouter
from pydantic import Field, model_validator

from zetadp.accountants import Target
from zetadp.accountants.routes.closed.closed_form import GdpProfile
from zetadp.accountants.routes.closed.gdp_inversion import MU_ERROR
from zetadp.app.calculators.proofs import path_of
from zetadp.app.calculators.schemas import example
from zetadp.mechanisms import ComplexGaussian, Gaussian, Sensitivity, Step
from zetadp.mechanisms.base import Extended, Positive, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.noise_shape import NoiseShape, optimal_shape, total_std_for


@final
class NoiseShapeRequest(Value):
    r"""How far a query's parts move, and either the total noise or the target to reach.

    Attributes:
      sensitivity: l2, and l2_real and l2_imag where they are smaller.
      total_std: sqrt(v_real + v_imag), the root of a complex coordinate's mean squared error; or
      target: gdp_mu, (epsilon and delta), rdp, advantage or trade_off; the noise just meets it.
    """

    model_config = example(
        {"sensitivity": {"l2": 1.0, "l2_real": 1.0, "l2_imag": 0.3, "adjacency": "add_remove", "unit": "record"}, "total_std": 2.0}
    )

    sensitivity: Sensitivity
    total_std: Positive | None = None
    target: Target | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.total_std is None) == (self.target is None):
            raise InvalidParameter("total_std", "given, or target without it", "neither" if self.target is None else "both")
        _ = self.sensitivity.stated_l2
        return self


@final
class OptimalNoise(Value):
    r"""The optimal noise and what it saves.

    Attributes:
      mechanism: ready for POST /v1/profiles. If a part has sensitivity 0 its optimal noise vanishes: then this is the real mechanism for
        the other part alone, and the part that never moves may be released as it is.
      std_real, std_imag: deviations of the two components; 0 if a part needs no noise.
      total_std: sqrt(std_real^2 + std_imag^2).
      mu_optimal: of this noise; no Gaussian noise of the same total_std has a smaller one.
      mu_circular: of circular noise of the same total_std.
      mu_ratio: mu_optimal / mu_circular, in [1/sqrt(2), 1].
      squared_error_ratio: mean squared error of the optimal noise over that of circular noise of the same mu: mu_ratio^2.
    """

    mechanism: Annotated[ComplexGaussian | Gaussian, Field(discriminator="kind")]
    std_real: float
    std_imag: float
    total_std: float
    mu_optimal: Extended
    mu_circular: Extended
    mu_ratio: float
    squared_error_ratio: float
    derivation: tuple[Step, ...]
    proof: str = path_of("noise_shape")


router = APIRouter()


@router.post("/noise-shapes", summary="Find the optimal shape of complex Gaussian noise")
def create_noise_shape(request: NoiseShapeRequest) -> OptimalNoise:
    """How to split noise between the real and the imaginary part when they have different sensitivities."""
    shape = optimal_shape(request.sensitivity)
    total, needed = _total_std(request, shape)
    mechanism = shape.mechanism(total)
    std_real, std_imag = shape.stds(total)
    mu = (mechanism.privacy_loss().gdp_mu or 0.0) * (1.0 + MU_ERROR)
    circular = shape.circular_mu_times_total_std / total * (1.0 + MU_ERROR)
    return OptimalNoise(
        mechanism=mechanism,
        std_real=std_real,
        std_imag=std_imag,
        total_std=total,
        mu_optimal=mu,
        mu_circular=circular,
        mu_ratio=shape.gain,
        squared_error_ratio=shape.gain**2,
        derivation=(
            *shape.derivation(),
            *needed,
            Step(symbol="std_real", value=std_real, formula="total_std sqrt(r / (r + s))", source="proofs/noise_shape.md"),
            Step(symbol="std_imag", value=std_imag, formula="total_std sqrt(s / (r + s))", source="proofs/noise_shape.md"),
            Step(symbol="mu_optimal", value=mu, formula="(r + s) / total_std, rounded up", source="proofs/noise_shape.md"),
            Step(symbol="mu_circular", value=circular, formula="sqrt(2) longest / total_std, rounded up", source="errata C8"),
        ),
    )


def _total_std(request: NoiseShapeRequest, shape: NoiseShape) -> tuple[float, tuple[Step, ...]]:
    if request.total_std is not None:
        return request.total_std, (Step(symbol="total_std", value=request.total_std, formula="given", source="request"),)
    assert request.target is not None  # one of the two is given
    total, mu = _meeting(request.target, shape)
    return total, (
        Step(symbol="mu allowed", value=mu, formula=f"largest mu that meets {request.target.kind}", source="closed form of mu-GDP"),
        Step(symbol="total_std", value=total, formula="(r + s) / mu allowed, rounded up and checked", source="proofs/noise_shape.md"),
    )


def _meeting(target: Target, shape: NoiseShape) -> tuple[float, float]:
    """The least total_std whose profile passes the target's own check, and the mu that it was found by."""
    mu = target.mu
    if not mu > 0.0:
        raise InvalidParameter("target", "one that some finite noise meets within the range of floats", target.kind)
    # What is answered as an upper bound on mu meets the target too, not only the mu it bounds.
    allowed = mu / (1.0 + MU_ERROR)
    total = total_std_for(shape, allowed)
    while target.excess(GdpProfile(shape.mechanism(total).privacy_loss().gdp_mu or 0.0, ())) > 0.0:
        allowed *= 1.0 - 1e-14
        total = total_std_for(shape, allowed)
    return total, mu
