"""Every calculator under generated requests, fitting its schema and not: no answer of ours is a server error or differs from its schema."""

from __future__ import annotations

import json
from collections.abc import Generator

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.app.fuzzing_harness import Mode, answer_checks, requests
from tests.app.jobs_harness import serving
from tests.app.openapi_harness import OPERATIONS, document
from tests.selection import chosen, thinned
from zetadp.app.kit.settings import Settings

FITTING, UNFITTING = chosen([2, 10], [2]), chosen([1, 5], [1])
"""Requests of each kind that an endpoint gets, by default and with ``--all``: the same ones in every run."""

CALCULATORS = [*OPERATIONS["calculators"], *OPERATIONS["papers"]]
WITH_BODY = [name for name in CALCULATORS if name.startswith("POST ")]
NAMES = ("status_code_conformance", "content_type_conformance", "response_headers_conformance", "response_schema_conformance")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[httpx2.Client]:
    with serving(Settings(data_dir=tmp_path_factory.mktemp("fuzz"), calculation_seconds=3.0, batch_seconds=3.0)) as client:
        yield client


def _not_json(name: str) -> None:
    raise AssertionError(f"{name} is no JSON number")


def _fuzz(client: httpx2.Client, name: str, mode: Mode, count: int) -> set[int]:
    statuses = set()
    checks = answer_checks(*NAMES)

    @settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=requests(name, mode))
    def check(case):
        response = case.call(base_url=str(client.base_url))
        statuses.add(response.status_code)
        case.validate_response(response, checks=checks)
        for line in response.content.splitlines():  # of bytes: in text, U+2028 inside a string would end a line
            json.loads(line, parse_constant=_not_json)

    check()
    return statuses


def test_everything_that_calculates_or_reads_papers_is_fuzzed():
    paths = {name.split()[1] for name in CALCULATORS}
    served = {path for path in document()["paths"] if path.startswith(("/v1/compare", "/v1/errata", "/v1/papers", "/v1/proofs"))}
    assert served <= paths


@pytest.mark.parametrize("count", FITTING)
@pytest.mark.parametrize("name", thinned(CALCULATORS, every=5))
def test_requests_that_fit_their_schema_get_an_answer_that_fits_its_own(client, name, count):
    assert _fuzz(client, name, "positive", count) <= {200, 404, 422}


@pytest.mark.parametrize("count", UNFITTING)
@pytest.mark.parametrize("name", thinned(WITH_BODY, every=5))
def test_requests_that_do_not_fit_their_schema_are_refused_in_so_many_words(client, name, count):
    # A batch answers each of its lines for itself.
    assert _fuzz(client, name, "negative", count) <= ({200, 422} if name.endswith("/batch") else {422})


def test_an_infinite_value_in_a_derivation_is_written_as_text(client):
    request = {"epsilon": 1.0, "candidates": 20, "accuracy_from": "private_records"}
    answer = client.post("/v1/compare/constant_selection", json=request)
    values = [step["value"] for found in answer.json()["published"] for step in found["derivation"]]
    assert "Infinity" in values
    assert None not in values
