r"""The certificate as text: plain English for someone who isn't a cryptographer, with an attacker's gain in figures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC

from accountants.attack_sentences import EVEN_ODDS, FALSE_POSITIVES, Neighbours, guessing_sentence, naming_sentence
from app.certificates.attacks import attack_lines
from app.certificates.caveats import caveats, not_covered_elsewhere
from app.certificates.guarantee import ApproximateDp, NoGuarantee
from app.certificates.reading import Reading
from app.certificates.statement import PrivacyCertificate

ROUNDING = 1e-12
"""Added to a rate computed in floats: its few roundings stay far below."""


def describe(certificate: PrivacyCertificate) -> str:
    r"""About 30 lines: the guarantee, what can void it, what is protected, how strongly, what was done, and what isn't covered."""
    reading, job = Reading(certificate), certificate.job
    return "\n".join(
        [
            f"PRIVACY CERTIFICATE of job {job.id} ({job.algorithm}), finished {job.finished.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
            *(() if reading.other_version is None else (reading.other_version,)),
            "",
            *_guarantee(reading),
            "",
            "What was done",
            *(f"  {line}" for line in reading.done()),
            "",
            *_attacks(reading),
            "What this does not cover",
            *(f"  - {line}" for line in not_covered_elsewhere(reading)),
            "",
            *_foundations(reading),
        ]
    )


def _attacks(reading: Reading) -> Iterator[str]:
    if (found := reading.certificate.run.attacks) is not None:
        yield "What attacks found"
        yield from (f"  {line}" for line in attack_lines(found))
        yield ""


def _foundations(reading: Reading) -> Iterator[str]:
    if not reading.is_protected:
        notes = reading.errata
        yield "What the errata say about it" if notes else "What the errata say about it: nothing"
        yield from (f"  - {row.row} ({row.severity}): {meaning}" for row, meaning in notes)
        return
    if isinstance(reading.certificate.guarantee, ApproximateDp):
        # The assumptions stand beside epsilon; here is what the first of them means.
        yield "The floating-point caveat"
        yield f"  - {reading.floating_point}"
        return
    yield "What a guarantee would rest on"
    yield from (f"  - {line}" for line in (*reading.assumptions, reading.floating_point))


def most_true_positives(claim: ApproximateDp, false_positives: float) -> float:
    r"""The largest probability with which any test of the released model names a unit that is in the data, rounded up.

    Args:
      claim: the certified figures; each point of the curve gives min(e^eps a + delta, 1 - e^-eps (1 - delta - a)) (Kairouz, Oh and
        Viswanath 2015, Theorem 2.1), and the least of them holds.
      false_positives: a in [0, 1], the probability with which it names the unit when that isn't in the data.
    """
    best = 1.0
    for epsilon, delta in _curve(claim):
        best = min(
            best, math.exp(min(epsilon, 700.0)) * false_positives + delta, 1.0 - math.exp(-epsilon) * (1.0 - delta - false_positives)
        )
    return min(1.0, best + ROUNDING)


def advantage(claim: ApproximateDp) -> float:
    """The largest difference between an attack's true and false positive rates: min of (e^eps - 1 + 2 delta)/(e^eps + 1), rounded up."""
    best = min((math.expm1(min(epsilon, 700.0)) + 2.0 * delta) / (math.exp(min(epsilon, 700.0)) + 1.0) for epsilon, delta in _curve(claim))
    return min(1.0, best + ROUNDING)


def _curve(claim: ApproximateDp) -> Iterator[tuple[float, float]]:
    return ((float(point.epsilon), float(point.delta)) for point in claim.delta_curve)


def _guarantee(reading: Reading) -> list[str]:
    guarantee = reading.certificate.guarantee
    if isinstance(guarantee, NoGuarantee):
        lines = ["THERE IS NO PRIVACY GUARANTEE.", f"  Why: {guarantee.reason}.", f"  {nothing_promised(reading)}"]
        lines += [f"  {line}" for line in caution(reading, guarantee)]
        return [*lines, f"  Trust: {reading.trust}."]
    return [
        f"Guarantee: (epsilon, delta)-differential privacy with epsilon = {guarantee.epsilon}, delta = {guarantee.delta}",
        *_pure(guarantee),
        *_caveats(reading, guarantee),
        f"  Protected: each {reading.unit} of the {reading.kind.protected}; {reading.unit_meaning}. Formally, {reading.neighbours}.",
        f"  Against: anyone who sees what was released. Trust: {reading.trust}.",
        *(f"  {line}" for line in strength(reading, guarantee)),
        *(f"  {line}" for line in worth_of_sampling(guarantee)),
    ]


def _caveats(reading: Reading, guarantee: ApproximateDp) -> Iterator[str]:
    for caveat in caveats(reading, guarantee):
        yield f"  {caveat.lead}"
        yield from (f"    - {line}" for line in caveat.lines)


def caution(reading: Reading, guarantee: NoGuarantee) -> Iterator[str]:
    """How to treat what was released if nothing is guaranteed."""
    if guarantee.if_seed_stays_secret is not None:
        yield "Treat the model as if it could reveal every record of its training data to whoever knows or guesses the seed."
    elif not reading.is_protected:
        yield "Treat the released files as if they held the training data themselves."


def _pure(guarantee: ApproximateDp) -> Iterator[str]:
    if guarantee.pure_epsilon is not None:
        yield f"  The same with delta = 0: pure differential privacy with epsilon = {guarantee.pure_epsilon}."


def strength(reading: Reading, guarantee: ApproximateDp) -> tuple[str, str]:
    """What an attacker gains, in figures, in the sentences that calculators show too."""
    neighbours = _neighbours(reading)
    missed = max(0.0, math.nextafter(1.0 - most_true_positives(guarantee, FALSE_POSITIVES), -math.inf))
    right = min(1.0, math.nextafter((1.0 + advantage(guarantee)) / 2.0, math.inf))
    return naming_sentence(FALSE_POSITIVES, missed, neighbours), guessing_sentence(EVEN_ODDS, right, neighbours)


def nothing_promised(reading: Reading) -> str:
    """The same where there is no guarantee."""
    return naming_sentence(FALSE_POSITIVES, 0.0, _neighbours(reading))


def _neighbours(reading: Reading) -> Neighbours | None:
    return None if reading.adjacency is None else (reading.adjacency, reading.unit)


def worth_of_sampling(guarantee: ApproximateDp) -> Iterator[str]:
    """What epsilon would be without sampling, if sampling helped."""
    without = guarantee.epsilon_without_sampling
    if without is not None and float(without) > float(guarantee.epsilon):
        yield f"Drawing random samples helped: without it, the same noise would give only epsilon = {without}."
