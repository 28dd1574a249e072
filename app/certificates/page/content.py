r"""The content of a certificate's document: the guarantee first, in words for somebody who isn't a cryptographer, then everything else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC
from itertools import chain

from zetadp.app.certificates.facts.attacks import ATTACKS, MEASURES, AttackFigureFacts, attacks_in_words
from zetadp.app.certificates.facts.claims import why_no_epsilon_without_sampling
from zetadp.app.certificates.facts.guarantee import ApproximateDp, NoGuarantee
from zetadp.app.certificates.facts.phrases import sentence
from zetadp.app.certificates.facts.report import Check, Status
from zetadp.app.certificates.facts.statement import PrivacyCertificate, Subject
from zetadp.app.certificates.page.blocks import Block, Bullets, CurvePlot, Document, Section, Table, Text, Tone, Verdict
from zetadp.app.certificates.words.caveats import Caveat, caveats, not_covered_elsewhere
from zetadp.app.certificates.words.reading import Reading
from zetadp.app.certificates.words.releases import noise_figures, sampling_in_words, sensitivity_figures
from zetadp.app.certificates.words.strength import (
    at_certified_pair,
    attack_sentences,
    caution,
    is_weak,
    nothing_promised,
    strength_in_words,
    worth_of_sampling,
)
from zetadp.mechanisms import AnyMechanism

MOST_ROWS = 50
"""Different releases that the page shows; the file has all."""

NOTE = (
    "This page is for reading and proves nothing: anybody can make one that looks the same. Only the signed certificate file counts. "
    "Check it with `zetadp verify`, with keys that you got over a channel you trust."
)

_STATUS = {Status.PASSED: "holds", Status.FAILED: "FAILED", Status.NOT_CHECKED: "not checked"}
_SEVERITY = {
    "O": "overclaims privacy",
    "o": "overclaims under one reading",
    "W": "wrong, without harm to privacy",
    "L": "loose",
    "N": "notation",
    "U": "a claim without its evidence",
    "OK": "checked",
}


def document_of(certificate: PrivacyCertificate, files: Sequence[Subject] = (), checks: Sequence[Check] = ()) -> Document:
    r"""The document.

    Args:
      certificate: what is signed.
      files: that it is about.
      checks: of form, signature, log and revoked keys; if one failed, that is the headline.
    """
    reading, job = Reading(certificate), certificate.job
    return Document(
        title="Privacy certificate",
        subtitle=f"Job {job.id}, {job.algorithm}, finished {job.finished.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
        verdict=_verdict(reading, checks),
        note=NOTE,
        sections=tuple(
            chain(
                _guarantee(reading),
                (Section("What was done", (Bullets(tuple(reading.done())),)),),
                _releases(reading),
                _attacks(reading),
                _not_covered(reading),
                _foundations(reading),
                _errata(reading),
                (_origin(reading),),
                _digests(files),
                _standing(checks),
            )
        ),
    )


def _verdict(reading: Reading, checks: Sequence[Check]) -> Verdict:
    broken = [f"{check.name}: {check.detail}." for check in checks if check.status is Status.FAILED]
    if broken:
        return Verdict(Tone.NONE, "DO NOT RELY ON THIS CERTIFICATE", (), ("It didn't pass its checks.", *broken))
    guarantee = reading.certificate.guarantee
    words = () if reading.other_version is None else (reading.other_version,)
    if isinstance(guarantee, NoGuarantee):
        lines = (f"Why: {guarantee.reason}.", nothing_promised(reading), *caution(reading, guarantee), _trust(reading), *words)
        return Verdict(Tone.NONE, "THERE IS NO PRIVACY GUARANTEE", (), lines)
    weak = is_weak(reading, guarantee)
    lines = (*_meaning(reading, guarantee), *words)
    beside = tuple(caveats(reading, guarantee))
    headline = f"{'Weak privacy guarantee' if weak else 'Privacy guarantee'}: epsilon {guarantee.epsilon} at delta {guarantee.delta}"
    if any(check.name == "signature" and check.status is Status.NOT_CHECKED for check in checks):
        unsigned = Caveat("No keys were given, so nobody checked who signed this. What follows is only what the file says.")
        return Verdict(Tone.WEAK, f"Not verified. {headline}", (unsigned, *beside), lines)
    return Verdict(Tone.WEAK if weak else Tone.STATED, headline, beside, lines)


def _meaning(reading: Reading, guarantee: ApproximateDp) -> Iterator[str]:
    if guarantee.pure_epsilon is not None:
        yield f"It also holds with epsilon {guarantee.pure_epsilon} at delta 0: pure differential privacy."
    yield from attack_sentences(reading, at_certified_pair(guarantee))
    yield strength_in_words(reading, guarantee)
    protected = f"Protected: each {reading.unit} of the {reading.kind.protected}; {reading.unit_meaning}."
    formal = f"Formally, it is (epsilon, delta)-differential privacy: {reading.neighbours}."
    yield f"{protected} Against: anyone who sees what was released. {formal}"
    yield _trust(reading)
    yield from worth_of_sampling(guarantee)


def _trust(reading: Reading) -> str:
    return f"Trust: {reading.trust}."


def _guarantee(reading: Reading) -> Iterator[Section]:
    guarantee = reading.certificate.guarantee
    if isinstance(guarantee, NoGuarantee):
        if guarantee.if_seed_stays_secret is not None:
            line = "The certificate file states what would hold if nobody knew the seed. That is no guarantee of this run."
            yield Section("The seed", (Text((line,)),))
        return
    table = Table(("figure", "value"), tuple(_figures(reading, guarantee)))
    yield Section("The guarantee in figures", (table, *_curve(reading, guarantee)), is_detail=True)


def _figures(reading: Reading, guarantee: ApproximateDp) -> Iterator[tuple[str, str]]:
    yield "epsilon, at delta", f"{guarantee.epsilon}, at {guarantee.delta}"
    if guarantee.pure_epsilon is not None:
        yield "epsilon at delta 0", guarantee.pure_epsilon
    if reading.adjacency is not None:
        yield "unit", reading.unit
        yield "adjacency", f"{reading.adjacency.value}: {reading.neighbours}"
    yield "the true epsilon is at least", guarantee.epsilon_lower
    yield "mu (Gaussian DP)", guarantee.gdp_mu or "none: a run with sampled or non-Gaussian releases isn't Gaussian DP for any mu exactly"
    without = guarantee.epsilon_without_sampling
    yield "epsilon without sampling", without or f"not stated: {why_no_epsilon_without_sampling(reading.certificate.event)}"
    yield "accountant", guarantee.accountant if guarantee.accountant == guarantee.route else f"{guarantee.accountant}: {guarantee.route}"
    if guarantee.renyi is not None:
        yield "Renyi divergence, by order", "; ".join(f"{point.order}: {point.epsilon}" for point in guarantee.renyi)


def _curve(reading: Reading, guarantee: ApproximateDp) -> tuple[Block, ...]:
    points = tuple((float(point.epsilon), float(point.delta)) for point in guarantee.delta_curve)
    described = f"Steps falling from delta {guarantee.delta_curve[0].delta} at epsilon {guarantee.delta_curve[0].epsilon} to delta "
    described += f"{guarantee.delta_curve[-1].delta} at epsilon {guarantee.delta_curve[-1].epsilon}; the table below has every point."
    rows = tuple((point.epsilon, point.delta) for point in guarantee.delta_curve)
    return (
        Text(("All of these pairs hold at the same time. Between two of them, the delta of the smaller epsilon holds.",)),
        CurvePlot(points, (float(guarantee.epsilon), float(guarantee.delta)), described),
        Table(("epsilon", "delta"), rows, frozenset({0, 1})),
        Text(
            (
                "All pairs together may promise more than the certified pair alone; both promises hold. From all pairs:",
                *attack_sentences(reading, guarantee),
            )
        ),
    )


def _releases(reading: Reading) -> Iterator[Section]:
    if not reading.releases:
        return
    rows = tuple(
        (str(one.count), _noise(one.mechanism), sampling_in_words(one), sensitivity_figures(one)) for one in reading.releases[:MOST_ROWS]
    )
    more = len(reading.releases) - len(rows)
    left_out = (Text((f"And {more} more, in the certificate file.",)),) if more else ()
    table = Table(("releases", "mechanism and noise per real component", "sampling", "sensitivity"), rows)
    yield Section("What was released", (table, *left_out), is_detail=True)


def _noise(mechanism: AnyMechanism) -> str:
    return f"{mechanism.kind}: {', '.join(f'{name} {value}' for name, value in noise_figures(mechanism).items())}"


def _attacks(reading: Reading) -> Iterator[Section]:
    found = reading.certificate.run.attacks
    if found is None:
        return
    header = ("attack", "measure", "found", "95 % interval", "guessing", "trials")
    lines = tuple(f"{ATTACKS[name]}: {words}" for name, words in found.attackers.items())
    blocks: list[Block] = [
        Text(tuple(sentence(words) for words in attacks_in_words(found))),
        Table(header, _attack_rows(found.figures), frozenset({2, 3, 4, 5})),
    ]
    for point in found.curve:
        blocks.append(Text((f"With noise of standard deviation {point.std} on each coordinate, mu {point.mu} a query:",)))
        blocks.append(Table(header, _attack_rows(point.figures), frozenset({2, 3, 4, 5})))
    yield Section("What attacks found", (*blocks, *((Bullets(lines),) if lines else ())))


def _attack_rows(figures: Sequence[AttackFigureFacts]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (ATTACKS[one.attack], MEASURES[one.measure], one.value, f"{one.lower} to {one.upper}", one.chance, str(one.trials))
        for one in figures
    )


def _not_covered(reading: Reading) -> Iterator[Section]:
    lines = not_covered_elsewhere(reading)
    if lines:
        yield Section("What this does not cover", (Bullets(lines),))


def _foundations(reading: Reading) -> Iterator[Section]:
    floats = reading.floating_point
    if isinstance(reading.certificate.guarantee, ApproximateDp):
        yield Section("The floating-point caveat", (Text((floats,)),))  # all other assumptions stand beside epsilon
    elif reading.is_protected:
        yield Section("What a guarantee would rest on", (Bullets((*reading.assumptions, floats)),))
    named = tuple(f"{title}: {', '.join(found)}" for title, found in (("Proofs", reading.proofs), ("Sources", reading.sources)) if found)
    if named:
        yield Section("Proofs and sources", (Text(named),), is_detail=True)


def _errata(reading: Reading) -> Iterator[Section]:
    if found := reading.errata:
        lines = tuple(f"{row.row} ({_SEVERITY[row.severity]}): {meaning}" for row, meaning in found)
        yield Section("What the errata say about the papers behind it", (Bullets(lines),), is_detail=reading.is_protected)


def _origin(reading: Reading) -> Section:
    job, run, environment = reading.certificate.job, reading.certificate.run, reading.certificate.environment
    versions = ", ".join(f"{name} {version}" for name, version in sorted(environment.versions.items()))
    rows = [
        ("job", job.id),
        ("algorithm", f"{job.algorithm}: {reading.algorithm.SUMMARY}"),
        ("started, finished", f"{job.started.astimezone(UTC):%Y-%m-%d %H:%M:%S}, {job.finished.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"),
        ("starts; of these, from a checkpoint", f"{job.attempts}; {job.resumptions}"),
        ("steps", f"{run.steps_released} released of {reading.certificate.plan.steps} planned"),
        ("hardware, versions", f"{environment.hardware}; {versions}"),
    ]
    return Section("Where it comes from", (Table(("fact", "value"), tuple(rows)),), is_detail=True)


def _digests(files: Sequence[Subject]) -> Iterator[Section]:
    if files:
        rows = tuple((subject.name, subject.digest.sha256) for subject in files)
        yield Section("The files it is about", (Table(("file", "SHA-256"), rows, frozenset({1})),), is_detail=True)


def _standing(checks: Sequence[Check]) -> Iterator[Section]:
    if checks:
        rows = tuple((check.name, _STATUS[check.status], check.detail) for check in checks)
        yield Section("Signature and log", (Table(("check", "outcome", "detail"), rows),), is_detail=True)
