"""A certificate with several things wrong: verification names every one of them, not only the first."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.certificates_harness import details, forged
from zetadp.app.certificates.facts.report import Status, VerificationReport
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.verification.verify import verify
from zetadp.app.kit.settings import Settings


@pytest.fixture(scope="module")
def report(envelope: bytes, settings: Settings, keys: PublicKeySet) -> VerificationReport:
    """Of a certificate whose noise, held-out records, history, epsilon, curve and Renyi bounds are wrong at once."""

    def change(statement: dict[str, Any]) -> None:
        predicate = statement["predicate"]
        guarantee = predicate["guarantee"]
        predicate["plan"]["mechanism"]["std"] = 99.0
        predicate["run"]["held_out"] = "none"
        predicate["job"]["resumptions"] = 7
        guarantee["epsilon"], guarantee["epsilon_lower"] = "0.001", "0.001"
        guarantee["delta_curve"] = [["0.001", guarantee["delta"]]]
        for point in guarantee["renyi"]:
            point[1] = "1e-9"

    return verify(forged(envelope, settings, change), keys, None)


def test_every_check_that_can_be_made_is_made(report: VerificationReport) -> None:
    failed = {check.name for check in report.checks if check.status is Status.FAILED}
    assert (report.verdict, failed) == ("invalid", {"plan", "parts", "accountants", "other_figures", "recomputation"})


@pytest.mark.parametrize(
    ("check", "told"),
    [
        ("plan", "run.metrics: must be stated if and only if something was measured"),
        ("parts", "can't have continued from a checkpoint 7 times"),
        ("accountants", "epsilon is 0.001, but by"),
        ("accountants", "delta(0.001) is 1e-05, but by"),
        ("other_figures", "renyi(2.0) is 1e-9, but recomputed it is"),
        ("other_figures", "renyi(64.0) is 1e-9, but recomputed it is"),
        ("recomputation", "epsilon is 0.001, but recomputed from the event it is"),
        ("recomputation", "delta(0.001) is 1e-05, but recomputed its logarithm is"),
    ],
)
def test_each_is_named_with_what_it_should_be(report: VerificationReport, check: str, told: str) -> None:
    assert told in details(report, check)


def test_what_cannot_be_computed_with_leaves_the_rest_named(envelope: bytes, settings: Settings, keys: PublicKeySet) -> None:
    def change(statement: dict[str, Any]) -> None:
        statement["predicate"]["guarantee"]["delta"] = "2.0"
        statement["predicate"]["job"]["resumptions"] = 7

    report = verify(forged(envelope, settings, change), keys, None)
    assert "delta must be in (0, 1), got 2.0" in details(report, "parts")
    assert "from a checkpoint 7 times" in details(report, "parts")
    assert "nothing can be computed" in details(report, "recomputation", Status.NOT_CHECKED)


def test_every_field_that_does_not_fit_is_named(envelope: bytes, settings: Settings, keys: PublicKeySet) -> None:
    def change(statement: dict[str, Any]) -> None:
        statement["predicate"]["guarantee"]["epsilon"] = 1.0
        statement["predicate"]["run"]["steps_released"] = "many"
        del statement["predicate"]["environment"]

    told = details(verify(forged(envelope, settings, change), keys, None), "statement")
    assert all(name in told for name in ("epsilon", "run.steps_released", "environment"))
