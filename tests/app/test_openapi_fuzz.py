"""Every calculator under generated requests, fitting its schema and not: no answer of ours is a server error or differs from its schema."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks
from schemathesis.generation import GenerationMode

from app.main import create_app
from app.settings import Settings

TAGS = {"calculators", "papers"}
FITTING, UNFITTING = 10, 5
"""Requests of each kind an endpoint gets: the same ones in every run."""

# Operations are parameters of the tests, so the application is there before any fixture; the directory goes with the process.
DATA = TemporaryDirectory()
APP = create_app(Settings(data_dir=Path(DATA.name), calculation_seconds=3.0, batch_seconds=3.0))
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", APP)
OPERATIONS = {
    f"{operation.method.upper()} {operation.path}": operation
    for operation in (found.ok() for found in SCHEMA.get_all_operations())
    if TAGS & set(operation.tags or ())
}
WITH_BODY = [name for name in OPERATIONS if name.startswith("POST ")]
CHECKS = [
    checks.not_a_server_error,
    *(
        check
        for check in checks.CHECKS.get_all()
        if check.__name__
        in {"status_code_conformance", "content_type_conformance", "response_headers_conformance", "response_schema_conformance"}
    ),
]


def _not_json(name: str) -> None:
    raise AssertionError(f"{name} is no JSON number")


def _fuzz(name: str, mode: GenerationMode, count: int) -> set[int]:
    statuses = set()

    @settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=OPERATIONS[name].as_strategy(generation_mode=mode))
    def check(case):
        response = case.call(base_url="http://127.0.0.1")
        statuses.add(response.status_code)
        case.validate_response(response, checks=CHECKS)
        for line in response.content.splitlines():  # of bytes: in text, U+2028 inside a string would end a line
            json.loads(line, parse_constant=_not_json)

    check()
    return statuses


def test_all_calculators_are_fuzzed_and_all_checks_are_there():
    assert len(CHECKS) == 5
    paths = {name.split()[1] for name in OPERATIONS}
    assert {"/v1/profiles", "/v1/calibrations", "/v1/compare/training", "/v1/papers", "/v1/errata/{row}"} <= paths
    served = {path for path in APP.openapi()["paths"] if path.startswith(("/v1/compare", "/v1/errata", "/v1/papers", "/v1/proofs"))}
    assert served <= paths


@pytest.mark.parametrize("name", OPERATIONS)
def test_requests_that_fit_their_schema_get_an_answer_that_fits_its_own(name):
    assert _fuzz(name, GenerationMode.POSITIVE, FITTING) <= {200, 404, 422}


@pytest.mark.parametrize("name", WITH_BODY)
def test_requests_that_do_not_fit_their_schema_are_refused_in_so_many_words(name):
    # A batch answers each of its lines for itself.
    assert _fuzz(name, GenerationMode.NEGATIVE, UNFITTING) <= ({200, 422} if name.endswith("/batch") else {422})


def test_an_infinite_value_in_a_derivation_is_written_as_text():
    request = {"epsilon": 1.0, "candidates": 20, "accuracy_from": "private_records"}
    answer = TestClient(APP, base_url="http://127.0.0.1").post("/v1/compare/constant_selection", json=request)
    values = [step["value"] for found in answer.json()["published"] for step in found["derivation"]]
    assert "Infinity" in values
    assert None not in values
