"""Every route of the ledgers under generated requests, on ledgers that exist and that don't: no answer is a server error."""

from __future__ import annotations

import json
from collections.abc import Generator

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.app.fuzzing_harness import Mode, answer_checks, requests
from tests.app.jobs_harness import AUTHORIZED, serving, settings
from tests.app.ledgers_harness import definition, gaussian
from tests.app.openapi_harness import OPERATIONS
from tests.selection import chosen

RUNS: list[tuple[str, Mode, int]] = [
    *((name, "positive", count) for name in OPERATIONS["ledgers"] for count in (1, 4)),
    # What doesn't fit a path or a query is refused by the framework, before any handler.
    *((name, "negative", count) for name in OPERATIONS["ledgers"] if name.startswith("POST ") for count in (1, 2)),
]
NAMES = ("status_code_conformance", "content_type_conformance", "response_schema_conformance")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[httpx2.Client]:
    with serving(settings(tmp_path_factory.mktemp("fuzz"))) as client:
        yield client


@pytest.fixture(scope="module")
def places(client: httpx2.Client) -> list[dict[str, str]]:
    """Ledgers of both sorts, each with a reservation that is open."""
    found: list[dict[str, str]] = []
    for protects in ("data_set", "each_user"):
        body = definition(name=protects, protects=protects).model_dump(mode="json") | {"budget": {"kind": "gdp", "mu": 5.0}}
        ledger = client.post("/v1/ledgers", json=body).json()["id"]
        users = {"users": {"names": ["ann"], "short_of_budget": "refuse"}} if protects == "each_user" else {}
        spend = {"spend": gaussian(4.0, 9).model_dump(mode="json")} | users
        made = client.post(f"/v1/ledgers/{ledger}/reservations", json=spend)
        found.append({"ledger_id": ledger, "reservation_id": made.json()["id"], "user": "ann"})
    return found


@pytest.mark.parametrize(("name", "mode", "count"), chosen(RUNS, [run for run in RUNS if run[2] == 1][::5]))
def test_no_answer_is_a_server_error(name: str, mode: Mode, count: int, client: httpx2.Client, places: list[dict[str, str]]) -> None:
    checks = answer_checks(*NAMES)

    @hypothesis_settings(
        max_examples=count, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
    )
    @given(case=requests(name, mode), place=st.sampled_from([None, *places]))
    def check(case, place):
        if place is not None:
            for parameter in case.path_parameters:
                case.path_parameters[parameter] = place[parameter]
        response = case.call(base_url=str(client.base_url), headers=AUTHORIZED)
        assert response.status_code < 500, response.text
        if place is not None:
            case.validate_response(response, checks=checks)
        json.loads(response.content)

    check()


def test_what_was_fuzzed_is_sound(client: httpx2.Client, places: list[dict[str, str]]) -> None:
    for place in places:
        assert client.get(f"/v1/ledgers/{place['ledger_id']}/verification").json()["problems"] == []
