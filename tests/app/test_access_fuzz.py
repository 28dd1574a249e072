"""Keys and the audit log under generated requests over real HTTP: no server error, and no answer that differs from its description."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as run
from schemathesis import checks
from schemathesis.generation import GenerationMode

from app.main import create_app
from app.settings import Settings
from tests.app.jobs_harness import AUTHORIZED, serving, settings

FITTING, UNFITTING = 10, 5
"""Requests of each kind an operation gets: the same ones in every run."""

with TemporaryDirectory() as _folder:
    DOCUMENT = create_app(Settings(data_dir=Path(_folder))).openapi()
OPERATIONS = {
    f"{operation.method.upper()} {operation.path}": operation
    for operation in (found.ok() for found in schemathesis.openapi.from_dict(DOCUMENT).get_all_operations())
    if "access" in set(operation.tags or ())
}
NAMES = ("status_code_conformance", "content_type_conformance", "response_headers_conformance", "response_schema_conformance")
CHECKS = [checks.not_a_server_error, *(check for check in checks.CHECKS.get_all() if check.__name__ in NAMES)]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[httpx2.Client]:
    with serving(settings(tmp_path_factory.mktemp("fuzz"))) as client:
        yield client


def _statuses(client: httpx2.Client, name: str, mode: GenerationMode, count: int) -> set[int]:
    statuses: set[int] = set()

    @run(
        max_examples=count, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
    )
    @given(case=OPERATIONS[name].as_strategy(generation_mode=mode))
    def check(case):
        response = case.call(base_url=str(client.base_url), headers=AUTHORIZED)
        statuses.add(response.status_code)
        case.validate_response(response, checks=CHECKS)

    check()
    return statuses


def test_all_operations_and_checks_are_there() -> None:
    assert len(CHECKS) == 5
    assert OPERATIONS.keys() == {
        "POST /v1/keys",
        "GET /v1/keys",
        "POST /v1/keys/{key_id}/rotate",
        "DELETE /v1/keys/{key_id}",
        "GET /v1/audit-log",
    }


@pytest.mark.parametrize("name", OPERATIONS)
def test_requests_that_fit_get_an_answer_that_fits(client: httpx2.Client, name: str) -> None:
    assert _statuses(client, name, GenerationMode.POSITIVE, FITTING) <= {200, 201, 404, 422}


@pytest.mark.parametrize("name", ["POST /v1/keys", "POST /v1/keys/{key_id}/rotate"])
def test_requests_that_do_not_fit_are_refused(client: httpx2.Client, name: str) -> None:
    assert _statuses(client, name, GenerationMode.NEGATIVE, UNFITTING) <= {401, 404, 405, 422}
