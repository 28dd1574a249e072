r"""The certificate that an integration repeats: nothing is taken from one that doesn't pass every check."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from zetadp.app.certificates.facts.report import Check
from zetadp.app.certificates.facts.statement import Statement
from zetadp.app.certificates.log.evidence import Evidence
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.verification.verify import read_statement, verify
from zetadp.app.cli.certify import CERTIFICATE_FILE, PROOFS_FILE, REVOCATIONS_FILE
from zetadp.mechanisms.errors import InvalidParameter


@final
@dataclass(frozen=True)
class ValidCertificate:
    """A statement with the checks that it passed, and those that nobody could make."""

    statement: Statement
    checks: tuple[Check, ...]


def valid_certificate(certificate: bytes, keys: PublicKeySet, folder: Path | None, evidence: Evidence) -> ValidCertificate:
    r"""The statement of a certificate that is valid, as ``zetadp verify`` says; its figures are recomputed.

    Args:
      certificate: a DSSE envelope or a compact JWS.
      keys: that the caller trusts.
      folder: with the files that it names; None checks no file.
      evidence: of the log and of revoked keys.
    Raises:
      InvalidParameter: a check failed.
    """
    report = verify(certificate, keys, folder, evidence)
    if report.verdict != "valid":
        raise InvalidParameter("certificate", "valid", report.meaning)
    return ValidCertificate(read_statement(certificate), report.checks)


def valid_folder(folder: Path, keys: PublicKeySet) -> ValidCertificate:
    r"""The same of the certificate in a folder, with the files and the evidence beside it.

    Args:
      folder: as ``zetadp certificate JOB --folder`` or ``zetadp.train`` leaves it.
      keys: that the caller trusts.
    Raises:
      InvalidParameter: a check failed.
      OSError: there is no certificate.
    """
    evidence = Evidence(*(_content(folder / name) for name in (PROOFS_FILE, REVOCATIONS_FILE)))
    return valid_certificate((folder / CERTIFICATE_FILE).read_bytes(), keys, folder, evidence)


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
