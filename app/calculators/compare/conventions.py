r"""The four ways in which a table of private training can be read (errata Z14), as events that the accountants take.

Papers print one sigma and one sampling rate. The noise per real component that this means, and how a sample is drawn, change epsilon by
factors of two to seventy.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal, final

from zetadp.accountants import Event, FixedSizeSampled, PoissonSampled, Release, Repeated
from zetadp.accountants.routes.closed.closed_form import GdpProfile
from zetadp.mechanisms import ComplexGaussian, Gaussian
from zetadp.mechanisms.base import Adjacency, PrivacyUnit, Sensitivity, Value
from zetadp.mechanisms.conventions import per_component_from_total

Sampler = Literal["poisson", "fixed_size"]
NoiseConvention = Literal["per_component", "total"]
Letter = Literal["A", "B", "C", "D"]

LARGEST_POPULATION = 10**12
"""Sampling rates that aren't a fraction of counts up to this are rounded up to the next one that is."""


@final
class Convention(Value):
    """One reading of a table: how samples are drawn, and what sigma is of."""

    letter: Letter
    sampler: Sampler
    noise: NoiseConvention
    meaning: str


CONVENTIONS: tuple[Convention, ...] = (
    Convention(letter="A", sampler="poisson", noise="per_component", meaning="Poisson samples, deviation sigma B on each real component"),
    Convention(letter="B", sampler="poisson", noise="total", meaning="Poisson samples, N_C(0, sigma^2 B^2): sigma B / sqrt(2) on each"),
    Convention(
        letter="C", sampler="fixed_size", noise="per_component", meaning="samples of fixed size without replacement, sigma B on each"
    ),
    Convention(letter="D", sampler="fixed_size", noise="total", meaning="samples of fixed size, N_C(0, sigma^2 B^2)"),
)


def convention_of(sampler: Sampler, noise: NoiseConvention) -> Convention:
    """The convention with this sampler and this meaning of sigma."""
    return next(found for found in CONVENTIONS if (found.sampler, found.noise) == (sampler, noise))


def multiplier(noise_multiplier: float, noise: NoiseConvention) -> float:
    """Deviation of one real component over the clipping bound, for a sigma that means the whole coordinate or one component.

    >>> multiplier(2.0, "total") == 2.0**0.5
    True
    """
    return per_component_from_total(noise_multiplier) if noise == "total" else noise_multiplier


def rate_as_fraction(probability: float) -> Fraction:
    """The decimal that a rate is written as, as a fraction of counts up to ``LARGEST_POPULATION``; rounded up if none is equal.

    >>> rate_as_fraction(0.063), rate_as_fraction(1e-30)
    (Fraction(63, 1000), Fraction(1, 1000000000000))
    """
    exact = Fraction(repr(probability))
    return exact if exact.denominator <= LARGEST_POPULATION else Fraction(math.ceil(exact * LARGEST_POPULATION), LARGEST_POPULATION)


def probability_of(rate: Fraction) -> float:
    """The float at or just above a rate.

    >>> probability_of(Fraction(1, 200))
    0.005
    """
    nearest = float(rate)
    return nearest if Fraction(nearest) >= rate else math.nextafter(nearest, math.inf)


def sum_sensitivity(adjacency: Adjacency, unit: PrivacyUnit) -> Sensitivity:
    """The sensitivity of a sum of terms clipped to norm 1: replacing one moves it by 2, of which each term contributes 1."""
    if adjacency is Adjacency.REPLACE_ONE:
        return Sensitivity(l2=2.0, l2_contribution=1.0, adjacency=adjacency, unit=unit)
    return Sensitivity(l2=1.0, adjacency=adjacency, unit=unit)


def training_event(
    rate: Fraction,
    std: float,
    steps: int,
    sampler: Sampler,
    *,
    unit: PrivacyUnit,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    is_complex: bool = True,
) -> Event:
    """``steps`` noisy sums of terms clipped to norm 1, each over a fresh sample at this rate; ``std`` per real component."""
    kind = ComplexGaussian if is_complex else Gaussian
    release = Release(mechanism=kind(std=std, sensitivity=sum_sensitivity(adjacency, unit)))
    if sampler == "poisson":
        return Repeated(count=steps, event=PoissonSampled(probability=probability_of(rate), event=release))
    return Repeated(count=steps, event=FixedSizeSampled(sample_size=rate.numerator, population_size=rate.denominator, event=release))


def limit_epsilon(mu: float, delta: float) -> float:
    """epsilon at ``delta`` as if a training were mu-GDP, which it isn't: NOT A BOUND. A zero or infinite mu gives the limit."""
    return mu if mu == 0.0 or math.isinf(mu) else GdpProfile(mu, ()).epsilon(delta).upper
