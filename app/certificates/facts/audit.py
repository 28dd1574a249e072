r"""What a certificate says about the attacks that were tried on its own run: a lower bound, never a proof."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, final

from pydantic import Field

from zetadp.app.certificates.facts.decimals import DecimalText, exact, fraction, lower
from zetadp.mechanisms.base import Count, Value
from zetadp.trainer.specs.findings.runs import CONFIDENCE, CONTRADICTED, CanaryFindings
from zetadp.trainer.specs.report import RunReport

NOT_RUN = "not run: no empirical lower bound on epsilon was measured"


NOISE_TESTED = (
    "; tests of {} numbers of the drawn noise found no component with another scale than is claimed, no release that repeats the one "
    "before or its own first half, and no sum over releases, or over a release's first numbers, of a size that independent noise doesn't "
    "have; such tests find only gross faults"
)

MADE_UP = {"canaries": "made-up records", "marks": "made-up units (each with a number of its own, where nobody's gradient is)"}

SAMPLES_TESTED = (
    "; tests of {} samples (their sizes, the units' turns and overlaps, as far as this sampling has them) found no other draws than stated"
)

VERDICTS = (
    "; epsilon and delta don't count that the outcomes of these tests are published: this adds at most 1e-17 (1 + e^epsilon) to delta, "
    "even where delta is 0, if no sum under correlated complex noise is longer than 2^18 times the noise's scale"
)
"""Reporting verdicts costs very little, and no figure includes it, so the text says so."""


@final
class CanaryFacts(Value):
    r"""The canaries' findings; see ``trainer.specs.findings.runs.CanaryFindings``.

    Attributes:
      kind: whether they are made-up records, whose gradients are the network's, or marks, each with a number of its own.
      canaries, members: made-up units, and how many of them took part.
      one_run_p_value, independent_p_value: of the scores under the claim; the second takes scores for independent.
      epsilon_lower: at the certificate's delta, with this ``confidence``; assumes only that coins are fair.
      epsilon_lower_if_gaussian: the same for a Gaussian trade-off; ``epsilon_lower_if_independent``: for independent scores as well.
    """

    kind: Literal["canaries", "marks"]
    canaries: Count
    members: Annotated[int, Field(strict=True, ge=0)]
    one_run_p_value: DecimalText
    independent_p_value: DecimalText
    epsilon_lower: DecimalText
    epsilon_lower_if_gaussian: DecimalText
    epsilon_lower_if_independent: DecimalText
    confidence: DecimalText


def noise_numbers(report: RunReport) -> int | None:
    """The number of noise values tested in a run that no part of its audit contradicts; None if none were."""
    tested = report.noise_test
    return None if tested is None or tested.status == "not run" else tested.numbers


def tested_samples(report: RunReport) -> int | None:
    """The number of samples tested in such a run; None if none were."""
    tested = report.sample_test
    return None if tested is None or tested.status == "not run" else tested.samples


def canary_facts(found: CanaryFindings | None) -> CanaryFacts | None:
    """Of what a run reports; None where there were no canaries."""
    if found is None:
        return None
    return CanaryFacts(
        kind=found.kind,
        canaries=found.canaries,
        members=found.members,
        one_run_p_value=exact(found.one_run_p_value),
        independent_p_value=exact(found.independent_p_value),
        epsilon_lower=lower(found.epsilon_lower),
        epsilon_lower_if_gaussian=lower(found.epsilon_lower_if_gaussian),
        epsilon_lower_if_independent=lower(found.epsilon_lower_if_independent),
        confidence=exact(CONFIDENCE),
    )


def audit_in_words(noise_numbers: int | None, samples: int | None, canaries: CanaryFacts | None) -> str:
    """The audit in words."""
    noise = "" if noise_numbers is None else NOISE_TESTED.format(noise_numbers)
    tested = noise + ("" if samples is None else SAMPLES_TESTED.format(samples))
    tested += VERDICTS if tested else ""
    if canaries is None:
        return NOT_RUN + tested
    return (
        f"consistent: from what was released, the audit couldn't tell better than the guarantee allows which of {canaries.canaries} "
        f"{MADE_UP[canaries.kind]} took part; epsilon is at least {canaries.epsilon_lower} with {_percent(canaries)} confidence whatever "
        f"the code did with them, at least {canaries.epsilon_lower_if_gaussian} for a Gaussian trade-off, at least "
        f"{canaries.epsilon_lower_if_independent} if their scores are independent as well; a lower bound, not a proof{tested}"
    )


def canary_problems(facts: CanaryFacts | None) -> Iterator[str]:
    """Contradictions between the stated findings."""
    if facts is None:
        return
    if facts.members > facts.canaries:
        yield f"run.canaries: {facts.members} of {facts.canaries} took part"
    for name in ("one_run_p_value", "independent_p_value"):
        if not CONTRADICTED <= fraction(getattr(facts, name)) <= 1:
            yield f"run.canaries.{name}: in [{CONTRADICTED:g}, 1] where nothing is violated, got {getattr(facts, name)}"
    if not 0 < fraction(facts.confidence) < 1:
        yield f"run.canaries.confidence: in (0, 1), got {facts.confidence}"


def _percent(facts: CanaryFacts) -> str:
    return f"{float(facts.confidence):.0%}"
