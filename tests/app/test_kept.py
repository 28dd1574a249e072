"""Pages and catalogues are made once, and what depends on who asks never is."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.app.jobs_harness import AUTHORIZED, settings
from tests.selection import thinned
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.app.web.router import STANDING, router


def paths_of(found: object, prefix: str = "") -> set[str]:
    """Paths of a router and of those included in it."""
    paths: set[str] = set()
    for route in found.routes:  # type: ignore[attr-defined]
        if hasattr(route, "original_router"):
            paths |= paths_of(route.original_router, prefix + route.include_context.prefix)
        else:
            paths.add(prefix + route.path)
    return paths


def test_pages_without_a_choice_in_their_path_are_kept() -> None:
    assert {path for path in paths_of(router) if "{" not in path} == set(STANDING)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return TestClient(create_app(settings(tmp_path_factory.mktemp("kept"))), base_url="http://127.0.0.1")


@pytest.mark.parametrize("path", thinned(["/papers", "/v1/errata", "/openapi.json"], every=2))
@pytest.mark.parametrize("encoding", ["gzip", "identity"])
def test_the_second_answer_is_the_first(path: str, encoding: str, client: TestClient) -> None:
    first, second = (client.get(path, headers={"Accept-Encoding": encoding}) for _ in range(2))
    assert first.status_code == second.status_code == 200
    assert first.content == second.content
    assert first.headers.get("content-encoding") == second.headers.get("content-encoding") == ("gzip" if encoding == "gzip" else None)
    own = {"x-request-id"}
    assert {name: first.headers[name] for name in first.headers if name not in own} == {
        name: second.headers[name] for name in second.headers if name not in own
    }
    assert first.headers["x-request-id"] != second.headers["x-request-id"]


def test_closed_catalogues_need_their_key_every_time(tmp_path: Path) -> None:
    of = Settings.model_validate(settings(tmp_path).model_dump() | {"open_calculators": False})
    with TestClient(create_app(of), base_url="http://127.0.0.1") as client:
        statuses = [client.get("/v1/errata", headers=headers).status_code for headers in (AUTHORIZED, {}, AUTHORIZED)]
    assert statuses == [200, 401, 200]
