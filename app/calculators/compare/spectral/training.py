r"""Spectral-DP's Corollary 2: a Renyi bound read backwards from an (epsilon, delta) guarantee (P12)."""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated, final

from fastapi import APIRouter
from pydantic import Field

from zetadp.accountants.routes.closed.closed_form import GdpProfile
from zetadp.app.calculators.compare.finding import Counterexample, Finding, finding
from zetadp.app.calculators.compare.point_comparisons import given
from zetadp.app.calculators.compare.spectral.lines import PAPER, step
from zetadp.app.calculators.schemas import example
from zetadp.mechanisms import Step
from zetadp.mechanisms.analysis.classic_gaussian import classic_factor, classic_noise_renyi, equivalent_orders, largest_equivalent_epsilon
from zetadp.mechanisms.base import Count, Extended, Number, OpenProbability, Positive, Value
from zetadp.mechanisms.published import spectral_dp

PROOF = "mechanisms/proofs/classic_gaussian.md"


@final
class SpectralTrainingComparison(Value):
    r"""Corollary 2's numbers.

    Attributes:
      order: alpha, in (1, 1e6].
      epsilon: the Renyi epsilon per iteration that the corollary starts from, > 0.
      delta: in (0, 1).
      iterations: T = epochs * N / B, noisy steps.
    """

    model_config = example({"order": 2.0, "epsilon": 0.01, "delta": 1e-5, "iterations": 1000})

    order: Annotated[Number, Field(gt=1.0, le=1e6)]
    epsilon: Positive
    delta: OpenProbability
    iterations: Count


@final
class Orders(Value):
    """The orders from ``smallest`` to ``largest``."""

    smallest: float
    largest: float


@final
class SpectralTrainingAnswer(Value):
    r"""What the corollary's noise really gives, next to the corollary's statements.

    Attributes:
      noise_epsilon: epsilon' = epsilon + log(1 / delta) / (alpha - 1), which Theorem 1 is applied to.
      noise_multiplier: sigma = sqrt(2 log(1.25 / delta)) / epsilon'.
      gdp_mu: of all iterations: sqrt(T) / sigma, without sampling, as the corollary.
      equivalent_up_to: the largest epsilon' for which the corollary's Renyi bound holds at any order.
      equivalent_orders: the orders at which it holds for this epsilon' (its Renyi epsilon then being epsilon' - log(1/delta)/(alpha-1));
        null where there is none.
    """

    noise_epsilon: float
    noise_multiplier: float
    gdp_mu: float
    equivalent_up_to: float
    equivalent_orders: Orders | None
    published: tuple[Finding, ...]


router = APIRouter()


@router.post("/spectral_training", summary="Compare Spectral-DP's Corollary 2 with what is proved")
def compare_spectral_training(request: SpectralTrainingComparison) -> SpectralTrainingAnswer:
    """One iteration's Renyi divergence and the whole run's epsilon, claimed and true."""
    noise_epsilon = spectral_dp.corollary_2_noise_epsilon(request.order, request.epsilon, request.delta)
    sigma = spectral_dp.theorem_1_noise_multiplier(noise_epsilon, request.delta)
    orders = equivalent_orders(noise_epsilon, request.delta)
    return SpectralTrainingAnswer(
        noise_epsilon=noise_epsilon,
        noise_multiplier=sigma,
        gdp_mu=_total_mu(request, noise_epsilon),
        equivalent_up_to=largest_equivalent_epsilon(request.delta),
        equivalent_orders=None if orders is None else Orders(smallest=orders[0], largest=orders[1]),
        published=(_renyi(request, noise_epsilon), _total(request, noise_epsilon)),
    )


def _total_mu(request: SpectralTrainingComparison, noise_epsilon: float) -> float:
    return math.sqrt(request.iterations) * (noise_epsilon / classic_factor(request.delta))


def _noise(request: SpectralTrainingComparison, noise_epsilon: float) -> tuple[Step, ...]:
    factor = classic_factor(request.delta)
    return (
        given("alpha", request.order),
        given("epsilon", request.epsilon),
        given("delta", request.delta),
        step("epsilon'", noise_epsilon, "epsilon + log(1 / delta) / (alpha - 1)", "Corollary 2"),
        step("c", factor, "sqrt(2 log(1.25 / delta))", "Theorem 1"),
        step("sigma", factor / noise_epsilon, "c / epsilon'", "Theorem 1"),
    )


def _renyi(request: SpectralTrainingComparison, noise_epsilon: float) -> Finding:
    proven = classic_noise_renyi(request.order, noise_epsilon, request.delta)
    return finding(
        "Renyi divergence of order alpha of one iteration",
        PAPER,
        "Corollary 2 and appendix A.4",
        printed=request.epsilon,
        printed_formula="epsilon: (epsilon', delta)-DP is taken as (alpha, epsilon)-RDP by Proposition 1",
        proven=proven,
        proven_formula="alpha / (2 sigma^2) = alpha epsilon'^2 / (4 log(1.25 / delta))",
        stronger="smaller",
        erratum="P12",
        note="Proposition 1 goes from RDP to (epsilon, delta) only. The reverse holds for no order unless epsilon' is below "
        "4 L' (1 - sqrt(L / L')), L = log(1 / delta), L' = log(1.25 / delta), and then for a narrow band of orders.",
        derivation=(
            *_noise(request, noise_epsilon),
            step("largest epsilon'", largest_equivalent_epsilon(request.delta), "4 L' (1 - sqrt(L / L'))", PROOF),
            step("divergence", proven, "alpha / (2 sigma^2)", PROOF),
        ),
        counterexample=_order_two(),
    )


@cache
def _order_two() -> Counterexample:
    noise_epsilon = spectral_dp.corollary_2_noise_epsilon(2.0, 0.01, 1e-5)
    return Counterexample(
        description="alpha = 2, epsilon = 0.01, delta = 1e-5.",
        steps=(
            step("epsilon'", noise_epsilon, "0.01 + log(1e5)", "Corollary 2"),
            step("sigma", spectral_dp.theorem_1_noise_multiplier(noise_epsilon, 1e-5), "sqrt(2 log(1.25e5)) / epsilon'", "Theorem 1"),
            step("divergence", classic_noise_renyi(2.0, noise_epsilon, 1e-5), "1 / sigma^2, where 0.01 is claimed", PROOF),
        ),
    )


def _total(request: SpectralTrainingComparison, noise_epsilon: float) -> Finding:
    mu = _total_mu(request, noise_epsilon)
    proven: Extended = GdpProfile(mu, ()).epsilon_upper(request.delta)
    return finding(
        "epsilon of all iterations at delta, without sampling",
        PAPER,
        "Corollary 2",
        printed=spectral_dp.corollary_2_total_epsilon(request.order, request.epsilon, request.delta, request.iterations),
        printed_formula="T epsilon + log(1 / delta) / (alpha - 1)",
        proven=proven,
        proven_formula="epsilon of mu-GDP with mu = sqrt(T) / sigma, exact",
        stronger="smaller",
        erratum="P12",
        note="The corollary leaves out that Algorithm 4 samples by Poisson (P13); with sampling, account the run as poisson_sampled under "
        "/v1/profiles, which gives less than this figure and owes nothing to the corollary.",
        derivation=(
            *_noise(request, noise_epsilon),
            step("mu", mu, "sqrt(T) / sigma", "Dong, Roth and Su 2022, Corollary 3.3"),
            step("epsilon", proven, "delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), solved for eps", "Balle and Wang 2018"),
        ),
    )
