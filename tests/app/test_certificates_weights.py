"""Certificates of trainings that start from given weights: which, and that the guarantee takes them as public."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from app.certificates.issue import issue_certificate
from app.certificates.keys import PublicKeySet
from app.certificates.report import Status
from app.certificates.text import describe
from app.certificates.verification import read, verify
from app.settings import Settings
from tests.app.certificate_kinds import BASELINE, DIGITS, MLP, SPECTRAL
from tests.app.certificates_harness import details, forged, run_of

WEIGHTS = save({"1_convolution.weight": np.zeros((4, 2, 5, 5), np.float32), "1_convolution.bias": np.zeros(4, np.float32)})
DIGEST = hashlib.sha256(WEIGHTS).hexdigest()
GIVEN: dict[str, object] = {"kind": "given", "file": "start.safetensors", "sha256": DIGEST, "frozen_layers": 0, "given_layers": 2}
STARTED: dict[str, object] = {"model": MLP | {"initial_weights": GIVEN}}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "start.safetensors").write_bytes(WEIGHTS)
    monkeypatch.setenv("ZETADP_DATA_SETS_DIR", str(tmp_path))
    return tmp_path


def test_given_weights_are_named_and_not_covered(root: Path, settings: Settings, keys: PublicKeySet) -> None:
    envelope = issue_certificate(run_of(SPECTRAL | STARTED, root / "run"), settings)
    predicate = read(envelope)
    sentence = f"the weights that training started from (SHA-256 {DIGEST}): they are taken as public"
    assert predicate.given_weights == (DIGEST,)
    assert any(line.startswith(sentence) for line in predicate.not_covered)
    assert sentence in describe(predicate)
    report = verify(envelope, keys, None)
    assert (report.verdict, bool(details(report, "sentences", Status.PASSED))) == ("valid", True)


@pytest.mark.parametrize("field", ["given_weights", "not_covered"])
def test_neither_weights_nor_what_is_said_of_them_can_be_left_out_alone(
    field: str, root: Path, settings: Settings, keys: PublicKeySet
) -> None:
    def lie(statement: dict[str, Any]) -> None:
        statement["predicate"][field] = statement["predicate"][field][:-1]

    envelope = issue_certificate(run_of(SPECTRAL | STARTED, root / "run"), settings)
    report = verify(forged(envelope, settings, lie), keys, None)
    assert "not_covered" in details(report, "sentences", Status.NOT_CHECKED)


def test_weights_of_any_part_of_a_comparison_are_named(root: Path, settings: Settings) -> None:
    parts = [{"name": "fresh", "spec": SPECTRAL}, {"name": "given", "spec": BASELINE | STARTED}]
    envelope = issue_certificate(run_of({"algorithm": "comparison", "data": DIGITS, "parts": parts}, root / "run"), settings)
    assert read(envelope).given_weights == (DIGEST,)


def test_a_training_that_draws_its_own_weights_says_nothing_of_others(root: Path, settings: Settings) -> None:
    envelope = issue_certificate(run_of(SPECTRAL, root / "run"), settings)
    assert "given_weights" not in read(envelope).model_dump()
    assert not any("weights that training started from" in line for line in read(envelope).not_covered)
