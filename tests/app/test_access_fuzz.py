"""Keys and the audit log under generated requests over real HTTP: no server error, and no answer that differs from its description."""

from __future__ import annotations

from collections.abc import Generator

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as run

from tests.app.fuzzing_harness import Mode, answer_checks, requests
from tests.app.jobs_harness import AUTHORIZED, serving, settings
from tests.app.openapi_harness import OPERATIONS
from tests.selection import chosen, thinned

FITTING, UNFITTING = chosen([2, 10], [2]), chosen([1, 5], [1])
"""Requests of each kind an operation gets: the same ones in every run."""

NAMES = ("status_code_conformance", "content_type_conformance", "response_headers_conformance", "response_schema_conformance")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[httpx2.Client]:
    with serving(settings(tmp_path_factory.mktemp("fuzz"))) as client:
        yield client


def _statuses(client: httpx2.Client, name: str, mode: Mode, count: int) -> set[int]:
    statuses: set[int] = set()
    checks = answer_checks(*NAMES)

    @run(
        max_examples=count, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
    )
    @given(case=requests(name, mode))
    def check(case):
        response = case.call(base_url=str(client.base_url), headers=AUTHORIZED)
        statuses.add(response.status_code)
        case.validate_response(response, checks=checks)

    check()
    return statuses


@pytest.mark.parametrize("count", FITTING)
@pytest.mark.parametrize("name", thinned(OPERATIONS["access"], every=5))
def test_requests_that_fit_get_an_answer_that_fits(client: httpx2.Client, name: str, count: int) -> None:
    assert _statuses(client, name, "positive", count) <= {200, 201, 404, 422}


@pytest.mark.parametrize("count", UNFITTING)
@pytest.mark.parametrize("name", ["POST /v1/keys", "POST /v1/keys/{key_id}/rotate"])
def test_requests_that_do_not_fit_are_refused(client: httpx2.Client, name: str, count: int) -> None:
    assert _statuses(client, name, "negative", count) <= {401, 404, 405, 422}
