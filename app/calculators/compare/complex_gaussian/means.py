r"""POST /v1/compare/zeta_dp_means and /zeta_dp_lipschitz: what two means or a gradient imply, as printed and in truth. Errata Z6 and Z8."""

from __future__ import annotations

import math
from typing import Annotated, Self, final

from fastapi import APIRouter
from pydantic import Field, Strict, model_validator

from zetadp.app.calculators.compare.finding import Counterexample, Finding, finding
from zetadp.app.calculators.compare.point_comparisons import Points, consequences, given, raised, step
from zetadp.app.calculators.points import LONGEST_LIST
from zetadp.app.calculators.schemas import example
from zetadp.mechanisms import Adjacency, ComplexGaussian, Sensitivity, Step
from zetadp.mechanisms.base import LARGEST_SCALE, SMALLEST_SCALE, NonNegative, Number, OpenProbability, Positive, Value
from zetadp.mechanisms.complex_gaussian import whitened_length
from zetadp.mechanisms.conventions import (
    ComponentNoise,
    NoiseStatement,
    PerComponentNoise,
    TotalNoise,
    complex_gaussian,
    total_from_per_component,
)
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.published import zeta_dp

Coordinate = Annotated[float, Strict(), Field(allow_inf_nan=False, ge=-LARGEST_SCALE, le=LARGEST_SCALE)]
Vector = Annotated[tuple[tuple[Coordinate, Coordinate], ...], Field(min_length=1, max_length=LONGEST_LIST)]


@final
class MeansComparison(Value):
    r"""Two outputs of a query, as (real, imaginary) pairs, and the noise on them.

    Attributes:
      first, second: the query's values on two data sets, with the same number of coordinates.
      noise: under a convention, which has to be named.
      order: of the Renyi divergence; in (1, 10^6].
    """

    model_config = example(
        {"first": [[3.0, 0.0]], "second": [[-3.0, 0.0]], "noise": {"convention": "total", "sigma": 1.0}, "order": 2.0},
    )

    first: Vector
    second: Vector
    noise: Annotated[TotalNoise | PerComponentNoise, Field(discriminator="convention")]
    order: Annotated[Number, Field(gt=1.0, le=1e6)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.first) != len(self.second):
            raise InvalidParameter("second", f"as long as first ({len(self.first)} coordinates)", len(self.second))
        return self


@final
class LipschitzComparison(Value):
    r"""A query, differentiable in one record's value.

    Attributes:
      gradient_bound: the largest length of its gradient with respect to that value.
      domain_diameter: the largest distance of two values a record may have, along paths inside the domain.
      noise: on the query, under a convention, which has to be named.
      epsilons: where delta is compared; deltas: where epsilon is.
    """

    model_config = example(
        {"gradient_bound": 1.0, "domain_diameter": 10.0, "noise": {"convention": "per_component", "sigma": 10.0}, "deltas": [1e-5]},
    )

    gradient_bound: Positive
    domain_diameter: Positive
    noise: NoiseStatement
    epsilons: Annotated[tuple[NonNegative, ...], Field(max_length=LONGEST_LIST)] = ()
    deltas: Annotated[tuple[OpenProbability, ...], Field(max_length=LONGEST_LIST)] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not SMALLEST_SCALE <= self.sensitivity <= LARGEST_SCALE:
            expected = f"such that gradient_bound * domain_diameter lies in [{SMALLEST_SCALE!r}, {LARGEST_SCALE!r}]"
            raise InvalidParameter("domain_diameter", expected, self.domain_diameter)
        return self

    @property
    def sensitivity(self) -> float:
        """The largest distance that the query moves when the record is replaced."""
        return self.gradient_bound * self.domain_diameter


@final
class Found(Value):
    """The step from the paper's symbol to deviations per real component, and the findings."""

    conversion: tuple[Step, ...]
    published: tuple[Finding, ...]


router = APIRouter()


@router.post("/zeta_dp_means", summary="Compare the printed Renyi divergence of two means with the true one")
def compare_zeta_dp_means(request: MeansComparison) -> Found:
    """Equation (8) of the zeta-DP paper has an inner product where the squared distance belongs."""
    return Found(conversion=request.noise.components().steps, published=(_inner_product(request),))


@router.post("/zeta_dp_lipschitz", summary="Compare the printed sensitivity of a differentiable query with the true one")
def compare_zeta_dp_lipschitz(request: LipschitzComparison) -> Found:
    """Definition 2 of the zeta-DP paper takes the largest gradient for the sensitivity."""
    return Found(conversion=request.noise.components().steps, published=_lipschitz(request))


def _inner_product(request: MeansComparison) -> Finding:
    found = request.noise.components()
    first, second = ([complex(*pair) for pair in means] for means in (request.first, request.second))
    moves = [b - a for a, b in zip(first, second, strict=True)]
    length = raised(whitened_length(moves, found.std_real, found.std_imag, found.correlation)) + _rounding(moves, found)
    # Multiplied before it is squared, and rounded up: if the square is below all floats, the divergence still isn't 0.
    proven = math.nextafter((math.sqrt(0.5 * request.order) * length) ** 2, math.inf) if length > 0.0 else 0.0
    circular = found.correlation == 0.0
    return finding(
        f"Renyi divergence of order {request.order!r} between the two releases, in nats",
        "zeta_dp",
        "equations (8) and (17)",
        printed=zeta_dp.equation_8_renyi(first, second, _paper_sigma(request.noise), request.order) if circular else None,
        printed_formula="order <mu_0, mu_1> / (2 sigma^2), sigma^2 = E|n|^2",
        proven=proven,
        proven_formula="order |S^-1/2 (mu_0 - mu_1)|^2 / 2, S the covariance of (Re n, Im n)",
        stronger="smaller",
        erratum="Z6",
        note="The inner product of the means isn't their squared distance: equal means get a divergence, opposite ones a negative one."
        if circular
        else "The equation is for circular noise, so it doesn't cover this one.",
        derivation=(
            *found.steps,
            step("whitened distance", length, "|S^-1/2 (mu_0 - mu_1)|, rounded up", "proofs/complex_gaussian.md"),
            step("D_order", proven, "order distance^2 / 2, rounded up", "van Erven and Harremoes 2014, equation (10)"),
        ),
        counterexample=_MEANS,
    )


def _paper_sigma(noise: TotalNoise | PerComponentNoise) -> float:
    """The sigma of the zeta-DP paper's N_C(0, sigma^2), which covers both components together."""
    return noise.sigma if isinstance(noise, TotalNoise) else total_from_per_component(noise.sigma)


def _rounding(moves: list[complex], noise: ComponentNoise) -> float:
    """Error of x - rho y from its parts' roundings, 4 units of |x| + |y|; it matters if rho is near 1 and nearly everything cancels."""
    independent = math.sqrt((1.0 - noise.correlation) * (1.0 + noise.correlation))
    return 1e-15 * whitened_length(moves, noise.std_real, noise.std_imag, 0.0) / independent


def _lipschitz(request: LipschitzComparison) -> tuple[Finding, ...]:
    printed, proven = zeta_dp.definition_2_sensitivity(request.gradient_bound), request.sensitivity * (1.0 + 2.0**-52)
    derivation = (
        given("sup |grad f|", request.gradient_bound, "gradient_bound"),
        given("diameter", request.domain_diameter, "domain_diameter"),
        step("Delta", proven, "sup |grad f| diameter, rounded up", "mean value theorem along the path from one value to the other"),
    )
    sensitivity = finding(
        "l2 sensitivity when a record is replaced, in units of the query",
        "zeta_dp",
        "Definitions 1 and 2",
        printed=printed,
        printed_formula="sup |grad f|",
        proven=proven,
        proven_formula="sup |grad f| times the domain's diameter",
        stronger="smaller",
        erratum="Z8",
        note="The Lipschitz constant by the distance of data sets is the sensitivity; the largest gradient by a record's value isn't.",
        derivation=derivation,
        counterexample=_SUM,
    )
    mu_printed, mu_true = (_mechanism(request.noise, length).privacy_loss().mu for length in (printed, request.sensitivity))
    delta, epsilon = consequences(mu_printed, raised(mu_true), Points(request.epsilons, request.deltas))
    mu = finding(
        "mu of one release, when a record is replaced",
        "zeta_dp",
        "Definition 2, with the true mu of this noise",
        printed=mu_printed,
        printed_formula="mu at the printed sensitivity",
        proven=raised(mu_true),
        proven_formula="mu at the proved sensitivity",
        stronger="smaller",
        erratum="Z8",
        note="As above: the sensitivity's error goes into mu as it is.",
        derivation=(
            *derivation,
            step("mu", raised(mu_true), "Delta / sqrt(smaller eigenvalue of S), rounded up", "proofs/complex_gaussian.md"),
        ),
        counterexample=_SUM,
        delta=delta,
        epsilon=epsilon,
    )
    return sensitivity, mu


def _mechanism(noise: NoiseStatement, length: float) -> ComplexGaussian:
    return complex_gaussian(noise, Sensitivity(l2=length, adjacency=Adjacency.REPLACE_ONE, unit="record"))


def _means_example() -> Counterexample:
    order, sigma = 2.0, 1.0
    std = TotalNoise(convention="total", sigma=sigma).components().std_real
    pairs = {"equal": (3.0 + 0.0j, 3.0 + 0.0j), "opposite": (3.0 + 0.0j, -3.0 + 0.0j)}
    return Counterexample(
        description="One coordinate, N_C(0, 1), order 2: means 3 and 3, then 3 and -3.",
        steps=tuple(
            part
            for name, (first, second) in pairs.items()
            for part in (
                step(f"printed, {name}", zeta_dp.equation_8_renyi([first], [second], sigma, order), "order mu_0 mu_1 / 2", "equation (8)"),
                step(
                    f"true, {name}", 0.5 * order * whitened_length([first - second], std, std, 0.0) ** 2, "order |mu_0 - mu_1|^2", "Z5, Z6"
                ),
            )
        ),
    )


def _sum_example() -> Counterexample:
    low, high = 0.0, 10.0
    return Counterexample(
        description="f = sum of x, each x in [0, 10]: the gradient by x is 1, yet replacing x = 0 by x = 10 moves f by 10.",
        steps=(
            step("Delta printed", zeta_dp.definition_2_sensitivity(1.0), "sup |df/dx|", "Definition 2"),
            step("Delta", high - low, "f(.., 10) - f(.., 0)", "Definition 1"),
        ),
    )


_MEANS, _SUM = _means_example(), _sum_example()
