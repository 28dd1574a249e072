r"""What an event says, in a certificate's words. Issuer and verifier both derive these from the event, so words can't drift from it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal, final

from pydantic import Field, Strict

from accountants.events import (
    LARGEST_COUNT,
    LARGEST_GROUP,
    Composed,
    Event,
    FixedSizeSampled,
    Grouped,
    Leaf,
    NonPrivate,
    PoissonSampled,
    Release,
    Repeated,
    neighbourhood,
    releases,
)
from app.certificates.decimals import DecimalText, SignedDecimalText, exact, upper
from mechanisms import (
    AnyMechanism,
    ComplexGaussian,
    DuchiLinf,
    Gaussian,
    Laplace,
    LocalGaussian,
    LocalLaplace,
    LocalRelease,
    Spectral,
    SpofCoefficients,
)
from mechanisms.base import Adjacency, Count, PrivacyUnit, Value

Released = Annotated[int, Strict(), Field(ge=1, le=LARGEST_COUNT)]
GroupSize = Annotated[int, Strict(), Field(ge=2, le=LARGEST_GROUP)]

ADJACENCY_MEANING = {
    Adjacency.ADD_REMOVE: "two data sets are neighbours if one is the other with one unit added or removed",
    Adjacency.REPLACE_ONE: "two data sets are neighbours if one is the other with one unit replaced by another",
    Adjacency.ZERO_OUT: "two data sets are neighbours if one is the other with one unit replaced by a null unit, which contributes nothing",
}

EARLIER_MEANINGS = {
    Adjacency.ZERO_OUT: ("two data sets are neighbours if one is the other with one unit's contribution set to zero",),
}
"""What certificates said before; they stay valid."""


def _is_none(value: object) -> bool:
    return value is None


@final
class Neighbourhood(Value):
    """Which data sets the guarantee makes hard to tell apart: ``adjacency`` in words is ``meaning``; they differ by one ``unit``."""

    adjacency: Adjacency
    meaning: str
    unit: PrivacyUnit


@final
class SensitivityFacts(Value):
    r"""How far one unit moves the released vector: bounds as exact decimal text, null where none was stated.

    Attributes:
      l2, l1, l2_real, l2_imag: of the move between neighbours.
      l2_contribution, l1_contribution: of what one unit alone adds, where that isn't the move itself (replace_one); else absent.
    """

    l2: DecimalText | None
    l1: DecimalText | None
    l2_real: DecimalText | None
    l2_imag: DecimalText | None
    # Absent where they say nothing: a certificate without them is the one that was signed before they existed.
    l2_contribution: Annotated[DecimalText | None, Field(exclude_if=_is_none)] = None
    l1_contribution: Annotated[DecimalText | None, Field(exclude_if=_is_none)] = None


@final
class BoxFacts(Value):
    r"""The public box of a local release, which every record was checked to lie in: exact decimal text.

    Attributes:
      lower, upper: of every coordinate.
      dimension: coordinates of one record.
    """

    lower: SignedDecimalText
    upper: SignedDecimalText
    dimension: Count


@final
class MechanismFacts(Value):
    r"""The noise of one release.

    Attributes:
      std_real, std_imag: standard deviation of each real component, exact; std_imag is null for a real mechanism, both for Laplace.
      correlation: of the two components; null for a real mechanism.
      total_std: sqrt(E|n|^2) of a complex coordinate, rounded up; null for a real mechanism. Not the per-component figure.
      laplace_scale: b, exact; null for Gaussian noise.
      epsilon: of one record's release, exact, where it is the mechanism's parameter; else absent.
      box: of the records that were released one by one; absent for any other release.
      noise_multiplier: the smaller std per real component over the l2 sensitivity, as the float quotient; null for Laplace noise.
      sensitivity: of one unit.
    """

    kind: Literal[
        "gaussian", "complex_gaussian", "laplace", "spectral", "local_laplace", "local_gaussian", "duchi_linf", "spof_coefficients"
    ]
    std_real: DecimalText | None = None
    std_imag: DecimalText | None = None
    correlation: SignedDecimalText | None = None
    total_std: DecimalText | None = None
    laplace_scale: DecimalText | None = None
    noise_multiplier: DecimalText | None = None
    epsilon: Annotated[DecimalText | None, Field(exclude_if=_is_none)] = None
    box: Annotated[BoxFacts | None, Field(exclude_if=_is_none)] = None
    sensitivity: SensitivityFacts


@final
class SamplingFacts(Value):
    r"""Which records a release used.

    Attributes:
      kind: ``poisson``: each record joined independently; ``fixed_size``: a uniform sample of a public size, without replacement;
        ``none``: all of the data.
      probability: of one record; exact, or for a fixed size the quotient of the two sizes, rounded up.
      sample_size, population_size: of a fixed size: records in the sample, and in the smallest data set that is protected; else absent.
    """

    kind: Literal["poisson", "fixed_size", "none"]
    probability: DecimalText
    sample_size: Annotated[Count | None, Field(exclude_if=_is_none)] = None
    population_size: Annotated[Count | None, Field(exclude_if=_is_none)] = None


@final
class GroupFacts(Value):
    """One unit of the guarantee holds at most ``size`` of the release's own units, which are one ``of`` each."""

    size: GroupSize
    of: PrivacyUnit


@final
class ReleaseFacts(Value):
    """``count`` releases of this mechanism, each on a fresh sample; ``group`` is absent where its unit is the guarantee's."""

    mechanism: MechanismFacts
    sampling: SamplingFacts
    group: Annotated[GroupFacts | None, Field(exclude_if=_is_none)] = None
    count: Released


def neighbourhood_of(event: Event) -> Neighbourhood | None:
    """Adjacency and unit that the event speaks of; None where it has no private part."""
    pair = neighbourhood(event)
    return None if pair is None else Neighbourhood(adjacency=pair[0], meaning=ADJACENCY_MEANING[pair[0]], unit=pair[1])


def releases_of(event: Event) -> tuple[ReleaseFacts, ...]:
    """Every different release of the event and how often it ran. Raises InvalidParameter where ``releases`` of the accountants does."""
    releases(event)  # refuses what can't be told apart or counted
    found: dict[tuple[Leaf, SamplingFacts], int] = {}
    for part, group, count in _sampled_parts(event, 1, 1):
        ((leaf, _),) = releases(part).items()
        key = Leaf(leaf.probability, leaf.mechanism, leaf.scheme, group), _sampling(part, leaf)
        found[key] = found.get(key, 0) + count
    return tuple(
        ReleaseFacts(mechanism=_mechanism(leaf.mechanism), sampling=sampling, group=_group(leaf), count=count)
        for (leaf, sampling), count in found.items()
    )


def largest_group(event: Event) -> int:
    """The most units of a release that one unit of the guarantee holds; local releases count, though accountants see each by itself."""
    return max((group for _, group, _ in _sampled_parts(event, 1, 1)), default=1)


def _sampled_parts(event: Event, group: int, count: int) -> Iterator[tuple[Release | PoissonSampled | FixedSizeSampled, int, int]]:
    """(single release with its sampling, group size, how often): leaves before they lose the sizes of their samples."""
    match event:
        case Repeated():
            yield from _sampled_parts(event.event, group, count * event.count)
        case Composed():
            for part in event.events:
                yield from _sampled_parts(part, group, count)
        case Grouped():
            yield from _sampled_parts(event.event, group * event.size, count)
        case NonPrivate():
            return
        case Release() | PoissonSampled() | FixedSizeSampled():
            yield event, group, count


def _sampling(part: Event, leaf: Leaf) -> SamplingFacts:
    probability = exact(leaf.probability)
    if isinstance(part, FixedSizeSampled):
        return SamplingFacts(kind="fixed_size", probability=probability, sample_size=part.sample_size, population_size=part.population_size)
    return SamplingFacts(kind="none" if leaf.is_whole else "poisson", probability=probability)


def _group(leaf: Leaf) -> GroupFacts | None:
    return None if leaf.group == 1 else GroupFacts(size=leaf.group, of=leaf.mechanism.sensitivity.unit)


def _mechanism(mechanism: AnyMechanism) -> MechanismFacts:
    sensitivity = SensitivityFacts(
        l2=_exact(mechanism.sensitivity.l2),
        l1=_exact(mechanism.sensitivity.l1),
        l2_real=_exact(mechanism.sensitivity.l2_real),
        l2_imag=_exact(mechanism.sensitivity.l2_imag),
        l2_contribution=_exact(mechanism.sensitivity.l2_contribution),
        l1_contribution=_exact(mechanism.sensitivity.l1_contribution),
    )
    match mechanism:
        case Gaussian() | Spectral():
            multiplier = exact(mechanism.noise_multiplier)
            return MechanismFacts(kind=mechanism.kind, std_real=exact(mechanism.std), noise_multiplier=multiplier, sensitivity=sensitivity)
        case ComplexGaussian():
            real, imag = mechanism.stds
            assert mechanism.sensitivity.l2 is not None  # checked at its construction
            return MechanismFacts(
                kind=mechanism.kind,
                std_real=exact(real),
                std_imag=exact(imag),
                correlation=exact(mechanism.correlation),
                total_std=upper(math.nextafter(mechanism.total_std, math.inf)),
                noise_multiplier=exact(min(real, imag) / mechanism.sensitivity.l2),
                sensitivity=sensitivity,
            )
        case Laplace():
            return MechanismFacts(kind=mechanism.kind, laplace_scale=exact(mechanism.scale), sensitivity=sensitivity)
        case LocalLaplace() | SpofCoefficients():
            scale = exact(mechanism.scale)
            return MechanismFacts(kind=mechanism.kind, laplace_scale=scale, box=_box(mechanism), sensitivity=sensitivity)
        case LocalGaussian():
            std, multiplier = exact(mechanism.std), exact(mechanism.noise_multiplier)
            return MechanismFacts(
                kind=mechanism.kind, std_real=std, noise_multiplier=multiplier, box=_box(mechanism), sensitivity=sensitivity
            )
        case DuchiLinf():
            epsilon = exact(mechanism.epsilon)
            return MechanismFacts(kind=mechanism.kind, epsilon=epsilon, box=_box(mechanism), sensitivity=sensitivity)


def _box(mechanism: LocalRelease) -> BoxFacts:
    return BoxFacts(lower=exact(mechanism.lower), upper=exact(mechanism.upper), dimension=mechanism.dimension)


def _exact(value: float | None) -> str | None:
    return None if value is None else exact(value)
