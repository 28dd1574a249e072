r"""What an event says, in a certificate's words. Issuer and verifier both derive these from the event, so words can't drift from it."""

from __future__ import annotations

import math
from typing import Literal, final

from accountants.events import Event, leaves, neighbourhood
from app.certificates.decimals import DecimalText, SignedDecimalText, exact, upper
from mechanisms import AnyMechanism, ComplexGaussian, Gaussian, Laplace
from mechanisms.base import Adjacency, Count, PrivacyUnit, Value

ADJACENCY_MEANING = {
    Adjacency.ADD_REMOVE: "two data sets are neighbours if one is the other with one unit added or removed",
    Adjacency.REPLACE_ONE: "two data sets are neighbours if one is the other with one unit replaced by another",
    Adjacency.ZERO_OUT: "two data sets are neighbours if one is the other with one unit's contribution set to zero",
}


@final
class Neighbourhood(Value):
    """Which data sets the guarantee makes hard to tell apart: ``adjacency`` in words is ``meaning``; they differ by one ``unit``."""

    adjacency: Adjacency
    meaning: str
    unit: PrivacyUnit


@final
class SensitivityFacts(Value):
    """How far one unit moves the released vector: bounds as exact decimal text, null where none was stated."""

    l2: DecimalText | None
    l1: DecimalText | None
    l2_real: DecimalText | None
    l2_imag: DecimalText | None


@final
class MechanismFacts(Value):
    r"""The noise of one release.

    Attributes:
      std_real, std_imag: standard deviation of each real component, exact; std_imag is null for a real mechanism, both for Laplace.
      correlation: of the two components; null for a real mechanism.
      total_std: sqrt(E|n|^2) of a complex coordinate, rounded up; null for a real mechanism. Not the per-component figure.
      laplace_scale: b, exact; null for Gaussian noise.
      noise_multiplier: the smaller std per real component over the l2 sensitivity, as the float quotient; null for Laplace noise.
      sensitivity: of one unit.
    """

    kind: Literal["gaussian", "complex_gaussian", "laplace"]
    std_real: DecimalText | None = None
    std_imag: DecimalText | None = None
    correlation: SignedDecimalText | None = None
    total_std: DecimalText | None = None
    laplace_scale: DecimalText | None = None
    noise_multiplier: DecimalText | None = None
    sensitivity: SensitivityFacts


@final
class SamplingFacts(Value):
    r"""Which records a release used.

    Attributes:
      kind: ``poisson``: each record joined independently; ``none``: all of the data.
      probability: of one record, exact.
    """

    kind: Literal["poisson", "none"]
    probability: DecimalText


@final
class ReleaseFacts(Value):
    """``count`` releases of this mechanism, each on a fresh sample."""

    mechanism: MechanismFacts
    sampling: SamplingFacts
    count: Count


def neighbourhood_of(event: Event) -> Neighbourhood | None:
    """Adjacency and unit that the event speaks of; None where it has no private part."""
    pair = neighbourhood(event)
    return None if pair is None else Neighbourhood(adjacency=pair[0], meaning=ADJACENCY_MEANING[pair[0]], unit=pair[1])


def releases_of(event: Event) -> tuple[ReleaseFacts, ...]:
    """Every different release of the event and how often it ran."""
    return tuple(
        ReleaseFacts(mechanism=_mechanism(leaf.mechanism), sampling=_sampling(leaf.probability), count=count)
        for leaf, count in leaves(event).items()
    )


def _sampling(probability: float) -> SamplingFacts:
    return SamplingFacts(kind="poisson" if probability < 1.0 else "none", probability=exact(probability))


def _mechanism(mechanism: AnyMechanism) -> MechanismFacts:
    sensitivity = SensitivityFacts(
        l2=_exact(mechanism.sensitivity.l2),
        l1=_exact(mechanism.sensitivity.l1),
        l2_real=_exact(mechanism.sensitivity.l2_real),
        l2_imag=_exact(mechanism.sensitivity.l2_imag),
    )
    match mechanism:
        case Gaussian():
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


def _exact(value: float | None) -> str | None:
    return None if value is None else exact(value)
