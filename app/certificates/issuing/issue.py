r"""Issues a signed certificate for a finished run. The run's report must match what the plan accounts for, or nothing is signed."""

from __future__ import annotations

from zetadp.app.certificates.errors import CertificateRefused
from zetadp.app.certificates.facts.run import CertificateInput, check_run
from zetadp.app.certificates.facts.statement import (
    CERTIFICATE_FILE,
    CODE_MANIFEST,
    DATA_MANIFEST,
    SPEC_FILE,
    Digest,
    Statement,
    Subject,
)
from zetadp.app.certificates.issuing.predicate import predicate_of
from zetadp.app.certificates.signing.canonical import canonical_json
from zetadp.app.certificates.signing.digests import DataManifest, code_manifest, fresh_nonce, sha256_of, sha256_of_file, store_data_manifest
from zetadp.app.certificates.signing.envelope import MAXIMUM_BYTES, sign
from zetadp.app.certificates.signing.keys import signer
from zetadp.app.kit.settings import Settings
from zetadp.app.storage.opening import storage_of
from zetadp.trainer import AnyPlan, AnyTrainingSpec
from zetadp.trainer.data import DataSetFacts, data_set_facts
from zetadp.trainer.data.kept_facts import kept_in
from zetadp.trainer.data.uploaded import found_by, found_in
from zetadp.trainer.specs.base import TrainingSpec


def issue_certificate(given: CertificateInput, settings: Settings) -> bytes:
    """The signed certificate: a DSSE envelope as JSON bytes, ending in a newline.

    Raises:
      CertificateRefused: the run isn't the planned one, there is no model, or the certificate would be too large.
      SigningKeyUnusable: the newest key file can't sign.
      InvalidParameter: the data set can no longer be read.
      OSError: an artifact can't be read.
      StorageUnavailable: the data manifest couldn't be stored.
    """
    # Whether its tenant may use an uploaded data set was found out when the job was submitted.
    with found_by(found_in(settings.made_data_sets_dir)), kept_in(settings.facts_dir):
        facts = data_set_facts(given.spec.data)
        check_run(given, facts)
        statement = Statement(subject=_subjects(given, facts, settings), predicate=predicate_of(given, facts))
    envelope = sign(canonical_json(statement), signer(settings))
    if len(envelope) > MAXIMUM_BYTES:
        raise CertificateRefused("the certificate's size", f"at most {MAXIMUM_BYTES} bytes, as verifiers read", len(envelope))
    return envelope


def data_manifest_of(job_id: str, spec: AnyTrainingSpec, plan: AnyPlan, settings: Settings) -> bytes:
    r"""The commitment to a job's data, stored unless an earlier attempt did.

    Raises:
      CertificateRefused: an earlier attempt had other data.
      InvalidParameter, OSError: the data set can't be read.
      StorageUnavailable: it couldn't be stored.
    """
    with found_by(found_in(settings.made_data_sets_dir)), kept_in(settings.facts_dir):
        return _kept_manifest(job_id, plan, data_set_facts(spec.data), settings)


def _kept_manifest(job_id: str, plan: AnyPlan, facts: DataSetFacts, settings: Settings) -> bytes:
    fresh = DataManifest(
        description=facts.description,
        training_records=facts.training_records,
        unit=plan.unit,
        data_sha256=facts.sha256,
        nonce=fresh_nonce(),
    )
    kept = store_data_manifest(storage_of(settings).store, job_id, fresh)
    if (before := DataManifest.model_validate_json(kept)).data_sha256 != fresh.data_sha256:
        raise CertificateRefused("the training data", before.data_sha256, fresh.data_sha256)
    return kept


def spec_file(spec: TrainingSpec) -> bytes:
    """The bytes of ``spec.json`` that a certificate's digest covers."""
    return canonical_json(spec)


def _subjects(given: CertificateInput, facts: DataSetFacts, settings: Settings) -> tuple[Subject, ...]:
    """Model and other artifacts, spec, data manifest and code, sorted by name."""
    kept = _kept_manifest(given.job_id, given.plan, facts, settings)
    # A certificate of an attempt before may lie among the files; this one is about the others.
    digests = {name: sha256_of_file(path) for name, path in given.artifacts.items() if name != CERTIFICATE_FILE} | {
        SPEC_FILE: sha256_of(spec_file(given.spec)),
        DATA_MANIFEST: sha256_of(kept),
        CODE_MANIFEST: sha256_of(code_manifest()),
    }
    return tuple(Subject(name=name, digest=Digest(sha256=digest)) for name, digest in sorted(digests.items()))


__all__ = ["CertificateInput", "CertificateRefused", "check_run", "issue_certificate", "predicate_of", "spec_file"]
