r"""POST /v1/compare/zeta_dp_sgd_step: one training step with complex Gaussian noise, as printed and in truth. Errata Z10, Z11, Z15."""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated, final

from fastapi import APIRouter
from pydantic import Field, Strict

from zetadp.app.calculators.compare.finding import Counterexample, Finding, finding
from zetadp.app.calculators.compare.point_comparisons import Points, consequences, given, raised, step
from zetadp.app.calculators.points import LONGEST_LIST
from zetadp.app.calculators.schemas import example
from zetadp.mechanisms import Step
from zetadp.mechanisms.analysis.realised_lot import LARGEST_DIMENSION, LARGEST_LOT, realised_lot_log_delta
from zetadp.mechanisms.base import NonNegative, OpenProbability, Value
from zetadp.mechanisms.conventions import FederatedAlgorithmNoise, ZetaAlgorithmNoise
from zetadp.mechanisms.numerics.gdp import gdp_log_delta
from zetadp.mechanisms.numerics.logspace import exp_up
from zetadp.mechanisms.published import zeta_dp

MOST_EPSILONS = 3
"""Each costs an integral."""


@final
class SgdStepComparison(Value):
    r"""One step: a sum of gradients clipped to B, noise, and a division.

    Attributes:
      noise: of which paper's Algorithm 1, its sigma and its clipping bound B.
      lot_size: records in the smaller of two neighbouring lots.
      complex_parameters: how many complex numbers are released.
      epsilons: where delta is compared; 1 if none is given. At most 3.
      deltas: where epsilon is compared.
      gradient_norms: lengths of full real gradients, for which clipping is compared.
    """

    model_config = example(
        {
            "noise": {"convention": "zeta_dp_algorithm_1", "sigma": 1.0, "clipping_bound": 1.0},
            "lot_size": 64,
            "complex_parameters": 5000,
            "epsilons": [1.0],
            "deltas": [1e-5],
            "gradient_norms": [0.5, 1.5, 3.0],
        }
    )

    noise: Annotated[ZetaAlgorithmNoise | FederatedAlgorithmNoise, Field(discriminator="convention")]
    lot_size: Annotated[int, Strict(), Field(ge=1, le=LARGEST_LOT)]
    complex_parameters: Annotated[int, Strict(), Field(ge=1, le=LARGEST_DIMENSION)]
    epsilons: Annotated[tuple[NonNegative, ...], Field(max_length=MOST_EPSILONS)] = ()
    deltas: Annotated[tuple[OpenProbability, ...], Field(max_length=LONGEST_LIST)] = ()
    gradient_norms: Annotated[tuple[NonNegative, ...], Field(max_length=LONGEST_LIST)] = ()


@final
class SgdStep(Value):
    """What one step is: the noise per real component, its multiple of the clipping bound, and mu without sampling.

    The mu holds for adding or removing a record, and only if the noisy sum is divided by a public constant.
    """

    std: float
    noise_multiplier: float
    mu: float
    conversion: tuple[Step, ...]
    published: tuple[Finding, ...]


router = APIRouter()


@router.post("/zeta_dp_sgd_step", summary="Compare one printed training step with what is proved")
def compare_zeta_dp_sgd_step(request: SgdStepComparison) -> SgdStep:
    """Effective noise multiplier, division by the realised lot, and half gradients."""
    found = request.noise.components()
    multiplier = found.std_real / request.noise.clipping_bound
    zeta = isinstance(request.noise, ZetaAlgorithmNoise)
    return SgdStep(
        std=found.std_real,
        noise_multiplier=multiplier,
        mu=raised(1.0 / multiplier),
        conversion=found.steps,
        published=(
            _multiplier(request, multiplier, found.steps),
            *(_realised_lot(request, epsilon) for epsilon in (request.epsilons or (1.0,)) if zeta),
            *((_half_gradients(request),) if zeta else ()),
        ),
    )


def _multiplier(request: SgdStepComparison, multiplier: float, conversion: tuple[Step, ...]) -> Finding:
    zeta = isinstance(request.noise, ZetaAlgorithmNoise)
    printed, proven = zeta_dp.algorithm_1_multiplier(request.noise.sigma), multiplier
    delta, epsilon = consequences(1.0 / printed, raised(1.0 / proven), Points(request.epsilons, request.deltas))
    return finding(
        "noise multiplier of one step: std of each real component over the clipping bound",
        "zeta_dp" if zeta else "complex_dp_federated",
        "Algorithm 1",
        printed=printed,
        printed_formula="sigma",
        proven=proven,
        proven_formula="sigma / sqrt(2)" if zeta else "sigma",
        stronger="larger",
        erratum="Z10" if zeta else "C18",
        note="N_C(0, sigma^2 B^2) has (sigma B)^2 for both components together, in as many dimensions as parameters (not L)."
        if zeta
        else "N_C(0, 2 B^2 sigma^2) has sigma B on each component: right, for adding or removing a record.",
        derivation=(*conversion, step("noise multiplier", proven, "std / B", "what an accountant of real noise takes")),
        counterexample=_multiplier_example() if zeta else None,
        delta=delta,
        epsilon=epsilon,
    )


def _realised_lot(request: SgdStepComparison, epsilon: float) -> Finding:
    lot, count = request.lot_size, request.complex_parameters
    log_proven = realised_lot_log_delta(lot, count, epsilon)
    proven = min(1.0, exp_up(log_proven))
    log_printed = zeta_dp.theorem_1_log_delta(1.0, request.noise.sigma, epsilon)
    printed, refuted = min(1.0, exp_up(log_printed)), log_printed < log_proven
    return finding(
        f"delta at epsilon = {epsilon!r} for lots of {lot} and {lot + 1} records whose gradients are all zero",
        "zeta_dp",
        "Algorithm 1: division by the size L of the lot that was drawn",
        printed=printed,
        printed_formula="at most delta_G(1 / sigma, epsilon), for every pair of neighbours",
        proven=proven,
        proven_formula="hockey-stick divergence of N(0, (c/L)^2) and N(0, (c/(L+1))^2) on 2p coordinates, in its worse direction",
        # If this one pair is within the claim, that shows nothing about the others.
        stronger="smaller" if refuted else "neither",
        erratum="Z11",
        note="The noise's own scale tells the lot's size, whatever sigma is. Divide by a public constant: the expected lot size."
        + ("" if refuted else " At these numbers this pair alone doesn't refute the claim."),
        derivation=(
            given("L", float(lot), "lot_size"),
            given("p", float(count), "complex_parameters; 2p real coordinates"),
            step("log(1 + 1/L)", math.log1p(1.0 / lot), "log of the ratio of deviations", "c cancels"),
            step("k", (2.0 + 1.0 / lot) / lot, "(1 + 1/L)^2 - 1", "proofs/realised_lot.md"),
            step("log delta", log_proven, "log of the larger of both integrals, rounded up", "proofs/realised_lot.md"),
            step("delta", proven, "e^(log delta), rounded up", "proofs/realised_lot.md"),
        ),
        counterexample=_lots_example(),
    )


def _half_gradients(request: SgdStepComparison) -> Finding:
    bound, norms = request.noise.clipping_bound, request.gradient_norms
    return finding(
        "noise over clipped gradient: half gradients clipped to B, relative to full gradients clipped to 2 B",
        "zeta_dp",
        "Appendix A.5 and Section 5.1",
        printed=zeta_dp.appendix_5_noise_factor(),
        printed_formula="1/2: d/d(conj z) is half the gradient, and R^2n needs a superfluous factor of 2 in the noise",
        proven=1.0,
        proven_formula="1: clip(g/2; B) = clip(g; 2 B) / 2 and the noise is proportional to the bound",
        stronger="neither",
        erratum="Z15",
        note="No privacy is lost, as B is enforced, and none is won: half gradients at the same B are full gradients at twice the bound.",
        derivation=(
            given("B", bound, "clipping_bound"),
            *(_shares(norms, bound) if norms else ()),
            step("noise ratio", 1.0, "(sigma B / |clip(g/2; B)|) / (sigma 2 B / |clip(g; 2 B)|)", "clip(g/2; B) = clip(g; 2 B) / 2"),
        ),
        counterexample=_halves_example(),
    )


def _shares(norms: tuple[float, ...], bound: float) -> tuple[Step, ...]:
    return (
        step("share clipped, g/2 at B", _share_above(norms, 2.0 * bound), "share of |g|/2 > B", "gradient_norms"),
        step("share clipped, g at 2 B", _share_above(norms, 2.0 * bound), "share of |g| > 2 B", "the same records"),
        step("share clipped, g at B", _share_above(norms, bound), "share of |g| > B", "what the comparison at one B shows"),
    )


def _share_above(norms: tuple[float, ...], bound: float) -> float:
    return sum(norm > bound for norm in norms) / len(norms)


# Their figures need scipy, which isn't loaded when the service starts.
@cache
def _multiplier_example() -> Counterexample:
    sigma, epsilon = 1.0, 1.0
    return Counterexample(
        description="sigma = B = 1, one step on all records, epsilon = 1: a record adds a gradient of length B, or not.",
        steps=(
            step("delta printed", math.exp(zeta_dp.theorem_1_log_delta(1.0, sigma, epsilon)), "delta_G(1 / sigma, 1)", "Theorem 1"),
            step(
                "delta", math.exp(gdp_log_delta(math.sqrt(2.0) / sigma, epsilon)), "delta_G(sqrt(2) / sigma, 1)", "std = sigma B / sqrt(2)"
            ),
        ),
    )


@cache
def _lots_example() -> Counterexample:
    steps = tuple(
        step(f"delta(1), {2 * count} real coordinates", min(1.0, exp_up(realised_lot_log_delta(64, count, 1.0))), "integral", "Gamma laws")
        for count in (50, 5000, 500_000)
    )
    return Counterexample(
        description="All gradients zero, 64 records against 65, any sigma and B: only the noise is released.", steps=steps
    )


@cache
def _halves_example() -> Counterexample:
    length, bound = 3.0, 1.0
    half, full = min(0.5 * length, bound), min(length, 2.0 * bound)
    return Counterexample(
        description="A gradient of length 3, B = 1, noise multiplier 1.",
        steps=(
            step("clipped, g/2 at B", half, "min(|g|/2, B)", "noise std 1"),
            step("clipped, g at 2 B", full, "min(|g|, 2 B)", "noise std 2"),
            step("noise over signal, g/2 at B", bound / half, "B / min(|g|/2, B)", "Z15"),
            step("noise over signal, g at 2 B", 2.0 * bound / full, "2 B / min(|g|, 2 B)", "Z15"),
        ),
    )
