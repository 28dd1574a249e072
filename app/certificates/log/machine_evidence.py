r"""Checks a confidential machine's own report, which lies beside a certificate: what it is about, and by whose key it is signed.

Without the certificates of the machine's key, which its reader gives, nothing is said to have passed: whoever has no such machine can
write everything else in a report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from zetadp.app.certificates.facts.confidential import DEBUGGED, MOVED, REPORT_FILE, SHOWS_NOT, ConfidentialFacts
from zetadp.app.certificates.facts.report import Check, failed, not_checked, passed
from zetadp.app.certificates.facts.statement import CODE_MANIFEST, Statement
from zetadp.app.certificates.facts.tpm import qualifying_data
from zetadp.app.certificates.log.checkpoint import LogHead
from zetadp.app.certificates.log.trust import Trust
from zetadp.app.certificates.signing.digests import sha256_of
from zetadp.app.certificates.signing.snp_reports import ReportRefused, SnpReport, endorsement_in

MACHINE_REPORT = "machine_report"
"""Name of the check."""


def check_machine_report(statement: Statement, content: bytes | None, head: LogHead | None, trust: Trust) -> Iterator[Check]:
    r"""Checks the report, if the certificate names one.

    Args:
      content: of the file beside the certificate; None if it isn't there.
      head: the head that the plan is under, if that is proved.
      trust: its ``machines`` are the keys by which a report may be signed.
    """
    facts = statement.predicate.confidential
    if facts is None:
        return
    try:
        if statement.predicate.announced is None:
            raise ReportRefused("it is on a head of the log, and the plan wasn't logged")
        named = {subject.name: subject.digest.sha256 for subject in statement.subject}
        if REPORT_FILE not in named:
            raise ReportRefused(f"the certificate says what is in {REPORT_FILE}, and doesn't name the file")
        report = None if content is None else _read(named, facts, content, head)
        yield _outcome(report, head, trust.machines)
    except ReportRefused as refused:
        yield failed(MACHINE_REPORT, f"the machine's report doesn't hold: {refused}")


def _read(named: Mapping[str, str], facts: ConfidentialFacts, content: bytes, head: LogHead | None) -> SnpReport:
    """The report, if it is the one that the certificate names and states, on that head if it is known. Raises ReportRefused."""
    if named[REPORT_FILE] != sha256_of(content):
        raise ReportRefused("the certificate names another one")
    report = SnpReport.read(content)
    stated = facts.measurement, facts.debugging, facts.migration
    if (report.measurement.hex(), report.allows_debugging, report.allows_migration) != stated:
        raise ReportRefused("the certificate states another measurement, or something else about debugging or migration")
    if head is not None:
        report.check_data(qualifying_data(named.get(CODE_MANIFEST, ""), sha256_of(head.text.encode())))
    return report


def _outcome(report: SnpReport | None, head: LogHead | None, machines: Sequence[str]) -> Check:
    if report is None:
        return not_checked(MACHINE_REPORT, f"{REPORT_FILE} wasn't given: nothing shows that there was a confidential machine")
    if head is None:
        return not_checked(
            MACHINE_REPORT, "it isn't proved which head of the log the plan is under, so what the report is about is unknown"
        )
    if not machines:
        return not_checked(MACHINE_REPORT, f"no certificate of a machine's key was given: anybody can write such a report; {_says(report)}")
    if report.by_vlek:
        return not_checked(MACHINE_REPORT, f"it is said to be signed by a cloud's key (VLEK), which isn't read here; {_says(report)}")
    ours = next((found for found in map(endorsement_in, machines) if found.is_for(report)), None)
    if ours is None:
        of = "none of the certificates given is for the chip and firmware that it names"
        return not_checked(MACHINE_REPORT, f"{of}, so anybody may have written it; {_says(report)}")
    report.check_signature(ours.key)
    chip = f"the key of the chip {report.chip.hex()[:16]}... with firmware {report.tcb.hex()}"
    about = "the code's digest and the head that the plan is under"
    rests = "This rests on the certificates given, whose dates and revocation weren't looked at"
    return passed(MACHINE_REPORT, f"{chip} signed that a guest on it asked with {about}; {_says(report)} {rests}; {SHOWS_NOT}")


def _says(report: SnpReport) -> str:
    """What the report says of its guest, whoever wrote it."""
    moved = f" {MOVED}." if report.allows_migration else ""
    debugged = f" {DEBUGGED}." if report.allows_debugging else ""
    level = f"asked for at privilege level {report.privilege}"
    return f"it says: launch measurement {report.measurement.hex()}, {level}.{debugged}{moved}"
