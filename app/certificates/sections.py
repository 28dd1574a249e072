r"""The sections that tell one kind of training from another: exactly one of them, with what belongs to it, is in a certificate."""

from __future__ import annotations

from typing import Annotated, final

from pydantic import Field

from app.certificates.decimals import DecimalText
from app.certificates.guarantee import Words
from app.certificates.training import ClippingFacts, FederationFacts, ProjectionFacts
from mechanisms.base import Count, PrivacyUnit, Value


def _is_none(value: object) -> bool:
    return value is None


@final
class LocalReleaseFacts(Value):
    r"""Every training record was released once, by itself; all training is post-processing of that.

    Attributes:
      records_per_unit: of one unit, released at most.
      epsilon_per_record: what one record's release costs as pure differential privacy, rounded up; null for Gaussian noise.
      budget: how a unit's budget is spread over its records, in words.
      meaning: what was released and what follows from it.
    """

    records_per_unit: Count
    epsilon_per_record: DecimalText | None
    budget: Words
    meaning: Words


@final
class StatisticFacts(Value):
    """One noisy vector of ``numbers`` sums over all records was released once; ``meaning`` says so, and what follows from it."""

    numbers: Count
    meaning: Words


@final
class FeatureReleaseFacts(Value):
    r"""Features of held-out records were clipped, got noise and were sent, so many times each.

    Attributes:
      clipping_norm: C, exact; two clipped features are at most 2 C apart.
      records: held-out records that were encoded.
      queries: encodings of each, all of them counted.
      mu_per_query: of one encoding, rounded up.
      meaning: what was released.
      rotation: that turning it earns nothing.
    """

    clipping_norm: DecimalText
    records: Count
    queries: Count
    mu_per_query: DecimalText
    meaning: Words
    rotation: Words


@final
class UnprotectedFacts(Value):
    r"""A training without any guarantee.

    Attributes:
      unit: what its data are about.
      reason: why nothing is guaranteed; the event says the same.
    """

    unit: PrivacyUnit
    reason: Words


class Sections(Value):
    r"""What belongs to one kind of training: noisy sums (``clipping``), or one of the other sections; or none, in a comparison's whole.

    Attributes:
      federation: the nodes, of noisy sums; absent where one place held all data.
      clipping: of noisy sums.
      projection: of noisy sums of which only some coordinates were released.
      local_release, statistic, feature_release, unprotected: of the other kinds.
    """

    # Absent where they say nothing: a certificate without them is the one that was signed before they existed.
    federation: Annotated[FederationFacts | None, Field(exclude_if=_is_none)] = None
    clipping: Annotated[ClippingFacts | None, Field(exclude_if=_is_none)] = None
    projection: Annotated[ProjectionFacts | None, Field(exclude_if=_is_none)] = None
    local_release: Annotated[LocalReleaseFacts | None, Field(exclude_if=_is_none)] = None
    statistic: Annotated[StatisticFacts | None, Field(exclude_if=_is_none)] = None
    feature_release: Annotated[FeatureReleaseFacts | None, Field(exclude_if=_is_none)] = None
    unprotected: Annotated[UnprotectedFacts | None, Field(exclude_if=_is_none)] = None
