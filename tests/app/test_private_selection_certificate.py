"""A private selection from its spec to its certificate: trained, certified, verified, and read."""

from __future__ import annotations

import platform
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.trainer.forked import ForkedPopen
from zetadp.accountants import profile
from zetadp.app.certificates.facts.guarantee import ApproximateDp
from zetadp.app.certificates.facts.report import Status
from zetadp.app.certificates.facts.statement import CERTIFICATE_FILE, CODE_MANIFEST, SPEC_FILE
from zetadp.app.certificates.issuing.issue import CertificateInput, issue_certificate, spec_file
from zetadp.app.certificates.signing.digests import code_manifest
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.verification.verify import read, verify
from zetadp.app.kit.settings import Settings
from zetadp.trainer import RuntimeSpec, load_train
from zetadp.trainer.specs.algorithms.private_selection import PrivateSelection

pytest.importorskip("torch")
platform.processor()  # asks a process of its own, once, which no training stands in for


def _spec() -> PrivateSelection:
    document = PrivateSelection.example().model_dump(mode="json", exclude_none=True)
    for candidate in document["candidates"]:
        candidate["spec"]["steps"] = 5
    return PrivateSelection.model_validate(document | {"runs": {"kind": "geometric", "mean": 2.0}})


def test_a_selections_certificate_states_the_price_of_the_choice_and_verifies(
    settings: Settings, keys: PublicKeySet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", ForkedPopen)
    spec, runtime, began = _spec(), RuntimeSpec(device="cpu", threads=1), datetime.now(UTC)
    plan = spec.plan()
    report = load_train(spec)(spec, plan, runtime, tmp_path / "run", report=lambda _: None, should_stop=lambda: False)
    monkeypatch.undo()
    folder = tmp_path / "run" / "artifacts"
    files = {path.name: path for path in folder.iterdir()}
    assert set(files) == {"model.safetensors", "selection.json"}
    given = CertificateInput("job-1", spec, runtime, plan, report, files, began, datetime.now(UTC), attempts=1)
    envelope = issue_certificate(given, settings)
    for name, content in ((SPEC_FILE, spec_file(spec)), (CODE_MANIFEST, code_manifest()), (CERTIFICATE_FILE, envelope)):
        (folder / name).write_bytes(content)
    found = verify(envelope, keys, folder)
    assert found.verdict == "valid", found.checks
    passed = {check.name for check in found.checks if check.status is Status.PASSED}
    assert {"file model.safetensors", "file selection.json", "file spec.json", "accountants", "plan"} <= passed
    certificate = read(envelope)
    assert isinstance(certificate.guarantee, ApproximateDp)
    one_run = profile(plan.one_run.event).epsilon_upper(plan.delta)
    assert float(certificate.guarantee.epsilon) == pytest.approx(profile(plan.event).epsilon_upper(plan.delta), rel=1e-4)
    assert float(certificate.guarantee.epsilon) > one_run
    assert certificate.run.selected == report.selected
    shutil.copyfile(folder / "selection.json", folder / "model.safetensors")
    assert verify(envelope, keys, folder).verdict == "invalid"
