r"""Uploads and data sets from the command line and the Python client."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner

from tests.app.jobs_harness import ADMIN_KEY, serving, settings
from tests.app.uploads_harness import definition, npz, reading_in_process
from zetadp.app.cli import app
from zetadp.app.client import Client, RequestRefused
from zetadp.app.uploads.data_set_definition import DataSetDefinition


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[httpx2.Client]:
    with reading_in_process(), serving(settings(tmp_path_factory.mktemp("service"))) as client:
        yield client


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "beats.npz"
    path.write_bytes(npz())
    return path


def run(service: httpx2.Client, *arguments: str, body: str | None = None, code: int = 0) -> str:
    """What the command says; the service, which runs in this process, may say something between its lines."""
    environment = {"ZETADP_ADDRESS": str(service.base_url).rstrip("/"), "ZETADP_KEY": ADMIN_KEY}
    result = CliRunner().invoke(app, ["data", *arguments], input=body, env=environment)
    assert result.exit_code == code, result.output
    return result.output


def test_a_file_becomes_a_data_set_and_both_are_deleted(service: httpx2.Client, archive: Path, tmp_path: Path) -> None:
    told = run(service, "upload", str(archive))
    assert "beats.npz  npz  " in told
    assert "x [60, 4] complex64, y [60] int64, patient [60] int64" in told
    with Client(str(service.base_url), ADMIN_KEY) as client:
        upload_id = client.data.uploads().uploads[0].id
        path = tmp_path / "definition.json"
        path.write_text(DataSetDefinition.model_validate(definition(upload_id)).model_dump_json())
        made = run(service, "make", str(path))
        data_set = client.data.data_sets().data_sets[0].id
        assert f"data set {data_set}  ward 3  50 + 10 records 'beat'" in made
        assert f'data: {{"kind":"uploaded","data_set":"{data_set}"}}' in made
        assert data_set in run(service, "manifest", data_set)
        listed = run(service, "list")
        assert data_set in listed
        assert upload_id in listed
        assert f"data set {data_set} is deleted" in run(service, "delete", data_set)
        assert f"upload {upload_id} is deleted" in run(service, "delete", upload_id)
        assert client.data.uploads().uploads == ()
    assert "No such upload." in run(service, "delete", upload_id, code=4)


def test_a_file_of_no_known_name_needs_its_format(service: httpx2.Client, archive: Path) -> None:
    path = archive.rename(archive.with_name("beats"))
    assert "format must be one of npz, npy" in run(service, "upload", str(path), code=2)
    assert "format must be the format of the file's content, npz" in run(service, "upload", str(path), "--format", "npy", code=2)
    assert "upload " in run(service, "upload", str(path), "--format", "npz")


def test_the_client_sends_a_key_that_makes_one_upload(service: httpx2.Client, archive: Path) -> None:
    with Client(str(service.base_url), ADMIN_KEY) as client:
        first, again = (client.data.upload(archive, "npz", idempotency_key="once") for _ in range(2))
        assert first == again
        archive.write_bytes(npz() + b"0")
        with pytest.raises(RequestRefused, match="used before with another request"):
            client.data.upload(archive, "npz", idempotency_key="once")
