"""A run in MLflow with its certificate: figures that are the certificate's, and files that prove them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType

import pytest

from tests.library.certificates import issued, keys, settings
from zetadp.app.certificates.page.plain import describe
from zetadp.app.certificates.signing.keys import PublicKeySet, jwks, signing_key
from zetadp.app.certificates.verification.verify import read
from zetadp.app.kit.settings import Settings
from zetadp.mechanisms import InvalidParameter

__all__ = ["issued", "keys", "settings"]  # fixtures

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[ModuleType]:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # it leaves a thread behind
    mlflow = pytest.importorskip("mlflow", reason="MLflow isn't installed: pip install 'zetadp[mlflow]'")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'runs.db'}")
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("tests", artifact_location=(tmp_path / "artifacts").as_uri()))
    yield mlflow
    while mlflow.active_run() is not None:
        mlflow.end_run()


def logged(library: ModuleType, folder: Path, keys: PublicKeySet) -> tuple[dict[str, str], dict[str, float], dict[str, bytes]]:
    """Parameters, metrics and artifacts of a run."""
    from zetadp.integrations.mlflow import log_certificate

    with library.start_run() as run:
        log_certificate(folder, keys)
    found = library.get_run(run.info.run_id)
    local = Path(library.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path="privacy"))
    return found.data.params, found.data.metrics, {path.name: path.read_bytes() for path in local.iterdir()}


def test_a_guarantee_is_logged_with_its_files(library: ModuleType, issued: Callable[[str], Path], keys: PublicKeySet) -> None:
    folder = issued("plain")
    certificate = read((folder / "certificate.json").read_bytes())
    parameters, metrics, artifacts = logged(library, folder, keys)
    assert parameters == {
        "privacy.guarantee": "approximate_dp",
        "privacy.algorithm": "zeta_dp_sgd",
        "privacy.steps": "40",
        "privacy.epsilon": certificate.guarantee.epsilon,
        "privacy.delta": "1e-05",
        "privacy.unit": "record",
        "privacy.adjacency": "add_remove",
        "privacy.noise_multiplier": "2.0",
    }
    assert metrics == {"privacy.accuracy": 0.875}
    assert set(artifacts) == {"certificate.json", "certificate.txt", "jwks.json", "model.safetensors", "spec.json"}
    assert artifacts["certificate.json"] == (folder / "certificate.json").read_bytes()
    assert artifacts["certificate.txt"].decode() == describe(certificate)


def test_no_guarantee_is_logged_as_none(library: ModuleType, issued: Callable[[str], Path], keys: PublicKeySet) -> None:
    parameters, _, artifacts = logged(library, issued("baseline"), keys)
    assert parameters["privacy.guarantee"] == "none"
    assert parameters["privacy.reason"]
    assert not {"privacy.epsilon", "privacy.delta", "privacy.noise_multiplier"} & set(parameters)
    assert b"THERE IS NO PRIVACY GUARANTEE" in artifacts["certificate.txt"]


def test_nothing_is_logged_of_a_certificate_that_is_not_valid(library: ModuleType, issued: Callable[[str], Path], tmp_path: Path) -> None:
    from zetadp.integrations.mlflow import log_certificate

    others = Settings(data_dir=tmp_path / "another")
    signing_key(others)
    with library.start_run() as run, pytest.raises(InvalidParameter, match="certificate must be valid"):
        log_certificate(issued("plain"), jwks(others))
    assert library.get_run(run.info.run_id).data.params == {}


def test_without_an_active_run_nothing_is_started(library: ModuleType, issued: Callable[[str], Path], keys: PublicKeySet) -> None:
    from zetadp.integrations.mlflow import log_certificate

    with pytest.raises(InvalidParameter, match=r"run must be active \(mlflow.start_run\), got None"):
        log_certificate(issued("plain"), keys)
    assert library.active_run() is None
