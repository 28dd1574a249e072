r"""What a certificate says about the attacks that were tried on its own run: a lower bound, never a proof."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, final

from pydantic import Field

from zetadp.app.certificates.facts.decimals import DecimalText, exact, fraction, lower, upper
from zetadp.app.certificates.facts.guarantee import ApproximateDp
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

ALIKE = {
    "canaries": "it told as much about real records if the code treats them as it does these",
    "marks": "it told as much about real records if they are sampled, scaled and covered by noise as these are; how their gradients come "
    "about isn't looked at",
}
"""What turns a bound about made-up units into one about records: an assumption about the code, of which no score is evidence."""

SAMPLES_TESTED = (
    "; tests of {} samples (their sizes, the units' turns and overlaps, as far as this sampling has them) found no other draws than stated"
)

_P_DIGITS = 2

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
      epsilon_lower: of what the run told about the made-up units, at the certificate's delta, with this ``confidence``; assumes only that
        coins are fair.
      epsilon_lower_if_gaussian: the same for a Gaussian trade-off; ``epsilon_lower_if_independent``: for independent scores as well. Both
        are no bounds where the trade-off isn't a Gaussian pair's, as with samples.
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


def audit_in_words(noise_numbers: int | None, samples: int | None, canaries: CanaryFacts | None, claim: ApproximateDp | None) -> str:
    """The audit in words; ``claim`` is what the releases guarantee, or would with secret randomness."""
    noise = "" if noise_numbers is None else NOISE_TESTED.format(noise_numbers)
    tested = noise + ("" if samples is None else SAMPLES_TESTED.format(samples))
    tested += VERDICTS if tested else ""
    if canaries is None:
        return NOT_RUN + tested
    one_run, independent = (upper(fraction(value), _P_DIGITS) for value in (canaries.one_run_p_value, canaries.independent_p_value))
    return (
        f"{_verdict(canaries, claim)}; scores like theirs have a probability of at most {one_run} under the guarantee, at most "
        f"{independent} if they are independent; what the run told about them has an epsilon of at least {canaries.epsilon_lower} with "
        f"{_percent(canaries)} confidence, if coins were fair{_with_a_gaussian(canaries, claim)}; {ALIKE[canaries.kind]}; a lower bound, "
        f"not a proof{tested}"
    )


def _verdict(canaries: CanaryFacts, claim: ApproximateDp | None) -> str:
    told = f"which of {canaries.canaries} {MADE_UP[canaries.kind]} took part"
    if not _is_doubtful(canaries, claim):
        return f"consistent: from what was released, the audit couldn't tell better than the guarantee allows {told}"
    chance = "chance" if canaries.kind == "marks" else "chance, or scores that depend on each other"
    return (
        f"doubtful: by at least one of the audit's tests, each right in {_percent(canaries)} of runs, what was released distinguishes "
        f"{told} better than the guarantee allows; that may be {chance}, and isn't as unlikely as "
        f"{CONTRADICTED:g}, for which nothing would be signed"
    )


def _is_doubtful(canaries: CanaryFacts, claim: ApproximateDp | None) -> bool:
    """Whether a test with the stated confidence speaks against the guarantee, or a bound that holds for it is above it."""
    error = 1 - fraction(canaries.confidence)
    if min(fraction(canaries.one_run_p_value), fraction(canaries.independent_p_value)) < error:
        return True
    if claim is None:
        return False
    bounds = [canaries.epsilon_lower]
    if claim.gdp_mu is not None:
        bounds += [canaries.epsilon_lower_if_gaussian, canaries.epsilon_lower_if_independent]
    return max(map(fraction, bounds)) > fraction(claim.epsilon)


def _with_a_gaussian(canaries: CanaryFacts, claim: ApproximateDp | None) -> str:
    gaussian, independent = canaries.epsilon_lower_if_gaussian, canaries.epsilon_lower_if_independent
    if claim is None or claim.gdp_mu is None:
        return (
            f" (a Gaussian trade-off would make it {gaussian}, independent scores as well {independent}: estimates, no bounds, since these "
            "releases have another trade-off)"
        )
    return (
        f", of at least {gaussian} with a Gaussian trade-off, as these releases have, of at least {independent} if scores are independent "
        "as well"
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
