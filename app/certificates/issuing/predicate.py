r"""From a finished run to the signed facts: every statement comes from the plan, the report or the data's facts."""

from __future__ import annotations

from datetime import UTC, datetime

from zetadp.app.certificates.facts.attacks import attack_facts
from zetadp.app.certificates.facts.audit import canary_facts, noise_numbers, tested_samples
from zetadp.app.certificates.facts.claims import guarantee_of
from zetadp.app.certificates.facts.decimals import exact
from zetadp.app.certificates.facts.errata import rows_in_order
from zetadp.app.certificates.facts.run import CertificateInput
from zetadp.app.certificates.facts.statement import DataFacts, Environment, JobFacts, PrivacyCertificate, RunFacts, UploadedFacts
from zetadp.app.certificates.facts.wording import library_versions
from zetadp.app.certificates.verification.parts import parts_of
from zetadp.app.certificates.words.kinds import kind_of
from zetadp.trainer.data import DataSetFacts


def predicate_of(given: CertificateInput, facts: DataSetFacts) -> PrivacyCertificate:
    """The facts of this run, and what they guarantee."""
    plan, report = given.plan, given.report
    parts = parts_of(given)
    return PrivacyCertificate(
        job=JobFacts(
            id=given.job_id,
            algorithm=given.spec.algorithm,
            started=_whole_seconds(given.finished if report.selected is not None else given.started),
            finished=_whole_seconds(given.finished),
            attempts=given.attempts,
            resumptions=report.resumptions,
        ),
        plan=plan,
        guarantee=guarantee_of(plan.event, plan.delta, report.random_origin),
        parts=parts,
        data=DataFacts(
            description=facts.description,
            uploaded=_uploaded(given),
            records_per_unit=given.spec.records_per_unit,
            training_records=report.training_records if plan.declared_units is None else None,
            test_records=report.test_records,
        ),
        run=RunFacts(
            steps_released=report.steps_released,
            checkpoints_released=report.checkpoints_released,
            parameters=report.parameters,
            random_origin=report.random_origin,
            generator=report.generator,
            held_out=report.held_out,
            metrics=None if report.metrics is None else {name: exact(value) for name, value in sorted(report.metrics.items())},
            arithmetic=kind_of(plan, parts).arithmetic(),
            given_weights=given.spec.given_weights,
            averaged=True if given.spec.averages else None,
            noise_numbers=noise_numbers(report),
            samples=tested_samples(report),
            canaries=canary_facts(report.audit),
            attacks=attack_facts(report.attacks),
            sites=report.sites,
            proposal=report.proposal,
            selected=report.selected,
        ),
        environment=Environment(
            versions=dict(sorted({**library_versions(), **report.versions}.items())),
            hardware=report.hardware,
            precision=given.runtime.precision,
            processes=given.runtime.processes,
            training_seconds=round(report.training_seconds),
        ),
        announced=given.announced,
        tpm=given.tpm,
        confidential=given.confidential,
        ledger=given.ledger,
        errata=_rows(given, facts),
    )


def _rows(given: CertificateInput, facts: DataSetFacts) -> tuple[str, ...]:
    """Errata rows of algorithm and mechanisms, and on what a guarantee for one row of this data set doesn't say. Raises UnknownRow."""
    several = facts.user_unit is not None and not given.protects_users
    of_mechanisms = (row for one in given.plan.mechanisms for row in type(one).FACTS.errata)
    return rows_in_order((*given.spec.ERRATA, *of_mechanisms, *given.spec.data.errata(), *(("C10",) if several else ())))


def _uploaded(given: CertificateInput) -> UploadedFacts | None:
    named = given.spec.data.named()
    return None if named is None else UploadedFacts(id=named.id, manifest_sha256=named.manifest_sha256, words=named.words)


def _whole_seconds(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(microsecond=0)
