r"""What an auditor needs to repeat a certified run: everything is checked against the certificate before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from pydantic import TypeAdapter

from zetadp.app.certificates.facts.statement import CERTIFICATE_FILE, MODEL_FILE, SPEC_FILE
from zetadp.app.certificates.log.evidence import Evidence
from zetadp.app.certificates.log.merkle_proofs import InclusionProof, Proofs, read_proof
from zetadp.app.certificates.log.notes import Note
from zetadp.app.certificates.log.plan_evidence import PLAN_LOGGED
from zetadp.app.certificates.signing.digests import sha256_of
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.signing.noise_keys import commitment, run_secret
from zetadp.app.certificates.verification.verify import read_statement, verify
from zetadp.trainer import AnyTrainingSpec
from zetadp.trainer.request import RELEASES, TrainingRequest
from zetadp.trainer.specs.releases import Recorded, read_releases

PROOFS_FILE, REVOCATIONS_FILE = "proofs.json", "revocations.jws"
RELEASES_FILE = Path(RELEASES).name
_SPEC: TypeAdapter[AnyTrainingSpec] = TypeAdapter(AnyTrainingSpec)


@final
@dataclass(frozen=True)
class Rerun:
    """A run to repeat: what is trained, what its randomness follows from, what it wrote, and the digest of its model."""

    request: TrainingRequest
    secret: bytes
    recorded: Recorded
    model_sha256: str


def prepared_rerun(folder: Path, keys: PublicKeySet, key_file: Path) -> Rerun | str:
    r"""The run that the certificate in this folder is about, or why it can't be repeated.

    Raises:
      OSError: a file can't be read.
      InvalidParameter: the record of its releases can't.
    """
    envelope, proofs = (folder / CERTIFICATE_FILE).read_bytes(), (folder / PROOFS_FILE).read_bytes()
    report = verify(envelope, keys, folder, Evidence(proofs, (folder / REVOCATIONS_FILE).read_bytes()))
    outcomes = {check.name: check.status for check in report.checks}
    if report.verdict != "valid":
        return f"the certificate isn't valid: {report.meaning}"
    for needed in (PLAN_LOGGED, f"file {SPEC_FILE}", f"file {RELEASES_FILE}"):
        if outcomes.get(needed) != "passed":
            return f"the check {needed} didn't pass: without it nobody knows that this is what was planned, or what was released"
    statement = read_statement(envelope)
    announced = statement.predicate.announced
    assert announced is not None  # its plan was logged
    key = bytes.fromhex(key_file.read_text().strip())
    if announced.noise_key is None:
        return "the plan isn't committed to a noise key: nobody can repeat this run"
    if commitment(key) != announced.noise_key:
        return "this isn't the noise key that the plan is committed to"
    if announced.beacon is not None and announced.beacon not in _beacons(read_proof(proofs, Proofs)):
        return "what the noise follows from, beside the key, is neither a time stamp nor a witness's signature on the plan's head"
    recorded = read_releases((folder / RELEASES_FILE).read_text())
    spec = _SPEC.validate_json((folder / SPEC_FILE).read_bytes())
    request = TrainingRequest(spec=spec, runtime=recorded.runtime, plan=statement.predicate.plan)
    model = next(subject.digest.sha256 for subject in statement.subject if subject.name == MODEL_FILE)
    return Rerun(request, run_secret(key, announced.beacon), recorded, model)


def _beacons(proofs: Proofs) -> set[str]:
    lines = [] if proofs.plan is None else [one.line for one in Note.read(InclusionProof.read(proofs.plan).checkpoint).signatures]
    return {sha256_of(text.encode()) for text in (*proofs.time_stamps, *lines)}
