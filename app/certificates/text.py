r"""The certificate read aloud: plain English for someone who isn't a cryptographer, with what an attacker can gain in figures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC

from app.certificates.facts import GroupFacts, ReleaseFacts, SamplingFacts
from app.certificates.guarantee import ApproximateDp, NoGuarantee
from app.certificates.statement import DataFacts, Environment, PrivacyCertificate, ReleaseScope
from app.certificates.training import ClippingFacts

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
            *_done(predicate),
            "",
            "What this does not cover",
            *(f"  - {line}" for line in predicate.not_covered),
            "",
            "What it rests on" if isinstance(predicate.guarantee, ApproximateDp) else "What a guarantee would rest on",
            *(f"  - {line}" for line in (*predicate.assumptions, predicate.randomness.floating_point)),
        ]
    )


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
        if guarantee.if_seed_stays_secret is not None:
            lines.append("  Treat the model as if it could reveal every record of its training data to whoever knows or guesses the seed.")
        return lines
    who = "" if predicate.neighbourhood is None else predicate.neighbourhood.unit
    meaning = "" if predicate.neighbourhood is None else predicate.neighbourhood.meaning
    hit, edge = most_true_positives(guarantee, FALSE_POSITIVES), advantage(guarantee)
    lines = [
        f"Guarantee: (epsilon, delta)-differential privacy with epsilon = {guarantee.epsilon}, delta = {guarantee.delta}",
        f"  Protected: each {who} of the training data; {predicate.data.unit_meaning}. Formally, {meaning}.",
        f"  Against: anyone who sees what was released. Trust: {predicate.scope.trust_model}.",
        "  How strongly: say someone wants to find out whether one particular unit was in the training data, and knows all the others.",
        f"    If they may wrongly accuse 1 in 100 outsiders, they recognise at most {_percent(hit)} of the members (blind guessing: 1 %).",
        f"    Guessing with even odds beforehand, they are right at most {_percent((1.0 + edge) / 2.0)} of the time (chance is 50 %).",
    ]
    units = predicate.data.training_records if predicate.data.units is None else predicate.data.units
    if float(guarantee.delta) * units >= 1.0:
        lines.append(
            f"    Mind delta: it is one over the {units} units or more, and such a delta would allow publishing one of them whole."
        )
    if guarantee.epsilon_without_sampling is not None and float(guarantee.epsilon_without_sampling) > float(guarantee.epsilon):
        lines.append(
            f"    Drawing random samples helped: without it, the same noise would give only epsilon = {guarantee.epsilon_without_sampling}."
        )
    return lines


def _done(predicate: PrivacyCertificate) -> list[str]:
    data, steps, scope = predicate.data, predicate.steps, predicate.scope
    tries = predicate.job.attempts
    restarts = f"; the run was taken up {tries} times and went on from a checkpoint {predicate.job.resumptions} times" if tries > 1 else ""
    who = "record" if predicate.neighbourhood is None else predicate.neighbourhood.unit
    return [
        f"  Data: {data.training_records} training records{_held_by(data, who)}. {data.description}",
        *_federated(predicate),
        *(f"  Noise: {line}." for line in _releases(predicate, who)),
        f"  Clipping: {_clipped(predicate.clipping)}: {predicate.clipping.meaning}.",
        f"  Steps: {steps.released} released of {steps.planned} planned{restarts}, each sum divided by the public number "
        f"{data.expected_batch_size}.{_checkpoints(scope)}",
        f"  Released: {scope.released}.",
        f"  Held-out records: {_measured(scope)}.",
        f"  Random numbers: {predicate.randomness.generator}.{_shared(predicate.environment)} Audit: {predicate.audit.detail}.",
    ]


def _held_by(data: DataFacts, who: str) -> str:
    return "" if data.units is None else f", of {data.units} of the unit {who!r}, at most {data.records_per_unit} records of each used"


def _federated(predicate: PrivacyCertificate) -> Iterator[str]:
    if predicate.federation is None:
        return
    nodes = predicate.federation.nodes
    sizes = f"{min(nodes)}" if min(nodes) == max(nodes) else f"{min(nodes)} to {max(nodes)}"
    yield f"  Nodes: {len(nodes)}, each with {sizes} units of its own. {_sentence(predicate.federation.participation)}"
    yield f"    {_sentence(predicate.federation.noise)}"


def _clipped(clipping: ClippingFacts) -> str:
    if clipping.kind == "adaptive":
        return (
            f"to a bound that starts at {clipping.bound} and follows the {clipping.quantile} quantile of the norms; its count takes "
            f"{clipping.count_share} of the squared sensitivity"
        )
    return f"to an l2 norm of {clipping.bound}" + (", shared by the layers" if clipping.kind == "per_layer" else "")


def _checkpoints(scope: ReleaseScope) -> str:
    return "" if scope.checkpoints_released is None else f" Checkpoints: {scope.checkpoints_released}, {scope.checkpoints}."


def _measured(scope: ReleaseScope) -> str:
    if scope.evaluation is None:
        return f"test accuracy {scope.test_accuracy} on {scope.test_records} of them: {scope.test_metrics}"
    evaluation = scope.evaluation
    counts = "" if evaluation.counts is None else f"; {evaluation.counts} counts with noise of standard deviation {evaluation.noise_std}"
    figures = ", ".join(f"{name} {value}" for name, value in (evaluation.metrics or {}).items())
    return f"{figures or 'no metrics'} on {scope.test_records} of them: {evaluation.meaning}{counts}. They are {scope.test_metrics}"


def _shared(environment: Environment) -> str:
    if environment.processes is None or environment.processes == 1:
        return ""
    return (
        f" {environment.processes} processes shared each sample; each added its share of the noise, and the shares make up the whole once."
    )


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _releases(predicate: PrivacyCertificate, who: str) -> Iterator[str]:
    """Every different release, with whose it is and in what units where that isn't plain from the figures."""
    evaluation = predicate.scope.evaluation
    *training, last = predicate.releases
    counts = training and evaluation is not None and evaluation.kind == "private"
    for release in training if counts else predicate.releases:
        units = "; in units of the joint vector of sum and count, not of the gradient" if predicate.clipping.kind == "adaptive" else ""
        nodes = "" if predicate.federation is None else " at each node"
        yield f"{_release(release, who)}{nodes}{units}"
    if counts:
        noise = f"{last.mechanism.kind} noise of standard deviation {last.mechanism.std_real}"
        yield f"{last.count} counts of right answers among all {predicate.scope.test_records} held-out records with {noise}"


def _release(release: ReleaseFacts, who: str) -> str:
    mechanism = release.mechanism
    parts = " and ".join(dict.fromkeys(std for std in (mechanism.std_real, mechanism.std_imag) if std is not None))
    scale = f"standard deviation {parts} on each real component" if parts else f"scale {mechanism.laplace_scale}"
    drawn = _drawn(release.sampling, who) + _held(release.group)
    if mechanism.box is not None:
        # A local release: every record by itself, in a public box.
        box = mechanism.box
        amount = f"of epsilon {mechanism.epsilon} for each record" if mechanism.epsilon is not None else f"of {scale}"
        within = f"on every record by itself, of {box.dimension} coordinates in [{box.lower}, {box.upper}]"
        return f"{release.count} releases with {mechanism.kind} noise {amount}, {within}, {drawn}"
    return f"{release.count} releases with {mechanism.kind} noise of {scale}, {drawn}"


def _drawn(sampling: SamplingFacts, who: str) -> str:
    match sampling.kind:
        case "poisson":
            return f"each {who} drawn with probability {sampling.probability}"
        case "fixed_size":
            return f"on samples of exactly {sampling.sample_size} of {sampling.population_size} records"
        case "none":
            return "on all of the data"


def _held(group: GroupFacts | None) -> str:
    return "" if group is None else f", where one protected unit holds at most {group.size} of the unit {group.of!r}"


def _percent(rate: float) -> str:
    """Rounded up to a tenth of a percent."""
    return f"{math.ceil(rate * 1000.0) / 10.0:.1f} %"
