r"""A policy's verdict: on a certificate that was verified, and on a plan before it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, final

from zetadp.accountants.events import neighbourhood
from zetadp.app.certificates.facts.claims import guarantee_of
from zetadp.app.certificates.facts.guarantee import ApproximateDp, NoGuarantee
from zetadp.app.certificates.facts.report import Check, PolicyVerdict, Rule, Status
from zetadp.app.certificates.facts.statement import PrivacyCertificate
from zetadp.app.certificates.facts.wording import EXACT, variates
from zetadp.app.certificates.log.evidence import WITNESSES
from zetadp.app.certificates.log.machine_evidence import MACHINE_REPORT
from zetadp.app.certificates.log.plan_evidence import PLAN_LOGGED, TIME_STAMPS, TPM_QUOTE, quote_of
from zetadp.app.certificates.policy.schema import Policy
from zetadp.mechanisms import RandomOrigin
from zetadp.trainer import AnyPlan, AnyTrainingSpec

PaidBy = Literal["none", "renewed", "lasting"]
"""Which kind of budget paid for a run: none, one that is free again after a period, or one that never is."""

_PAID: dict[PaidBy, str] = {"none": "none", "renewed": "one in a ledger whose budget is renewed", "lasting": "one"}

CURVE = "curve"
"""The check that names points of the curve which nobody recomputed."""


@final
@dataclass(frozen=True)
class Judged:
    r"""What a policy looks at.

    Attributes:
      pairs: (epsilon, delta) that are proved, the certified one first; empty where nothing is guaranteed.
      why_none: why nothing is.
      inexact: ways of drawing noise, of those that the run uses, that aren't exact on a grid.
      noise_tested: None before the run.
      audit: the kind and number of made-up units; None where there are none.
    """

    pairs: tuple[tuple[str, str], ...]
    why_none: str
    unit: str
    adjacency: str | None
    inexact: tuple[str, ...]
    noise_tested: bool | None
    audit: tuple[str, int] | None
    paid_by: PaidBy
    held_out: str
    given_weights: int


def verdict_on(policy: Policy, certificate: PrivacyCertificate, checks: Sequence[Check]) -> PolicyVerdict:
    r"""The verdict on a certificate that was found valid.

    Args:
      checks: everything that was checked of it.
    """
    outcomes = {check.name: check.status for check in checks}
    said = {check.name: check.detail for check in checks}
    run, plan = certificate.run, certificate.plan
    used = (*(name for name in run.arithmetic if name in _RELEASED), *variates(plan.mechanisms))
    judged = _judged(
        plan,
        certificate.guarantee,
        is_curve_checked=CURVE not in outcomes,
        inexact=tuple(dict.fromkeys(name for name in used if name not in EXACT)),
        noise_tested=run.noise_numbers is not None,
        audit=None if run.canaries is None else (run.canaries.kind, run.canaries.canaries),
        paid_by=paid_by(certificate.ledger),
        held_out=run.held_out,
        given_weights=len(run.given_weights),
    )
    rules = (
        *_rules(policy, judged),
        *_proved(policy, outcomes, said),
        *_quoted(policy, certificate, outcomes),
        *_confidential(policy, certificate, outcomes),
        *_earlier(policy, certificate, outcomes),
        *_checks(policy, outcomes),
    )
    return PolicyVerdict(policy=policy.name, accepted=all(rule.is_met for rule in rules), rules=rules)


class Budget(Protocol):
    """Of a ledger, as its definition or a certificate says."""

    @property
    def renews_after_days(self) -> int | None: ...


def paid_by(budget: Budget | None) -> PaidBy:
    """The kind of budget that paid, or is to pay."""
    return "none" if budget is None else "lasting" if budget.renews_after_days is None else "renewed"


def refused_by(policy: Policy) -> PolicyVerdict:
    """The verdict on a certificate that isn't valid."""
    return PolicyVerdict(policy=policy.name, accepted=False, rules=())


def verdict_before(policy: Policy, spec: AnyTrainingSpec, plan: AnyPlan, budget: Budget | None) -> PolicyVerdict:
    """The verdict on a training that hasn't begun, as far as its plan says: whether its noise passes its test isn't known yet."""
    origin = RandomOrigin.USER_SEED if spec.reproducible else RandomOrigin.OPERATING_SYSTEM
    judged = _judged(
        plan,
        guarantee_of(plan.event, plan.delta, origin),
        is_curve_checked=True,
        inexact=tuple(name for name in variates(plan.mechanisms) if name not in EXACT),
        noise_tested=None,
        audit=None if spec.audited_by is None else (spec.audited_by.kind, spec.audited_by.canaries),
        paid_by=paid_by(budget),
        held_out=spec.held_out,
        given_weights=len(spec.given_weights),
    )
    rules = tuple(_rules(policy, judged))
    return PolicyVerdict(policy=policy.name, accepted=all(rule.is_met for rule in rules), rules=rules)


_RELEASED = frozenset({*EXACT, "compared_signs", "unclaimed"})
"""Names of arithmetic that are about noise; the others are about what it is added to."""


def _judged(
    plan: AnyPlan,
    guarantee: ApproximateDp | NoGuarantee,
    *,
    is_curve_checked: bool,
    inexact: tuple[str, ...],
    noise_tested: bool | None,
    audit: tuple[str, int] | None,
    paid_by: PaidBy,
    held_out: str,
    given_weights: int,
) -> Judged:
    pair = neighbourhood(plan.event)
    return Judged(
        pairs=() if isinstance(guarantee, NoGuarantee) else tuple(_pairs(guarantee, is_curve_checked=is_curve_checked)),
        why_none=guarantee.reason if isinstance(guarantee, NoGuarantee) else "",
        unit=plan.unit,
        adjacency=None if pair is None else pair[0].value,
        inexact=inexact,
        noise_tested=noise_tested,
        audit=audit,
        paid_by=paid_by,
        held_out=held_out,
        given_weights=given_weights,
    )


def _pairs(claim: ApproximateDp, *, is_curve_checked: bool) -> Iterator[tuple[str, str]]:
    yield claim.epsilon, claim.delta
    if claim.pure_epsilon is not None:
        yield claim.pure_epsilon, "0"
    if is_curve_checked:
        yield from ((point.epsilon, point.delta) for point in claim.delta_curve)


def _rules(policy: Policy, judged: Judged) -> Iterator[Rule]:
    yield _rule("unit", f"one of {', '.join(policy.unit)}", judged.unit, judged.unit in policy.unit)
    accepted = [one.value for one in policy.adjacency]
    yield _rule("adjacency", f"one of {', '.join(accepted)}", judged.adjacency or "none", judged.adjacency in accepted)
    yield from _figures(policy, judged)
    if policy.exact_release == "required":
        found = ", ".join(judged.inexact) or ("exact" if judged.pairs else "no guarantee")
        demand = "noise drawn exactly on a grid, whatever was computed before it was added"
        yield _rule("exact_release", demand, found, bool(judged.pairs) and not judged.inexact)
    if policy.noise_test == "required" and judged.noise_tested is not None:
        found = "tested" if judged.noise_tested else "not tested"
        yield _rule("noise_test", "the drawn noise tested for scale and repetitions", found, judged.noise_tested)
    for kind, least in (("canaries", policy.least_canaries), ("marks", policy.least_marks)):
        found, count = judged.audit or ("none", 0)
        if least:
            told = f"{count} {found}" if count else "none"
            yield _rule(f"least_{kind}", f"at least {least} {kind}", told, found == kind and count >= least)
    if policy.ledger == "required":
        demand = "an entry that paid for the run, in a ledger that is never renewed"
        yield _rule("ledger", demand, _PAID[judged.paid_by], judged.paid_by == "lasting")
    if policy.ledger == "may_be_renewed":
        yield _rule("ledger", "a ledger's entry that paid for the run", _PAID[judged.paid_by], judged.paid_by != "none")
    if policy.public_held_out == "forbidden":
        found = "declared public" if judged.held_out == "public" else judged.held_out
        yield _rule("public_held_out", "no held-out records declared public", found, judged.held_out != "public")
    if policy.given_weights == "forbidden":
        yield _rule("given_weights", "no weights given from outside", str(judged.given_weights), judged.given_weights == 0)


def _figures(policy: Policy, judged: Judged) -> Iterator[Rule]:
    """One pair has to meet both; if none does, what is named is what the certified one, or else the nearest, misses."""
    most_epsilon, most_delta = f"at most {policy.largest_epsilon}", f"at most {policy.largest_delta}"
    if not judged.pairs:
        none = f"no guarantee: {judged.why_none}"
        yield _rule("largest_epsilon", most_epsilon, none, False)
        yield _rule("largest_delta", most_delta, none, False)
        return
    found = next((pair for pair in judged.pairs if policy.admits(*pair)), None)
    if found is not None:
        yield _rule("largest_epsilon", most_epsilon, f"{found[0]} at delta {found[1]}", True)
        yield _rule("largest_delta", most_delta, found[1], True)
        return
    epsilon, delta = next((pair for pair in judged.pairs if policy.admits("0", pair[1])), judged.pairs[0])
    is_small = policy.admits("0", delta)
    yield _rule("largest_epsilon", most_epsilon, f"{epsilon} at delta {delta}", policy.admits(epsilon, "0"))
    yield _rule("largest_delta", most_delta, delta, is_small)


def _proved(policy: Policy, outcomes: dict[str, Status], said: dict[str, str]) -> Iterator[Rule]:
    """What took proofs, and has to have passed."""
    if policy.plan_logged == "required":
        is_met = outcomes.get(PLAN_LOGGED) is Status.PASSED
        yield _rule("plan_logged", "a proof that the plan was in the log before its certificate", said.get(PLAN_LOGGED, "none"), is_met)
    if policy.witnesses is not None:
        required = f"signatures by at least {policy.witnesses.least} of {len(policy.witnesses.keys)} witnesses"
        yield _rule("witnesses", required, said.get(WITNESSES, "none"), outcomes.get(WITNESSES) is Status.PASSED)
    if policy.time_stamps is not None:
        required = f"stamps by at least {policy.time_stamps.least} of {len(policy.time_stamps.authorities)} authorities"
        yield _rule("time_stamps", required, said.get(TIME_STAMPS, "none"), outcomes.get(TIME_STAMPS) is Status.PASSED)


def _quoted(policy: Policy, certificate: PrivacyCertificate, outcomes: dict[str, Status]) -> Iterator[Rule]:
    if not policy.tpm_keys:
        return
    required, found = f"a quote by one of {len(policy.tpm_keys)} known keys, on the head that its plan is proved to be under", "none"
    is_met = False
    if certificate.tpm is not None:
        name = quote_of(certificate.tpm).key_name
        # Without the plan's proof the quote is on a head that only the certificate names.
        is_proved = outcomes.get(TPM_QUOTE) is Status.PASSED and outcomes.get(PLAN_LOGGED) is Status.PASSED
        found, is_met = f"by the key {name}{'' if is_proved else ', unproved'}", is_proved and name in policy.tpm_keys
    yield _rule("tpm_keys", required, found, is_met)


def _confidential(policy: Policy, certificate: PrivacyCertificate, outcomes: dict[str, Status]) -> Iterator[Rule]:
    asked, facts = policy.machines, certificate.confidential
    if asked is None:
        return
    found, is_met = "none", False
    if facts is not None:
        # It passes only by a key of this policy or Intel's root, on the head that the plan is proved to be under.
        is_proved = outcomes.get(MACHINE_REPORT) is Status.PASSED and outcomes.get(PLAN_LOGGED) is Status.PASSED
        is_met = is_proved and asked.accepts(facts)
        limits = f", with {' and '.join(facts.allowed)} allowed" if facts.allowed else ""
        found = f"{facts.launched}{limits}{'' if is_proved else ', unproved'}"
    yield _rule("machines", asked.required, found, is_met)


def _earlier(policy: Policy, certificate: PrivacyCertificate, outcomes: dict[str, Status]) -> Iterator[Rule]:
    most, announced = policy.most_earlier_runs, certificate.announced
    if most is not None:
        # The number is part of the log's entry: without the proof of that one it is only what the certificate says.
        is_proved = announced is not None and outcomes.get(PLAN_LOGGED) is Status.PASSED
        found = str(announced.number - 1) if announced is not None and is_proved else "unknown: it isn't proved that its plan was logged"
        is_met = announced is not None and is_proved and announced.number - 1 <= most
        yield _rule("most_earlier_runs", f"at most {most} trainings of the same data set planned before", found, is_met)


def _checks(policy: Policy, outcomes: dict[str, Status]) -> Iterator[Rule]:
    for name in policy.checks:
        status = outcomes.get(name)
        yield _rule(f"checks: {name}", "passed", "no such check" if status is None else status.value, status is Status.PASSED)


def _rule(name: str, required: str, found: str, is_met: bool) -> Rule:
    return Rule(name=name, required=required, found=found, is_met=is_met)
