r"""Whether a certificate agrees with itself: its words are those of its event, and its parts don't contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from accountants.events import Event, non_private_reason
from app.certificates import wording
from app.certificates.attacks import attack_problems
from app.certificates.audit import audit_problems
from app.certificates.decimals import fraction
from app.certificates.evaluation import evaluation_problems, stated_counts
from app.certificates.facts import (
    ADJACENCY_MEANING,
    EARLIER_MEANINGS,
    Neighbourhood,
    largest_group,
    neighbourhood_of,
    releases_of,
)
from app.certificates.guarantee import SEED_SENTENCE, ApproximateDp, NoGuarantee, figures
from app.certificates.kinds import Training, kind_of
from app.certificates.report import Check, failed, not_checked, outcome, passed
from app.certificates.sentences import foreign_sentences, unit_of
from app.certificates.statement import PrivacyCertificate
from mechanisms import PrivacyError, RandomOrigin
from mechanisms.base import Value

LARGEST_FLOAT = fraction("1.7e308")


def check_words(predicate: PrivacyCertificate) -> Check:
    """Probability, noise, sensitivity, adjacency, unit, clipping, nodes, held-out releases and steps, against the event."""
    try:
        return outcome("event", _word_problems(predicate), "noise, sampling, sensitivity, steps, adjacency and unit are those of the event")
    except PrivacyError as error:
        return failed("event", f"the event can't be read: {error}")


def _word_problems(predicate: PrivacyCertificate) -> list[str]:
    event = predicate.event
    releases, neighbourhood = releases_of(event), neighbourhood_of(event)
    problems = [
        *_differences("releases", predicate.releases, releases),
        *_differences("neighbourhood", _in_todays_words(predicate.neighbourhood), neighbourhood),
        *_evaluation_problems(predicate),
        *_unit_problems(predicate),
    ]
    if (kind := kind_of(predicate, predicate.comparison)) is None:
        problems.append("the certificate's sections aren't those of one kind of training")
    else:
        problems.extend(kind.problems(training_of(predicate)))
    return problems


def training_of(predicate: PrivacyCertificate) -> Training:
    """What the certificate states beside its kind's sections."""
    data, job, scope = predicate.data, predicate.job, predicate.scope
    named = (("declared_units", data.declared_units), ("units", data.units), ("training_records", data.training_records))
    name, units = next(((name, units) for name, units in named if units is not None), ("training_records", 1))
    if predicate.feature_release is not None:
        name, units = "scope.test_records", scope.test_records
    again = f"; the run was taken up {job.attempts} times and went on from a checkpoint {job.resumptions} times"
    written = "" if scope.checkpoints_released is None else f" Checkpoints: {scope.checkpoints_released}, {scope.checkpoints}."
    return Training(
        event=predicate.event,
        steps=predicate.steps,
        releases=predicate.releases,
        unit=unit_of(predicate) or "record",
        units_name=name,
        units=units,
        expected_batch_size=data.expected_batch_size,
        counts=stated_counts(scope.evaluation),
        test_records=scope.test_records,
        restarts=again if job.attempts > 1 else "",
        checkpoints=written,
    )


def check_sentences(predicate: PrivacyCertificate) -> Check:
    """The fixed sentences; other words than this version's aren't wrong, but nobody here vouches for them."""
    try:
        foreign = list(foreign_sentences(predicate))
    except PrivacyError as error:
        return not_checked("sentences", f"the event can't be read: {error}")
    if foreign:
        return not_checked("sentences", f"words of the signer's own, or of another version: {', '.join(foreign)}")
    return passed("sentences", "what is said of trust, scope, assumptions and limits is what this version says of such a run")


def check_parts(predicate: PrivacyCertificate) -> Check:
    """Guarantee against randomness and event, and the guarantee's own figures against each other."""
    guarantee, randomness = predicate.guarantee, predicate.randomness
    problems: list[str] = []
    seeded = randomness.origin is RandomOrigin.USER_SEED
    unprotected = non_private_reason(predicate.event)
    if seeded and not (isinstance(guarantee, NoGuarantee) and (unprotected or SEED_SENTENCE in guarantee.reason)):
        problems.append(f"the randomness came from a user's seed, yet the guarantee doesn't say {SEED_SENTENCE!r}")
    if isinstance(guarantee, NoGuarantee) and guarantee.if_seed_stays_secret is not None and not seeded:
        problems.append("if_seed_stays_secret is given for a run that had no seed")
    keyed = randomness.generator.endswith(wording.KEYED[randomness.origin])
    if not keyed or randomness.statement != wording.SEED_STATEMENTS[randomness.origin]:
        problems.append(f"randomness.generator and randomness.statement aren't those of origin {randomness.origin.value!r}")
    problems.extend(_history_problems(predicate))
    problems.extend(audit_problems(predicate.audit))
    problems.extend(attack_problems(predicate.attacks, predicate.feature_release))
    claim = figures(guarantee)
    if claim is None and unprotected is not None and isinstance(guarantee, NoGuarantee) and unprotected not in guarantee.reason:
        problems.append(f"the guarantee's reason isn't the event's: {unprotected}")
    if claim is not None:
        if unprotected is not None:
            problems.append(f"a guarantee is stated, but part of the event has none: {unprotected}")
        problems.extend(_claim_problems(claim))
    return outcome("parts", problems, "the certificate's parts agree with each other")


def is_computable(event: Event, claim: ApproximateDp) -> bool:
    """Whether figures can be recomputed: the event has a guarantee at all, and delta and all figures are numbers to compute with."""
    if non_private_reason(event) is not None:
        return False
    return 0 < fraction(claim.delta) < 1 and all(fraction(text) <= LARGEST_FLOAT for text in _texts(claim))


def _in_todays_words(stated: Neighbourhood | None) -> Neighbourhood | None:
    """A meaning that certificates gave before, put as they give it now; anything else as it stands."""
    if stated is None or stated.meaning not in EARLIER_MEANINGS.get(stated.adjacency, ()):
        return stated
    return Neighbourhood(adjacency=stated.adjacency, meaning=ADJACENCY_MEANING[stated.adjacency], unit=stated.unit)


def _evaluation_problems(predicate: PrivacyCertificate) -> Iterator[str]:
    scope = predicate.scope
    if (scope.test_accuracy is None) == (scope.evaluation is None):
        yield "scope: test_accuracy or evaluation must be stated, and not both"
    if scope.evaluation is not None:
        in_parts = predicate.comparison is not None
        yield from evaluation_problems(scope.evaluation, predicate.event, counts_in_parts=in_parts)
        for part in () if predicate.comparison is None else predicate.comparison.parts:
            if (part.counts is None) == (scope.evaluation.kind == "private"):
                yield f"part {part.name}: counts are stated exactly for a private evaluation, got kind {scope.evaluation.kind!r}"


def _unit_problems(predicate: PrivacyCertificate) -> Iterator[str]:
    group = largest_group(predicate.event)
    units_are_records = group == 1 and predicate.data.units is None
    if predicate.data.units_are_records != units_are_records:
        held = f"has groups of up to {group}" if predicate.data.units is None else "is of units that hold several records"
        yield f"data.units_are_records: the certificate says {predicate.data.units_are_records}, its event {held}"
    if (predicate.data.training_records is None) == (predicate.data.declared_units is None):
        yield "data.training_records and data.declared_units: exactly one of the two is stated"
    if predicate.data.declared_units is not None and predicate.data.units not in {None, predicate.data.declared_units}:
        yield f"data.units: {predicate.data.units}, but {predicate.data.declared_units} were declared"
    if (predicate.data.units is None) != (predicate.data.records_per_unit is None):
        yield "data.units and data.records_per_unit: both are stated, or neither"
    used = predicate.data.records_per_unit or 1
    for sections in (predicate, *(() if predicate.comparison is None else predicate.comparison.parts)):
        if sections.local_release is not None and sections.local_release.records_per_unit != used:
            yield f"local_release.records_per_unit: {sections.local_release.records_per_unit}, but {used} of a unit are used at most"


def _history_problems(predicate: PrivacyCertificate) -> Iterator[str]:
    steps, job = predicate.steps, predicate.job
    if steps.released > steps.planned:
        yield f"steps: {steps.released} were released of {steps.planned} planned"
    if job.resumptions >= job.attempts:
        yield f"job: {job.attempts} attempts can't have gone on from a checkpoint {job.resumptions} times"
    if job.finished < job.started:
        yield "job: it finished before it started"


def _claim_problems(claim: ApproximateDp) -> Iterator[str]:
    epsilon, delta = fraction(claim.epsilon), fraction(claim.delta)
    if not 0 < delta < 1:
        yield f"delta must be in (0, 1), got {claim.delta}"
    if fraction(claim.epsilon_lower) > epsilon:
        yield f"epsilon_lower {claim.epsilon_lower} is above epsilon {claim.epsilon}"
    curve = [(fraction(point.epsilon), fraction(point.delta)) for point in claim.delta_curve]
    if (epsilon, delta) not in curve:
        yield "the delta curve doesn't contain the certified pair"
    if any(second[0] <= first[0] or second[1] > first[1] for first, second in pairwise(curve)):
        yield "the delta curve must have rising epsilons and falling deltas"
    if any(fraction(point.order) <= 1 for point in claim.renyi or ()):
        yield "a Renyi order must be > 1"
    for name, value, reason in (
        ("renyi", claim.renyi, claim.renyi_absent_because),
        ("gdp_mu", claim.gdp_mu, claim.gdp_mu_absent_because),
        ("epsilon_without_sampling", claim.epsilon_without_sampling, claim.epsilon_without_sampling_absent_because),
    ):
        if (value is None) == (reason is None):
            yield f"{name} must be given, or absent with a reason"
    if any(fraction(text) > LARGEST_FLOAT for text in _texts(claim)):
        yield "a figure is beyond the range of float64"


def _texts(claim: ApproximateDp) -> Iterator[str]:
    yield from (claim.epsilon, claim.epsilon_lower, claim.pure_epsilon or "0", claim.gdp_mu or "0", claim.epsilon_without_sampling or "0")
    yield from (text for point in claim.delta_curve for text in (point.epsilon, point.delta))
    yield from (text for point in claim.renyi or () for text in (point.order, point.epsilon))


def _differences(name: str, stated: Value | Sequence[Value] | None, derived: Value | Sequence[Value] | None) -> Iterator[str]:
    """One line for each field in which what is stated isn't what the event gives."""
    first, second = dict(_fields(name, stated)), dict(_fields(name, derived))
    for path in dict.fromkeys((*first, *second)):
        if first.get(path) != second.get(path):
            yield f"{path}: the certificate says {first.get(path)}, its event gives {second.get(path)}"


def _fields(path: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Value):
        for name in type(value).model_fields:
            yield from _fields(f"{path}.{name}", getattr(value, name))
    elif isinstance(value, tuple):
        for index, part in enumerate(value):
            yield from _fields(f"{path}[{index}]", part)
    else:
        yield path, value
