r"""Issuing: from a finished run to a signed certificate. What the run reports must be what the plan accounts for, or nothing is signed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import final

from accountants.events import Event, leaves
from app.certificates import wording
from app.certificates.canonical import canonical_json
from app.certificates.claims import guarantee_of
from app.certificates.decimals import exact
from app.certificates.digests import DataManifest, code_manifest, fresh_nonce, sha256_of, sha256_of_file, write_data_manifest
from app.certificates.envelope import sign
from app.certificates.errata import note
from app.certificates.errors import CertificateRefused
from app.certificates.facts import largest_group, neighbourhood_of, releases_of
from app.certificates.guarantee import Guarantee, figures
from app.certificates.keys import signer
from app.certificates.statement import (
    CERTIFICATE_FILE,
    CODE_MANIFEST,
    DATA_MANIFEST,
    MODEL_FILE,
    SPEC_FILE,
    Audit,
    ClippingFacts,
    DataFacts,
    Digest,
    Environment,
    JobFacts,
    PrivacyCertificate,
    Randomness,
    ReleaseScope,
    Statement,
    StepFacts,
    Subject,
)
from app.settings import Settings
from mechanisms import RandomOrigin
from trainer import AnyTrainingSpec, ExecutionPlan
from trainer.data import DataSetFacts, data_set_facts
from trainer.report import RunReport


@final
@dataclass(frozen=True)
class CertificateInput:
    r"""A finished run, as the worker saw it.

    Attributes:
      job_id: of the job.
      spec: what was asked for; ``spec.json`` beside the certificate is its canonical JSON.
      plan: what training ran from.
      report: what training says it did.
      artifacts: files to be named in the certificate, by name; ``model.safetensors`` among them.
      started, finished: aware times.
      attempts: how often a worker took the job up; >= 1.
    """

    job_id: str
    spec: AnyTrainingSpec
    plan: ExecutionPlan
    report: RunReport
    artifacts: Mapping[str, Path]
    started: datetime
    finished: datetime
    attempts: int


def issue_certificate(given: CertificateInput, settings: Settings) -> bytes:
    """The signed certificate: a DSSE envelope as JSON bytes, ending in a newline.

    Raises:
      CertificateRefused: the run isn't the one that was planned, or there is no model.
      SigningKeyUnusable: the newest key file can't sign.
      OSError: an artifact can't be read.
    """
    facts = data_set_facts(given.spec.data)  # pyright: ignore[reportArgumentType] (Pydantic gives frozen models their hash at run time)
    check_run(given, facts)
    statement = Statement(subject=_subjects(given, facts, settings), predicate=predicate_of(given, facts))
    return sign(canonical_json(statement), signer(settings))


def spec_file(spec: AnyTrainingSpec) -> bytes:
    """The bytes of ``spec.json`` that a certificate's digest covers."""
    return canonical_json(spec)


def check_run(given: CertificateInput, facts: DataSetFacts) -> None:
    """Raises CertificateRefused, naming the first thing in which the run, its plan and its data disagree."""
    plan, report = given.plan, given.report
    origin = RandomOrigin.USER_SEED if given.spec.reproducible else RandomOrigin.OPERATING_SYSTEM
    pairs: tuple[tuple[str, object, object], ...] = (
        ("the number of released steps", plan.steps, report.steps_released),
        ("the noise per real component", plan.mechanism.noise_scale, report.noise_std),
        ("the event", plan.event, report.event),
        ("the number of training records", plan.sampling.records, report.training_records),
        ("the number of training records in the data set", facts.training_records, report.training_records),
        ("the number of held-out records", facts.test_records, report.test_records),
        ("the privacy unit", facts.unit, plan.mechanism.sensitivity.unit),
        ("the origin of the randomness", origin.value, report.random_origin.value),
        ("a model file", MODEL_FILE, next((name for name in given.artifacts if name == MODEL_FILE), None)),
    )
    for what, planned, reported in pairs:
        if planned != reported:
            raise CertificateRefused(what, planned, reported)
    for what, time in (("the start", given.started), ("the end", given.finished)):
        if time.tzinfo is None:
            raise CertificateRefused(f"the time of {what}", "a time with its zone", time.isoformat())


def predicate_of(given: CertificateInput, facts: DataSetFacts) -> PrivacyCertificate:
    """Everything a certificate says about this run."""
    plan, report, spec = given.plan, given.report, given.spec
    mechanism = type(plan.mechanism).FACTS
    guarantee = guarantee_of(plan.event, plan.delta, report.random_origin)
    rows = sorted({*mechanism.errata, *spec.ERRATA}, key=lambda row: (row[0], int(row[1:])))
    return PrivacyCertificate(
        job=JobFacts(
            id=given.job_id,
            algorithm=spec.algorithm,
            summary=spec.SUMMARY,
            started=_whole_seconds(given.started),
            finished=_whole_seconds(given.finished),
            attempts=given.attempts,
            resumptions=report.resumptions,
        ),
        guarantee=guarantee,
        neighbourhood=neighbourhood_of(plan.event),
        data=DataFacts(
            description=facts.description,
            unit_meaning=f"one {facts.unit} is one row of the training data as described; a person with several rows is protected less",
            units_are_records=largest_group(plan.event) == 1,
            training_records=plan.sampling.records,
            expected_batch_size=plan.sampling.expected_batch_size,
            realised_sample_sizes=wording.SAMPLE_SIZES,
            parameters=report.parameters,
        ),
        releases=releases_of(plan.event),
        clipping=ClippingFacts(kind=plan.clipping.kind, bound=exact(plan.clipping.bound), meaning=wording.CLIPPING),
        steps=StepFacts(planned=plan.steps, released=report.steps_released),
        scope=_scope(report),
        not_covered=wording.NOT_COVERED,
        randomness=_randomness(report.random_origin),
        environment=Environment(
            versions=dict(sorted({**wording.library_versions(), **report.versions}.items())),
            hardware=report.hardware,
            training_seconds=round(report.training_seconds),
        ),
        audit=Audit(),
        assumptions=(*(wording.ASSUMPTIONS[assumption] for assumption in mechanism.assumptions), *wording.RUN_ASSUMPTIONS),
        sources=tuple(dict.fromkeys((*mechanism.sources, *spec.SOURCES))),
        errata=tuple(note(row) for row in rows),
        proofs=_proofs(mechanism.proof, plan.event, guarantee),
        event=plan.event,
    )


def _proofs(of_mechanism: str, event: Event, guarantee: Guarantee) -> tuple[str, ...]:
    """Of the mechanism, of its sampling, and of the route that epsilon came by where that has one."""
    claim = figures(guarantee)
    route = None if claim is None else wording.ROUNDING_PROOFS.get(claim.accountant)
    sampled = largest_group(event) > 1 or not all(leaf.is_whole for leaf in leaves(event))
    return (of_mechanism, *((wording.PAIRS_PROOF,) if sampled else ()), *(() if route is None else (route,)))


def _scope(report: RunReport) -> ReleaseScope:
    return ReleaseScope(
        trust_model=wording.TRUST_MODEL,
        released=wording.RELEASED,
        checkpoints=wording.CHECKPOINTS,
        training_metrics=wording.TRAINING_METRICS,
        test_accuracy=exact(report.test_accuracy),
        test_records=report.test_records,
        test_metrics=wording.TEST_METRICS,
    )


def _randomness(origin: RandomOrigin) -> Randomness:
    return Randomness(
        origin=origin,
        generator=wording.GENERATORS[origin],
        statement=wording.SEED_STATEMENTS[origin],
        floating_point=wording.FLOATING_POINT,
    )


def _subjects(given: CertificateInput, facts: DataSetFacts, settings: Settings) -> tuple[Subject, ...]:
    """Model and other artifacts, spec, data manifest and code, sorted by name."""
    fresh = DataManifest(
        description=facts.description,
        training_records=facts.training_records,
        unit=facts.unit,
        data_sha256=facts.sha256,
        nonce=fresh_nonce(),
    )
    kept = write_data_manifest(settings.data_dir / "manifests", given.job_id, fresh)
    if (before := DataManifest.model_validate_json(kept)).data_sha256 != fresh.data_sha256:
        raise CertificateRefused("the training data", before.data_sha256, fresh.data_sha256)
    # A certificate of an attempt before may lie among the files; this one is about the others.
    digests = {name: sha256_of_file(path) for name, path in given.artifacts.items() if name != CERTIFICATE_FILE} | {
        SPEC_FILE: sha256_of(spec_file(given.spec)),
        DATA_MANIFEST: sha256_of(kept),
        CODE_MANIFEST: sha256_of(code_manifest()),
    }
    return tuple(Subject(name=name, digest=Digest(sha256=digest)) for name, digest in sorted(digests.items()))


def _whole_seconds(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(microsecond=0)
