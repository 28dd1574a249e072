r"""A certificate as an evaluator asks: the factors and hazards of NIST SP 800-226, each answered from signed facts, or marked as open.

NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees (Near, Darais, Lefkovitz and Howarth, 2025), arranges what a
guarantee depends on as a pyramid and names hazards. The headings here are ours; nobody at NIST has seen these answers. What a certificate
can't know (who may read the training data, how they were collected) stays open: somebody else has to answer it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from zetadp.app.certificates.facts import wording
from zetadp.app.certificates.facts.announced import AnnouncedFacts, earlier_in_words
from zetadp.app.certificates.facts.guarantee import ApproximateDp
from zetadp.app.certificates.facts.ledger_entry import is_kept_for_good, ledger_line
from zetadp.app.certificates.facts.report import Check, Status
from zetadp.app.certificates.facts.statement import PrivacyCertificate, Subject
from zetadp.app.certificates.page.blocks import Document, Section, Table, Text
from zetadp.app.certificates.page.content import document_of
from zetadp.app.certificates.words.reading import Reading

ANSWERED, OPEN, NOT_HELD = "answered", "OPEN", "NOT MET"

NOTE = (
    "Answers are taken from a certificate by its own words. Factors and hazards follow NIST SP 800-226 (2025); the wording is ours, and "
    "NIST has endorsed none of it. Rows marked OPEN can't be answered from a certificate: ask whoever ran the training. This page proves "
    "nothing; check the certificate itself with `zetadp verify`."
)

Row = tuple[str, str, str]


def report_of(certificate: PrivacyCertificate, files: Sequence[Subject] = (), checks: Sequence[Check] = ()) -> Document:
    """The certificate's document, led by factors and hazards. Arguments as of ``document_of``."""
    whole, reading = document_of(certificate, files, checks), Reading(certificate)
    header = ("factor", "answer", "state")
    factors = Section("What the guarantee depends on", (Table(header, tuple(_factors(reading, checks))),))
    hazards = Section("Known hazards", (Table(("hazard", "answer", "state"), tuple(_hazards(reading))),))
    rows = (*_factors(reading, checks), *_hazards(reading))
    open_ones = [name for name, _, state in rows if state != ANSWERED]
    summary = Section(
        "What is left to ask", (Text((f"{len(rows) - len(open_ones)} of {len(rows)} answered; left: {', '.join(open_ones)}.",)),)
    )
    return Document(
        title="Privacy report",
        subtitle=whole.subtitle,
        verdict=whole.verdict,
        note=NOTE,
        sections=(factors, hazards, summary, *whole.sections),
    )


def _factors(reading: Reading, checks: Sequence[Check]) -> Iterator[Row]:
    certificate = reading.certificate
    guarantee = certificate.guarantee
    if isinstance(guarantee, ApproximateDp):
        yield "privacy parameters", f"epsilon {guarantee.epsilon} at delta {guarantee.delta}, of the whole training", ANSWERED
    else:
        yield "privacy parameters", f"there is no guarantee: {guarantee.reason}", NOT_HELD
    yield "unit of privacy", f"{reading.unit}: {reading.unit_meaning}", ANSWERED
    yield "neighbouring data sets", reading.neighbours or "none: nothing is private", ANSWERED if reading.neighbours else NOT_HELD
    yield "mechanism and its proof", f"{reading.algorithm.SUMMARY} Proofs: {', '.join(reading.proofs) or 'none'}.", ANSWERED
    yield "correct implementation", *_implementation(reading)
    yield "trust model", f"{reading.trust}.", ANSWERED
    yield "accuracy, and whom errors hit", f"{reading.measured()}; nothing was measured for groups of people.", OPEN
    yield "who signed, and whether it was checked", *_checked(checks)
    yield "security and access control", "a certificate doesn't say who can read the training data and the keys, or use the machine", OPEN
    yield "collection of the data", "a certificate doesn't say how, or with whose consent, they were collected", OPEN


def _implementation(reading: Reading) -> tuple[str, str]:
    key = reading.certificate.announced is not None and reading.certificate.announced.noise_key is not None
    again = "; an auditor can repeat the run from its noise key" if key else "; nobody can repeat the run"
    # An audit may find a fault; that it finds none shows no implementation to be right.
    return f"the code's digest is signed; audit: {reading.audit}{again}", OPEN


def _checked(checks: Sequence[Check]) -> tuple[str, str]:
    if not checks:
        return "no keys were given", OPEN
    said = "; ".join(f"{check.name}: {'holds' if check.status is Status.PASSED else check.detail}" for check in checks)
    if any(check.status is Status.FAILED for check in checks):
        return said, NOT_HELD
    return said, ANSWERED if all(check.status is Status.PASSED for check in checks) else OPEN


def _hazards(reading: Reading) -> Iterator[Row]:
    certificate = reading.certificate
    guarantee, run = certificate.guarantee, certificate.run
    if isinstance(guarantee, ApproximateDp):
        product = Decimal(guarantee.delta) * certificate.plan.units
        large = product >= 1 and guarantee.pure_epsilon is None
        said = f"delta times {certificate.plan.units} units is {product.normalize():f}"
        yield "a delta that allows publishing somebody whole", said, NOT_HELD if large else ANSWERED
    yield "a unit that is smaller than a person", f"{reading.unit_meaning}; a person with several units is protected less", OPEN
    ledger = certificate.ledger
    several = "no budget ties it to other releases" if ledger is None else ledger_line(ledger)
    yield "several releases of the same data", several, ANSWERED if is_kept_for_good(ledger) else OPEN
    yield "trainings that nobody mentions", *_earlier(certificate.announced)
    yield "choice of settings by looking at the data", "assumed not to have happened; nothing here shows it", OPEN
    yield "floating-point numbers", reading.floating_point, ANSWERED
    yield "side channels", "not covered: running time, and what somebody can see of disks or the network", OPEN
    public = run.held_out == "public"
    told = f"they were declared public; {wording.NO_HELD_OUT}" if public else "nothing about them left the run without noise"
    yield "records that the guarantee leaves out", f"held-out records: {told}", OPEN if public else ANSWERED
    given = f"{len(run.given_weights)} given sets of weights are taken as public" if run.given_weights else "none: training drew its own"
    yield "weights from outside", given, OPEN if run.given_weights else ANSWERED
    yield "facts about groups", "a guarantee doesn't hide what is true of a population", ANSWERED


def _earlier(announced: AnnouncedFacts | None) -> tuple[str, str]:
    if announced is None:
        return "its plan wasn't logged, so nothing shows how many trainings there were", OPEN
    return f"{earlier_in_words(announced)} Whatever was trained outside of this service isn't counted.", OPEN
