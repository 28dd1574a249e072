r"""A finished run as a certificate sees it, and whether it is the run that was planned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import final

from zetadp.app.certificates.errors import CertificateRefused
from zetadp.app.certificates.facts.announced import AnnouncedFacts
from zetadp.app.certificates.facts.confidential import ConfidentialFacts
from zetadp.app.certificates.facts.ledger_entry import LedgerFacts
from zetadp.app.certificates.facts.planned import differences, has_counts, model_files
from zetadp.app.certificates.facts.tpm import TpmQuote
from zetadp.mechanisms import InvalidParameter, RandomOrigin
from zetadp.trainer import AnyPlan, AnyTrainingSpec, OwnModule, RuntimeSpec
from zetadp.trainer.data import DataSetFacts
from zetadp.trainer.sites.forms import form_of
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.record import STATEMENTS, checked_statements
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.algorithms.selection_plan import SelectionPlan
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.report import RunReport


@final
@dataclass(frozen=True)
class CertificateInput:
    r"""A finished run, as the worker saw it.

    Attributes:
      job_id: of the job.
      spec: as requested; ``spec.json`` next to the certificate is its canonical JSON.
      runtime: the runtime settings, none of which changes the guarantee.
      plan: the plan that training ran from.
      report: what training reports.
      artifacts: files to be named in the certificate, by name; the model, or that of every part of a comparison, among them.
      started, finished: aware times.
      attempts: how often a worker started the job; >= 1.
      ledger: the entry that reserved the plan; None without a ledger.
      announced: where the plan was logged before the first step; None where it wasn't.
      tpm: what the machine's TPM signed; None where none was asked.
      confidential: what a confidential machine's report says, which is then among ``artifacts``; None where none was asked.
    """

    job_id: str
    spec: AnyTrainingSpec | OwnModule
    runtime: RuntimeSpec
    plan: AnyPlan
    report: RunReport
    artifacts: Mapping[str, Path]
    started: datetime
    finished: datetime
    attempts: int
    ledger: LedgerFacts | None = None
    announced: AnnouncedFacts | None = None
    tpm: TpmQuote | None = None
    confidential: ConfidentialFacts | None = None

    @property
    def protects_users(self) -> bool:
        """Whether a unit is somebody with several records, whose summed gradient is clipped."""
        return self.spec.records_per_unit is not None


def check_run(given: CertificateInput, facts: DataSetFacts) -> None:
    r"""Whether the run, its spec, its plan and its data agree.

    Raises:
      CertificateRefused: names the first disagreement.
      PrivacyError: the spec has no plan for these data.
    """
    plan, report = given.plan, given.report
    origin = RandomOrigin.USER_SEED if given.spec.reproducible else RandomOrigin.OPERATING_SYSTEM
    unit, counted = (facts.user_unit, facts.users) if given.protects_users else (facts.unit, _records(plan, facts))
    units = counted if (declared := plan.declared_units) is None else declared
    audit = given.spec.audited_by
    pairs: tuple[tuple[str, object, object], ...] = (
        ("the number of released steps", _steps(given), report.steps_released),
        ("the noise per real component", plan.noise_std, report.noise_std),
        ("the event", plan.event, report.event),
        ("the number of training records", facts.training_records, report.training_records),
        ("the number of units in the training data", plan.units, report.training_units),
        ("the number of units in the data set, counted or declared", units, report.training_units),
        ("the number of held-out records", facts.test_records, report.test_records),
        ("the privacy unit", unit, plan.unit),
        ("what the held-out records are", given.spec.held_out, report.held_out),
        ("private evaluations", given.spec.held_out == "private", has_counts(plan)),
        ("the origin of the randomness", origin.value, report.random_origin.value),
        ("the number of canaries", audit and audit.canaries, report.audit and report.audit.canaries),
        ("the kind of made-up units", audit and audit.kind, report.audit and report.audit.kind),
        ("whether a private selection says what came out", isinstance(plan, SelectionPlan), report.selected is not None),
        ("the sites", _sites_of(given.spec), tuple((site.name, site.key) for site in report.sites)),
        ("whether attacks were tried", given.spec.runs_attacks, report.attacks is not None),
        *(("the audit", "consistent", f"violated by {what}") for what in _violations(report)),
        *(("a model file", name, name if name in given.artifacts else None) for name in model_files(plan)),
        *(("a file of statements", STATEMENTS, STATEMENTS if STATEMENTS in given.artifacts else None) for _ in report.sites[:1]),
        *differences(given.spec.replanned(facts, plan), plan),
    )
    for what, planned, reported in pairs:
        if planned != reported:
            raise CertificateRefused(what, planned, reported)
    _check_statements(given)
    for what, time in (("the start", given.started), ("the end", given.finished)):
        if time.tzinfo is None:
            raise CertificateRefused(f"the time of {what}", "a time with its zone", time.isoformat())


def _check_statements(given: CertificateInput) -> None:
    """Whether the sites agreed to this very run, and each one's own signed statements say what the report says of it."""
    spec, plan, signed = given.spec, given.plan, given.report.proposal
    federation = spec.federation if isinstance(spec, FederatedZetaDpSgd) else None
    if signed is None and federation is None:
        return
    if signed is None or federation is None or not isinstance(spec, FederatedZetaDpSgd) or not isinstance(plan, ExecutionPlan):
        raise CertificateRefused("what the sites agreed to", federation and federation.name, signed and signed.digest)
    proposal = Proposal.of(spec, plan, code=signed.code)
    if proposal.signed != signed:
        raise CertificateRefused("what the sites agreed to", proposal.digest, signed.digest)
    try:
        form, content = form_of(plan, given.report.parameters), given.artifacts[STATEMENTS].read_bytes()
        found, _ = checked_statements(federation.sites, signed.digest, plan.steps, form, content)
    except InvalidParameter as error:
        raise CertificateRefused("the sites' statements", error.expected, error.got) from error
    if found != given.report.sites:
        raise CertificateRefused("what the sites' statements say", found, given.report.sites)


def _sites_of(spec: AnyTrainingSpec | OwnModule) -> tuple[tuple[str, str], ...]:
    """The names and keys of the sites that a network connects."""
    federation = spec.federation if isinstance(spec, FederatedZetaDpSgd) else None
    return () if federation is None else tuple((site.name, site.key) for site in federation.sites)


def _steps(given: CertificateInput) -> int:
    """All that were planned; fewer where the run may stop before."""
    released = given.report.steps_released
    return released if given.spec.MAY_STOP_EARLY and released < given.plan.steps else given.plan.steps


def _records(plan: AnyPlan, facts: DataSetFacts) -> int:
    """That the plan's units are, where a unit is one row."""
    return facts.test_records if plan.protects_held_out else facts.training_records


def _violations(report: RunReport) -> Iterator[str]:
    if report.noise_test is not None and report.noise_test.status == "violated":
        yield "the drawn noise, which doesn't have the scale that is claimed, or repeats itself"
    if report.sample_test is not None and report.sample_test.status == "violated":
        yield "the samples, which aren't drawn as the plan says"
    if report.audit is not None and report.audit.status == "violated":
        found = report.audit
        yield (
            f"{found.kind}: scores like theirs have a probability of at most {found.one_run_p_value:.2g} under the claim, "
            f"or {found.independent_p_value:.2g} if they are independent"
        )
