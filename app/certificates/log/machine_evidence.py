r"""Checks a confidential machine's own report, which lies beside a certificate: what it is about, and by whose key it is signed.

A report of AMD's doesn't pass without the certificates of the machine's key, which its reader gives: whoever has no such machine can write
everything else in it. A quote of Intel's has those certificates in it, and one key of Intel's is known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zetadp.app.certificates.facts.confidential import REPORT_FILE, SHOWS_NOT, SnpFacts, TdxFacts, allowed_line
from zetadp.app.certificates.facts.report import Check, failed, not_checked, passed
from zetadp.app.certificates.facts.statement import CODE_MANIFEST, Statement
from zetadp.app.certificates.facts.tpm import qualifying_data
from zetadp.app.certificates.log.checkpoint import LogHead
from zetadp.app.certificates.log.trust import Trust
from zetadp.app.certificates.signing.digests import sha256_of
from zetadp.app.certificates.signing.machine_keys import ReportRefused, check_chosen
from zetadp.app.certificates.signing.snp_reports import SnpReport, endorsement_in
from zetadp.app.certificates.signing.tdx_quotes import TdxQuote

MACHINE_REPORT = "machine_report"
"""Name of the check."""


def facts_of(report: SnpReport | TdxQuote) -> SnpFacts | TdxFacts:
    """What a certificate says of it."""
    if isinstance(report, TdxQuote):
        return TdxFacts.model_validate({"kind": "intel_tdx", **report.measured})
    closed = {"debugging": report.allows_debugging, "migration": report.allows_migration}
    return SnpFacts.model_validate({"kind": "amd_sev_snp", "measurement": report.measurement.hex(), **closed})


def check_machine_report(statement: Statement, content: bytes | None, head: LogHead | None, trust: Trust) -> Iterator[Check]:
    r"""Checks the report, if the certificate names one.

    Args:
      content: of the file beside the certificate; None if it isn't there.
      head: the head that the plan is under, if that is proved.
      trust: its ``machines`` are the keys by which a report of AMD's may be signed, its ``revoked`` the lists of revoked certificates.
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
        yield _outcome(report, head, trust)
    except ReportRefused as refused:
        yield failed(MACHINE_REPORT, f"the machine's report doesn't hold: {refused}")


def _read(named: Mapping[str, str], facts: SnpFacts | TdxFacts, content: bytes, head: LogHead | None) -> SnpReport | TdxQuote:
    """The report, if it is the one that the certificate names and states, on that head if it is known. Raises ReportRefused."""
    if named[REPORT_FILE] != sha256_of(content):
        raise ReportRefused("the certificate names another one")
    report = SnpReport.read(content) if isinstance(facts, SnpFacts) else TdxQuote.read(content)
    if facts_of(report) != facts:
        raise ReportRefused("the certificate states another measurement, or something else about debugging or migration")
    if head is not None:
        check_chosen(report.data, qualifying_data(named.get(CODE_MANIFEST, ""), sha256_of(head.text.encode())))
    return report


def _outcome(report: SnpReport | TdxQuote | None, head: LogHead | None, trust: Trust) -> Check:
    if report is None:
        return not_checked(MACHINE_REPORT, f"{REPORT_FILE} wasn't given: nothing shows that there was a confidential machine")
    if head is None:
        return not_checked(
            MACHINE_REPORT, "it isn't proved which head of the log the plan is under, so what the report is about is unknown"
        )
    facts = facts_of(report)
    level = f", asked for at privilege level {report.privilege}" if isinstance(report, SnpReport) else ""
    says = f"it says: {facts.launched}{level}.{allowed_line(facts)}"
    if isinstance(report, TdxQuote):
        serial_number, signed = report.check_signatures(trust.revoked)
        if trust.pck and serial_number not in trust.pck:
            return not_checked(MACHINE_REPORT, f"it is signed by another of Intel's machines than those that are named; {says} {signed}")
    elif not trust.machines:
        return not_checked(MACHINE_REPORT, f"no certificate of a machine's key was given: anybody can write such a report; {says}")
    else:
        ours = next((found for found in map(endorsement_in, trust.machines) if found.is_for(report)), None)
        if ours is None:
            of = "none of the certificates given is for the firmware and the chip or cloud that it names"
            return not_checked(MACHINE_REPORT, f"{of}, so anybody may have written it; {says}")
        signed = ours.check_signature(report, trust.revoked)
    about = "somebody in a guest asked with the code's digest and the head that the plan is under"
    return passed(MACHINE_REPORT, f"{about}; {says} Who signed it: {signed}. Even so, {SHOWS_NOT}")
