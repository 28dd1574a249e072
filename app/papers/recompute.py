r"""Readings of an experiment: an event, the accountants' bracket of its epsilon, and what that says about the printed values."""

from __future__ import annotations

import math
from fractions import Fraction

from zetadp.accountants import Bound, Event, non_private_reason, profile, releases
from zetadp.app.calculators.compare.conventions import CONVENTIONS, limit_epsilon, multiplier, probability_of, training_event
from zetadp.app.calculators.compare.finding import Direction, ratio_of
from zetadp.app.papers.schemas import Approximation, Experiment, Reading, Verdict
from zetadp.mechanisms.errors import UnsupportedEvent
from zetadp.mechanisms.published.clt import clt_mu_poisson, clt_mu_uniform

EQUAL = 1e-6
"""Printed values within this share of a bracket's upper end are called equal: brackets and calibrations are about as wide."""

PURE_ROUTE = "pure epsilon: the sum of sensitivity over scale"


def epsilon_of(event: Event, delta: float | None) -> Bound:
    """The bracket of epsilon at ``delta``; without a delta, pure epsilon."""
    if delta is not None:
        return profile(event).epsilon(delta)
    if non_private_reason(event) is not None:
        return Bound(lower=math.inf, upper=math.inf, route="non_private")
    total = Fraction(0)
    for leaf, count in releases(event).items():
        pure = leaf.mechanism.privacy_loss().pure_epsilon
        if pure is None or not leaf.is_whole:
            raise UnsupportedEvent("pure", f"{leaf.mechanism.kind} has no pure epsilon here")
        total += Fraction(pure) * count * leaf.group
    value = float(total)
    return Bound(lower=math.nextafter(value, 0.0), upper=math.nextafter(value, math.inf), route=PURE_ROUTE)


def direction_of(printed: float, proven: Bound) -> Direction:
    """What a printed epsilon means for someone who relies on it, given the bracket of the true one.

    >>> bracket = Bound(lower=1.0, upper=1.5, route="any")
    >>> direction_of(0.9, bracket), direction_of(1.2, bracket), direction_of(1.5, bracket), direction_of(1.6, bracket)
    ('overclaims', 'differs', 'equal', 'loose')
    """
    if math.isclose(printed, proven.upper, rel_tol=EQUAL, abs_tol=0.0):
        return "equal"
    if printed > proven.upper:
        return "loose"
    # Between the ends of a wide bracket the print is neither refuted nor proved.
    return "overclaims" if printed < proven.lower else "differs"


def verdicts(experiment: Experiment, proven: Bound) -> tuple[Verdict, ...]:
    """Every printed epsilon of an experiment against one bracket."""
    return tuple(
        Verdict(
            printed=each.epsilon,
            method=each.method,
            where=each.where,
            proven=proven.upper,
            ratio=ratio_of(each.epsilon, proven.upper) or 0.0,
            direction=direction_of(each.epsilon, proven),
        )
        for each in experiment.printed
    )


def reading(
    experiment: Experiment,
    name: str,
    meaning: str,
    event: Event,
    *,
    errata: tuple[str, ...],
    noise_multiplier: float | None = None,
    by_rdp: bool = False,
) -> Reading:
    """An experiment read as this event."""
    epsilon = epsilon_of(event, experiment.delta)
    rdp = profile(event, "rdp").epsilon(experiment.delta).upper if by_rdp and experiment.delta is not None else None
    return Reading(
        name=name,
        meaning=meaning,
        errata=errata,
        noise_multiplier=noise_multiplier,
        event=event,
        epsilon=epsilon,
        rdp_epsilon=rdp,
        verdicts=verdicts(experiment, epsilon),
    )


def rate_of(experiment: Experiment) -> Fraction:
    """The sampling rate of an experiment that prints one."""
    assert experiment.sample_size is not None
    assert experiment.population_size is not None
    return Fraction(experiment.sample_size, experiment.population_size)


def four_readings(experiment: Experiment) -> tuple[Reading, ...]:
    """The four conventions of errata Z14, for an experiment with complex noise whose multiplier and steps are printed."""
    assert experiment.noise_multiplier is not None
    assert experiment.steps is not None
    found: list[Reading] = []
    for convention in CONVENTIONS:
        std = multiplier(experiment.noise_multiplier, convention.noise)
        event = training_event(rate_of(experiment), std, experiment.steps, convention.sampler, unit=experiment.unit)
        rows = ("Z14", *(("Z10",) if convention.noise == "total" else ()), *(("Z12",) if convention.sampler == "fixed_size" else ()))
        found.append(reading(experiment, convention.letter, convention.meaning, event, errata=rows, noise_multiplier=std, by_rdp=True))
    return tuple(found)


def limit_approximations(experiment: Experiment) -> tuple[Approximation, ...]:
    """The central limit theorem's epsilons with the printed multiplier, from which the printed values come. Not bounds."""
    assert experiment.noise_multiplier is not None
    assert experiment.steps is not None
    assert experiment.delta is not None
    q, delta = probability_of(rate_of(experiment)), experiment.delta
    uniform = clt_mu_uniform(q, experiment.noise_multiplier, experiment.steps)
    poisson = clt_mu_poisson(q, experiment.noise_multiplier, experiment.steps)
    return (
        Approximation(
            name="gdp_clt_uniform",
            formula="mu = sqrt(2) q sqrt(T (e^(1/sigma^2) Phi(1.5/sigma) + 3 Phi(-0.5/sigma) - 2))",
            gdp_mu=uniform,
            epsilon=limit_epsilon(uniform, delta),
            erratum="Z13",
        ),
        Approximation(
            name="gdp_clt_poisson",
            formula="mu = q sqrt(T (e^(1/sigma^2) - 1))",
            gdp_mu=poisson,
            epsilon=limit_epsilon(poisson, delta),
            erratum="Z13",
        ),
    )
