r"""Offline verification: signature, form, log and revocation, files next to the certificate, and the guarantee recomputed from the event.

Whatever the bytes are, the answer is a report. Nothing is computed from a certificate until a trusted key's signature over it holds, so a
stranger can't make a verifier work. After that every mismatch is named, not only the first: a check is left out only if what it would
need can't be read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, final

from pydantic import ValidationError

from zetadp.app.certificates.facts.guarantee import NoGuarantee, figures
from zetadp.app.certificates.facts.report import Check, Status, VerificationReport, failed, not_checked, passed
from zetadp.app.certificates.facts.statement import PrivacyCertificate, Statement
from zetadp.app.certificates.log.evidence import REVOKED, Evidence, Signed, check_evidence
from zetadp.app.certificates.log.trust import NOBODY
from zetadp.app.certificates.policy.judging import refused_by, verdict_on
from zetadp.app.certificates.policy.schema import Policy
from zetadp.app.certificates.signing.canonical import recanonical
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.verification.consistency import check_parts, check_plan, check_subjects, is_computable
from zetadp.app.certificates.verification.files import check_file
from zetadp.app.certificates.verification.opening import CertificateUnreadable, Opened, Signature, first_error, open_certificate
from zetadp.app.certificates.verification.parts import check_parts_alone
from zetadp.app.certificates.verification.recomputation import check_figures
from zetadp.app.certificates.verification.site_statements import check_site_statements
from zetadp.mechanisms.base import Value
from zetadp.trainer.specs.plans import ComparisonPlan


@final
class Examination(Value):
    r"""What a certificate's bytes and the trusted keys alone say.

    Attributes:
      checks: in the order they were made.
      is_signed: every signature is by a trusted key.
      states: whether the statement, if it could be read, has a guarantee.
    """

    checks: tuple[Check, ...]
    is_signed: bool
    states: Literal["stated", "none"] | None = None


def verify(
    certificate: bytes, keys: PublicKeySet, directory: Path | None, evidence: Evidence | None = None, policy: Policy | None = None
) -> VerificationReport:
    r"""Everything about a certificate that can be checked without asking anyone.

    Args:
      certificate: its bytes as issued, a DSSE envelope or a compact JWS (a missing final newline is accepted).
      keys: the public keys that the caller trusts, from a place the caller trusts.
      directory: the folder that may contain the files that the certificate names; None checks no file.
      evidence: of the log and of revoked keys; what is absent isn't checked, and the report says so.
      policy: what the caller demands; None demands nothing beyond validity.
    Returns:
      the report; no content of ``certificate`` or ``evidence`` makes this raise.
    """
    return reported(examined(certificate, keys, directory), certificate, keys, evidence, policy)


def examined(certificate: bytes, keys: PublicKeySet, directory: Path | None) -> Examination:
    """All of ``verify`` but what evidence says: it depends on its arguments alone, and takes nearly all of the time."""
    try:
        opened = open_certificate(certificate)
    except CertificateUnreadable as error:
        return Examination(checks=(error.check,), is_signed=False)
    checks = check_form(opened, keys)
    if any(check.status is not Status.PASSED for check in checks):
        return Examination(checks=(*checks, not_checked("statement", "an unsigned statement isn't read")), is_signed=False)
    try:
        statement = _statement(opened.content)
    except CertificateUnreadable as error:
        return Examination(checks=(*checks, error.check), is_signed=True)
    checks.append(passed("statement", "an in-toto statement (v1) with a privacy certificate (v1)"))
    checks += [check_subjects(statement), check_plan(statement.predicate), check_parts(statement.predicate)]
    checks += _check_guarantee(statement.predicate)
    checks += [check_file(subject, directory) for subject in statement.subject]
    checks += check_site_statements(statement.predicate, directory)
    states = "none" if isinstance(statement.predicate.guarantee, NoGuarantee) else "stated"
    return Examination(checks=tuple(checks), is_signed=True, states=states)


def reported(
    examination: Examination, certificate: bytes, keys: PublicKeySet, evidence: Evidence | None, policy: Policy | None = None
) -> VerificationReport:
    """The report on a certificate that was examined with these keys."""
    checks = list(examination.checks)
    if examination.is_signed:
        opened = open_certificate(certificate)
        if examination.states is None:
            checks.append(not_checked("log", "what the log would hold of it can't be read"))
        else:
            signed = Signed(opened.content, _statement(opened.content), opened.key_ids)
            checks += check_evidence(signed, keys, evidence or Evidence(), NOBODY if policy is None else policy.trust)
    broken = {check.name for check in checks if check.status is Status.FAILED}
    verdict: Literal["valid", "invalid", "revoked"] = "revoked" if broken == {REVOKED} else "invalid" if broken else "valid"
    guarantee = examination.states if verdict == "valid" else None
    judged = None
    if policy is not None:
        judged = verdict_on(policy, read(certificate), checks) if verdict == "valid" else refused_by(policy)
    meaning = _meaning(checks, guarantee, verdict)
    return VerificationReport(verdict=verdict, guarantee=guarantee, meaning=meaning, checks=tuple(checks), policy=judged)


def read(certificate: bytes) -> PrivacyCertificate:
    """The certificate in an envelope, for display only: nothing is verified, not even the signature.

    Raises:
      CertificateUnreadable: it can't be read.
    """
    return read_statement(certificate).predicate


def read_statement(certificate: bytes) -> Statement:
    """The whole statement, as ``read`` does."""
    return _statement(open_certificate(certificate).content)


def check_form(opened: Opened, keys: PublicKeySet) -> list[Check]:
    """The layout, which was read, and every signature."""
    return [passed("envelope", opened.form), *(_check_signature(one, keys) for one in opened.signatures)]


def _check_signature(signature: Signature, keys: PublicKeySet) -> Check:
    key = keys.find(signature.key_id)
    if key is None:
        return failed("signature", f"by a key that isn't among the {len(keys.keys)} trusted: {signature.key_id}")
    if not signature.is_by(key):
        return failed("signature", f"is wrong: the content or the signature was changed, or key {key.kid} never signed it")
    return passed("signature", f"by the trusted key {key.kid}")


def _statement(content: bytes) -> Statement:
    try:
        # Refuses duplicate keys, NaN and endless nesting, which the next line would read past.
        canonical = recanonical(content)
        statement = Statement.model_validate_json(content)
    except ValidationError as error:
        raise CertificateUnreadable(
            failed("statement", f"isn't a privacy certificate that this version reads: {first_error(error)}")
        ) from error
    except ValueError as error:
        raise CertificateUnreadable(failed("statement", f"isn't clean JSON: {error}")) from error
    except RecursionError as error:
        raise CertificateUnreadable(failed("statement", "is nested too deep")) from error
    if canonical != content:
        raise CertificateUnreadable(failed("statement", "isn't laid out as issued (canonical JSON, RFC 8785)"))
    names = [subject.name for subject in statement.subject]
    if len(set(names)) != len(names):
        raise CertificateUnreadable(failed("statement", "two subjects have the same name"))
    return statement


def _check_guarantee(predicate: PrivacyCertificate) -> list[Check]:
    claim, plan = figures(predicate.guarantee), predicate.plan
    if claim is None:
        whole = [passed("recomputation", "no guarantee is stated, so there is no figure")]
    elif is_computable(predicate.event, claim):
        whole = check_figures(predicate.event, claim)
    else:
        whole = [not_checked("recomputation", "nothing can be computed from the event and figures stated; see the checks that failed")]
    if not isinstance(plan, ComparisonPlan):
        return whole
    return [*whole, check_parts_alone(plan, predicate.parts, predicate.run.random_origin)]


def _meaning(checks: list[Check], guarantee: str | None, verdict: str) -> str:
    if verdict == "revoked":
        return "Don't rely on this certificate: the key that signed it was revoked. The check `revocation` says why it isn't valid."
    if guarantee is None:
        names = dict.fromkeys(check.name for check in checks if check.status is Status.FAILED)
        return f"Don't rely on this certificate. What failed: {', '.join(names)}."
    says = "the certificate states NO privacy guarantee" if guarantee == "none" else "its figures follow from the plan it states"
    missing = [check.name for check in checks if check.status is Status.NOT_CHECKED]
    return (
        f"Signed by one of the keys that it was checked against, and {says}. This doesn't prove that the training was done as stated: for "
        f"that you rely on whoever holds the key. Not checked: {', '.join(missing) or 'nothing'}."
    )
