r"""Verification, offline: signature, form, files beside the certificate, and the guarantee recomputed from the event.

Whatever the bytes are, the answer is a report. Nothing is computed from an envelope until a trusted key's signature over it holds, so a
stranger can't make a verifier work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, final

from pydantic import ValidationError

from app.certificates.canonical import recanonical
from app.certificates.consistency import check_parts, check_sentences, check_words
from app.certificates.envelope import MAXIMUM_BYTES, Envelope, EnvelopeSignature, encode
from app.certificates.files import check_file
from app.certificates.guarantee import NoGuarantee, figures
from app.certificates.keys import PublicKeySet
from app.certificates.parts import check_parts_alone
from app.certificates.recomputation import check_figures
from app.certificates.report import Check, Status, VerificationReport, failed, not_checked, passed
from app.certificates.statement import PrivacyCertificate, Statement


@final
class CertificateUnreadable(Exception):
    """The envelope or what it signs can't be read; ``check`` says which and why."""

    def __init__(self, check: Check) -> None:
        self.check = check
        super().__init__(check.detail)


def verify(envelope: bytes, keys: PublicKeySet, directory: Path | None) -> VerificationReport:
    r"""Everything about a certificate that can be checked without asking anyone.

    Args:
      envelope: the certificate's bytes as issued (a missing final newline is forgiven).
      keys: the public keys that the caller trusts, from a place the caller trusts.
      directory: where the files that the certificate names may lie; None checks no file.
    Returns:
      the report; no content of ``envelope`` makes this raise.
    """
    try:
        opened = _open(envelope)
    except CertificateUnreadable as error:
        return _report([error.check], None)
    checks = [
        passed("envelope", "a DSSE envelope, laid out as issued"),
        *(_check_signature(opened, one, keys) for one in opened.signatures),
    ]
    if any(check.status is not Status.PASSED for check in checks):
        return _report([*checks, not_checked("statement", "nothing unsigned was looked into")], None)
    try:
        statement = _statement(opened.content)
    except CertificateUnreadable as error:
        return _report([*checks, error.check], None)
    checks.append(passed("statement", "an in-toto statement (v1) with a privacy certificate (v1)"))
    checks += [check_words(statement.predicate), check_parts(statement.predicate)]
    if all(check.status is Status.PASSED for check in checks):
        checks += _check_guarantee(statement.predicate)
    if checks[-1].status is not Status.FAILED:
        checks.append(check_sentences(statement.predicate))
    checks += [check_file(subject, directory) for subject in statement.subject]
    return _report(checks, statement.predicate)


def read(envelope: bytes) -> PrivacyCertificate:
    """The certificate in an envelope, for display only: nothing is verified, not even the signature.

    Raises:
      CertificateUnreadable: it can't be read.
    """
    return _statement(_open(envelope).content).predicate


def _open(envelope: bytes) -> Envelope:
    if len(envelope) > MAXIMUM_BYTES:
        raise CertificateUnreadable(failed("envelope", f"must be at most {MAXIMUM_BYTES} bytes, got {len(envelope)}"))
    try:
        opened = Envelope.model_validate_json(envelope)
        opened.content  # noqa: B018 (reads the base64)
    except ValidationError as error:
        raise CertificateUnreadable(failed("envelope", f"isn't a DSSE envelope of a certificate: {_first(error)}")) from error
    except ValueError as error:
        raise CertificateUnreadable(failed("envelope", str(error))) from error
    if envelope.removesuffix(b"\n") != encode(opened).removesuffix(b"\n"):
        reason = "the bytes aren't laid out as issued (compact JSON, one final newline): reformatted or changed since"
        raise CertificateUnreadable(failed("envelope", reason))
    if not opened.signatures:
        raise CertificateUnreadable(failed("signature", "there is no signature"))
    if len({signature.keyid for signature in opened.signatures}) != len(opened.signatures):
        raise CertificateUnreadable(failed("signature", "one key signed twice"))
    return opened


def _check_signature(envelope: Envelope, signature: EnvelopeSignature, keys: PublicKeySet) -> Check:
    key = keys.find(signature.keyid)
    if key is None:
        return failed("signature", f"by a key that isn't among the {len(keys.keys)} trusted: {signature.keyid}")
    if not envelope.is_signed_by(key, signature):
        return failed("signature", f"doesn't hold: content or signature was changed after key {key.kid} signed, or that key never did")
    return passed("signature", f"by the trusted key {key.kid}")


def _statement(content: bytes) -> Statement:
    try:
        recanonical(content)  # refuses duplicate keys, NaN and endless nesting, which the next line would read past
        statement = Statement.model_validate_json(content)
    except ValidationError as error:
        raise CertificateUnreadable(failed("statement", f"isn't a privacy certificate that this version reads: {_first(error)}")) from error
    except ValueError as error:
        raise CertificateUnreadable(failed("statement", f"isn't clean JSON: {error}")) from error
    except RecursionError as error:
        raise CertificateUnreadable(failed("statement", "is nested too deep")) from error
    names = [subject.name for subject in statement.subject]
    if len(set(names)) != len(names):
        raise CertificateUnreadable(failed("statement", "two subjects have one name"))
    return statement


def _check_guarantee(predicate: PrivacyCertificate) -> list[Check]:
    claim, comparison = figures(predicate.guarantee), predicate.comparison
    whole = (
        check_figures(predicate.event, claim)
        if claim is not None
        else [passed("recomputation", "no guarantee is stated, so there is no figure")]
    )
    return whole if comparison is None else [*whole, check_parts_alone(comparison, predicate.randomness.origin)]


def _report(checks: list[Check], predicate: PrivacyCertificate | None) -> VerificationReport:
    verdict: Literal["valid", "invalid"] = "invalid" if any(check.status is Status.FAILED for check in checks) else "valid"
    return VerificationReport(verdict=verdict, meaning=_meaning(checks, predicate, verdict), checks=tuple(checks))


def _meaning(checks: list[Check], predicate: PrivacyCertificate | None, verdict: str) -> str:
    if verdict == "invalid" or predicate is None:
        names = dict.fromkeys(check.name for check in checks if check.status is Status.FAILED)
        return f"Don't rely on this certificate. What failed: {', '.join(names)}."
    without = isinstance(predicate.guarantee, NoGuarantee)
    says = "the certificate states NO privacy guarantee" if without else "its figures follow from the event it states"
    missing = [check.name for check in checks if check.status is Status.NOT_CHECKED]
    return (
        f"Signed by a key you gave, and {says}. This doesn't prove that the training was done as stated: for that you rely on whoever "
        f"holds the key. Not checked: {', '.join(missing) or 'nothing'}."
    )


def _first(error: ValidationError) -> str:
    """The first problem in one line: where, and what was expected; never the value itself, which may be anything."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in problem["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{place + ': ' if place else ''}{problem['msg'][:300]}{more}"
