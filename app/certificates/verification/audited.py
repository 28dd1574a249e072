r"""What an auditor needs to repeat a certified run: everything is checked against the certificate before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from pydantic import TypeAdapter, ValidationError

from zetadp.app.certificates.facts.announced import AnnouncedFacts
from zetadp.app.certificates.facts.confidential import REPORT_FILE
from zetadp.app.certificates.facts.statement import CERTIFICATE_FILE, CODE_MANIFEST, MODEL_FILE, SPEC_FILE, Statement
from zetadp.app.certificates.log.beacons import given
from zetadp.app.certificates.log.entries import plan_digest, plan_statement_of
from zetadp.app.certificates.log.evidence import PROOFS_FILE, REVOCATIONS_FILE, Evidence
from zetadp.app.certificates.log.merkle_proofs import Proofs, read_proof
from zetadp.app.certificates.log.plan_evidence import PLAN_LOGGED
from zetadp.app.certificates.log.trust import NOBODY, Trust
from zetadp.app.certificates.policy.schema import Policy
from zetadp.app.certificates.signing.digests import code_manifest, sha256_of
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.signing.noise_keys import commitment, read_noise_key, run_secret
from zetadp.app.certificates.verification.verify import read_statement, verify
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import AnyTrainingSpec
from zetadp.trainer.request import RELEASES, TrainingRequest
from zetadp.trainer.specs.releases import Recorded, read_releases

RELEASES_FILE = Path(RELEASES).name
_SPEC: TypeAdapter[AnyTrainingSpec] = TypeAdapter(AnyTrainingSpec)


class Unrepeatable(Exception):
    """The run can't be repeated; the text says why."""


class RefusedByPolicy(Unrepeatable):
    """The certificate is valid, and doesn't meet the auditor's policy."""


@final
@dataclass(frozen=True)
class Rerun:
    r"""A run to repeat.

    Attributes:
      request: what is trained.
      secret: what its randomness follows from.
      recorded: what it wrote of its releases.
      model_sha256: the digest of its model.
      began: in words, what shows when it began, or that nothing does.
      is_own_code: whether the code is this one, to the byte; another may round otherwise.
      starts: in words, how many starts of its job there were, and how many of them the record is of.
    """

    request: TrainingRequest
    secret: bytes
    recorded: Recorded
    model_sha256: str
    began: str
    is_own_code: bool
    starts: str


def prepared_rerun(folder: Path, keys: PublicKeySet, key_file: Path, policy: Policy | None = None) -> Rerun:
    r"""The run that the certificate in this folder is about.

    Args:
      policy: what the auditor demands of the certificate, and whose signatures on the log's heads count; None trusts nobody's.
    Raises:
      Unrepeatable: the certificate isn't valid, the policy refuses it, or what is beside it isn't what it names.
      OSError: a file can't be read.
    """
    envelope, proofs = (folder / CERTIFICATE_FILE).read_bytes(), (folder / PROOFS_FILE).read_bytes()
    reported = (folder / REPORT_FILE).read_bytes() if (folder / REPORT_FILE).is_file() else None
    _check_certificate(envelope, keys, folder, Evidence(proofs, (folder / REVOCATIONS_FILE).read_bytes(), reported), policy)
    statement = read_statement(envelope)
    announced = statement.predicate.announced
    assert announced is not None  # its plan was logged
    key = read_noise_key(key_file.read_bytes())
    if announced.noise_key is None:
        raise Unrepeatable("the plan isn't committed to a noise key: nobody can repeat this run")
    if key is None or commitment(key) != announced.noise_key:
        raise Unrepeatable("this isn't the noise key that the plan is committed to")
    planned = plan_statement_of(statement)
    assert planned is not None  # as the check of the log found
    request, recorded = _recorded(folder, statement)
    _check_attempts(recorded, announced, statement.predicate.job.attempts)
    named = {subject.name: subject.digest.sha256 for subject in statement.subject}
    if MODEL_FILE not in named:
        raise Unrepeatable(f"the certificate names no {MODEL_FILE}")
    return Rerun(
        request=request,
        secret=run_secret(key, plan_digest(planned), announced.beacon),
        recorded=recorded,
        model_sha256=named[MODEL_FILE],
        began=_began(announced, read_proof(proofs, Proofs), NOBODY if policy is None else policy.trust),
        is_own_code=named.get(CODE_MANIFEST) == sha256_of(code_manifest()),
        starts=f"{len(recorded.attempts)} of the job's {statement.predicate.job.attempts} starts left something in the record",
    )


def _check_certificate(envelope: bytes, keys: PublicKeySet, folder: Path, evidence: Evidence, policy: Policy | None) -> None:
    report = verify(envelope, keys, folder, evidence, policy)
    if report.verdict != "valid":
        raise Unrepeatable(f"the certificate isn't valid: {report.meaning}")
    outcomes = {check.name: check.status for check in report.checks}
    for needed in (PLAN_LOGGED, f"file {SPEC_FILE}", f"file {RELEASES_FILE}"):
        if outcomes.get(needed) != "passed":
            raise Unrepeatable(
                f"the check {needed} didn't pass: without it nobody knows that this is what was planned, or what was released"
            )
    if report.policy is not None and not report.policy.accepted:
        raise RefusedByPolicy(f"refused by the policy {report.policy.policy!r}: {'; '.join(report.policy.failing)}")


def _recorded(folder: Path, statement: Statement) -> tuple[TrainingRequest, Recorded]:
    try:
        spec = _SPEC.validate_json((folder / SPEC_FILE).read_bytes())
        recorded = read_releases((folder / RELEASES_FILE).read_bytes().decode("ascii", "replace"))
    except ValidationError as error:
        raise Unrepeatable(f"{SPEC_FILE} can't be read by this version: {error.errors()[0]['msg'][:200]}") from error
    except InvalidParameter as error:
        raise Unrepeatable(f"the record of its releases can't be read: {error}") from error
    return TrainingRequest(spec=spec, runtime=recorded.runtime, plan=statement.predicate.plan), recorded


def _check_attempts(recorded: Recorded, announced: AnnouncedFacts, attempts: int) -> None:
    """Each start draws its own randomness: with a number that no start had it would be another draw that nobody counted."""
    first, last = recorded.attempts[0].number, recorded.attempts[-1].number
    if first < announced.attempt or last != attempts:
        raise Unrepeatable(
            f"the record is of the starts {first} to {last}; by the certificate the plan was logged at start {announced.attempt}, "
            f"and the run ended at start {attempts}"
        )


def _began(announced: AnnouncedFacts, proofs: Proofs, trust: Trust) -> str:
    nothing = "nothing shows when the run began, or that its operator didn't choose among draws"
    if announced.beacon is None:
        return f"{nothing}: its randomness follows from the key alone"
    if not trust.authorities and not trust.witnesses:
        return f"{nothing}: no policy names authorities or witnesses that are trusted"
    found = given(announced.beacon, proofs, trust)
    if found is None:
        return f"{nothing}: its randomness doesn't follow from a signature on the plan's head by anybody that the policy trusts"
    return (
        f"its randomness follows from the signature on the plan's head by {found.by} of {found.time:%Y-%m-%d %H:%M:%S} UTC: it began after "
        "that, unless its operator can sign in that name"
    )
