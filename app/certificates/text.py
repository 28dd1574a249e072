r"""The certificate read aloud: plain English for someone who isn't a cryptographer, with what an attacker can gain in figures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC

from app.certificates.attacks import attack_lines
from app.certificates.consistency import training_of
from app.certificates.guarantee import ApproximateDp, NoGuarantee
from app.certificates.kinds import kind_of
from app.certificates.ledger import ledger_line
from app.certificates.statement import DataFacts, Environment, PrivacyCertificate, ReleaseScope
from app.certificates.wording import METRICS
from mechanisms.base import Adjacency

FALSE_POSITIVES = 0.01
"""The false positive rate at which the attacker's success is told."""

ROUNDING = 1e-12
"""Added to a rate computed in floats: its few roundings stay far below."""


def describe(predicate: PrivacyCertificate) -> str:
    r"""About 25 lines: what is protected, from whom, how strongly, what was done, and what isn't covered."""
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
            *(f"  - {line}" for line in predicate.not_covered),
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
    yield "What it rests on" if isinstance(predicate.guarantee, ApproximateDp) else "What a guarantee would rest on"
    yield from (f"  - {line}" for line in (*predicate.assumptions, predicate.randomness.floating_point))


def most_true_positives(claim: ApproximateDp, false_positives: float) -> float:
    r"""The largest fraction of members that any attack on the released model can name as members, rounded up.

    Args:
      claim: the certified figures; each point of the curve gives min(e^eps a + delta, 1 - e^-eps (1 - delta - a)) (Kairouz, Oh and
        Viswanath 2015, Theorem 2.1), and the least of them holds.
      false_positives: a in [0, 1], the fraction of others that it wrongly names.
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
        lines = ["THERE IS NO PRIVACY GUARANTEE.", f"  Why: {guarantee.reason}."]
        lines += [f"  {line}" for line in caution(predicate, guarantee)]
        return [*lines, f"  Trust: {predicate.scope.trust_model}."]
    who = "" if predicate.neighbourhood is None else predicate.neighbourhood.unit
    meaning = "" if predicate.neighbourhood is None else predicate.neighbourhood.meaning
    return [
        f"Guarantee: (epsilon, delta)-differential privacy with epsilon = {guarantee.epsilon}, delta = {guarantee.delta}",
        *_pure(guarantee),
        f"  Protected: each {who} of the {protected_data(predicate)}; {predicate.data.unit_meaning}. Formally, {meaning}.",
        f"  Against: anyone who sees what was released. Trust: {predicate.scope.trust_model}.",
        *strength(predicate, guarantee),
        *remarks(predicate, guarantee),
    ]


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


def strength(predicate: PrivacyCertificate, guarantee: ApproximateDp) -> Iterator[str]:
    """What an attacker gains, in figures: told of membership, or of two values where neighbours have the same number of units."""
    hit, edge = most_true_positives(guarantee, FALSE_POSITIVES), advantage(guarantee)
    if predicate.neighbourhood is not None and predicate.neighbourhood.adjacency is Adjacency.REPLACE_ONE:
        yield (
            "  How strongly: say someone knows everybody else's data, has two guesses of what one unit's are, and wants to find the right "
            "one."
        )
        yield "    (That a unit is in the data at all isn't hidden.)"
        yield (
            f"    If they may wrongly settle on the second in 1 of 100 cases, they settle on it rightly in at most {percent(hit)} (blind "
            "guessing: 1 %)."
        )
    else:
        yield (
            "  How strongly: say someone wants to find out whether one particular unit was in the training data, and knows all the others."
        )
        yield (
            f"    If they may wrongly accuse 1 in 100 outsiders, they recognise at most {percent(hit)} of the members (blind guessing: "
            "1 %)."
        )
    yield f"    Guessing with even odds beforehand, they are right at most {percent((1.0 + edge) / 2.0)} of the time (chance is 50 %)."


def remarks(predicate: PrivacyCertificate, guarantee: ApproximateDp) -> Iterator[str]:
    """What to mind about the figures."""
    units = training_of(predicate).units
    if float(guarantee.delta) * units >= 1.0 and guarantee.pure_epsilon is None:
        yield f"    Mind delta: it is one over the {units} units or more, and such a delta would allow publishing one of them whole."
    if guarantee.epsilon_without_sampling is not None and float(guarantee.epsilon_without_sampling) > float(guarantee.epsilon):
        yield (
            f"    Drawing random samples helped: without it, the same noise would give only epsilon = {guarantee.epsilon_without_sampling}."
        )


def done(predicate: PrivacyCertificate) -> list[str]:
    """What was done to which data, a line each."""
    data, scope, training = predicate.data, predicate.scope, training_of(predicate)
    kind = kind_of(predicate, predicate.comparison)
    return [
        f"  Data: {data.training_records} training records{_held_by(data, training.unit)}. {data.description}",
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


def _held_by(data: DataFacts, who: str) -> str:
    return "" if data.units is None else f", of {data.units} of the unit {who!r}, at most {data.records_per_unit} records of each used"


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
    return (
        f" {environment.processes} processes shared each sample; each added its share of the noise, and the shares make up the whole once."
    )


def percent(rate: float) -> str:
    """Rounded up to a tenth of a percent."""
    return f"{math.ceil(rate * 1000.0) / 10.0:.1f} %"
