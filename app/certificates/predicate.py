r"""From a finished run to everything its certificate says: nothing is claimed that isn't in the plan, the report or the data's facts."""

from __future__ import annotations

from datetime import UTC, datetime

from accountants.events import leaves
from app.certificates import errata, sentences, wording
from app.certificates.attacks import attack_facts
from app.certificates.audit import audit_of
from app.certificates.claims import guarantee_of
from app.certificates.decimals import exact
from app.certificates.evaluation import counts_of
from app.certificates.facts import largest_group, neighbourhood_of, releases_of
from app.certificates.guarantee import ApproximateDp, Guarantee, figures
from app.certificates.kinds import Kind, Setting, kind_of, sections_of
from app.certificates.parts import comparison_of
from app.certificates.planned import given_weights
from app.certificates.run import CertificateInput
from app.certificates.sections import Sections
from app.certificates.statement import (
    DataFacts,
    Environment,
    JobFacts,
    PrivacyCertificate,
    Randomness,
    ReleaseScope,
    UploadedFacts,
)
from app.certificates.steps import StepFacts
from app.certificates.training import EvaluationFacts
from trainer.data import DataSetFacts
from trainer.plan import ExecutionPlan
from trainer.plans import ComparisonPlan, UnprotectedPlan, declared_units


def predicate_of(given: CertificateInput, facts: DataSetFacts) -> PrivacyCertificate:
    """Everything a certificate says about this run."""
    plan, report, spec = given.plan, given.report, given.spec
    guarantee = guarantee_of(plan.event, plan.delta, report.random_origin)
    setting = _setting(given, guarantee)
    comparison = comparison_of(given, setting) if isinstance(plan, ComparisonPlan) else None
    sections = Sections() if isinstance(plan, ComparisonPlan) else sections_of(plan, setting)
    kind = kind_of(sections, comparison)
    assert kind is not None  # every plan has the sections of one kind
    return PrivacyCertificate(
        **dict(sections),
        comparison=comparison,
        job=_job(given),
        guarantee=guarantee,
        neighbourhood=neighbourhood_of(plan.event),
        data=_data(given, facts, kind, setting),
        releases=releases_of(plan.event),
        steps=StepFacts(planned=plan.steps, released=report.steps_released),
        scope=_scope(given, kind, setting),
        given_weights=setting.given_weights,
        not_covered=sentences.not_covered(kind, setting),
        randomness=Randomness(
            origin=report.random_origin,
            generator=wording.generator(report.generator, report.random_origin),
            statement=wording.SEED_STATEMENTS[report.random_origin],
            floating_point=kind.floating_point(setting),
        ),
        environment=Environment(
            versions=dict(sorted({**wording.library_versions(), **report.versions}.items())),
            hardware=report.hardware,
            precision=given.runtime.precision,
            processes=given.runtime.processes,
            training_seconds=round(report.training_seconds),
        ),
        ledger=given.ledger,
        audit=audit_of(report),
        attacks=attack_facts(report.attacks),
        assumptions=sentences.assumptions(kind, setting),
        sources=tuple(dict.fromkeys((*(source for one in plan.mechanisms for source in type(one).FACTS.sources), *spec.SOURCES))),
        errata=errata.notes(_rows(given, facts), protected=not isinstance(plan, UnprotectedPlan)),
        proofs=_proofs(given, kind, guarantee),
        event=plan.event,
    )


def _setting(given: CertificateInput, guarantee: Guarantee) -> Setting:
    return Setting(
        mechanisms=given.plan.mechanisms,
        unit=given.plan.unit,
        records_per_unit=given.spec.records_per_unit,
        held_out=given.report.held_out,
        precision=given.runtime.precision,
        guaranteed=isinstance(guarantee, ApproximateDp),
        given_weights=given_weights(given.spec),
        in_ledger=given.ledger is not None,
        uploaded=given.spec.data.named() is not None,
        is_declared=declared_units(given.plan) is not None,
    )


def _rows(given: CertificateInput, facts: DataSetFacts) -> set[str]:
    """Of algorithm and mechanisms, and on what a guarantee for one row of this data set doesn't say."""
    several = facts.user_unit is not None and not given.protects_users
    of_mechanisms = (row for one in given.plan.mechanisms for row in type(one).FACTS.errata)
    return {*given.spec.ERRATA, *of_mechanisms, *given.spec.data.errata(), *(("C10",) if several else ())}


def _job(given: CertificateInput) -> JobFacts:
    return JobFacts(
        id=given.job_id,
        algorithm=given.spec.algorithm,
        summary=given.spec.SUMMARY,
        started=_whole_seconds(given.started),
        finished=_whole_seconds(given.finished),
        attempts=given.attempts,
        resumptions=given.report.resumptions,
    )


def _data(given: CertificateInput, facts: DataSetFacts, kind: Kind, setting: Setting) -> DataFacts:
    plan, limit = given.plan, given.spec.records_per_unit
    sampling = plan.sampling if isinstance(plan, ExecutionPlan) else None
    return DataFacts(
        description=facts.description,
        uploaded=_uploaded(given),
        unit_meaning=sentences.unit_meaning(setting, kind),
        units_are_records=limit is None and largest_group(plan.event) == 1,
        units=None if limit is None else plan.units,
        records_per_unit=limit,
        training_records=None if setting.is_declared else given.report.training_records,
        declared_units=declared_units(plan),
        expected_batch_size=sampling and sampling.expected_batch_size,
        realised_sample_sizes=sampling and wording.SAMPLE_SIZES,
        parameters=given.report.parameters,
    )


def _scope(given: CertificateInput, kind: Kind, setting: Setting) -> ReleaseScope:
    report = given.report
    return ReleaseScope(
        trust_model=sentences.trust(given.spec.algorithm, kind),
        released=kind.released(setting),
        checkpoints=kind.checkpoints(setting),
        checkpoints_released=report.checkpoints_released,
        training_metrics=kind.training_metrics,
        evaluation=_evaluation(given),
        test_records=report.test_records,
        test_metrics=kind.test_metrics(setting),
    )


def _evaluation(given: CertificateInput) -> EvaluationFacts:
    report, plan = given.report, given.plan
    counts = counts_of(plan.evaluation, report.steps_released, plan.steps) if isinstance(plan, ExecutionPlan) else None
    return EvaluationFacts(
        kind=report.held_out,
        meaning=wording.EVALUATION[report.held_out],
        metrics=None if report.metrics is None else {name: exact(value) for name, value in sorted(report.metrics.items())},
        counts=counts and counts.counts,
        noise_std=counts and counts.noise_std,
        every_steps=counts and counts.every_steps,
    )


def _proofs(given: CertificateInput, kind: Kind, guarantee: Guarantee) -> tuple[str, ...]:
    """Of the mechanisms, of the kind of training, of their sampling, and of the route that epsilon came by where that has one."""
    event, claim = given.plan.event, figures(guarantee)
    route = None if claim is None else wording.ROUNDING_PROOFS.get(claim.accountant)
    sampled = largest_group(event) > 1 or not all(leaf.is_whole for leaf in leaves(event))
    named = (
        *(type(one).FACTS.proof for one in given.plan.mechanisms),
        *kind.proofs,
        *((wording.PAIRS_PROOF,) if sampled else ()),
        *(() if route is None else (route,)),
    )
    return tuple(dict.fromkeys(named))


def _uploaded(given: CertificateInput) -> UploadedFacts | None:
    named = given.spec.data.named()
    if named is None:
        return None
    return UploadedFacts(id=named.id, manifest_sha256=named.manifest_sha256, words=named.words, meaning=wording.UPLOADED_WORDS)


def _whole_seconds(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(microsecond=0)
