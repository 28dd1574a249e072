r"""POST /v1/compare/training: one's own private training, recomputed under the four conventions in which a table of it can be read."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Self, final

from fastapi import APIRouter, Depends
from pydantic import model_validator

from zetadp.accountants import Bound, Event, profile
from zetadp.app.calculators.compare.conventions import (
    CONVENTIONS,
    Convention,
    Letter,
    NoiseConvention,
    Sampler,
    convention_of,
    limit_epsilon,
    multiplier,
    probability_of,
    rate_as_fraction,
    training_event,
)
from zetadp.app.calculators.compare.finding import Finding, Stronger, finding
from zetadp.app.calculators.limits import Calculators, calculators
from zetadp.app.calculators.schemas import example
from zetadp.mechanisms import Step
from zetadp.mechanisms.base import SMALLEST_SCALE, Count, Extended, NonNegative, OpenProbability, Positive, PrivacyUnit, Probability, Value
from zetadp.mechanisms.errors import InvalidParameter, NumericalFloor, UnsupportedEvent
from zetadp.mechanisms.published.clt import clt_mu_poisson, clt_mu_uniform

_SOURCE = "POST /v1/profiles with this convention's event"


@final
class TrainingComparison(Value):
    r"""A training as a paper's table describes it: clipped gradients are summed over samples, and noise of sigma times the bound is added.

    Attributes:
      sampling_probability: the rate, in (0, 1]; or
      batch_size: the (expected) size of a sample, together with the number of records.
      population_size: the total number of records.
      noise_multiplier: sigma as printed, in units of the clipping bound.
      convention: what sigma refers to: ``per_component`` (each real component) or ``total`` (E|n|^2 of a complex coordinate is sigma^2).
      sampler: how samples are drawn: ``poisson`` or ``fixed_size``.
      steps: T.
      delta: in (0, 1).
      printed_epsilon: the epsilon that was published, if one was.
      unit: what one record is.
    """

    model_config = example(
        {
            "sampling_probability": 0.005,
            "noise_multiplier": 0.61,
            "convention": "total",
            "sampler": "fixed_size",
            "steps": 4000,
            "delta": 1e-5,
            "printed_epsilon": 7.54,
            "unit": "image",
        }
    )

    sampling_probability: Probability | None = None
    batch_size: Count | None = None
    population_size: Count | None = None
    noise_multiplier: Positive
    convention: NoiseConvention
    sampler: Sampler
    steps: Count
    delta: OpenProbability
    printed_epsilon: NonNegative | None = None
    unit: PrivacyUnit = "record"

    @model_validator(mode="after")
    def _check(self) -> Self:
        sizes = (self.batch_size, self.population_size)
        if (self.sampling_probability is None) == (sizes == (None, None)):
            raise InvalidParameter(
                "sampling_probability", "given, or else batch_size and population_size", "both" if sizes[0] else "neither"
            )
        if self.sampling_probability is None:
            if self.batch_size is None or self.population_size is None:
                raise InvalidParameter("batch_size and population_size", "given together", "one of them")
            if self.batch_size > self.population_size:
                raise InvalidParameter("batch_size", f"at most population_size = {self.population_size}", self.batch_size)
        if multiplier(self.noise_multiplier, "total") < SMALLEST_SCALE:
            raise InvalidParameter("noise_multiplier", f"at least {SMALLEST_SCALE!r} per real component", self.noise_multiplier)
        return self

    @property
    def rate(self) -> Fraction:
        """The sampling rate as a fraction of counts."""
        if self.sampling_probability is not None:
            return rate_as_fraction(self.sampling_probability)
        assert self.batch_size is not None
        assert self.population_size is not None
        return Fraction(self.batch_size, self.population_size)


@final
class Accounted(Value):
    """One convention, its event, and the bracket of epsilon; ``upper`` is what may be claimed. If there is no epsilon, why."""

    letter: Letter
    meaning: str
    noise_multiplier: float
    event: Event
    epsilon: Bound | None
    refusal: str | None


@final
class TrainingAnswer(Value):
    r"""What holds under each convention, and what the print says.

    Attributes:
      yours: the convention that the request names.
      conventions: all four.
      gdp_clt_mu: from the central limit theorem for the request's sampler, with the printed sigma. NOT A BOUND.
      published: the print against each convention, and the steps of its derivation against what holds.
    """

    yours: Letter
    conventions: tuple[Accounted, ...]
    gdp_clt_mu: Extended
    published: tuple[Finding, ...]


router = APIRouter()

Desk = Annotated[Calculators, Depends(calculators)]


@router.post("/training", summary="Compare a printed epsilon of private training with what holds under four conventions")
def compare_training(request: TrainingComparison, desk: Desk) -> TrainingAnswer:
    """The printed epsilon and its usual derivation, next to proven brackets: errata Z10, Z12, Z13 and Z14."""
    return desk.within_limit(lambda: compared(request))


def compared(request: TrainingComparison) -> TrainingAnswer:
    """The answer, without a separate time limit."""
    found: dict[Letter, Accounted] = {each.letter: _accounted(request, each) for each in CONVENTIONS}
    yours = convention_of(request.sampler, request.convention)
    return TrainingAnswer(
        yours=yours.letter,
        conventions=tuple(found.values()),
        gdp_clt_mu=_limit_mu(request),
        published=(
            *(_printed(request, convention, found) for convention in CONVENTIONS),
            _half_variance(request, yours, found),
            _sampling(request, yours, found),
            _limit_theorem(request, yours, found),
        ),
    )


def _accounted(request: TrainingComparison, convention: Convention) -> Accounted:
    std = multiplier(request.noise_multiplier, convention.noise)
    event = training_event(request.rate, std, request.steps, convention.sampler, unit=request.unit)
    epsilon, refusal = None, None
    try:
        epsilon = profile(event).epsilon(request.delta)
    except (UnsupportedEvent, NumericalFloor) as reason:
        # If one convention can't be answered, the others still are.
        refusal = str(reason)
    return Accounted(
        letter=convention.letter, meaning=convention.meaning, noise_multiplier=std, event=event, epsilon=epsilon, refusal=refusal
    )


def _upper(found: dict[Letter, Accounted], convention: Convention) -> float | None:
    bound = found[convention.letter].epsilon
    return None if bound is None else bound.upper


def _derivation(request: TrainingComparison, found: dict[Letter, Accounted], convention: Convention) -> tuple[Step, ...]:
    accounted, rate = found[convention.letter], request.rate
    noise = "sigma / sqrt(2)" if convention.noise == "total" else "sigma"
    steps = [
        Step(symbol="q", value=probability_of(rate), formula=f"{rate.numerator} / {rate.denominator}", source="request"),
        Step(symbol="sigma", value=request.noise_multiplier, formula="as printed", source="request"),
        Step(symbol="multiplier", value=accounted.noise_multiplier, formula=noise, source=f"convention {convention.letter}"),
    ]
    if convention.sampler == "fixed_size":
        pair = accounted.noise_multiplier / 2.0
        steps.append(Step(symbol="accounted multiplier", value=pair, formula="multiplier / 2: one record displaces another", source="Z12"))
    if accounted.epsilon is not None:
        route = accounted.epsilon.route
        steps.append(
            Step(symbol="epsilon, lower end", value=accounted.epsilon.lower, formula=f"{request.steps} steps, {route}", source=_SOURCE)
        )
        steps.append(Step(symbol="epsilon", value=accounted.epsilon.upper, formula=f"{request.steps} steps, {route}", source=_SOURCE))
    return tuple(steps)


def _stronger(printed: float | None, proven: Bound | None) -> Stronger:
    """A print between the ends of a bracket, which can be wide, is neither refuted nor proved: then neither value promises more."""
    undecided = proven is not None and printed is not None and proven.lower <= printed < proven.upper
    return "neither" if undecided else "smaller"


def _refused(found: dict[Letter, Accounted], convention: Convention) -> str:
    refusal = found[convention.letter].refusal
    return "" if refusal is None else f" No bracket here: {refusal}."


def _printed(request: TrainingComparison, convention: Convention, found: dict[Letter, Accounted]) -> Finding:
    ours = convention_of(request.sampler, request.convention) is convention
    return finding(
        f"epsilon at delta = {request.delta!r}, convention {convention.letter}",
        "zeta_dp",
        "a table of experiments, as Tables 1, 2, 3 and 5",
        printed=request.printed_epsilon,
        printed_formula="as printed",
        proven=_upper(found, convention),
        proven_formula=f"upper end of the proved bracket: {convention.meaning}",
        stronger=_stronger(request.printed_epsilon, found[convention.letter].epsilon),
        erratum="Z14",
        note=("This is what the request says was done." if ours else "This is how the same words can be read too.")
        + ("" if request.printed_epsilon is not None else " No printed epsilon was given.")
        + _refused(found, convention),
        derivation=_derivation(request, found, convention),
    )


def _half_variance(request: TrainingComparison, yours: Convention, found: dict[Letter, Accounted]) -> Finding:
    """Accounting for sigma although each component has sigma / sqrt(2)."""
    assumed, true = convention_of(yours.sampler, "per_component"), convention_of(yours.sampler, "total")
    return finding(
        f"epsilon at delta = {request.delta!r} of noise N_C(0, sigma^2 B^2)",
        "zeta_dp",
        "Algorithm 1",
        printed=_upper(found, assumed),
        printed_formula="accounted with noise multiplier sigma",
        proven=_upper(found, true),
        proven_formula="accounted with sigma / sqrt(2), the deviation of each real component",
        stronger=_stronger(_upper(found, assumed), found[true.letter].epsilon),
        erratum="Z10",
        note="Both parts of a complex coordinate share its variance." + _refused(found, assumed) + _refused(found, true),
        derivation=_derivation(request, found, true),
    )


def _sampling(request: TrainingComparison, yours: Convention, found: dict[Letter, Accounted]) -> Finding:
    """Accounting for Poisson samples although they have a fixed size."""
    assumed, true = convention_of("poisson", yours.noise), convention_of("fixed_size", yours.noise)
    return finding(
        f"epsilon at delta = {request.delta!r} with samples of fixed size",
        "zeta_dp",
        "Algorithm 1 and appendix A.7",
        printed=_upper(found, assumed),
        printed_formula="accounted as Poisson sampling at the same rate",
        proven=_upper(found, true),
        proven_formula="accounted as Poisson sampling with half the noise multiplier",
        stronger=_stronger(_upper(found, assumed), found[true.letter].epsilon),
        erratum="Z12",
        note="In a sample of fixed size a record takes another one's place, and the sum moves by twice the clipping bound."
        + _refused(found, assumed)
        + _refused(found, true),
        derivation=_derivation(request, found, true),
    )


def _limit_mu(request: TrainingComparison) -> float:
    formula = clt_mu_poisson if request.sampler == "poisson" else clt_mu_uniform
    return formula(probability_of(request.rate), request.noise_multiplier, request.steps)


def _limit_theorem(request: TrainingComparison, yours: Convention, found: dict[Letter, Accounted]) -> Finding:
    mu = _limit_mu(request)
    named = "Poisson" if request.sampler == "poisson" else "uniform"
    return finding(
        f"epsilon at delta = {request.delta!r}, by the central limit theorem (NOT A BOUND)",
        "zeta_dp",
        "section 5, 'converted losslessly from GDP'",
        printed=limit_epsilon(mu, request.delta),
        printed_formula=f"mu-GDP with the limit mu for {named} samples and multiplier sigma, mu = {mu!r}",
        proven=_upper(found, yours),
        proven_formula=f"upper end of the proved bracket of convention {yours.letter}",
        stronger=_stronger(limit_epsilon(mu, request.delta), found[yours.letter].epsilon),
        erratum="Z13",
        note="A limit of infinitely many steps; the privacy loss of finitely many has a heavier tail." + _refused(found, yours),
        derivation=_derivation(request, found, yours),
    )
