r"""What follows a finished child: for a training, the check that it did what was planned, its certificate, and the list of its files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar, final

import structlog
from pydantic import ValidationError
from sqlalchemy.orm import Session

from zetadp.app.certificates.errors import CertificateRefused, SigningKeyRevoked, SigningKeyUnusable
from zetadp.app.certificates.facts.announced import AnnouncedFacts
from zetadp.app.certificates.facts.confidential import REPORT_FILE, SnpFacts, TdxFacts
from zetadp.app.certificates.facts.statement import CODE_MANIFEST, SPEC_FILE
from zetadp.app.certificates.facts.tpm import TpmQuote
from zetadp.app.certificates.issuing.confidential import MachineSilent, machine_report
from zetadp.app.certificates.issuing.issue import CertificateInput, issue_certificate, spec_file
from zetadp.app.certificates.issuing.tpm import TpmSilent, quoted
from zetadp.app.certificates.log.service import head_of
from zetadp.app.certificates.log.storing import store_certificate
from zetadp.app.certificates.signing.digests import code_manifest, sha256_of, sha256_of_file
from zetadp.app.jobs.attempts import Attempt, Attempts
from zetadp.app.jobs.calculation import CalculationResult
from zetadp.app.jobs.document import TrainingDocument
from zetadp.app.jobs.events import Artifact, ArtifactsStored, JobEvent
from zetadp.app.jobs.folders import ARTIFACTS, RESULT
from zetadp.app.jobs.workspaces import Workspace
from zetadp.app.kit.database import now
from zetadp.app.kit.settings import Settings
from zetadp.mechanisms.errors import PrivacyError
from zetadp.trainer.specs.report import RunReport

CERTIFICATE_FILE = "certificate.json"
SIGNED_AGAIN = 5
"""How often a certificate is signed again if its key is revoked before it is stored."""
_log = structlog.get_logger()

Place = TypeVar("Place", str, Path)
Answer = TypeVar("Answer")


@final
@dataclass(frozen=True)
class Machine:
    """What the machine says of itself, if anything: its TPM's quote, and a confidential machine's report, in which the facts are."""

    quote: TpmQuote | None
    confidential: tuple[SnpFacts | TdxFacts, bytes] | None


@final
class RunRefused(Exception):
    """A training that ended, but not as planned, or whose result can't be certified; a calculation that left no result."""


def complete_calculation(attempt: Attempt, attempts: Attempts, place: Workspace) -> None:
    r"""Store the result and end the job as succeeded, both or neither.

    Raises:
      RunRefused: there is no readable result.
      AttemptSuperseded: this attempt may no longer end the job.
      StorageUnavailable: try again.
    """
    try:
        result = (place.folder / RESULT).read_bytes()
        CalculationResult.model_validate_json(result)
    except (OSError, ValidationError) as error:
        raise RunRefused(f"the calculation ended without a readable result ({type(error).__name__})") from error
    folder = place.folder / ARTIFACTS
    folder.mkdir(exist_ok=True)
    _replace(folder / RESULT, result)
    place.publish([RESULT])

    def store(_session: Session) -> Sequence[JobEvent]:
        return [ArtifactsStored(artifacts=(_artifact(folder / RESULT),))]

    attempts.succeed(attempt, store)


def complete_training(
    attempt: Attempt,
    document: TrainingDocument,
    attempts: Attempts,
    place: Workspace,
    settings: Settings,
    announced: AnnouncedFacts | None,
) -> None:
    r"""Certify the run and end its job as succeeded, both or neither.

    Raises:
      RunRefused: nothing is signed; the text says why.
      AttemptSuperseded: this attempt may no longer end the job.
      StorageUnavailable: try again.
    """
    report = _report(place.folder)
    if report.event != document.plan.event:
        raise RunRefused(
            f"training released something else than was planned: {report.steps_released} steps instead of {document.plan.steps}, "
            "or another mechanism or sampling; nothing is certified"
        )
    folder = place.folder / ARTIFACTS
    trained = _trained_files(folder)
    finished = now()
    machine = machine_said(attempts, settings, announced)
    if machine.confidential is not None:
        _replace(folder / REPORT_FILE, machine.confidential[1])
        trained[REPORT_FILE] = folder / REPORT_FILE
    envelope = _certificate(attempt, document, report, trained, finished, settings, announced, machine)
    _replace(folder / SPEC_FILE, spec_file(document.spec))
    _replace(folder / CODE_MANIFEST, code_manifest())
    # Digests are taken before the transaction: a large model takes a while, and the write lock is everyone's.
    artifacts = [_artifact(path) for path in (*trained.values(), folder / SPEC_FILE, folder / CODE_MANIFEST)]
    # Nobody finds them before the job has ended. The certificate stays with its row: one that isn't in the log must not be anywhere.
    place.publish([artifact.name for artifact in artifacts])

    def store(session: Session) -> Sequence[JobEvent]:
        store_certificate(session, settings, attempt.job_id, envelope, finished)
        _replace(folder / CERTIFICATE_FILE, envelope)
        listed = [*artifacts, _artifact(folder / CERTIFICATE_FILE)]
        return [ArtifactsStored(artifacts=tuple(sorted(listed, key=lambda artifact: artifact.name)))]

    for _ in range(SIGNED_AGAIN):
        try:
            return attempts.succeed(attempt, store)
        except SigningKeyRevoked:  # between signing and storing; the newest key that is left signs
            envelope = _certificate(attempt, document, report, trained, finished, settings, announced, machine)
    raise RunRefused(f"the signing key was revoked {SIGNED_AGAIN} times while this was being certified; no certificate could be signed")


def _report(workdir: Path) -> RunReport:
    try:
        return RunReport.model_validate_json((workdir / RESULT).read_bytes())
    except OSError as error:
        raise RunRefused(f"training ended without a report: {error.strerror}") from error
    except ValidationError as error:
        field = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise RunRefused(f"training left a report that can't be read (field {field!r})") from error


def machine_said(attempts: Attempts, settings: Settings, announced: AnnouncedFacts | None) -> Machine:
    """What is to be asked of it. A certificate claims nothing of what isn't in it, so a machine that is silent ends no job."""
    if announced is None or (settings.tpm is None and settings.confidential is None):
        return Machine(None, None)
    head = attempts.reading(lambda session: head_of(session, settings, announced.head_size)).text
    code = sha256_of(code_manifest())
    return Machine(
        quote=None if settings.tpm is None else _said(quoted, settings.tpm, code, head),
        confidential=None if settings.confidential is None else _said(machine_report, settings.confidential, code, head),
    )


def _said(ask: Callable[[Place, str, str], Answer], place: Place, code: str, head: str) -> Answer | None:
    try:
        return ask(place, code, head)
    except (TpmSilent, MachineSilent) as silent:
        _log.warning("machine_silent", asked=str(place), reason=str(silent))
        return None


def _certificate(
    attempt: Attempt,
    document: TrainingDocument,
    report: RunReport,
    trained: dict[str, Path],
    finished: datetime,
    settings: Settings,
    announced: AnnouncedFacts | None,
    machine: Machine,
) -> bytes:
    given = CertificateInput(
        job_id=attempt.job_id,
        spec=document.spec,
        runtime=document.runtime,
        plan=document.plan,
        report=report,
        artifacts=trained,
        started=attempt.started,
        finished=finished,
        attempts=attempt.number,
        ledger=attempt.charge,
        announced=announced,
        tpm=machine.quote,
        confidential=None if machine.confidential is None else machine.confidential[0],
    )
    try:
        return issue_certificate(given, settings)
    except (CertificateRefused, SigningKeyUnusable, PrivacyError) as error:
        raise RunRefused(str(error)) from error


def _trained_files(folder: Path) -> dict[str, Path]:
    """The training's files by name: plain files directly in the folder, without those that an earlier attempt added."""
    ours = {SPEC_FILE, CODE_MANIFEST, CERTIFICATE_FILE, REPORT_FILE}
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.name: path for path in found if path.is_file() and not path.is_symlink() and path.name[0] != "." and path.name not in ours}


def _artifact(path: Path) -> Artifact:
    return Artifact(name=path.name, bytes=path.stat().st_size, sha256=sha256_of_file(path))


def _replace(path: Path, content: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.write_bytes(content)
    unfinished.replace(path)
