r"""Compares the files that a certificate names with those next to it."""

from __future__ import annotations

from pathlib import Path

from zetadp.app.certificates.facts.report import Check, Status, failed, not_checked, passed
from zetadp.app.certificates.facts.statement import CODE_MANIFEST, SPEC_FILE, Subject
from zetadp.app.certificates.signing.canonical import recanonical
from zetadp.app.certificates.signing.digests import code_manifest, sha256_of, sha256_of_file


def check_file(subject: Subject, directory: Path | None) -> Check:
    """Checks the digest of the file with this name in the folder; a missing file isn't checked, and the check says so."""
    name, expected = f"file {subject.name}", subject.digest.sha256
    if directory is None:
        found = not_checked(name, "no folder was given to look for it in")
    else:
        found = _compare(name, directory / subject.name, expected)
    if subject.name == CODE_MANIFEST and found.status is not Status.FAILED:
        return _check_code(name, expected, found)
    return found


def _compare(name: str, path: Path, expected: str) -> Check:
    try:
        if not path.is_file():
            return not_checked(name, "not found next to the certificate, so its digest wasn't compared")
        found = sha256_of_file(path)
        if found != expected and path.name == SPEC_FILE:
            found = sha256_of(recanonical(path.read_bytes()))  # the same JSON, laid out for reading
    except OSError as error:
        return not_checked(name, f"can't be read: {error.strerror}")
    except (ValueError, RecursionError):
        return failed(name, "isn't the file that was signed: it isn't clean JSON")
    if found != expected:
        return failed(name, f"isn't the file that was signed: SHA-256 {found}, signed {expected}")
    return passed(name, f"SHA-256 {expected}")


def _check_code(name: str, expected: str, found: Check) -> Check:
    """Checks the manifest's digest against this copy's own code, whether or not the manifest is next to the certificate."""
    try:
        same = sha256_of(code_manifest()) == expected
    except OSError as error:
        return not_checked(name, f"{found.detail}; this copy's own code can't be read: {error.strerror}")
    if same:
        return passed(name, "the run's code is the code of this copy of zetadp")
    return Check(name=name, status=found.status, detail=f"{found.detail}; the run's code differs from this copy of zetadp")
