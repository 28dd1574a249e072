r"""Whether the facts of a certificate agree with each other: nothing contradicts the plan, from which its event follows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from zetadp.accountants.events import Event, non_private_reason
from zetadp.app.certificates.facts.attacks import attack_problems
from zetadp.app.certificates.facts.audit import canary_problems
from zetadp.app.certificates.facts.decimals import fraction
from zetadp.app.certificates.facts.guarantee import SEED_SENTENCE, ApproximateDp, NoGuarantee, figures
from zetadp.app.certificates.facts.planned import has_counts, model_files
from zetadp.app.certificates.facts.report import Check, failed, outcome
from zetadp.app.certificates.facts.statement import CODE_MANIFEST, DATA_MANIFEST, SPEC_FILE, DataFacts, PrivacyCertificate, Statement
from zetadp.app.certificates.words.kinds import kind_of
from zetadp.mechanisms import PrivacyError, RandomOrigin
from zetadp.trainer import CERTIFIED, AnyPlan, FederatedZetaDpSgd
from zetadp.trainer.specs.algorithms.obfuscation import Obfuscation
from zetadp.trainer.specs.algorithms.selection_plan import SelectionPlan
from zetadp.trainer.specs.algorithms.spectral_dp import SpectralDp
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.plans import FeatureReleasePlan, RecordReleasePlan
from zetadp.trainer.specs.report import FRACTIONS
from zetadp.trainer.specs.sampling import AtNodes, FederatedSampling

LARGEST_FLOAT = fraction("1.7e308")


def check_subjects(statement: Statement) -> Check:
    """Checks that all files of such a run are named: each part's model, the spec, the commitment to the data, the code."""
    named = {subject.name for subject in statement.subject}
    needed = (*model_files(statement.predicate.plan), SPEC_FILE, DATA_MANIFEST, CODE_MANIFEST)
    missing = [f"{name} isn't among the files" for name in needed if name not in named]
    return outcome("subjects", missing, "model, spec, data manifest and code are among the files that it names")


def check_plan(certificate: PrivacyCertificate) -> Check:
    """Checks data, run and parts against the plan, which alone says what was released."""
    try:
        problems = [*_part_problems(certificate), *_data_problems(certificate), *_run_problems(certificate)]
    except PrivacyError as error:
        return failed("plan", f"the event can't be read: {error}")
    return outcome("plan", problems, "data, steps, parts and held-out records match it")


def check_parts(certificate: PrivacyCertificate) -> Check:
    """Checks the guarantee against randomness and event, and the guarantee's own figures against each other."""
    guarantee = certificate.guarantee
    problems: list[str] = []
    seeded = certificate.run.random_origin is RandomOrigin.USER_SEED
    unprotected = non_private_reason(certificate.event)
    if seeded and not (isinstance(guarantee, NoGuarantee) and (unprotected or SEED_SENTENCE in guarantee.reason)):
        problems.append(f"the randomness came from a user's seed, yet the guarantee doesn't say {SEED_SENTENCE!r}")
    if isinstance(guarantee, NoGuarantee) and guarantee.if_seed_stays_secret is not None and not seeded:
        problems.append("if_seed_stays_secret is given for a run that had no seed")
    problems.extend(_history_problems(certificate))
    problems.extend(canary_problems(certificate.run.canaries))
    plan = certificate.plan
    problems.extend(attack_problems(certificate.run.attacks, plan.clipping_norm if isinstance(plan, FeatureReleasePlan) else None))
    claim = figures(guarantee)
    if claim is None and unprotected is not None and isinstance(guarantee, NoGuarantee) and unprotected not in guarantee.reason:
        problems.append(f"the guarantee's reason isn't the event's: {unprotected}")
    if claim is not None:
        if unprotected is not None:
            problems.append(f"a guarantee is stated, but part of the event has none: {unprotected}")
        problems.extend(_claim_problems(claim, plan.delta))
    return outcome("parts", problems, "the certificate's parts agree with each other")


def is_computable(event: Event, claim: ApproximateDp) -> bool:
    """Whether figures can be recomputed: the event has a guarantee at all, and delta and all figures are numbers to compute with."""
    if non_private_reason(event) is not None:
        return False
    return 0 < fraction(claim.delta) < 1 and all(fraction(text) <= LARGEST_FLOAT for text in _texts(claim))


def _part_problems(certificate: PrivacyCertificate) -> Iterator[str]:
    plan = certificate.plan
    for part, planned in zip(certificate.parts, plan.compared, strict=True):
        if (part.by_itself.epsilon is None) == (part.by_itself.reason is None):
            yield f"part {part.name}: by_itself has either an epsilon or a reason why there is none"
        reason = non_private_reason(planned.plan.event)
        if reason is not None and reason not in (part.by_itself.reason or ""):
            yield f"part {part.name}: by_itself.reason isn't that of its event, {reason}"
        if float(part.by_itself.delta) != plan.delta:
            yield f"part {part.name}: by_itself.delta is {part.by_itself.delta}, its plan's {plan.delta!r}"
    named = [certificate.job.algorithm, *(part.algorithm for part in certificate.parts)]
    for (name, one), algorithm in zip(_plans(plan), named, strict=True):
        if not _is_of(algorithm, one):
            yield f"algorithm of {name}: {algorithm} has no such plan"
    if certificate.run.arithmetic != (ours := kind_of(plan, certificate.parts).arithmetic()):
        yield f"run.arithmetic: the certificate says {list(certificate.run.arithmetic)}, such a plan computes by {list(ours)}"


def _data_problems(certificate: PrivacyCertificate) -> Iterator[str]:
    plan, data = certificate.plan, certificate.data
    if (data.training_records is None) == (plan.declared_units is None):
        yield "data.training_records: must be stated if and only if the plan's number of units was counted"
    counted = data.test_records if plan.protects_held_out else data.training_records
    if counted is not None and (counted < plan.units if data.records_per_unit is not None else counted != plan.units):
        name = "test_records" if plan.protects_held_out else "training_records"
        yield f"data.{name}: the certificate says {counted}, its plan is for {plan.units} units"
    for name, one in _single_plans(certificate):
        if isinstance(one, RecordReleasePlan):
            yield from _release_problems(name, one, data)
        if one.protects_held_out and data.records_per_unit is not None:
            yield "data.records_per_unit: stated, but each feature is of one record"
        if one.counts is not None and one.counts.units != data.test_records:
            yield f"{name}.evaluation.units: {one.counts.units}, but {data.test_records} records were held out"


def _release_problems(name: str, plan: RecordReleasePlan, data: DataFacts) -> Iterator[str]:
    used, is_row = data.records_per_unit or 1, plan.unit == plan.mechanism.sensitivity.unit
    if plan.records_per_unit != used:
        yield f"{name}.records_per_unit: {plan.records_per_unit}, but at most {used} of a unit are used"
    if is_row == (data.records_per_unit is not None):
        yield f"data.records_per_unit: must be stated if and only if a unit isn't one row, and {name} releases rows of {plan.unit!r}"
    if plan.records != data.training_records:
        yield f"{name}.records: {plan.records}, but there are {data.training_records} training records"


def _run_problems(certificate: PrivacyCertificate) -> Iterator[str]:
    plan, run = certificate.plan, certificate.run
    stops_early = next(known.MAY_STOP_EARLY for known in CERTIFIED if known.algorithm_name() == certificate.job.algorithm)
    if run.steps_released > plan.steps or (run.steps_released < plan.steps and not stops_early):
        yield f"run.steps_released: the certificate says {run.steps_released}, its plan has {plan.steps}"
    counted = [one.counts is not None for _, one in _single_plans(certificate)]
    if has_counts(plan) != (run.held_out == "private") or any(counted) != all(counted):
        yield f"run.held_out: the certificate says {run.held_out!r}; it is 'private' if and only if the plan has counts"
    if plan.protects_held_out != (run.held_out == "encoded"):
        yield f"run.held_out: the certificate says {run.held_out!r}; it is 'encoded' if and only if the plan has features"
    has_model = run.selected is None or run.selected.candidate is not None
    if (run.metrics is None) != (run.held_out in {"none", "encoded"} or not has_model):
        yield f"run.metrics: must be stated if and only if something was measured, got held_out {run.held_out!r}"
    for name, value in (run.metrics or {}).items():
        if name in FRACTIONS and not 0 <= fraction(value) <= 1:
            yield f"run.metrics.{name} must be in [0, 1], got {value}"
        if run.held_out == "private" and name != "accuracy":
            yield f"run.metrics.{name}: counts of correct answers give an accuracy and nothing else"
    if has_model != (run.parameters > 0):
        yield f"run.parameters: {run.parameters}, but it is 0 if and only if no model came out"
    yield from _selection_problems(certificate)
    yield from _audit_problems(certificate)


def _selection_problems(certificate: PrivacyCertificate) -> Iterator[str]:
    """A private selection names one of its candidates or none, and nothing that would tell of its runs."""
    plan, run, job = certificate.plan, certificate.run, certificate.job
    if (run.selected is not None) != isinstance(plan, SelectionPlan):
        yield "run.selected: stated if and only if the plan is a private selection"
    if run.selected is None or not isinstance(plan, SelectionPlan):
        return
    if (name := run.selected.candidate) is not None and name not in [candidate.name for candidate in plan.candidates]:
        yield f"run.selected: {name} isn't among the plan's candidates"
    told = run.checkpoints_released, run.noise_numbers or 0, run.samples or 0, certificate.environment.training_seconds
    if any(told) or job.started != job.finished:
        yield "run.selected: nothing is stated of a private selection's runs, but checkpoints, tests or times are"


def _audit_problems(certificate: PrivacyCertificate) -> Iterator[str]:
    plan, run = certificate.plan, certificate.run
    if run.noise_numbers is not None and not plan.mechanisms:
        yield "run.noise_numbers: stated, but the plan claims no noise"
    if run.averaged is not None and not any(isinstance(one, ExecutionPlan | SelectionPlan) for _, one in _single_plans(certificate)):
        yield "run.averaged: stated, but only models of noisy sums are running means"
    if run.samples is not None and not any(isinstance(one, ExecutionPlan) for _, one in _single_plans(certificate)):
        yield "run.samples: stated, but only noisy sums are of samples"
    if run.canaries is not None and not isinstance(plan, ExecutionPlan):
        yield "run.canaries: stated, but only noisy sums have canaries"
    if run.attacks is not None and certificate.job.algorithm != Obfuscation.algorithm_name():
        yield f"run.attacks: stated, but {certificate.job.algorithm} sends no features that could be attacked"
    if certificate.environment.precision != "float32" and not plan.allows_half_precision:
        yield f"environment.precision: {certificate.environment.precision}, but such a plan is computed in float32 or better"
    yield from _site_problems(certificate)
    if "keyed" in run.generator:
        yield "run.generator: says where its keys came from, which run.random_origin alone does"


def _site_problems(certificate: PrivacyCertificate) -> Iterator[str]:
    plan, run = certificate.plan, certificate.run
    if bool(run.sites) != (run.proposal is not None):
        yield "run.proposal: stated if and only if run.sites are"
    if not run.sites:
        return
    sampling = plan.sampling if isinstance(plan, ExecutionPlan) else None
    if not isinstance(sampling, FederatedSampling) or sampling.nodes != len(run.sites) or not sampling.is_declared:
        yield f"run.sites: {len(run.sites)} are stated, but the plan isn't one of as many nodes with a declared number of units"
    if len({site.name for site in run.sites}) != len(run.sites) or len({site.key for site in run.sites}) != len(run.sites):
        yield "run.sites: a name or a key is stated twice"
    for site in run.sites:
        stated, absent = site.arrived + site.uncounted, (site.charged is None, site.statement is None)
        if absent != (stated == 0, stated == 0) or not stated <= (site.charged or 0) <= run.steps_released:
            yield f"run.sites: {site.name} has {stated} statements and {site.charged} rounds charged, of {run.steps_released}"
        if site.sent_bytes < stated or (site.sent_bytes > 0) != (stated > 0):
            yield f"run.sites: {site.name} has {stated} statements, whose integers took {site.sent_bytes} bytes"
    if run.noise_numbers is not None or run.samples is not None or run.canaries is not None:
        yield "run.sites: stated, but what was tested of noise, samples or canaries was never where the certificate is from"


def _plans(plan: AnyPlan) -> Iterator[tuple[str, AnyPlan]]:
    """The plan, and those of its parts, each with its name."""
    yield "plan", plan
    yield from ((f"plan.parts.{part.name}", part.plan) for part in plan.compared)


def _single_plans(certificate: PrivacyCertificate) -> Iterator[tuple[str, AnyPlan]]:
    return ((name, one) for name, one in _plans(certificate.plan) if not one.compared)


def _is_of(algorithm: str, plan: AnyPlan) -> bool:
    """Whether the algorithm has such plans: its name decides whom one trusts, what one reads and which errata apply."""
    kinds = next(known.PLANS for known in CERTIFIED if known.algorithm_name() == algorithm)
    sums = plan if isinstance(plan, ExecutionPlan) else None
    at_nodes, is_filtered = sums and isinstance(sums.sampling, AtNodes), sums and sums.projection is not None
    return (
        plan.kind in kinds
        and bool(at_nodes) == (algorithm == FederatedZetaDpSgd.algorithm_name())
        and bool(is_filtered) == (algorithm == SpectralDp.algorithm_name())
    )


def _history_problems(certificate: PrivacyCertificate) -> Iterator[str]:
    job = certificate.job
    if job.resumptions >= job.attempts:
        yield f"job: {job.attempts} attempts can't have continued from a checkpoint {job.resumptions} times"
    if job.finished < job.started:
        yield "job: it finished before it started"


def _claim_problems(claim: ApproximateDp, planned_delta: float) -> Iterator[str]:
    epsilon, delta = fraction(claim.epsilon), fraction(claim.delta)
    if not 0 < delta < 1:
        yield f"delta must be in (0, 1), got {claim.delta}"
    elif float(claim.delta) != planned_delta:
        yield f"delta: the certificate says {claim.delta}, its plan {planned_delta!r}"
    if fraction(claim.epsilon_lower) > epsilon:
        yield f"epsilon_lower {claim.epsilon_lower} is above epsilon {claim.epsilon}"
    curve = [(fraction(point.epsilon), fraction(point.delta)) for point in claim.delta_curve]
    if (epsilon, delta) not in curve:
        yield "the delta curve doesn't contain the certified pair"
    if any(second[0] <= first[0] or second[1] > first[1] for first, second in pairwise(curve)):
        yield "the delta curve must have rising epsilons and falling deltas"
    if any(fraction(point.order) <= 1 for point in claim.renyi or ()):
        yield "a Renyi order must be > 1"
    if any(fraction(text) > LARGEST_FLOAT for text in _texts(claim)):
        yield "a figure is beyond the range of float64"


def _texts(claim: ApproximateDp) -> Iterator[str]:
    yield from (claim.epsilon, claim.epsilon_lower, claim.pure_epsilon or "0", claim.gdp_mu or "0", claim.epsilon_without_sampling or "0")
    yield from (text for point in claim.delta_curve for text in (point.epsilon, point.delta))
    yield from (text for point in claim.renyi or () for text in (point.order, point.epsilon))
