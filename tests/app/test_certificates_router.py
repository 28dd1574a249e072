"""Certificates over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse
from fastapi.testclient import TestClient
from sqlalchemy import create_engine

from tests.app.certificates_harness import finished_run
from tests.app.openapi_harness import document
from tests.selection import thinned
from zetadp.app.access.caller import Caller, requires
from zetadp.app.access.scopes import Scope
from zetadp.app.certificates.errors import CertificateNotFound
from zetadp.app.certificates.issuing.issue import issue_certificate
from zetadp.app.certificates.router import router
from zetadp.app.certificates.signing.envelope import MAXIMUM_BYTES, Envelope, encode, sign
from zetadp.app.certificates.signing.keys import jwks, signer
from zetadp.app.kit.database import Base, Database, now
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.certificates import CertificateRow
from zetadp.app.tables.jobs import JobRow


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(data_dir=tmp_path_factory.mktemp("router"))


@pytest.fixture(scope="module")
def envelope(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return issue_certificate(finished_run(tmp_path_factory.mktemp("files")), settings)


@pytest.fixture(scope="module")
def client(settings: Settings, envelope: bytes) -> Iterator[TestClient]:
    database = Database(settings)
    engine = create_engine(settings.sqlalchemy_url)
    Base.metadata.create_all(engine)
    engine.dispose()
    with database.writing() as session:
        session.add(JobRow(id="job-1", state="succeeded", created=now(), document={}))
        session.flush()
        session.add(CertificateRow(id="certificate-1", job_id="job-1", created=now(), envelope=json.loads(envelope)))
    app = FastAPI()
    app.state.settings, app.state.database = settings, database
    app.include_router(router)
    caller = Caller(tenant="default", key_id="1", principal="1", scopes=frozenset(Scope))
    app.dependency_overrides[requires(Scope.SUBMIT)] = lambda: caller

    @app.exception_handler(CertificateNotFound)
    def not_found(request: Request, error: CertificateNotFound) -> PlainTextResponse:
        return PlainTextResponse(str(error), 404)

    with TestClient(app) as running:
        yield running
    database.close()


def test_a_certificate_comes_back_byte_for_byte(client: TestClient, envelope: bytes) -> None:
    assert client.get("/v1/certificates/certificate-1").content == envelope


def test_a_certificate_has_the_media_type_of_dsse(client: TestClient) -> None:
    assert client.get("/v1/certificates/certificate-1").headers["content-type"] == "application/vnd.dsse.envelope.v1+json"


def test_an_unknown_certificate_is_named(client: TestClient) -> None:
    answer = client.get("/v1/certificates/nothing")
    assert (answer.status_code, answer.text) == (404, "there is no certificate 'nothing'")


def test_keys_are_the_published_set(client: TestClient, settings: Settings) -> None:
    assert client.get("/.well-known/jwks.json").json() == json.loads(jwks(settings).model_dump_json())


def test_an_own_certificate_verifies(client: TestClient, envelope: bytes) -> None:
    answer = client.post("/v1/certificates/verify", content=envelope, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["verdict"]) == (200, "valid")


@pytest.mark.parametrize(
    "body", thinned([b"", b"{}", b"no json", b"\xff", b"[" * 100_000, b"x" * (MAXIMUM_BYTES + 10)], every=3), ids=range(6)
)
def test_anything_else_is_answered_with_an_invalid_report(client: TestClient, body: bytes) -> None:
    answer = client.post("/v1/certificates/verify", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["verdict"]) == (200, "invalid")


@pytest.mark.parametrize("payload", [b"[" * 100_000, b"{}", b'{"predicate":[]}', b'{"predicate":{"announced":1}}', b"\xff"], ids=range(5))
def test_a_strangers_statement_under_the_services_own_key_id_is_refused_and_not_looked_for(
    client: TestClient, settings: Settings, payload: bytes
) -> None:
    forged = json.loads(sign(payload, signer(settings)))
    signed = client.post("/v1/certificates/verify", content=encode(Envelope.model_validate(forged)))
    forged["signatures"][0]["sig"] = "A" * 86 + "=="
    unsigned = client.post("/v1/certificates/verify", content=encode(Envelope.model_validate(forged)))
    assert [(answer.status_code, answer.json()["verdict"]) for answer in (signed, unsigned)] == [(200, "invalid")] * 2


def test_the_schema_names_the_report() -> None:
    operation = document()["paths"]["/v1/certificates/verify"]["post"]
    assert operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith("/VerificationReport")
