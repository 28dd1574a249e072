r"""A finished run of few steps, made by hand, and ways to sign whatever a test wants signed."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar, final

import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import TypeAdapter

from zetadp.app.certificates.facts.planned import model_files
from zetadp.app.certificates.facts.report import Status, VerificationReport
from zetadp.app.certificates.issuing.issue import CertificateInput, spec_file
from zetadp.app.certificates.signing.envelope import Envelope, sign
from zetadp.app.certificates.signing.keys import signer
from zetadp.app.kit.settings import Settings
from zetadp.mechanisms import RandomOrigin
from zetadp.trainer import AnyTrainingSpec, RuntimeSpec
from zetadp.trainer.data import data_set_facts
from zetadp.trainer.sites.coding import packed_bytes
from zetadp.trainer.sites.messages import FIRST, Opened, digest, opened, sealed
from zetadp.trainer.sites.messages import Statement as Signed
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.record import STATEMENTS, FederationRecord
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.algorithms.federation import Federation, SignedProposal, SiteRecord
from zetadp.trainer.specs.algorithms.obfuscation import Obfuscation
from zetadp.trainer.specs.algorithms.selection_plan import SelectionPlan
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.findings.attacks import AttackFigure, AttackFindings, AttackName, CurvePoint, Measure
from zetadp.trainer.specs.obfuscation.methods import NoisyRotation
from zetadp.trainer.specs.report import MetricName, RunReport, Selected
from zetadp.trainer.specs.shares import share_grid

Made = TypeVar("Made")
STEPS = 40
MODEL = b"not really a model"
PARAMETERS = 2500

_SPECS: TypeAdapter[AnyTrainingSpec] = TypeAdapter(AnyTrainingSpec)

SPEC: dict[str, object] = {
    "algorithm": "zeta_dp_sgd",
    "data": {"kind": "digits_phase_pairs", "split_seed": 0, "test_fraction": 0.2},
    "model": {"kind": "complex_mlp", "hidden": [16], "activation": "cardioid", "head": "magnitude"},
    "optimizer": {"kind": "sgd", "learning_rate": 0.5},
    "privacy": {"adjacency": "add_remove", "unit": "record", "delta": 1e-5, "noise_multiplier": 2.0},
    "clipping_bound": 0.5,
    "expected_batch_size": 40,
    "steps": STEPS,
    "evaluation": {"kind": "public_held_out"},
}


@final
class MadeWhenAsked(dict[str, Made], Generic[Made]):
    """By its name, what is made when it is first asked for: few tests of a module need every kind."""

    def __init__(self, make: Callable[[str], Made]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> Made:
        return self.setdefault(name, self._make(name))


def finished_run(directory: Path, **changes: object) -> CertificateInput:
    """A run whose spec is ``SPEC`` with some fields changed (left out where None), and whose files lie in ``directory``."""
    return run_of({name: value for name, value in (SPEC | changes).items() if value is not None}, directory)


def run_of(document: dict[str, object], directory: Path) -> CertificateInput:
    """A run of any algorithm's spec, as if it had trained, with its files in ``directory``."""
    spec = _SPECS.validate_json(json.dumps(document))
    plan = spec.plan()
    facts = data_set_facts(spec.data)
    directory.mkdir(parents=True, exist_ok=True)
    models = {name: directory / name for name in model_files(plan)}
    for path in models.values():
        path.write_bytes(MODEL)
    if isinstance(spec, FederatedZetaDpSgd) and isinstance(plan, ExecutionPlan) and spec.federation is not None:
        models[STATEMENTS] = directory / STATEMENTS
        sites, proposal = _stated(spec.federation, Proposal.of(spec, plan), directory)
    else:
        sites, proposal = (), None
    (directory / "spec.json").write_bytes(spec_file(spec))
    measured: dict[MetricName, float] = {"accuracy": 0.875} if facts.task == "classification" else {"score": -0.25, "score_all_zero": 0.5}
    report = RunReport(
        steps_released=plan.steps,
        event=plan.event,
        noise_std=plan.noise_std,
        random_origin=RandomOrigin.USER_SEED if spec.reproducible else RandomOrigin.OPERATING_SYSTEM,
        generator="AES-256-CTR",
        resumptions=1,
        held_out=spec.held_out,
        metrics=measured if spec.held_out in {"public", "private"} else None,
        test_records=facts.test_records,
        training_records=facts.training_records,
        training_units=plan.units,
        checkpoints_released=0 if isinstance(plan, SelectionPlan) else 3,
        parameters=PARAMETERS,
        versions={"torch": "2.13.0"},
        hardware="a processor, 1 thread",
        training_seconds=0.0 if isinstance(plan, SelectionPlan) else 3.4,
        attacks=_attacks(spec),
        sites=sites,
        proposal=proposal,
        selected=Selected(candidate=plan.candidates[-1].name) if isinstance(plan, SelectionPlan) else None,
    )
    started = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    finished = datetime(2026, 1, 2, 3, 5, 0, tzinfo=UTC)
    return CertificateInput("job-1", spec, RuntimeSpec(), plan, report, models, started, finished, attempts=2)


def figure(attack: AttackName, measure: Measure, value: float, chance: float) -> AttackFigure:
    """One figure of 363 trials, a hundredth of itself uncertain to both sides."""
    return AttackFigure(
        attack=attack, measure=measure, value=value, lower=0.99 * value, upper=min(1.01 * value, 1.0), chance=chance, trials=363
    )


def site_key(name: str) -> Ed25519PrivateKey:
    """A site's private key, which everybody knows."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())


def _stated(federation: Federation, proposal: Proposal, directory: Path) -> tuple[tuple[SiteRecord, ...], SignedProposal]:
    """The first site is silent; the others answer 13 rounds, the seventh too late."""
    record = FederationRecord(directory, federation)
    width = 32 if proposal.plan.aggregation is None else share_grid(proposal.plan, PARAMETERS).width
    payload = bytes(packed_bytes(PARAMETERS, width))
    previous = dict.fromkeys((site.name for site in federation.sites), FIRST)
    for number in range(1, 14):
        answers: dict[int, tuple[Signed, Opened]] = {}
        for place, site in enumerate(federation.sites[1:], 1):
            statement = Signed(
                proposal=proposal.digest,
                site=site.name,
                round=number,
                request="1" * 64,
                numbers=PARAMETERS,
                width=width,
                size=len(payload),
                payload=digest(payload),
                previous=previous[site.name],
                charged=number,
            )
            found = opened(sealed(statement, payload, site_key(site.name)))
            previous[site.name], answers[place] = digest(found.header), (statement, found)
        if number == 7:
            for statement, found in answers.values():
                record.late(statement, found)
        record.keep(number, {} if number == 7 else answers)
    record.forget(13)
    return record.finished(directory), proposal.signed


def _attacks(spec: AnyTrainingSpec) -> AttackFindings | None:
    if not isinstance(spec, Obfuscation) or spec.attacks is None:
        return None
    method = spec.method
    norm = method.clipping_norm if isinstance(method, NoisyRotation) else 0.0
    found = (
        figure("angle_by_learned_quadratures", "mean_error_radians", 0.0214987, math.pi / 2.0),
        figure("candidate_pair", "true_positive_rate", 1.0, 0.0),
        figure("label_without_key", "accuracy", 0.96, 0.11),
    )
    points = tuple(CurvePoint(noise_multiplier=one, std=2.0 * norm * one, figures=found[:1]) for one in spec.curve)
    return AttackFindings(
        victims=363,
        public_records=1434,
        coordinates=512,
        attackers={"angle_by_learned_quadratures": "a small network"},
        figures=found,
        curve=points,
    )


def statement_of(envelope: bytes) -> dict[str, dict[str, dict[str, object]]]:
    """The signed JSON, to be looked at or changed."""
    return json.loads(Envelope.model_validate_json(envelope).content)


def signed(statement: Any, settings: Settings) -> bytes:
    """Anything, signed by the service's own key."""
    return sign(rfc8785.dumps(statement), signer(settings))


def forged(envelope: bytes, settings: Settings, change: Callable[[dict[str, dict[str, dict[str, object]]]], None]) -> bytes:
    """The same certificate with something in its statement changed, and validly signed again."""
    statement = statement_of(envelope)
    change(statement)
    return signed(statement, settings)


CANARIES: dict[str, object] = {
    "kind": "canaries",
    "canaries": 500,
    "members": 260,
    "one_run_p_value": "1.0",
    "independent_p_value": "0.25",
    "epsilon_lower": "0.5",
    "epsilon_lower_if_gaussian": "0.75",
    "epsilon_lower_if_independent": "1.25",
    "confidence": "0.95",
}
"""What made-up units found, as a certificate states it."""

ABSENT = object()
"""Instead of a value: the field is left out."""


def altered(predicate: Any, changes: dict[str, object]) -> None:
    """Other facts in a predicate, by their paths, as ``plan.parts.0.name``."""
    for path, value in changes.items():
        *way, last = [int(name) if name.isdigit() else name for name in path.split(".")]
        place = predicate
        for name in way:
            place = place[name]
        if value is ABSENT:
            del place[last]
        else:
            place[last] = value


def lied(envelope: bytes, settings: Settings, changes: dict[str, object]) -> bytes:
    """The same certificate with other facts, validly signed."""
    return forged(envelope, settings, lambda statement: altered(statement["predicate"], changes))


def details(report: VerificationReport, name: str, status: Status = Status.FAILED) -> str:
    """What the checks of this name and status say, joined."""
    return "; ".join(check.detail for check in report.checks if check.name == name and check.status is status)
