"""Issued certificates for the tests of integrations, in folders as ``zetadp certificate`` leaves them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.app.certificate_kinds import run_named, write_table
from zetadp.app.certificates.issuing.issue import issue_certificate
from zetadp.app.certificates.signing.keys import PublicKeySet, jwks
from zetadp.app.kit.settings import Settings


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(data_dir=tmp_path_factory.mktemp("service"))


@pytest.fixture(scope="module")
def keys(settings: Settings) -> PublicKeySet:
    return jwks(settings)


@pytest.fixture(scope="module")
def issued(settings: Settings) -> Callable[[str], Path]:
    """The folder of the certificate of a kind of training, or of a setting, by its name."""
    write_table(settings.data_dir / "sets")

    @cache
    def folder(name: str) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ZETADP_DATA_SETS_DIR", str(settings.data_dir / "sets"))
            found = settings.data_dir / "runs" / name
            certificate = issue_certificate(run_named(name, found.parent), settings)
            (found / "certificate.json").write_bytes(certificate)
            (found / "jwks.json").write_text(jwks(settings).model_dump_json())
            return found

    return folder
