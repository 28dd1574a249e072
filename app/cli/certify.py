r"""``certificate`` and ``verify``: get a certificate with everything that proves it, and check certificates offline."""

from __future__ import annotations

import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError

from zetadp.app.certificates.facts.confidential import REPORT_FILE
from zetadp.app.certificates.facts.report import Status, VerificationReport
from zetadp.app.certificates.log.evidence import PROOFS_FILE, REVOCATIONS_FILE, Evidence
from zetadp.app.certificates.log.merkle_proofs import Proofs, read_proof
from zetadp.app.certificates.log.revocation_list import RevocationsRefused, read_revocations
from zetadp.app.certificates.page.plain import describe
from zetadp.app.certificates.policy.schema import Policy
from zetadp.app.certificates.signing.keys import PublicKeySet, write_once
from zetadp.app.certificates.verification.opening import CertificateUnreadable, open_certificate
from zetadp.app.certificates.verification.verify import read
from zetadp.app.certificates.verification.verify import verify as verify_envelope
from zetadp.app.cli.console import DEFAULT_ADDRESS, Address, AsJson, Exit, Key, clear_errors, error, fail, out, print_json, read_settings
from zetadp.app.kit.client_errors import RequestRefused

# What one command alone needs is imported by it: `verify` runs for every certificate, and would wait for client, pages and settings.
if TYPE_CHECKING:
    from zetadp.app.certificates.page.rendering import Making
    from zetadp.app.certificates.verification.audited import Rerun
    from zetadp.app.client import Client
    from zetadp.app.kit.settings import Settings
    from zetadp.trainer.specs.releases import Repeated

KEYS_FILE = "jwks.json"
CERTIFICATE_FILE = "certificate.json"
JWS_FILE = "certificate.jws"
_WITNESS_SECONDS, _WITNESS_PAUSE_SECONDS = 30.0, 0.5
"""How long to wait for the service to ask its witnesses, and between two looks."""

_UNTRUSTED = "anyone who could replace the certificate could replace them too; get the service's keys over a channel you trust"


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(certificate)
    app.command()(verify)
    app.command()(certificate_page)
    app.command()(report)
    app.command()(noise_key)
    app.command()(rerun)


def certificate(
    job_id: Annotated[str, typer.Argument(help="Id of the job.")],
    folder: Annotated[Path, typer.Option(help="Where to save it, with the job's other files and the public keys.")] = Path(),
    address: Address = DEFAULT_ADDRESS,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Save a job's certificate, model and spec to a folder, with the service's public keys, the proofs that it and its plan are in
    its log, and the list of revoked keys; print the certificate in words.
    """
    from zetadp.app.client import Client

    with clear_errors(), Client(address, key) as client:
        job = client.job(job_id)
        if job.certificate is None:
            fail(f"job {job_id} is {job.state} and has no certificate", Exit.NOT_FOUND)
            raise AssertionError  # fail() leaves
        save_artifacts(client, job_id, folder)
        save_evidence(client, job.certificate, folder)
        envelope = (folder / CERTIFICATE_FILE).read_bytes()
        out.print(envelope.decode() if as_json else describe(read(envelope)), markup=False)


def save_artifacts(client: Client, job_id: str, folder: Path) -> None:
    """All files of a finished job, and the keys that its certificate is signed with."""
    folder.mkdir(parents=True, exist_ok=True)
    for artifact in client.artifacts(job_id):
        client.download(job_id, artifact.name, folder)
    (folder / KEYS_FILE).write_text(client.keys().model_dump_json(indent=2, exclude_none=True) + "\n")


def save_evidence(client: Client, certificate_id: str, folder: Path) -> None:
    """The certificate's JWS, its proofs (in the log as it was, if its key is revoked), and the list of revoked keys."""
    listed = client.revocations()
    (folder / REVOCATIONS_FILE).write_bytes(listed)
    signed = client.certificate(certificate_id, "jws")
    (folder / JWS_FILE).write_bytes(signed)
    size = None
    try:
        revoked = read_revocations(listed, client.keys())
        found = revoked.find(open_certificate(signed).signatures[0].key_id)
        size = None if found is None else found.log_size
    except RevocationsRefused as error:
        fail(f"the service's {error}", Exit.FAILED)
    try:
        proof = _proofs_once_witnessed(client, certificate_id, size)
    except RequestRefused as refusal:
        if refusal.status != 422:
            raise
        proof = client.proofs(certificate_id)  # it was issued after its key was revoked; verifying says so
    (folder / PROOFS_FILE).write_bytes(proof)


def _proofs_once_witnessed(client: Client, certificate_id: str, size: int | None) -> bytes:
    """The proofs; those of a training that has just ended a moment later, when its service has asked the log's witnesses."""
    until = time.monotonic() + _WITNESS_SECONDS
    while read_proof(proof := client.proofs(certificate_id, size), Proofs).pending is not None:
        if time.monotonic() > until:
            error.print(f"no witness has been asked yet about the certificate: get {PROOFS_FILE} again later", markup=False)
            break
        time.sleep(_WITNESS_PAUSE_SECONDS)
    return proof


def verify(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Certificates: DSSE envelopes or compact JWS. A folder stands for every certificate.json and certificate.jws below it."
        ),
    ],
    keys: Annotated[Path | None, typer.Option(help=f"Public keys you trust (JWKS); {KEYS_FILE} next to the certificate if absent.")] = None,
    proofs: Annotated[
        Path | None,
        typer.Option(help=f"Proofs of what is in the log, and when; {PROOFS_FILE} next to the certificate if absent."),
    ] = None,
    revocations: Annotated[
        Path | None, typer.Option(help=f"The service's list of revoked keys; {REVOCATIONS_FILE} next to the certificate if absent.")
    ] = None,
    policy: Annotated[Path | None, typer.Option(help="What you demand of them: a YAML file. The answer names what fails.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check certificates offline: signature, log, revoked keys, digests of the files next to them, and recomputed figures."""
    with clear_errors():
        certificates = [file for given in files for file in _certificates(given)]
        if proofs is not None and len(certificates) > 1:
            fail(f"--proofs are of one certificate, got {len(certificates)}", Exit.USAGE)
        demanded = _demanded(policy, keys)
        outcomes = [_verified(file, keys, proofs, revocations, demanded, as_json) for file in certificates]
    # Of several, the worst counts: one that isn't valid before one that a policy refuses.
    worst = next((code for code in (Exit.FAILED, Exit.REFUSED) if code in outcomes), Exit.OK)
    if worst is not Exit.OK:
        raise typer.Exit(int(worst))


def _policy(path: Path) -> Policy:
    from zetadp.app.certificates.policy.reading import PolicyUnreadable, read_policy

    try:
        return read_policy(path)
    except PolicyUnreadable as unreadable:
        fail(str(unreadable), Exit.USAGE)
        raise AssertionError from unreadable  # fail() leaves


def _certificates(given: Path) -> list[Path]:
    """The file itself, or those in a folder: none at all is an error, since nobody asks to have nothing checked."""
    if not given.is_dir():
        return [given]
    found = sorted(path for name in (CERTIFICATE_FILE, JWS_FILE) for path in given.rglob(name))
    if not found:
        fail(f"{given}: expected a {CERTIFICATE_FILE} or {JWS_FILE} in this folder or below it, got none", Exit.USAGE)
    return found


def _verified(file: Path, keys: Path | None, proofs: Path | None, revocations: Path | None, policy: Policy | None, as_json: bool) -> Exit:
    envelope = file.read_bytes()
    chosen = keys or file.parent / KEYS_FILE
    trusted = read_keys(chosen)
    evidence = evidence_beside(file, proofs, revocations)
    report = verify_envelope(envelope, trusted, file.parent, evidence, policy)
    if as_json:
        print_json(report)
    else:
        # First of all: with keys from beside it, whatever is said of the certificate may be somebody else's word.
        source = str(keys) if keys is not None else f"{chosen}, since no --keys were given: {_UNTRUSTED}"
        out.print(f"certificate: {file}\nkeys: {source}", markup=False)
        _print_report(report, envelope)
    if report.verdict != "valid":
        error.print(f"{file}: the certificate is NOT valid", style="red", markup=False)
        return Exit.FAILED
    if report.policy is not None and not report.policy.accepted:
        missed = "; ".join(report.policy.failing)
        error.print(f"{file}: refused by the policy {report.policy.policy!r}: {missed}", style="red", markup=False)
        return Exit.REFUSED
    return Exit.OK


def certificate_page(
    file: Annotated[Path, typer.Argument(help="The certificate: a DSSE envelope or a compact JWS.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write it: a name that ends in .html or .pdf.")],
    keys: Annotated[Path | None, typer.Option(help=f"Public keys you trust (JWKS); {KEYS_FILE} next to the certificate if any.")] = None,
) -> None:
    """Write a certificate as a page or PDF, offline. This checks its signature; `verify` also recomputes its figures."""
    from zetadp.app.certificates.page.content import document_of

    write_page(file, output, keys, document_of)


def report(
    file: Annotated[Path, typer.Argument(help="The certificate: a DSSE envelope or a compact JWS.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write it: a name that ends in .html or .pdf.")],
    keys: Annotated[Path | None, typer.Option(help=f"Public keys you trust (JWKS); {KEYS_FILE} next to the certificate if any.")] = None,
) -> None:
    """Write a report for an evaluator, offline: factors and hazards of NIST SP 800-226, answered or marked open, and the certificate."""
    from zetadp.app.certificates.page.factors import report_of

    write_page(file, output, keys, report_of)


def write_page(file: Path, output: Path, keys: Path | None, making: Making) -> None:
    """Write a certificate's document of some kind, with what is known about its signature, log and revoked keys."""
    from zetadp.app.certificates.page.html import html_of
    from zetadp.app.certificates.page.pdf import pdf_of
    from zetadp.app.certificates.page.rendering import rendered

    with clear_errors():
        if output.suffix not in (".html", ".pdf"):
            fail(f"output must end in .html or .pdf, got {output.name!a}", Exit.USAGE)
        chosen = keys or file.parent / KEYS_FILE
        trusted = read_keys(chosen) if keys is not None or chosen.is_file() else None
        evidence = evidence_beside(file)
        try:
            document = rendered(file.read_bytes(), trusted, evidence, making)
        except CertificateUnreadable as error:
            fail(f"{file}: {error}", Exit.FAILED)
            raise AssertionError from error  # fail() leaves
        output.write_bytes(pdf_of(document) if output.suffix == ".pdf" else html_of(document).encode())
        out.print(f"{document.verdict.headline}\n{output}", markup=False)


def noise_key(
    job_id: Annotated[str, typer.Argument(help="Id of the job.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write it; only you can read the file.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete it for good instead, if the job has ended.")] = False,
) -> None:
    """Open the noise key of a job, on the service's machine, for an auditor. The job's guarantee doesn't hold against whoever has it.

    The service deletes it ZETADP_KEEP_NOISE_KEYS_DAYS after the job's end.
    """
    from zetadp.app.certificates.signing.noise_keys import NoiseKeyDeleted, kept_noise_key
    from zetadp.app.storage.opening import storage_of

    if delete == (output is not None):
        fail("give either --output FILE or --delete", Exit.USAGE)
    with clear_errors():
        settings = read_settings()
        try:
            key = kept_noise_key(storage_of(settings).store, job_id)
        except NoiseKeyDeleted as deleted:
            fail(str(deleted), Exit.NOT_FOUND)
            raise AssertionError from deleted  # fail() leaves
        if key is None:
            fail(f"no noise key was kept for job {job_id} (ZETADP_KEEP_NOISE_KEYS)", Exit.NOT_FOUND)
            raise AssertionError  # fail() leaves
        if output is None:
            _delete_key(settings, job_id)
            return
        if not write_once(output, key.hex().encode()):
            fail(f"{output}: there is such a file already", Exit.USAGE)
    out.print(
        f"{output}: whoever has this file and what was released can take the noise away: the guarantee of job {job_id} doesn't hold for "
        "them. Hand it over where it is used, and delete it then.",
        markup=False,
    )


def _delete_key(settings: Settings, job_id: str) -> None:
    from zetadp.app.kit.database import Database
    from zetadp.app.operations.retention import delete_key

    database = Database(settings)
    try:
        if not delete_key(settings, database, job_id):
            fail(f"job {job_id} hasn't ended: without its noise key it couldn't go on", Exit.USAGE)
    finally:
        database.close()
    out.print(f"the noise key of job {job_id} is deleted: nobody can repeat this run any more, except with a copy", markup=False)


def rerun(
    folder: Annotated[Path, typer.Argument(help="What `certificate JOB` saved: certificate, proofs, spec and releases.")],
    noise_key: Annotated[Path, typer.Option(help="The opened key, which `noise-key` wrote, unless it was deleted.")],
    keys: Annotated[Path | None, typer.Option(help=f"Public keys you trust (JWKS); {KEYS_FILE} in the folder if absent.")] = None,
    policy: Annotated[
        Path | None, typer.Option(help="What you demand of the certificate, and whose time stamps and witnesses you trust: a YAML file.")
    ] = None,
) -> None:
    """Repeat a certified training with its opened noise key, where its data are, and compare every release to the bit.

    It exits with 1, and says at which step, if the run departed from what was planned and recorded. On a processor, with the code and the
    versions of the run; other hardware may round otherwise.
    """
    from zetadp.app.certificates.verification.audited import RefusedByPolicy, Unrepeatable, prepared_rerun
    from zetadp.trainer.errors import TrainingAborted, TrainingDiverged

    with clear_errors():
        demanded = _demanded(policy, keys)
        try:
            given = prepared_rerun(folder, read_keys(keys or folder / KEYS_FILE), noise_key, demanded)
        except Unrepeatable as why:
            fail(str(why), Exit.REFUSED if isinstance(why, RefusedByPolicy) else Exit.FAILED)
            raise AssertionError from why  # fail() leaves
        out.print("the certificate is valid, and its plan is committed to this key; training again", markup=False)
        repeat = import_module("zetadp.trainer.rerun").repeat  # loads torch
        with tempfile.TemporaryDirectory() as workdir:
            try:
                found: Repeated = repeat(given.request, given.secret, given.recorded, Path(workdir), lambda _event: None)
            except (TrainingAborted, TrainingDiverged) as ended:
                fail(f"the repeated run didn't come to its end, as the certified one did: {ended}", Exit.FAILED)
                raise AssertionError from ended  # fail() leaves
    _print_repeated(given, found)


def _demanded(policy: Path | None, keys: Path | None) -> Policy | None:
    """What the policy's file demands; prints one line and exits if nobody says whose certificates it is about."""
    if policy is None:
        return None
    demanded = _policy(policy)
    if keys is None:
        fail(f"--policy needs --keys: with the {KEYS_FILE} beside a certificate anybody's would be accepted", Exit.USAGE)
    return demanded


def _print_repeated(given: Rerun, found: Repeated) -> None:
    out.print(f"{found.same} of {found.recorded} releases are the same, bit for bit", markup=False)
    if found.recorded == 0:
        fail("the run recorded no release: nothing was compared", Exit.FAILED)
    if found.departed is not None:
        site, step = found.departed
        doubt = "" if given.is_own_code else "; it ran with other code than this, which may round otherwise"
        fail(f"the run departed from its plan at step {step}{f' of site {site}' if site else ''}{doubt}", Exit.FAILED)
    if found.model_sha256 != given.model_sha256:
        fail("every release is the same, but the model isn't the one that follows from them", Exit.FAILED)
    # Only what was repeated follows from the key, and so from what nobody knew before.
    out.print(f"the model is the one that follows from them\n{given.starts}\n{given.began}", markup=False)


def read_keys(path: Path) -> PublicKeySet:
    """The trusted keys in a JWKS file; prints one line and exits if it isn't one."""
    try:
        return PublicKeySet.model_validate_json(path.read_bytes())
    except ValidationError as invalid:
        fail(f"{path}: expected a JWKS of Ed25519 keys, got something else ({invalid.error_count()} errors)", Exit.USAGE)
        raise AssertionError from invalid  # fail() leaves


def evidence_beside(file: Path, proofs: Path | None = None, revocations: Path | None = None) -> Evidence:
    """What lies next to the certificate, or was given."""
    return Evidence(beside(file, proofs, PROOFS_FILE), beside(file, revocations, REVOCATIONS_FILE), beside(file, None, REPORT_FILE))


def beside(file: Path, given: Path | None, name: str) -> bytes | None:
    """The given file, or one with this name next to the certificate; None if there is none."""
    path = given or file.parent / name
    return path.read_bytes() if given is not None or path.is_file() else None


def _print_report(report: VerificationReport, envelope: bytes) -> None:
    marks = {Status.PASSED: "ok   ", Status.FAILED: "FAIL ", Status.NOT_CHECKED: "-    "}
    if report.verdict == "valid":
        out.print(describe(read(envelope)) + "\n", markup=False)
    for check in report.checks:
        out.print(f"{marks[check.status]}{check.name}: {check.detail}", markup=False)
    if report.guarantee is not None:
        out.print(f"guarantee: {report.guarantee}", markup=False)
    out.print(f"verdict: {report.verdict}. {report.meaning}", markup=False)
    if report.policy is not None:
        for rule in report.policy.rules:
            out.print(f"{'ok   ' if rule.is_met else 'FAIL '}policy, {rule.name}: {rule.required}; found: {rule.found}", markup=False)
        out.print(f"policy {report.policy.policy!r}: {'accepted' if report.policy.accepted else 'REFUSED'}", markup=False)
