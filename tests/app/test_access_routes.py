r"""Every route that the service describes, asked without a key and with keys that aren't for it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from tests.app.access_harness import made, shown
from tests.app.jobs_harness import ADMIN_KEY, serving
from tests.app.openapi_harness import document
from tests.selection import thinned
from zetadp.app.access.scopes import Scope
from zetadp.app.kit.database import now
from zetadp.app.kit.settings import Settings

OPEN_TAGS = {"calculators", "papers", "recipes", "health"}
ANYTHING = "0" * 32
"""In the place of each parameter of a path."""
OPEN_PATHS = {
    "/v1/certificates/verify",
    "/v1/certificates/schema",
    "/v1/policy",
    "/v1/policy/schema",
    "/v1/log",
    "/v1/log/checkpoint",
    f"/v1/log/tile/entries/{ANYTHING}",
    f"/v1/log/tile/{ANYTHING}/{ANYTHING}",
    "/v1/log/consistency",
    "/.well-known/jwks.json",
    "/.well-known/zetadp-revocations.jws",
}
ASKED = {"/v1/mechanisms", "/v1/log", "/.well-known/jwks.json", "/.well-known/zetadp-revocations.jws", "/livez"}
NEEDED = {
    "type": "key-needed",
    "title": "This needs a key.",
    "status": 401,
    "detail": "expected a valid key in the header Authorization, as Bearer zdp_<id>_<secret>",
}
WRONG_KEYS = {
    "malformed": "zdp_1_2",
    "too long": ADMIN_KEY + "0",
    "unknown": "zdp_" + "f" * 24 + "_" + "0" * 64,
    "wrong secret": ADMIN_KEY[:-1] + "0",
    "not a key": "\\x00",
    "empty": "-",
}


def settings(data_dir: Path, **changes: Any) -> Settings:
    return Settings(data_dir=data_dir, admin_key=SecretStr(ADMIN_KEY), failures_per_address="10000/minute", **changes)


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(method, path with every parameter filled in, description)."""
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            names = [part["name"] for part in operation.get("parameters", ()) if part["in"] == "path"]
            yield method, path.format(**dict.fromkeys(names, ANYTHING)), operation


@pytest.fixture(scope="module")
def of(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return settings(tmp_path_factory.mktemp("routes"))


@pytest.fixture(scope="module")
def client(of: Settings) -> Generator[httpx2.Client]:
    with serving(of) as known, httpx2.Client(base_url=known.base_url, timeout=120) as client:
        yield client


def refused(response: httpx2.Response) -> dict[str, Any]:
    """The problem without its request's name, which is the header's."""
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem.pop("request_id") == response.headers["x-request-id"]
    return problem


def test_every_route_but_the_open_ones_needs_a_key(client: httpx2.Client) -> None:
    asked = 0
    for method, path, operation in operations():
        is_open = OPEN_TAGS & set(operation.get("tags", ())) or path in OPEN_PATHS
        assert ("security" in operation) != bool(is_open), path
        if is_open and method == "get" and path not in ASKED:
            continue  # what is described without a key is served without one, and some of it takes seconds
        response = client.request(method, path, json={} if "requestBody" in operation else None)
        if is_open:
            assert response.status_code in (200, 422), path
            continue
        asked += 1
        assert (response.status_code, response.headers.get("www-authenticate")) == (401, "Bearer"), (method, path)
        assert refused(response) == NEEDED, path
    assert asked >= 14


def test_every_route_refuses_a_key_without_its_scope(of: Settings, client: httpx2.Client) -> None:
    for scope in Scope:
        header = shown(made(of, "default", *(other for other in Scope if other is not scope)))
        for method, path, operation in operations():
            if operation.get("security") == [{"key": [scope]}]:
                response = client.request(method, path, json={} if "requestBody" in operation else None, headers=header)
                assert response.status_code == 403, (method, path)
                assert refused(response) == {
                    "type": "scope-missing",
                    "title": "The key doesn't allow this.",
                    "status": 403,
                    "detail": f"this needs a key with the scope {scope}",
                }


def test_no_scope_contains_another(of: Settings, client: httpx2.Client) -> None:
    admin = shown(made(of, "default", Scope.ADMIN))
    assert client.get("/v1/keys", headers=admin).status_code == 200
    assert client.get("/v1/jobs", headers=admin).status_code == 403


@pytest.mark.parametrize("text", thinned(WRONG_KEYS.values(), every=2), ids=WRONG_KEYS)
def test_every_key_that_is_not_valid_is_refused_in_the_same_words(client: httpx2.Client, text: str) -> None:
    for path in ("/v1/jobs", "/v1/mechanisms"):
        response = client.get(path, headers=shown(text))
        assert (response.status_code, refused(response)) == (401, NEEDED)


def test_an_expired_and_a_revoked_key_are_refused_in_the_same_words(of: Settings, client: httpx2.Client) -> None:
    revoked = made(of, "default")
    assert client.delete(f"/v1/keys/{revoked.key.id}", headers=shown(ADMIN_KEY)).status_code == 200
    expiring = made(of, "default", expires=now() + timedelta(seconds=0.3))
    while client.get("/v1/jobs", headers=shown(expiring)).status_code == 200:
        assert expiring.key.expires is not None
        assert now() < expiring.key.expires + timedelta(seconds=5)
    for key in (revoked, expiring):
        assert refused(client.get("/v1/jobs", headers=shown(key))) == NEEDED


def test_another_way_to_authenticate_is_no_key(client: httpx2.Client) -> None:
    for header in (f"Basic {ADMIN_KEY}", ADMIN_KEY, f"Bearer {ADMIN_KEY}, Bearer {ADMIN_KEY}"):
        assert client.get("/v1/jobs", headers={"Authorization": header}).status_code == 401
    twice = [("Authorization", f"Bearer {ADMIN_KEY}")] * 2
    assert client.get("/v1/jobs", headers=twice).status_code == 401
    assert client.get("/v1/jobs", params={"key": ADMIN_KEY, "access_token": ADMIN_KEY}).status_code == 401


def test_the_scheme_is_read_in_any_case(client: httpx2.Client) -> None:
    assert client.get("/v1/jobs", headers={"Authorization": f"bearer  {ADMIN_KEY}"}).status_code == 200


def test_closed_calculators_need_their_scope(tmp_path: Path) -> None:
    of = settings(tmp_path, open_calculators=False)
    with serving(of) as known, httpx2.Client(base_url=known.base_url, timeout=120) as client:
        for method, path, operation in operations():
            is_open = "health" in operation.get("tags", ()) or path in OPEN_PATHS
            response = client.request(method, path, json={} if "requestBody" in operation else None)
            assert (response.status_code == 401) != is_open, (method, path)
        assert client.get("/v1/mechanisms", headers=shown(made(of, "b", Scope.CALCULATE))).status_code == 200
        assert client.get("/v1/mechanisms", headers=shown(made(of, "b", Scope.SUBMIT))).status_code == 403


def test_the_description_names_the_scheme_and_the_refusals() -> None:
    scheme = document()["components"]["securitySchemes"]["key"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    for _, path, operation in operations():
        expected = {"429"} if "health" not in operation.get("tags", ()) else set()
        assert expected <= operation["responses"].keys(), path
        assert ("security" in operation) == ({"401", "403"} <= operation["responses"].keys()), path
