r"""POST /v1/compare/environmental_noise: what noise on the inputs does to a hidden unit, and what it doesn't buy."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated, Self, final

from fastapi import APIRouter
from pydantic import Field, model_validator

from zetadp.accountants import Release
from zetadp.app.calculators.compare.finding import Finding
from zetadp.app.calculators.compare.point_comparisons import raised
from zetadp.app.calculators.compare.spof import environment_findings as findings
from zetadp.app.calculators.compare.spof.environment_findings import Environment
from zetadp.app.calculators.proofs import path_of
from zetadp.app.calculators.schemas import example
from zetadp.mechanisms import Adjacency, Gaussian, Sensitivity
from zetadp.mechanisms.analysis import environmental_noise
from zetadp.mechanisms.base import SMALLEST_SCALE, Count, Extended, NonNegative, Number, OpenProbability, Positive, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.published import spof_environment as published

LONGEST_GRID = 50
_LARGEST_LOG = math.log(1e308)

BUYS = (
    "Nothing off epsilon. The law of a sensor's noise is assumed and never enforced; the factor b depends on the record through h, so a "
    "noise scale that shrinks with b is not differentially private at any epsilon; and the sum of two or more factors is below 1 with less "
    "than probability 1/2 besides. Only noise that the service itself draws, from a known law and secret randomness, counts, and only "
    "where x + n replaces x everywhere, in the encoder and in the reconstruction target: then x + n is a Gaussian release, and all that "
    "follows is post-processing."
)

HiddenOutput = Annotated[Number, Field(ge=0.0, lt=1.0)]
Weight = Annotated[Number, Field(ge=-1e50, le=1e50)]
Grid = Annotated[tuple[Positive, ...], Field(max_length=LONGEST_GRID)]


def _nothing_or_sizeable(name: str, value: float | None) -> None:
    if value is not None and 0.0 < value < SMALLEST_SCALE:
        raise InvalidParameter(name, f"0 or >= {SMALLEST_SCALE!r}", value)


@final
class EnvironmentalNoiseComparison(Value):
    """One hidden unit under noise n with independent N(0, noise_std^2) components on its input.

    Attributes:
      hidden_output: h, the unit's output without noise; in [0, 1). 0 is the limit in which b is lognormal.
      weight_norm, weights: the l2 norm of the unit's weights, or the weights themselves (one for each feature).
      noise_std: sigma; 0 leaves b = 1.
      features: n, the length of x.
      hidden_units: l, the units of one encoder; b_j is the sum of their factors.
      samples: |D|, over which b_max is taken.
      epsilon: what the paper promises.
      multiplier: the public b at which sensitivities are compared; by default the noiseless b_j = l.
      at: the points at which to give the distribution of b; > 0.
      probabilities: of the quantiles to give.
    """

    model_config = example(
        {
            "hidden_output": 0.5,
            "weight_norm": 2.0,
            "noise_std": 0.5,
            "features": 14,
            "hidden_units": 7,
            "samples": 100,
            "epsilon": 1.0,
            "at": [0.5, 1.0, 1.5],
            "probabilities": [0.05, 0.5, 0.95],
        }
    )

    hidden_output: HiddenOutput
    weight_norm: NonNegative | None = None
    weights: Annotated[tuple[Weight, ...], Field(min_length=1, max_length=1000)] | None = None
    noise_std: NonNegative
    features: Count
    hidden_units: Count
    samples: Count
    epsilon: Positive
    multiplier: Positive | None = None
    at: Grid = ()
    probabilities: Annotated[tuple[OpenProbability, ...], Field(max_length=LONGEST_GRID)] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.weight_norm is None) == (self.weights is None):
            raise InvalidParameter("weight_norm", "given, or weights instead of it", "both" if self.weights else "neither")
        if self.weights is not None and len(self.weights) != self.features:
            raise InvalidParameter("weights", f"as many as features = {self.features}", len(self.weights))
        for name, value in (("hidden_output", self.hidden_output), ("noise_std", self.noise_std), ("weight_norm", self.norm)):
            _nothing_or_sizeable(name, value)
        return self

    @property
    def norm(self) -> float:
        """|w|_2."""
        return math.hypot(*self.weights) if self.weights is not None else self.weight_norm or 0.0


@final
class LawAt(Value):
    """Pr[b <= x] and the density at x, with what (50) to (53) print; no density if b is constant."""

    x: float
    cdf: float
    log_cdf: Extended
    pdf: float | None
    log_pdf: Extended | None
    printed_cdf: float
    printed_pdf: float | None


@final
class QuantileAt(Value):
    """The x with Pr[b <= x] = probability; null if it is outside the range of floats; ``log_value`` isn't."""

    probability: float
    value: float | None
    log_value: float


@final
class Law(Value):
    """The true distribution of b = e^D / (1 + h (e^D - 1)), D normal of deviation ``effective_std``.

    Attributes:
      upper_end: 1 / h; b is in (0, 1/h).
      mean, variance: null if they are outside the range of floats; their logarithms aren't.
    """

    effective_std: float
    upper_end: Extended
    median: float
    mean: float | None
    log_mean: float
    variance: float | None
    log_variance: Extended
    at: tuple[LawAt, ...]
    quantiles: tuple[QuantileAt, ...]


@final
class BelowOne(Value):
    """The probability that a factor of the environment is below 1: an interval (a point where exact), with its logarithms.

    A probability below all floats reads 0; its logarithm is correct.
    """

    quantity: str
    lower: float
    upper: float
    log_lower: Extended
    log_upper: Extended
    condition: str


@final
class ServiceNoise(Value):
    """What the same noise guarantees if the service draws it; ``event`` can be sent to POST /v1/profiles."""

    condition: str
    gdp_mu: Extended
    event: Release | None


@final
class EnvironmentalNoiseAnswer(Value):
    """The true distribution, what environmental noise achieves, and the paper's statements next to the proven ones."""

    buys: str
    law: Law
    below_one: tuple[BelowOne, ...]
    drawn_by_the_service: ServiceNoise
    proof: str
    published: tuple[Finding, ...]


router = APIRouter()


@router.post("/environmental_noise", summary="Compare what environmental noise does with what is printed")
def compare_environmental_noise(request: EnvironmentalNoiseComparison) -> EnvironmentalNoiseAnswer:
    """The distribution of the factor b by which input noise multiplies a hidden unit's output, and the paper's claims about it."""
    environment = Environment(
        h=request.hidden_output,
        noise_std=request.noise_std,
        weight_norm=request.norm,
        features=request.features,
        units=request.hidden_units,
        samples=request.samples,
        epsilon=request.epsilon,
        b=float(request.hidden_units) if request.multiplier is None else request.multiplier,
    )
    return EnvironmentalNoiseAnswer(
        buys=BUYS,
        law=_law(environment, request),
        below_one=_below_one(environment),
        drawn_by_the_service=_service_noise(request),
        proof=path_of("environmental_noise.md"),
        published=findings.all_findings(environment),
    )


def _finite_exp(log_value: float) -> float | None:
    return math.exp(log_value) if log_value < _LARGEST_LOG else None


def _law(environment: Environment, request: EnvironmentalNoiseComparison) -> Law:
    h, std = environment.h, environment.std
    log_mean, log_variance = environmental_noise.moments(h, std)
    quantiles = [(p, environmental_noise.log_quantile(p, h, std)) for p in request.probabilities]
    return Law(
        effective_std=std,
        upper_end=1.0 / h if h > 0.0 else math.inf,
        median=1.0,
        mean=_finite_exp(log_mean),
        log_mean=log_mean,
        variance=_finite_exp(log_variance),
        log_variance=log_variance,
        at=tuple(_law_at(x, h, std) for x in request.at),
        quantiles=tuple(QuantileAt(probability=p, value=_finite_exp(log_x), log_value=log_x) for p, log_x in quantiles),
    )


def _law_at(x: float, h: float, std: float) -> LawAt:
    log_cdf = environmental_noise.log_cdf(x, h, std)
    log_pdf = environmental_noise.log_pdf(x, h, std) if std > 0.0 else None
    return LawAt(
        x=x,
        cdf=math.exp(log_cdf),
        log_cdf=log_cdf,
        pdf=None if log_pdf is None else math.exp(log_pdf),
        log_pdf=log_pdf,
        printed_cdf=published.cdf(x, h, std),
        printed_pdf=published.pdf(x, h, std) if std > 0.0 else None,
    )


def _below_one(environment: Environment) -> tuple[BelowOne, ...]:
    h, std, units = environment.h, environment.std, environment.units
    total = environmental_noise.log_probability_sum_below_one(units, h, std)
    largest = environmental_noise.log_probability_all_below_one(units, environment.samples, h, std)
    independent = "every unit has this h and weight norm, and the units' D are independent"
    return (
        _probability(
            "Pr[b_j < 1], b_j the sum of hidden_units factors",
            total.log_lower,
            total.log_upper,
            f"{independent}; whatever the weights, it is at most 1/2",
        ),
        _probability(
            "Pr[b_max < 1], b_max = hidden_units times the largest of samples factors",
            largest,
            largest,
            "the samples' factors are independent, all with this h and weight norm; at most 2^-samples for any h and norms",
        ),
    )


def _probability(quantity: str, log_lower: float, log_upper: float, condition: str) -> BelowOne:
    return BelowOne(
        quantity=quantity,
        lower=math.exp(log_lower),
        upper=math.exp(log_upper),
        log_lower=log_lower,
        log_upper=log_upper,
        condition=condition,
    )


def _service_noise(request: EnvironmentalNoiseComparison) -> ServiceNoise:
    condition = (
        "x in [0, 1]^n; the service draws the noise once for each record, with this noise_std, from secret randomness; "
        "only x + n is used ever after"
    )
    if request.noise_std == 0.0:
        return ServiceNoise(condition=condition, gdp_mu=math.inf, event=None)
    sensitivity = Sensitivity(l2=_root_up(request.features), adjacency=Adjacency.REPLACE_ONE, unit="record")
    release = Gaussian(std=request.noise_std, sensitivity=sensitivity)
    return ServiceNoise(condition=condition, gdp_mu=raised(release.privacy_loss().mu), event=Release(mechanism=release))


def _root_up(count: int) -> float:
    """The smallest float that is at least sqrt(count)."""
    root = math.sqrt(count)
    return root if Fraction(root) ** 2 >= count else math.nextafter(root, math.inf)
