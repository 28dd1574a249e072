r"""The papers' printed theorems beside what is proved."""

from __future__ import annotations

from typing import Annotated, final

from fastapi import APIRouter
from pydantic import Field

from accountants import Release
from accountants.gdp import GdpProfile
from app.calculators.points import LONGEST_LIST
from app.calculators.profiles import compute_profile
from app.calculators.schemas import RELEASE, Profile, ProfileRequest, example
from mechanisms import ComplexGaussian
from mechanisms.base import Extended, NonNegative, OpenProbability, Value
from mechanisms.published import PublishedClaim, claims_on_complex_gaussian


@final
class ComplexGaussianComparison(Value):
    """Both papers' Theorem 1 for this mechanism, beside the proved values."""

    model_config = example({"mechanism": RELEASE["mechanism"], "epsilons": [1.0], "deltas": [1e-5]})

    mechanism: ComplexGaussian
    epsilons: Annotated[tuple[NonNegative, ...], Field(max_length=LONGEST_LIST)] = ()
    deltas: Annotated[tuple[OpenProbability, ...], Field(max_length=LONGEST_LIST)] = ()


@final
class ClaimedDelta(Value):
    """What a printed formula says of delta at an epsilon."""

    epsilon: float
    delta: float
    log_delta: Extended


@final
class ClaimedEpsilon(Value):
    """What a printed formula says of epsilon at a delta."""

    delta: float
    epsilon: Extended


@final
class Claim(Value):
    """One printed formula with its consequences. Never a guarantee."""

    claim: PublishedClaim
    delta: tuple[ClaimedDelta, ...]
    epsilon: tuple[ClaimedEpsilon, ...]


@final
class Comparison(Value):
    """The proved profile, and each paper's claim beside it."""

    proven: Profile
    published: tuple[Claim, ...]


router = APIRouter()


@router.post("/complex_gaussian", summary="Compare the papers' printed theorems with what is proved")
def compare(request: ComplexGaussianComparison) -> Comparison:
    """The printed theorems of both papers beside the proved profile of one release."""
    points = ProfileRequest(event=Release(mechanism=request.mechanism), epsilons=request.epsilons, deltas=request.deltas)
    claims = claims_on_complex_gaussian(request.mechanism)
    return Comparison(proven=compute_profile(points), published=tuple(_claim(claim, request) for claim in claims))


def _claim(claim: PublishedClaim, request: ComplexGaussianComparison) -> Claim:
    printed = None if claim.gdp_mu is None else GdpProfile(claim.gdp_mu, ())
    deltas = [] if printed is None else [(epsilon, printed.delta(epsilon)) for epsilon in request.epsilons]
    epsilons = [] if printed is None else [(delta, printed.epsilon(delta)) for delta in request.deltas]
    return Claim(
        claim=claim,
        delta=tuple(ClaimedDelta(epsilon=at, delta=bound.upper, log_delta=bound.log_upper) for at, bound in deltas),
        epsilon=tuple(ClaimedEpsilon(delta=at, epsilon=bound.upper) for at, bound in epsilons),
    )
