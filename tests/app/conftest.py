"""One issued certificate that the certificates' tests share; none of them changes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.certificates.issue import CertificateInput, issue_certificate
from app.certificates.keys import PublicKeySet, jwks
from app.settings import Settings
from tests.app.certificates_harness import finished_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("verification")


@pytest.fixture(scope="module")
def settings(folder: Path) -> Settings:
    return Settings(data_dir=folder / "data")


@pytest.fixture(scope="module")
def run(folder: Path) -> CertificateInput:
    return finished_run(folder / "files")


@pytest.fixture(scope="module")
def envelope(run: CertificateInput, settings: Settings) -> bytes:
    return issue_certificate(run, settings)


@pytest.fixture(scope="module")
def keys(settings: Settings) -> PublicKeySet:
    return jwks(settings)
