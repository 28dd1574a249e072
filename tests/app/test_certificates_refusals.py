"""Runs that no certificate is issued for: each isn't the one that was planned, and the first difference is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.app.certificate_kinds import run_named
from tests.selection import thinned
from zetadp.app.certificates.errors import CertificateRefused
from zetadp.app.certificates.issuing.issue import CertificateInput, issue_certificate
from zetadp.app.kit.settings import Settings
from zetadp.trainer.specs.execution_plan import ExecutionPlan, FlatClipping
from zetadp.trainer.specs.plans import FeatureReleasePlan
from zetadp.trainer.specs.report import RunReport

pytestmark = pytest.mark.usefixtures("table_of_kinds")

Runs = Callable[[str], CertificateInput]


@pytest.fixture(scope="module")
def ran(folder: Path) -> Runs:
    return cache(lambda name: run_named(name, folder / "refused"))


def _reporting(run: CertificateInput, **changes: object) -> CertificateInput:
    return replace(run, report=RunReport.model_validate({**dict(run.report), **changes}))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    thinned(
        [
            ("unmeasured", {"held_out": "public", "metrics": {"accuracy": 0.5}}, "what the held-out records are was planned as 'none'"),
            ("federated", {"training_units": 709}, "the number of units in the training data was planned as 710"),
            ("rotated", {"attacks": None}, "whether attacks were tried"),
        ],
        every=2,
    ),
)
def test_a_report_of_another_run_is_refused(name: str, changes: dict[str, object], message: str, ran: Runs, settings: Settings) -> None:
    with pytest.raises(CertificateRefused, match=message):
        issue_certificate(_reporting(ran(name), **changes), settings)


@pytest.mark.parametrize(
    ("name", "other", "message"),
    [
        ("spof", "spof_duchi", "the number of training records was planned as 1434"),
        ("baseline", "spectral", "the number of released steps was planned as 30, but the run reports 50"),
    ],
)
def test_a_run_of_another_spec_is_refused(name: str, other: str, message: str, ran: Runs, settings: Settings) -> None:
    run = replace(ran(name), plan=ran(other).plan, spec=ran(other).spec)
    with pytest.raises(CertificateRefused, match=message):
        issue_certificate(_reporting(run, event=run.plan.event, noise_std=run.plan.noise_std), settings)


def test_a_comparison_of_other_parts_is_refused(ran: Runs, settings: Settings) -> None:
    other = ran("with_baseline")
    with pytest.raises(CertificateRefused, match=r"plan\.parts"):
        issue_certificate(replace(ran("comparison"), plan=other.plan, report=other.report, artifacts=other.artifacts), settings)


def test_a_plan_that_filters_otherwise_than_its_spec_is_refused(ran: Runs, settings: Settings) -> None:
    run = ran("spectral")
    document = run.plan.model_dump(mode="json")
    document["projection"]["layers"][1]["kept"] = [1]
    with pytest.raises(CertificateRefused, match=r"plan\.projection\.layers"):
        issue_certificate(replace(run, plan=ExecutionPlan.model_validate(document)), settings)


def test_a_plan_that_clips_otherwise_than_its_spec_is_refused(ran: Runs, settings: Settings) -> None:
    run = ran("per_layer")
    plan = ExecutionPlan.model_validate({**dict(run.plan), "clipping": FlatClipping(bound=0.5)})
    with pytest.raises(CertificateRefused, match=r"plan\.clipping\.kind was planned as 'per_layer', but the run reports 'flat'"):
        issue_certificate(replace(run, plan=plan), settings)


def test_less_noise_than_the_spec_comes_to_is_refused(ran: Runs, settings: Settings) -> None:
    run = ran("noisy_rotation")
    assert isinstance(run.plan, FeatureReleasePlan)
    quieter = FeatureReleasePlan.model_validate(dict(run.plan) | {"mechanism": run.plan.mechanism.scaled(0.7)})
    with pytest.raises(CertificateRefused, match="std"):
        issue_certificate(_reporting(replace(run, plan=quieter), event=quieter.event, noise_std=quieter.noise_std), settings)


def test_a_comparison_without_a_parts_model_is_refused(ran: Runs, settings: Settings) -> None:
    run = ran("comparison")
    artifacts = {name: path for name, path in run.artifacts.items() if not name.startswith("clipped")}
    with pytest.raises(CertificateRefused, match=r"a model file was planned as 'clipped-first\.model\.safetensors'"):
        issue_certificate(replace(run, artifacts=artifacts), settings)
