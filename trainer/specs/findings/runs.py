r"""What a run can find out about itself: whether its noise was as claimed, and what canaries learned from its releases. Free of torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, final

from pydantic import Field, Strict

from zetadp.accountants import PrivacyProfile
from zetadp.accountants.audit import Scores, contradiction, epsilon_of, lower_epsilon, lower_mu, lower_mu_of_independent
from zetadp.mechanisms.base import Count, NonNegative, Value

LEAST_CANARIES, MOST_CANARIES, MOST_MARKS = 100, 10_000, 200_000

CONTRADICTED = 1e-6
"""A claim under which scores are less probable than this counts as violated: this happens to an honest run once in a million."""

CONFIDENCE = 0.95
"""The confidence of the lower bounds on epsilon."""

Status = Literal["consistent", "violated", "not run"]


PValue = Annotated[float, Strict(), Field(gt=0.0, le=1.0)]


@final
class CanaryAudit(Value):
    r"""Made-up units, half of which take part in training; their traces in the released sums bound epsilon from below.

    Each step then takes about as much longer as this many more records in its sample would take. They cost no privacy; but half of them,
    each drawn and clipped like a real unit, add their own meaningless gradients to every sum.

    Attributes:
      canaries: 100 to 10000; the more rarely a unit is drawn, the more canaries are needed. See ``CanaryFindings``.
    """

    kind: Literal["canaries"] = "canaries"
    canaries: Annotated[int, Strict(), Field(ge=LEAST_CANARIES, le=MOST_CANARIES)]


@final
class MarkAudit(Value):
    r"""Made-up units, each with a number of its own behind every released sum, that bound epsilon from below much more tightly.

    They leave the model's distribution as it is, but for what a longer release is contracted by, and take the time of drawing as many more
    numbers of noise. What clipping does to the gradients of records isn't looked at: that is for ``CanaryAudit``.

    Attributes:
      canaries: 100 to 200000; 30000 show half of an epsilon of 4 without any assumption.
    """

    kind: Literal["marks"] = "marks"
    canaries: Annotated[int, Strict(), Field(ge=LEAST_CANARIES, le=MOST_MARKS)]


AnyAudit = Annotated[CanaryAudit | MarkAudit, Field(discriminator="kind")]
"""Made-up units that audit a run."""


@final
class NoiseFindings(Value):
    r"""The test of the noise drawn in the last attempt's releases: only its verdict, since sums would reveal something about the data.

    Attributes:
      status: violated where the noise doesn't have the claimed scale in each component, a release's noise repeats that of the one before
        or its own first half, or sums over releases or numbers are larger or smaller than those of independent noise; not run where an
        attempt drew none because it only finished what another had trained.
      numbers: real numbers of noise that were checked.
    """

    status: Status
    numbers: Annotated[int, Strict(), Field(ge=0)]


@final
class SampleFindings(Value):
    r"""The test of who was sampled in the last attempt's steps: only its verdict, since samples are secret.

    Attributes:
      status: violated where sizes, turns of units, or overlaps of samples aren't those of the plan's draws; not run where an attempt drew
        none, or its samples are parts of larger ones.
      samples: that were looked at; of several nodes or processes each has its own.
    """

    status: Status
    samples: Annotated[int, Strict(), Field(ge=0)]


@final
class CanaryFindings(Value):
    r"""What the canaries show. A lower bound, not a proof.

    Attributes:
      kind: whether they were made-up records, or marks.
      canaries: m; ``members``: how many took part.
      one_run_p_value: upper bound on the probability of so many right guesses if the claim is true; assumes only the claim and fair coins.
      independent_p_value: the same for error rates this low, assuming that the canaries' scores are independent.
      epsilon_lower: what the run told about these units has at least this epsilon, at the plan's delta, with 95 % confidence; assumes only
        fair coins. It says as much about records if the code treats both alike.
      epsilon_lower_if_gaussian: the same, assuming that the run's trade-off is that of a Gaussian pair; an estimate, and no bound, where
        it isn't: with samples, or noise of another kind.
      epsilon_lower_if_independent: the same, assuming this and that scores are independent.
      status: violated where one of the two probabilities is below 1e-6.
    """

    kind: Literal["canaries", "marks"]
    canaries: Count
    members: Annotated[int, Strict(), Field(ge=0)]
    one_run_p_value: PValue
    independent_p_value: PValue
    epsilon_lower: NonNegative
    epsilon_lower_if_gaussian: NonNegative
    epsilon_lower_if_independent: NonNegative
    status: Status


def joined(findings: Iterable[NoiseFindings | None]) -> NoiseFindings | None:
    """The findings of several trainings together: violated if one of them is; None if none added noise to numbers."""
    tested = [found for found in findings if found is not None]
    return NoiseFindings(status=_joined(tested), numbers=sum(found.numbers for found in tested)) if tested else None


def joined_samples(findings: Iterable[SampleFindings | None]) -> SampleFindings | None:
    """The same of samples; None if none of the trainings was sampled."""
    tested = [found for found in findings if found is not None]
    return SampleFindings(status=_joined(tested), samples=sum(found.samples for found in tested)) if tested else None


def _joined(tested: Iterable[NoiseFindings | SampleFindings]) -> Status:
    statuses = {found.status for found in tested}
    return "violated" if "violated" in statuses else "consistent" if "consistent" in statuses else "not run"


def findings_of(kind: Literal["canaries", "marks"], scores: Scores, claim: PrivacyProfile, delta: float) -> CanaryFindings:
    """The findings from the scores of a run whose releases are claimed to have this profile."""
    found = contradiction(scores, claim)
    return CanaryFindings(
        kind=kind,
        canaries=len(scores.members),
        members=int(scores.members.sum()),
        one_run_p_value=found.one_run,
        independent_p_value=found.quantiles,
        epsilon_lower=lower_epsilon(scores, delta, 1.0 - CONFIDENCE),
        epsilon_lower_if_gaussian=epsilon_of(lower_mu(scores, 1.0 - CONFIDENCE), delta),
        epsilon_lower_if_independent=epsilon_of(lower_mu_of_independent(scores, 1.0 - CONFIDENCE), delta),
        status="violated" if min(found.one_run, found.quantiles) < CONTRADICTED else "consistent",
    )
