r"""From a finished run to everything its certificate says: nothing is claimed that isn't in the plan, the report or the data's facts."""

from __future__ import annotations

from datetime import UTC, datetime

from accountants.events import leaves
from app.certificates import wording
from app.certificates.claims import guarantee_of
from app.certificates.decimals import exact
from app.certificates.errata import note
from app.certificates.facts import largest_group, neighbourhood_of, releases_of
from app.certificates.guarantee import ApproximateDp, Guarantee, figures
from app.certificates.run import CertificateInput
from app.certificates.sentences import Setting
from app.certificates.statement import (
    Audit,
    DataFacts,
    Environment,
    JobFacts,
    PrivacyCertificate,
    Randomness,
    ReleaseScope,
    StepFacts,
)
from app.certificates.training import ClippingFacts, EvaluationFacts, FederationFacts
from mechanisms import AnyMechanism
from trainer.data import DataSetFacts
from trainer.plan import AdaptiveClipping, FederatedSampling


def predicate_of(given: CertificateInput, facts: DataSetFacts) -> PrivacyCertificate:
    """Everything a certificate says about this run."""
    plan, report, spec = given.plan, given.report, given.spec
    mechanisms = _mechanisms(given)
    guarantee = guarantee_of(plan.event, plan.delta, report.random_origin)
    setting = _setting(given, mechanisms, guarantee)
    rows = {*spec.ERRATA, *(row for one in mechanisms for row in type(one).FACTS.errata), *_rows_of_data(given, facts)}
    return PrivacyCertificate(
        job=_job(given),
        guarantee=guarantee,
        neighbourhood=neighbourhood_of(plan.event),
        data=_data(given, facts, setting),
        federation=_federation(given),
        releases=releases_of(plan.event),
        clipping=_clipping(given, setting),
        steps=StepFacts(planned=plan.steps, released=report.steps_released),
        scope=_scope(given, setting),
        not_covered=wording.not_covered(report.held_out),
        randomness=Randomness(
            origin=report.random_origin,
            generator=wording.generator(report.generator, report.random_origin),
            statement=wording.SEED_STATEMENTS[report.random_origin],
            floating_point=wording.floating_point(given.runtime.precision),
        ),
        environment=Environment(
            versions=dict(sorted({**wording.library_versions(), **report.versions}.items())),
            hardware=report.hardware,
            precision=given.runtime.precision,
            processes=given.runtime.processes,
            training_seconds=round(report.training_seconds),
        ),
        audit=Audit(detail=wording.AUDIT),
        assumptions=setting.assumptions(),
        sources=tuple(dict.fromkeys((*(source for one in mechanisms for source in type(one).FACTS.sources), *spec.SOURCES))),
        errata=tuple(note(row) for row in sorted(rows, key=lambda row: (row[0], int(row[1:])))),
        proofs=_proofs(given, mechanisms, guarantee),
        event=plan.event,
    )


def _mechanisms(given: CertificateInput) -> tuple[AnyMechanism, ...]:
    """Of the noisy sums, and of the counts where there are any."""
    evaluation = given.plan.evaluation
    return (given.plan.mechanism,) if evaluation is None else (given.plan.mechanism, evaluation.mechanism)


def _setting(given: CertificateInput, mechanisms: tuple[AnyMechanism, ...], guarantee: Guarantee) -> Setting:
    return Setting(
        algorithm=given.spec.algorithm,
        mechanisms=mechanisms,
        unit=given.plan.mechanism.sensitivity.unit,
        records_per_unit=given.spec.records_per_user,
        clipping=given.plan.clipping.kind,
        held_out=given.report.held_out,
        is_federated=isinstance(given.plan.sampling, FederatedSampling),
        precision=given.runtime.precision,
        guaranteed=isinstance(guarantee, ApproximateDp),
    )


def _rows_of_data(given: CertificateInput, facts: DataSetFacts) -> tuple[str, ...]:
    """Rows on what a guarantee for one row of this data set doesn't say."""
    several = facts.user_unit is not None and not given.protects_users
    return (*given.spec.data.errata(), *(("C10",) if several else ()))


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


def _data(given: CertificateInput, facts: DataSetFacts, setting: Setting) -> DataFacts:
    plan, limit = given.plan, given.spec.records_per_user
    return DataFacts(
        description=facts.description,
        unit_meaning=setting.unit_meaning(),
        units_are_records=limit is None and largest_group(plan.event) == 1,
        units=None if limit is None else plan.sampling.records,
        records_per_unit=limit,
        training_records=given.report.training_records,
        expected_batch_size=plan.sampling.expected_batch_size,
        realised_sample_sizes=wording.SAMPLE_SIZES,
        parameters=given.report.parameters,
    )


def _federation(given: CertificateInput) -> FederationFacts | None:
    sampling = given.plan.sampling
    if not isinstance(sampling, FederatedSampling):
        return None
    return FederationFacts(nodes=sampling.nodes, participation=wording.PARTICIPATION, noise=wording.NODE_NOISE)


def _clipping(given: CertificateInput, setting: Setting) -> ClippingFacts:
    clipping = given.plan.clipping
    adaptive = clipping if isinstance(clipping, AdaptiveClipping) else None
    return ClippingFacts(
        kind=clipping.kind,
        bound=exact(clipping.bound),
        quantile=adaptive and exact(adaptive.quantile),
        learning_rate=adaptive and exact(adaptive.learning_rate),
        count_share=adaptive and exact(adaptive.count_share),
        meaning=setting.clipped(),
    )


def _scope(given: CertificateInput, setting: Setting) -> ReleaseScope:
    report = given.report
    return ReleaseScope(
        trust_model=setting.trust(),
        released=setting.released(),
        checkpoints=setting.checkpoints(),
        checkpoints_released=report.checkpoints_released,
        training_metrics=wording.TRAINING_METRICS,
        evaluation=_evaluation(given),
        test_records=report.test_records,
        test_metrics=setting.test_metrics(),
    )


def _evaluation(given: CertificateInput) -> EvaluationFacts:
    report, private = given.report, given.plan.evaluation
    return EvaluationFacts(
        kind=report.held_out,
        meaning=wording.EVALUATION[report.held_out],
        metrics=None if report.metrics is None else {name: exact(value) for name, value in sorted(report.metrics.items())},
        counts=private and private.releases(report.steps_released, given.plan.steps),
        noise_std=private and exact(private.mechanism.std),
        every_steps=private and private.every_steps,
    )


def _proofs(given: CertificateInput, mechanisms: tuple[AnyMechanism, ...], guarantee: Guarantee) -> tuple[str, ...]:
    """Of the mechanisms, of their sampling, and of the route that epsilon came by where that has one."""
    event, claim = given.plan.event, figures(guarantee)
    route = None if claim is None else wording.ROUNDING_PROOFS.get(claim.accountant)
    sampled = largest_group(event) > 1 or not all(leaf.is_whole for leaf in leaves(event))
    named = (
        *(type(one).FACTS.proof for one in mechanisms),
        *((wording.PAIRS_PROOF,) if sampled else ()),
        *(() if route is None else (route,)),
    )
    return tuple(dict.fromkeys(named))


def _whole_seconds(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(microsecond=0)
