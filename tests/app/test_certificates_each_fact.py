"""Every fact of a certificate, changed alone or left out: it is held against the facts that tell of it, or it is one that none tells of."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from typing import Any

import pytest

from tests.app.certificates_harness import ABSENT, CANARIES, altered, lied, statement_of
from tests.selection import thinned
from zetadp.accountants import profile
from zetadp.accountants.events import Event
from zetadp.accountants.profile import Bound
from zetadp.app.certificates.facts.guarantee import figures
from zetadp.app.certificates.facts.report import Status
from zetadp.app.certificates.facts.statement import PrivacyCertificate
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.verification.consistency import check_parts, check_plan
from zetadp.app.certificates.verification.verify import read, verify
from zetadp.app.kit.settings import Settings

Changes = dict[str, object]
Issued = Callable[[str], bytes]

FREE = {
    "data.description",
    "data.test_records",
    "environment.hardware",
    "environment.precision",
    "environment.processes",
    "environment.training_seconds",
    "environment.versions.*",
    "errata",
    "job.attempts",
    "job.finished",
    "job.id",
    "job.started",
    "run.checkpoints_released",
    "run.generator",
    "run.metrics.*",
    "run.parameters",
}
"""Facts that nothing else in a certificate tells of: for them one relies on whoever holds the key, as each verdict says."""

FILTER = {f"plan.projection.layers.{name}" for name in ("shape", "transform", "kept", "signals")} | {
    "plan.projection.layers",
    "plan.clipping.layers.layer",
}
WHOM = {"plan.mechanism.sensitivity.unit"}
"""What a unit is called: the figures are the same for any."""
ALSO_FREE: dict[str, set[str]] = {
    "plain": WHOM,
    "federated": WHOM,
    "per_layer": WHOM,
    "private": {"plan.evaluation.every_steps"},  # other steps may have as many counts
    "patients": {"data.records_per_unit", "data.training_records"} | WHOM,  # how many rows a unit has
    "declared_patients": {"data.records_per_unit"} | WHOM,
    "adaptive": {f"plan.clipping.{name}" for name in ("count_share", "initial_bound", "learning_rate", "quantile")} | WHOM,
    "spectral": FILTER | WHOM,
    "spof": set(),
    "spof_users": {"plan.units", "plan.unit"} | WHOM,
    "sums": {"plan.numbers"} | WHOM,
    "noisy_rotation": {"data.training_records", "run.attacks"} | WHOM,
    "baseline": {"plan.delta", "plan.unit", "run.random_origin"},  # nothing is guaranteed, to nobody
    "selection": {
        *(f"plan.candidates.plan.{name.removeprefix('plan.')}" for name in FILTER),
        "plan.candidates.plan.projection",  # whether it is of Spectral-DP is in its spec alone
        "plan.candidates.name",
        "plan.candidates",
        "plan.runs.mean",  # half of it, whose bracket meets the one that is stated
    },
    "comparison": {
        *(f"plan.parts.plan.{name.removeprefix('plan.')}" for name in FILTER),
        "plan.parts.plan.sampling.is_declared",
        "parts.by_itself.epsilon",  # for the check of the parts' own figures
        "parts.by_itself.route",
        "parts.errata",
    },
    "scheduled": {f"plan.clipping.{name}" for name in ("initial_bound", "schedule.final_share", "steps")} | WHOM,
}
"""What else that is of some kinds."""

TOLD: dict[str, set[str]] = {
    "noisy_rotation": {"data.test_records", "environment.precision", "run.metrics.*"},
    "private": {"data.test_records"},
    "spof": {"environment.precision"},
    "spof_users": {"environment.precision"},
    "sums": {"environment.precision"},
    "baseline": {"errata"},  # it has no row
    "selection": {"environment.training_seconds", "job.finished", "job.started", "run.checkpoints_released"},
}
"""Of ``FREE``, what isn't free in certificates of these kinds."""

ANOTHER = {
    "algorithm": "comparison",
    "held_out": "none",
    "random_origin": "user_seed",
    "precision": "bfloat16",
    "started": "2026-01-02T03:04:06Z",
    "finished": "2026-01-02T03:05:01Z",
}


def _places(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, object]]:
    """Every field and entry, with its path."""
    if path:
        yield ".".join(path), value
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in entries:
        yield from _places(inner, (*path, str(name)))


def _another(path: str, value: object) -> object:
    """A value of the same kind: one more, half as much, a list without its last."""
    if (named := ANOTHER.get(path.rpartition(".")[2])) is not None:
        return named
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1 if isinstance(value, int) else value / 2
    if isinstance(value, str):
        return repr(float(value) / 2) if re.fullmatch(r"[0-9]+(\.[0-9]+)?(e-?[0-9]+)?", value) else f"{value}x"
    return value[:-1] if isinstance(value, list) else ABSENT


def _is_told(document: Any, changes: Changes, original: PrivacyCertificate) -> bool:
    """Whether the changed certificate is refused; one that reads as it did is no lie."""
    lie = deepcopy(document)
    altered(lie, changes)
    try:
        certificate = PrivacyCertificate.model_validate_json(json.dumps(lie))
    except ValueError:
        return True
    checks = check_plan(certificate), check_parts(certificate)
    return certificate == original or any(check.status is Status.FAILED for check in checks) or not _follow(certificate)


def _follow(certificate: PrivacyCertificate) -> bool:
    """Whether the stated bracket of epsilon meets the one of the plan's event, as the check ``accountants`` asks."""
    claim = figures(certificate.guarantee)
    if claim is None:
        return True
    bound = _bracket(certificate.event, float(claim.delta))
    return float(claim.epsilon) >= bound.lower and float(claim.epsilon_lower) <= bound.upper


@cache
def _bracket(event: Event, delta: float) -> Bound:
    return profile(event).epsilon(delta)


def _named(path: str) -> str:
    """Without places in lists, and what is measured or listed by names of its own as one."""
    told = re.sub(r"\.[0-9]+", "", path)
    return re.sub(r"^(run\.attacks)\..*|^(environment\.versions|run\.metrics)\..*", lambda m: m[1] or f"{m[2]}.*", told)


@pytest.mark.parametrize("name", thinned(ALSO_FREE, every=3))
def test_every_fact_that_another_fact_tells_of_is_held_against_it(name: str, issued: Issued) -> None:
    original, document = read(issued(name)), statement_of(issued(name))["predicate"]
    places = [(path, value) for path, value in _places(document) if not path.startswith("guarantee")]
    lies = [(path, found) for path, value in places for found in (ABSENT, _another(path, value))]
    untold = {_named(path) for path, value in lies if not _is_told(document, {path: value}, original)}
    assert untold == (FREE | ALSO_FREE[name]) - TOLD.get(name, set())


def test_a_certificate_with_every_free_fact_changed_still_verifies_and_says_on_whom_one_relies(
    issued: Issued, settings: Settings, keys: PublicKeySet
) -> None:
    changes: Changes = {
        "data.description": "Nothing of interest",
        "data.uploaded": {"id": "0" * 32, "manifest_sha256": "0" * 64, "words": "weather"},
        "environment.hardware": "an abacus",
        "environment.versions": {},
        "errata": [],
        "job.id": "another",
        "ledger": {"ledger": "0" * 32, "reservation": "0" * 32, "entry": 7, "sha256": "0" * 64},
        "run.averaged": True,
        "run.checkpoints_released": 0,
        "run.given_weights": ["0" * 64],
        "run.noise_numbers": 5,
        "run.samples": 5,
        "run.canaries": CANARIES,
        "run.parameters": 1,
        "run.metrics.accuracy": "1",
    }
    report = verify(lied(issued("plain"), settings, changes), keys, None)
    assert report.verdict == "valid"
    assert "This doesn't prove that the training was done as stated: for that you rely on whoever holds the key." in report.meaning
