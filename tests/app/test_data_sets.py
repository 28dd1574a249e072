r"""Data sets over HTTP: made of a tenant's own uploads, used by its own jobs alone, and kept while they are needed."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import numpy as np
import pytest

from tests.app.access_harness import made as key_of
from tests.app.access_harness import shown
from tests.app.jobs_harness import postgresql_server, serving, settings, wait_until, working
from tests.app.openapi_harness import document
from tests.app.uploads_harness import (
    RECORDS,
    InProcess,
    arrays,
    definition,
    files_below,
    make,
    npz,
    reading_in_process,
    training,
    uploaded,
)
from tests.selection import chosen
from zetadp.app.certificates.page.plain import describe
from zetadp.app.certificates.signing.envelope import Envelope
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.verification.verify import read, verify
from zetadp.app.certificates.words.reading import Reading
from zetadp.app.kit.database import Database, now
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.certificates import CertificateRow
from zetadp.app.tables.job_states import JobState
from zetadp.app.tables.jobs import JobRow
from zetadp.app.uploads.availability import claim
from zetadp.app.uploads.data_set_definition import DataSetDefinition
from zetadp.app.uploads.data_sets import DataSetService
from zetadp.app.uploads.errors import DataSetNotFound
from zetadp.app.uploads.service import UploadAsked, UploadService
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.uploaded import Uploaded

NOWHERE = "f" * 32


@pytest.fixture(scope="module")
def of(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return settings(tmp_path_factory.mktemp("data-sets"))


@pytest.fixture(scope="module")
def client(of: Settings) -> Generator[httpx2.Client]:
    with reading_in_process(), serving(of) as found:
        yield found


@pytest.fixture(scope="module")
def other(of: Settings, client: httpx2.Client) -> Generator[httpx2.Client]:
    """Another tenant's client, with every scope."""
    with httpx2.Client(base_url=client.base_url, headers=shown(key_of(of, "b")), timeout=120) as found:
        yield found


@pytest.fixture(scope="module")
def upload_id(client: httpx2.Client) -> str:
    return uploaded(client)


def submitted(client: httpx2.Client, spec: dict[str, Any]) -> httpx2.Response:
    return client.post("/v1/jobs", json={"spec": spec})


def end(of: Settings, job_id: str, state: JobState) -> None:
    """As if the job had ended."""
    database = Database(of)
    with database.writing() as session:
        row = session.get(JobRow, job_id)
        assert row is not None
        row.state = state
    database.close()


def test_a_data_set_is_told_with_its_facts_and_without_its_values(client: httpx2.Client, of: Settings, upload_id: str) -> None:
    response = client.post("/v1/data-sets", json=definition(upload_id))
    assert response.status_code == 201, response.text
    told = response.json()
    assert response.headers["location"] == f"/v1/data-sets/{told['id']}"
    assert told["data"] == {"kind": "uploaded", "data_set": told["id"]}
    assert (told["facts"]["training_records"], told["facts"]["shape"], told["facts"]["unit"]) == (50, [4], "beat")
    assert client.get(f"/v1/data-sets/{told['id']}").json() == told
    folder = of.made_data_sets_dir / told["id"]
    assert told["bytes"] == sum(path.stat().st_size for path in folder.iterdir())
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} <= {0o600, 0o644}
    assert [place.stat().st_mode & 0o777 for place in (folder, folder.parent)] == [0o700, 0o700]


def test_the_manifest_opens_the_digest_that_certificates_have(client: httpx2.Client, upload_id: str) -> None:
    told = client.get(f"/v1/data-sets/{make(client, upload_id)}").json()
    content = client.get(f"/v1/data-sets/{told['id']}/manifest").content
    assert hashlib.sha256(content).hexdigest() == told["manifest_sha256"]
    manifest = json.loads(content)
    assert manifest["uploads"] == [
        {"id": upload_id, "format": "npz", "bytes": len(npz()), "sha256": hashlib.sha256(npz()).hexdigest()},
    ]
    assert manifest["facts"]["sha256"] == told["facts"]["sha256"]
    assert len(manifest["nonce"]) == 64


def test_two_data_sets_of_the_same_data_have_manifests_of_different_digests(client: httpx2.Client, upload_id: str) -> None:
    first, second = (client.get(f"/v1/data-sets/{make(client, upload_id)}").json() for _ in range(2))
    assert first["facts"] == second["facts"]
    assert first["manifest_sha256"] != second["manifest_sha256"]


def test_uploads_that_arent_ones_own_are_not_there(client: httpx2.Client, other: httpx2.Client, upload_id: str) -> None:
    answers = [other.post("/v1/data-sets", json=definition(found)) for found in (upload_id, NOWHERE)]
    assert [answer.status_code for answer in answers] == [422, 422]
    details = [answer.json()["detail"].replace(upload_id, NOWHERE) for answer in answers]
    assert details[0] == details[1] == f"features[0].upload must be the id of one of your uploads, got {NOWHERE!r}"


def test_what_cant_be_made_leaves_nothing(client: httpx2.Client, of: Settings, upload_id: str) -> None:
    before = files_below(of.made_data_sets_dir)
    refused = client.post("/v1/data-sets", json=definition(upload_id, classes=3))
    assert (refused.status_code, "every class has at least one record" in refused.json()["detail"]) == (422, True)
    assert files_below(of.made_data_sets_dir) == before
    assert not list(of.made_data_sets_dir.glob(".*"))


def test_a_key_makes_one_data_set(client: httpx2.Client, upload_id: str) -> None:
    header = {"Idempotency-Key": "once"}
    first, again = (client.post("/v1/data-sets", json=definition(upload_id), headers=header) for _ in range(2))
    assert (first.status_code, again.json()) == (201, first.json())
    refused = client.post("/v1/data-sets", json=definition(upload_id, name="another"), headers=header)
    assert (refused.status_code, refused.json()["type"]) == (409, "upload-idempotency-conflict")


def test_pages_hold_every_data_set_once_and_nobody_elses(client: httpx2.Client, other: httpx2.Client, upload_id: str) -> None:
    ids = [make(client, upload_id) for _ in range(3)]
    first = client.get("/v1/data-sets", params={"limit": 2}).json()
    second = client.get("/v1/data-sets", params={"limit": 1, "cursor": first["next"]}).json()
    assert [one["id"] for one in (*first["data_sets"], *second["data_sets"])] == ids[::-1]
    assert other.get("/v1/data-sets").json() == {"data_sets": [], "next": None}


def comparison(data_set: str) -> dict[str, Any]:
    one = training(data_set)
    return {
        "algorithm": "comparison",
        "data": one["data"],
        "parts": [{"name": name, "spec": one | {"steps": steps}} for name, steps in (("few", 5), ("many", 10))],
    }


@pytest.mark.parametrize("spec_of", [training, comparison])
def test_a_job_on_anothers_data_set_is_refused_in_the_words_for_one_that_is_not_there(
    client: httpx2.Client, other: httpx2.Client, upload_id: str, spec_of: Any
) -> None:
    own = make(client, upload_id)
    answers = [submitted(other, spec_of(found)) for found in (own, NOWHERE)]
    assert [answer.status_code for answer in answers] == [422, 422]
    texts = [{**json.loads(answer.text.replace(own, NOWHERE)), "request_id": ""} for answer in answers]
    assert texts[0] == texts[1]
    assert texts[0]["detail"] == f"spec.data.data_set must be the id of one of your data sets, got {NOWHERE!r}"
    assert other.get("/v1/jobs").json()["jobs"] == []
    accepted = submitted(client, spec_of(own))
    assert accepted.status_code == 202, accepted.text
    client.post(f"/v1/jobs/{accepted.json()['id']}/cancel")


def test_a_job_charged_to_a_ledger_on_anothers_data_set_reserves_nothing(
    client: httpx2.Client, other: httpx2.Client, upload_id: str
) -> None:
    schema = document()["components"]["schemas"]["LedgerDefinition"]["examples"][0]
    ledger = other.post("/v1/ledgers", json=schema | {"name": "of-b"}).json()["id"]
    refused = other.post("/v1/jobs", json={"spec": training(make(client, upload_id)), "ledger": ledger})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "spec.data.data_set")
    assert other.get(f"/v1/ledgers/{ledger}/reservations").json()["reservations"] == []


def test_without_a_tenant_there_are_no_data_sets(of: Settings, upload_id: str, client: httpx2.Client) -> None:
    with pytest.raises(InvalidParameter, match="the id of one of your data sets"):
        Uploaded(data_set=make(client, upload_id)).stored()


def test_a_data_set_stays_while_a_job_that_hasnt_ended_needs_it(client: httpx2.Client, of: Settings, upload_id: str) -> None:
    data_set = make(client, upload_id)
    job_id = submitted(client, training(data_set)).json()["id"]
    refused = client.delete(f"/v1/data-sets/{data_set}")
    assert (refused.status_code, refused.json()["type"]) == (409, "data-set-in-use")
    assert job_id in refused.json()["detail"]
    client.post(f"/v1/jobs/{job_id}/pause")
    assert client.delete(f"/v1/data-sets/{data_set}").status_code == 409
    client.post(f"/v1/jobs/{job_id}/cancel")
    assert client.delete(f"/v1/data-sets/{data_set}").status_code == 204
    assert client.get(f"/v1/data-sets/{data_set}").status_code == 404
    assert not (of.made_data_sets_dir / data_set).exists()
    again = client.post(f"/v1/jobs/{job_id}/retry")
    assert (again.status_code, "of a data set that was deleted" in again.json()["detail"]) == (409, True)
    assert submitted(client, training(data_set)).status_code == 422


@pytest.mark.parametrize("spec_of", [training, comparison])
def test_a_job_that_does_not_fit_its_uploaded_data_set_is_refused_at_once(client: httpx2.Client, upload_id: str, spec_of: Any) -> None:
    spec = spec_of(make(client, upload_id))
    for part in (spec, *(part["spec"] for part in spec.get("parts", ()))):
        if "expected_batch_size" in part:
            part["expected_batch_size"] = 10**6
    refused = submitted(client, spec)
    assert refused.status_code == 422
    assert "expected_batch_size must be <= " in refused.json()["detail"]


def test_a_comparison_holds_its_data_set_too(client: httpx2.Client, upload_id: str) -> None:
    data_set = make(client, upload_id)
    job_id = submitted(client, comparison(data_set)).json()["id"]
    assert client.delete(f"/v1/data-sets/{data_set}").status_code == 409
    client.post(f"/v1/jobs/{job_id}/cancel")


def test_what_a_certificate_names_keeps_its_manifest(client: httpx2.Client, of: Settings, upload_id: str) -> None:
    data_set = make(client, upload_id)
    manifest = client.get(f"/v1/data-sets/{data_set}/manifest").content
    job_id = submitted(client, training(data_set)).json()["id"]
    end(of, job_id, JobState.SUCCEEDED)
    database = Database(of)
    with database.writing() as session:
        session.add(CertificateRow(id="certificate-of-it", job_id=job_id, created=now(), envelope={}))
    database.close()
    assert client.delete(f"/v1/data-sets/{data_set}").status_code == 204
    assert not (of.made_data_sets_dir / data_set).exists()
    told = client.get(f"/v1/data-sets/{data_set}").json()
    assert (told["state"], told["bytes"], told["deleted"] is not None) == ("deleted", 0, True)
    assert client.get(f"/v1/data-sets/{data_set}/manifest").content == manifest
    assert submitted(client, training(data_set)).status_code == 422
    assert client.delete(f"/v1/data-sets/{data_set}").status_code == 204


def test_a_changed_array_is_not_trained_on(client: httpx2.Client, of: Settings, upload_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data_set = make(client, upload_id)
    monkeypatch.setenv("ZETADP_UPLOADED_DIR", str(of.made_data_sets_dir))
    recipe = Uploaded(data_set=data_set)
    assert len(recipe.read().training_features) == 50
    path = of.made_data_sets_dir / data_set / "training_features.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InvalidParameter, match="unchanged since it was made"):
        recipe.read()


@pytest.fixture(params=chosen(["sqlite", "postgresql"], ["postgresql"]))
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[tuple[Settings, Database]]:
    if request.param == "sqlite":
        yield from _opened(settings(tmp_path))
        return
    with postgresql_server() as url:
        yield from _opened(Settings.model_validate({**dict(settings(tmp_path)), "database_url": url}))


def _opened(of: Settings) -> Generator[tuple[Settings, Database]]:
    found = Database(of)
    found.migrate()
    yield of, found
    found.close()


def test_a_data_set_cannot_go_between_a_jobs_plan_and_the_jobs_storing(database: tuple[Settings, Database]) -> None:
    of, found = database
    reader = InProcess(of)
    uploads = UploadService(of, found, reader, "a")  # pyright: ignore[reportArgumentType]
    begun = uploads.begin(UploadAsked(name="a", format="npz", length=len(npz()), digests=(), key=None))
    begun.landing.write(npz())
    upload_id = uploads.finish(begun, uploads.read(begun)).id
    data_sets = DataSetService(of, found, reader, "a")  # pyright: ignore[reportArgumentType]
    asked = DataSetDefinition.model_validate(definition(upload_id))
    data_set, parts = data_sets.begin(asked, None)
    made = data_sets.finish(data_set, asked, parts, data_sets.read(data_set, asked, parts))
    claimed, deleted = threading.Event(), threading.Event()

    def delete() -> None:
        claimed.wait()
        try:
            data_sets.delete(made.id)
        except DataSetNotFound:
            raise
        except Exception as error:
            outcome.append(type(error).__name__)
        deleted.set()

    outcome: list[str] = []
    thread = threading.Thread(target=delete)
    thread.start()
    with found.writing() as session:
        claim(session, "a", Uploaded(data_set=made.id))
        claimed.set()
        # The other one waits for this transaction, which stores a job.
        assert not deleted.wait(0.3)
        document = {"spec": training(made.id)}
        session.add(JobRow(id="job", tenant="a", state="queued", created=now(), document=document, labels={}))
    thread.join()
    assert outcome == ["DataSetInUse"]
    with found.writing() as session, pytest.raises(InvalidParameter, match="one of your data sets"):
        claim(session, "b", Uploaded(data_set=made.id))


class Own(NamedTuple):
    """Records of one's own, and the network for them."""

    features: np.ndarray
    numbers: str
    scale: float
    model: dict[str, Any]


GENERATOR = np.random.default_rng(0)
OF_SEQUENCES = {"classes": 2, "layers": 1, "channels": 4}
OWN = {
    "perceptron": Own(arrays()["x"], "complex", 4.0, {"kind": "complex_mlp", "hidden": [4], "activation": "cardioid", "head": "magnitude"}),
    "words": Own(
        GENERATOR.integers(0, 9, (RECORDS, 6)).astype(np.float32),
        *("real", 1.0, {"kind": "transformer", "numbers": "complex", "heads": 2, "entries": 9, **OF_SEQUENCES}),
    ),
    "sequences": Own(
        GENERATOR.normal(size=(RECORDS, 3, 5)).astype(np.complex64),
        *("complex", 1.0, {"kind": "recurrent_network", "numbers": "complex", "cell": "gru", "entries": None, **OF_SEQUENCES}),
    ),
    "images": Own(
        GENERATOR.normal(size=(RECORDS, 1, 8, 8)).astype(np.float32),
        *("real", 1.0, {"kind": "wide_resnet", "numbers": "real", "classes": 2, "depth": 10, "widening": 1}),
    ),
}


@pytest.mark.parametrize("kind", chosen(OWN, ["words"]))
def test_data_of_ones_own_from_upload_to_certificate(kind: str, tmp_path: Path) -> None:
    of, own = settings(tmp_path / "service"), OWN[kind]
    with serving(of) as client, working(of, "real"):
        upload_id = uploaded(client, npz(**{**arrays(), "x": own.features}))
        users = {"kind": "array", "unit": "patient", "sources": [{"upload": upload_id, "array": "patient"}]}
        scaling = {"kind": "affine", "offset": 0.0, "scale": own.scale}
        data_set = make(client, upload_id, users=users, scaling=scaling, numbers=own.numbers)
        privacy = {"adjacency": "add_remove", "unit": "patient", "delta": 1e-5, "noise_multiplier": 20.0}
        spec = training(data_set, privacy=privacy, records_per_user=3, expected_batch_size=8, steps=5, model=own.model)
        job_id = submitted(client, spec).json()["id"]
        wait_until(lambda: client.get(f"/v1/jobs/{job_id}").json()["state"] in ("succeeded", "failed"))
        job = client.get(f"/v1/jobs/{job_id}").json()
        assert job["state"] == "succeeded", job["failure"]
        envelope = client.get(f"/v1/certificates/{job['certificate']}").content
        keys = PublicKeySet.model_validate_json(client.get("/.well-known/jwks.json").content)
        told = client.get(f"/v1/data-sets/{data_set}").json()
    checks = {check.name: check.status.value for check in verify(envelope, keys, None).checks}
    assert "failed" not in checks.values()
    assert [checks[name] for name in ("signature", "plan", "accountants", "recomputation")] == ["passed"] * 4
    certificate = read(envelope)
    assert certificate.data.uploaded is not None
    assert certificate.data.uploaded.model_dump() == {
        "id": data_set,
        "manifest_sha256": told["manifest_sha256"],
        "words": "Spectra of ward 3",
    }
    assert "Its maker says of it (nobody checked that): 'Spectra of ward 3'" in describe(certificate)
    assert any("the data set's maker says so, and nobody checked it" in line for line in Reading(certificate).assumptions)
    # The bare digest of the data would tell whether a guess of all of them is right.
    assert told["facts"]["sha256"] not in Envelope.model_validate_json(envelope).content.decode()
