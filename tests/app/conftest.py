"""Issued certificates that the certificates' tests share, one and of every kind of training; none of them changes them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path

import pytest

from tests.app.announced_harness import Announcing
from tests.app.certificate_kinds import BASELINE, run_named, write_table
from tests.app.certificates_harness import MadeWhenAsked, finished_run, run_of
from tests.remembered import accounted_once
from zetadp.app.certificates.facts.statement import PrivacyCertificate
from zetadp.app.certificates.issuing.issue import CertificateInput, issue_certificate
from zetadp.app.certificates.page.plain import describe
from zetadp.app.certificates.signing.keys import PublicKeySet, jwks
from zetadp.app.certificates.verification.verify import read
from zetadp.app.certificates.words.reading import Reading
from zetadp.app.kit.settings import Settings

collect_ignore = ["preloaded.py"]
"""To look for doctests in it would import it, and with it torch and a data set's facts."""


@pytest.fixture(scope="module", autouse=True)
def each_event_is_accounted_once(request: pytest.FixtureRequest) -> Generator[None]:
    """For the tests of certificates; those of accounting and of its time limits ask anew."""
    if "certificate" in request.module.__name__ or "verification" in request.module.__name__:
        with accounted_once():
            yield
    else:
        yield


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
def unprotected(tmp_path_factory: pytest.TempPathFactory) -> CertificateInput:
    """A run whose figures take no time to recompute."""
    return run_of(BASELINE, tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def house(unprotected: CertificateInput, tmp_path_factory: pytest.TempPathFactory) -> Generator[Announcing]:
    """Where plans of such runs are logged."""
    made = Announcing(Settings(data_dir=tmp_path_factory.mktemp("house")), unprotected)
    yield made
    made.database.close()


@pytest.fixture(scope="module")
def envelope(run: CertificateInput, settings: Settings) -> bytes:
    return issue_certificate(run, settings)


@pytest.fixture(scope="module")
def keys(settings: Settings) -> PublicKeySet:
    return jwks(settings)


@pytest.fixture(scope="module")
def table_of_kinds(folder: Path) -> Generator[None]:
    write_table(folder / "sets")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZETADP_DATA_SETS_DIR", str(folder / "sets"))
        yield


@pytest.fixture(scope="module")
def issued(folder: Path, settings: Settings, table_of_kinds: None) -> Callable[[str], bytes]:
    """The certificate of a kind of training, or of a setting, by its name; issued when it is first asked for."""
    return cache(lambda name: issue_certificate(run_named(name, folder / "named"), settings))


@pytest.fixture(scope="module")
def reading(issued: Callable[[str], bytes]) -> Callable[[str], Reading]:
    """A certificate of this name as it is read."""
    return lambda name: Reading(read(issued(name)))


@pytest.fixture(scope="module")
def text(issued: Callable[[str], bytes]) -> Callable[[str], str]:
    """The same in words."""
    return lambda name: describe(read(issued(name)))


@pytest.fixture(scope="module")
def finished(folder: Path, table_of_kinds: None) -> dict[str, CertificateInput]:
    return MadeWhenAsked(lambda name: run_named(name, folder / "kinds"))


@pytest.fixture(scope="module")
def envelopes(finished: dict[str, CertificateInput], settings: Settings) -> dict[str, bytes]:
    return MadeWhenAsked(lambda name: issue_certificate(finished[name], settings))


@pytest.fixture(scope="module")
def predicates(envelopes: dict[str, bytes]) -> dict[str, PrivacyCertificate]:
    return MadeWhenAsked(lambda name: read(envelopes[name]))


@pytest.fixture(scope="module")
def texts(predicates: dict[str, PrivacyCertificate]) -> dict[str, str]:
    return MadeWhenAsked(lambda name: describe(predicates[name]))
