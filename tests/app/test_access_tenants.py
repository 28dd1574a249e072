r"""One tenant's things, asked for by another: as if they weren't there, in the very words for what isn't."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import httpx2
import pytest

from tests.app.access_harness import made, shown
from tests.app.jobs_harness import serving, settings, spec, submit
from tests.app.openapi_harness import OPERATIONS, document
from tests.app.uploads_harness import make, reading_in_process, uploaded
from zetadp.app.access.scopes import Scope
from zetadp.app.kit.database import Database, now
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.certificates import CertificateRow
from zetadp.app.tables.jobs import JobRow

CERTIFICATE = "certificate-of-a"
NAMES = ("name", "user")
"""Parameters that name something within another thing, not by an id."""

BODIES: dict[str, Any] = {"LabelsChange": {"labels": {"a": "b"}}}
"""Bodies of schemas that have no example of their own."""

PUBLIC = ("GET /v1/log/tile/entries/{place}", "GET /v1/log/tile/{level}/{place}")
"""The log's tiles: everybody may read all of it."""

TAGS = ("jobs", "ledgers", "data", "certificates", "access")
PRIVATE = [name for tag in TAGS for name in OPERATIONS[tag] if "{" in name and name not in PUBLIC]
"""The operations that name something in their path and need a key."""


@pytest.fixture(scope="module")
def of(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return settings(tmp_path_factory.mktemp("tenants"))


@pytest.fixture(scope="module")
def a(of: Settings) -> Generator[httpx2.Client]:
    with reading_in_process(), serving(of) as client:
        yield client


@pytest.fixture(scope="module")
def b(of: Settings, a: httpx2.Client) -> Generator[httpx2.Client]:
    """Another tenant's client, with every scope."""
    with httpx2.Client(base_url=a.base_url, headers=shown(made(of, "b")), timeout=120) as client:
        yield client


@pytest.fixture(scope="module")
def things(of: Settings, a: httpx2.Client) -> dict[str, str]:
    """What is A's, by the name of the paths' parameters: a job that has succeeded, its certificate, a key, a ledger with a reservation."""
    job_id = submit(a)
    envelope = {"payload": "e30=", "payloadType": "application/vnd.in-toto+json", "signatures": []}
    database = Database(of)
    with database.writing() as session:
        session.add(CertificateRow(id=CERTIFICATE, job_id=job_id, created=now(), envelope=envelope))
        row = session.get(JobRow, job_id)
        assert row is not None
        row.state = "succeeded"
    database.close()
    schemas = document()["components"]["schemas"]
    ledger = a.post("/v1/ledgers", json=schemas["LedgerDefinition"]["examples"][0]).json()["id"]
    reserved = a.post(f"/v1/ledgers/{ledger}/reservations", json=schemas["ReservationRequest"]["examples"][0])
    assert reserved.status_code == 201, reserved.text
    return {
        "job_id": job_id,
        "certificate_id": CERTIFICATE,
        "key_id": made(of, "default", Scope.SUBMIT).key.id,
        "ledger_id": ledger,
        "reservation_id": reserved.json()["id"],
        "upload_id": (upload_id := uploaded(a)),
        "data_set_id": make(a, upload_id),
        "name": "spec.json",
        "user": "somebody",
    }


def example_of(operation: dict[str, Any]) -> Any:
    """A body that fits, or None where it takes none."""
    if "requestBody" not in operation:
        return None
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    name = schema["$ref"].rsplit("/", 1)[1]
    return BODIES.get(name) or document()["components"]["schemas"][name]["examples"][0]


def test_every_operation_that_names_something_and_needs_a_key_is_asked_for() -> None:
    described = {
        f"{method.upper()} {path}"
        for path, item in document()["paths"].items()
        for method, operation in item.items()
        if "{" in path and "security" in operation
    }
    assert described == set(PRIVATE)


@pytest.mark.parametrize("operation", PRIVATE)
def test_what_is_anothers_is_not_found_in_the_words_for_what_is_not_there(b: httpx2.Client, things: dict[str, str], operation: str) -> None:
    method, path = operation.split()
    body = example_of(document()["paths"][path][method.lower()])
    nowhere = {name: own if name in NAMES else "f" * 32 for name, own in things.items()}
    answers = [b.request(method, path.format(**ids), json=body) for ids in (things, nowhere)]
    assert [answer.status_code for answer in answers] == [404, 404], answers[0].text
    texts = [{**answer.json(), "request_id": ""} for answer in answers]
    for name, own in things.items():
        texts[0]["detail"] = texts[0]["detail"].replace(own, nowhere[name])
    assert texts[0] == texts[1]
    assert answers[0].headers.keys() == answers[1].headers.keys()


def test_every_kind_of_thing_is_asked_for(things: dict[str, str]) -> None:
    assert {name for name in things if any(f"{{{name}}}" in operation for operation in PRIVATE)} == things.keys()


def test_its_own_tenant_finds_it(a: httpx2.Client, things: dict[str, str]) -> None:
    assert a.get(f"/v1/jobs/{things['job_id']}").status_code == 200
    assert a.get(f"/v1/certificates/{things['certificate_id']}").status_code == 200


def test_nothing_of_another_tenant_was_changed(a: httpx2.Client, of: Settings, things: dict[str, str]) -> None:
    keys = {key["id"]: key for key in a.get("/v1/keys", params={"limit": 200}).json()["keys"]}
    found = keys[things["key_id"]]
    assert (found["revoked"], found["expires"]) == (None, None)


def test_lists_show_ones_own_alone(a: httpx2.Client, b: httpx2.Client, things: dict[str, str]) -> None:
    own = submit(b)
    assert [job["id"] for job in b.get("/v1/jobs").json()["jobs"]] == [own]
    assert own not in {job["id"] for job in a.get("/v1/jobs").json()["jobs"]}
    assert {key["tenant"] for key in b.get("/v1/keys").json()["keys"]} == {"b"}
    assert {key["tenant"] for key in a.get("/v1/keys").json()["keys"]} == {"default"}


def test_a_page_cannot_be_entered_with_the_id_of_another_tenants_job(b: httpx2.Client, things: dict[str, str]) -> None:
    page = b.get("/v1/jobs", params={"cursor": things["job_id"]}).json()
    assert things["job_id"] not in {job["id"] for job in page["jobs"]}


def test_an_idempotency_key_is_a_tenants_own(a: httpx2.Client, b: httpx2.Client) -> None:
    header = {"Idempotency-Key": "the-same-for-both"}
    first = a.post("/v1/jobs", json={"spec": spec()}, headers=header)
    second = b.post("/v1/jobs", json={"spec": spec(steps=21)}, headers=header)
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json()["id"] != second.json()["id"]
    assert b.post("/v1/jobs", json={"spec": spec(steps=21)}, headers=header).json()["id"] == second.json()["id"]
