r"""The certificate read aloud: plain English for someone who isn't a cryptographer, with what an attacker can gain in figures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC

from accountants.attack_sentences import EVEN_ODDS, FALSE_POSITIVES, Neighbours, guessing_sentence, naming_sentence
from app.certificates.attacks import attack_lines
from app.certificates.caveats import caveats, not_covered_elsewhere
from app.certificates.consistency import training_of
from app.certificates.guarantee import ApproximateDp, NoGuarantee
from app.certificates.kinds import kind_of
from app.certificates.ledger import ledger_line
from app.certificates.statement import DataFacts, Environment, PrivacyCertificate, ReleaseScope
from app.certificates.wording import METRICS

ROUNDING = 1e-12
"""Added to a rate computed in floats: its few roundings stay far below."""


def describe(predicate: PrivacyCertificate) -> str:
    r"""About 30 lines: the guarantee, what can void it, what is protected, how strongly, what was done, and what isn't covered."""
    finished = predicate.job.finished.astimezone(UTC)
    return "\n".join(
        [
            f"PRIVACY CERTIFICATE of job {predicate.job.id} ({predicate.job.algorithm}), finished {finished:%Y-%m-%d %H:%M} UTC",
            "",
            *_guarantee(predicate),
            "",
            "What was done",
            *done(predicate),
            "",
            *_attacks(predicate),
            "What this does not cover",
            *(f"  - {line}" for line in not_covered_elsewhere(predicate)),
            "",
            *_foundations(predicate),
        ]
    )


def _attacks(predicate: PrivacyCertificate) -> Iterator[str]:
    if predicate.attacks is not None:
        yield "What attacks found"
        yield from (f"  {line}" for line in attack_lines(predicate.attacks))
        yield ""


def _foundations(predicate: PrivacyCertificate) -> Iterator[str]:
    if predicate.unprotected is not None:
        yield "What the errata say of it" if predicate.errata else "What the errata say of it: nothing"
        yield from (f"  - {one.row} ({one.severity}): {one.meaning}" for one in predicate.errata)
        return
    if isinstance(predicate.guarantee, ApproximateDp):
        # The assumptions stand beside epsilon; here is what the first of them means.
        yield "The floating-point caveat"
        yield f"  - {predicate.randomness.floating_point}"
        return
    yield "What a guarantee would rest on"
    yield from (f"  - {line}" for line in (*predicate.assumptions, predicate.randomness.floating_point))


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


def _guarantee(predicate: PrivacyCertificate) -> list[str]:
    guarantee = predicate.guarantee
    if isinstance(guarantee, NoGuarantee):
        lines = ["THERE IS NO PRIVACY GUARANTEE.", f"  Why: {guarantee.reason}.", f"  {nothing_promised(predicate)}"]
        lines += [f"  {line}" for line in caution(predicate, guarantee)]
        return [*lines, f"  Trust: {predicate.scope.trust_model}."]
    who = "" if predicate.neighbourhood is None else predicate.neighbourhood.unit
    meaning = "" if predicate.neighbourhood is None else predicate.neighbourhood.meaning
    return [
        f"Guarantee: (epsilon, delta)-differential privacy with epsilon = {guarantee.epsilon}, delta = {guarantee.delta}",
        *_pure(guarantee),
        *_caveats(predicate, guarantee),
        f"  Protected: each {who} of the {protected_data(predicate)}; {predicate.data.unit_meaning}. Formally, {meaning}.",
        f"  Against: anyone who sees what was released. Trust: {predicate.scope.trust_model}.",
        *(f"  {line}" for line in strength(predicate, guarantee)),
        *(f"  {line}" for line in worth_of_sampling(guarantee)),
    ]


def _caveats(predicate: PrivacyCertificate, guarantee: ApproximateDp) -> Iterator[str]:
    for caveat in caveats(predicate, guarantee):
        yield f"  {caveat.lead}"
        yield from (f"    - {line}" for line in caveat.lines)


def caution(predicate: PrivacyCertificate, guarantee: NoGuarantee) -> Iterator[str]:
    """How to treat what was released where nothing is guaranteed."""
    if guarantee.if_seed_stays_secret is not None:
        yield "Treat the model as if it could reveal every record of its training data to whoever knows or guesses the seed."
    elif predicate.unprotected is not None:
        yield "Treat the released files as if they held the training data themselves."


def protected_data(predicate: PrivacyCertificate) -> str:
    """Which of the data set's rows a guarantee is about."""
    kind = kind_of(predicate, predicate.comparison)
    return "training data" if kind is None else kind.protected


def _pure(guarantee: ApproximateDp) -> Iterator[str]:
    if guarantee.pure_epsilon is not None:
        yield f"  The same with delta = 0: pure differential privacy with epsilon = {guarantee.pure_epsilon}."


def strength(predicate: PrivacyCertificate, guarantee: ApproximateDp) -> tuple[str, str]:
    """What an attacker gains, in figures, in the sentences that calculators show too."""
    neighbours = _neighbours(predicate)
    missed = max(0.0, math.nextafter(1.0 - most_true_positives(guarantee, FALSE_POSITIVES), -math.inf))
    right = min(1.0, math.nextafter((1.0 + advantage(guarantee)) / 2.0, math.inf))
    return naming_sentence(FALSE_POSITIVES, missed, neighbours), guessing_sentence(EVEN_ODDS, right, neighbours)


def nothing_promised(predicate: PrivacyCertificate) -> str:
    """The same where there is no guarantee."""
    return naming_sentence(FALSE_POSITIVES, 0.0, _neighbours(predicate))


def _neighbours(predicate: PrivacyCertificate) -> Neighbours | None:
    found = predicate.neighbourhood
    return None if found is None else (found.adjacency, found.unit)


def worth_of_sampling(guarantee: ApproximateDp) -> Iterator[str]:
    """What epsilon would be without it, where it helped."""
    without = guarantee.epsilon_without_sampling
    if without is not None and float(without) > float(guarantee.epsilon):
        yield f"Drawing random samples helped: without it, the same noise would give only epsilon = {without}."


def done(predicate: PrivacyCertificate) -> list[str]:
    """What was done to which data, a line each."""
    data, scope, training = predicate.data, predicate.scope, training_of(predicate)
    kind = kind_of(predicate, predicate.comparison)
    return [
        f"  Data: {_size(data, training.unit)}{_held_by(data, training.unit)}. {data.description}",
        *_said_of(data),
        *(f"  {line}" for line in (() if kind is None else kind.lines(training))),
        f"  Released: {scope.released}.",
        f"  Held-out records: {measured(scope, of_comparison=predicate.comparison is not None)}.",
        *(() if predicate.ledger is None else (f"  Budget: {ledger_line(predicate.ledger)}.",)),
        f"  Random numbers: {predicate.randomness.generator}.{_shared(predicate.environment)} Audit: {predicate.audit.detail}.",
    ]


def _said_of(data: DataFacts) -> Iterator[str]:
    if data.uploaded is not None:
        of = data.uploaded
        yield f"  Data set {of.id}, manifest SHA-256 {of.manifest_sha256}. Its maker says of it (nobody checked that): {of.words!r}"


def _size(data: DataFacts, who: str) -> str:
    if data.declared_units is None:
        return f"{data.training_records} training records"
    return f"taken to be of {data.declared_units} of the unit {who!r}, a number that was declared without counting them"


def _held_by(data: DataFacts, who: str) -> str:
    if data.units is None:
        return ""
    of = "" if data.declared_units is not None else f", of {data.units} of the unit {who!r}"
    return f"{of}, at most {data.records_per_unit} records of each used"


def measured(scope: ReleaseScope, *, of_comparison: bool) -> str:
    """What was measured on held-out records."""
    if scope.evaluation is None:
        return f"test accuracy {scope.test_accuracy} on {scope.test_records} of them: {scope.test_metrics}"
    evaluation = scope.evaluation
    counts = "" if evaluation.counts is None else f"; {evaluation.counts} counts with noise of standard deviation {evaluation.noise_std}"
    figures = ", ".join(f"{METRICS.get(name, name)} {value}" for name, value in (evaluation.metrics or {}).items())
    figures = f"of the first part {figures}" if figures and of_comparison else figures
    return f"{figures or 'no metrics'} on {scope.test_records} of them: {evaluation.meaning}{counts}. They are {scope.test_metrics}"


def _shared(environment: Environment) -> str:
    if environment.processes is None or environment.processes == 1:
        return ""
    return f" {environment.processes} processes shared each sample; their sums were added before one of them added the noise, once."
