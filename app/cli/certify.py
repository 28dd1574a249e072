r"""``certificate`` and ``verify``: get a certificate, and check one offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from app.certificates.keys import PublicKeySet
from app.certificates.report import Status, VerificationReport
from app.certificates.text import describe
from app.certificates.verification import read
from app.certificates.verification import verify as verify_envelope
from app.cli.console import DEFAULT_ADDRESS, Address, AsJson, Exit, Key, clear_errors, fail, out, print_json
from app.client import Client

KEYS_FILE = "jwks.json"
CERTIFICATE_FILE = "certificate.json"

_UNTRUSTED = "whoever could replace the certificate could replace them too; get the service's keys over a channel you trust"


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(certificate)
    app.command()(verify)


def certificate(
    job_id: Annotated[str, typer.Argument(help="Id of the job.")],
    folder: Annotated[Path, typer.Option(help="Where to save it, with the job's other files and the public keys.")] = Path(),
    address: Address = DEFAULT_ADDRESS,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Save a job's certificate, model and spec, and the service's public keys, to a folder; print the certificate in words."""
    with clear_errors(), Client(address, key) as client:
        job = client.job(job_id)
        if job.certificate is None:
            fail(f"job {job_id} is {job.state} and has no certificate", Exit.NOT_FOUND)
        save_artifacts(client, job_id, folder)
        envelope = (folder / CERTIFICATE_FILE).read_bytes()
        out.print(envelope.decode() if as_json else describe(read(envelope)), markup=False)


def save_artifacts(client: Client, job_id: str, folder: Path) -> None:
    """All files of a finished job, and the keys that its certificate is signed with."""
    folder.mkdir(parents=True, exist_ok=True)
    for artifact in client.artifacts(job_id):
        client.download(job_id, artifact.name, folder)
    (folder / KEYS_FILE).write_text(client.keys().model_dump_json(indent=2, exclude_none=True) + "\n")


def verify(
    file: Annotated[Path, typer.Argument(help="The certificate (a DSSE envelope).")],
    keys: Annotated[Path | None, typer.Option(help=f"Public keys you trust (JWKS); {KEYS_FILE} beside the certificate if absent.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check a certificate offline: signature, digests of the files beside it, and its figures, recomputed by other means."""
    with clear_errors():
        envelope = file.read_bytes()
        chosen = keys or file.parent / KEYS_FILE
        try:
            trusted = PublicKeySet.model_validate_json(chosen.read_bytes())
        except ValidationError as invalid:
            fail(f"{chosen}: expected a JWKS of Ed25519 keys, got something else ({invalid.error_count()} errors)", Exit.USAGE)
            raise AssertionError from invalid  # fail() leaves
        report = verify_envelope(envelope, trusted, file.parent)
        if as_json:
            print_json(report)
        else:
            _print_report(report, envelope)
            source = str(keys) if keys is not None else f"{chosen}, since no --keys were given: {_UNTRUSTED}"
            out.print(f"keys: {source}", markup=False)
        if report.verdict != "valid":
            fail(f"{file}: the certificate is NOT valid", Exit.FAILED)


def _print_report(report: VerificationReport, envelope: bytes) -> None:
    marks = {Status.PASSED: "ok   ", Status.FAILED: "FAIL ", Status.NOT_CHECKED: "-    "}
    if report.verdict == "valid":
        out.print(describe(read(envelope)) + "\n", markup=False)
    for check in report.checks:
        out.print(f"{marks[check.status]}{check.name}: {check.detail}", markup=False)
    out.print(f"verdict: {report.verdict}. {report.meaning}", markup=False)
