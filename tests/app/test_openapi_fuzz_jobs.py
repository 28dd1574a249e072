r"""Every operation that no other fuzz test has, under generated requests over real HTTP, with ids that are there and that aren't.

What is new comes in here with its line in the table of operations: no answer of it may be a server error, or differ from its description.
"""

from __future__ import annotations

from collections.abc import Generator

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as run
from hypothesis import strategies as st

from tests.app.fuzzing_harness import Mode, answer_checks, requests
from tests.app.jobs_harness import AUTHORIZED, serving, settings, spec
from tests.app.openapi_harness import OPERATIONS, described
from tests.selection import thinned

FITTING, UNFITTING = 2, 1
"""Requests of each kind an operation gets: the same ones in every run."""
ELSEWHERE = {"calculators", "papers", "access", "ledgers"}
"""Tags of ``test_openapi_fuzz.py``, ``test_access_fuzz.py`` and ``test_openapi_fuzz_ledgers.py``."""

FUZZED = [name for tag, names in OPERATIONS.items() if tag not in ELSEWHERE for name in names]
WRITING = [name for name in FUZZED if not name.startswith("GET ")]
NAMES = ("status_code_conformance", "content_type_conformance", "response_schema_conformance")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[httpx2.Client]:
    with serving(settings(tmp_path_factory.mktemp("fuzz"))) as client:
        yield client


@pytest.fixture(scope="module")
def place(client: httpx2.Client) -> dict[str, str]:
    """Ids of what is there. The job is cancelled, so its streams end."""
    job = client.post("/v1/jobs", json={"spec": spec()}).json()["id"]
    assert client.post(f"/v1/jobs/{job}/cancel").json()["state"] == "cancelled"
    upload = client.post("/v1/uploads?format=csv&name=fuzz", content=b"a,b\n1,2\n", headers={"content-type": "application/octet-stream"})
    assert upload.status_code == 201, upload.text
    return {"job_id": job, "upload_id": upload.json()["id"], "name": "digits"}


def statuses(client: httpx2.Client, place: dict[str, str], name: str, mode: Mode, count: int) -> set[int]:
    found: set[int] = set()
    checks = answer_checks(*NAMES)
    # A job that is tried again has a stream that doesn't end.
    keeps_job = name.endswith(("/retry", "/resume"))

    @run(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=requests(name, mode), is_there=st.booleans())
    def check(case, is_there):
        if is_there and not keeps_job and not name.startswith("DELETE"):
            for parameter in case.path_parameters:
                case.path_parameters[parameter] = place.get(parameter, case.path_parameters[parameter])
        response = case.call(base_url=str(client.base_url), headers=AUTHORIZED)
        found.add(response.status_code)
        assert response.status_code < 500, response.text
        case.validate_response(response, checks=checks)

    check()
    return found


def test_the_table_of_operations_is_complete_so_that_every_one_is_fuzzed() -> None:
    assert described() == OPERATIONS
    assert OPERATIONS.keys() > ELSEWHERE


@pytest.mark.parametrize("name", thinned(FUZZED, every=5))
def test_requests_that_fit_get_an_answer_that_fits(client: httpx2.Client, place: dict[str, str], name: str) -> None:
    assert statuses(client, place, name, "positive", FITTING)


@pytest.mark.parametrize("name", thinned(WRITING, every=5))
def test_requests_that_do_not_fit_are_no_server_error(client: httpx2.Client, place: dict[str, str], name: str) -> None:
    try:
        found = statuses(client, place, name, "negative", UNFITTING)
    except Exception as error:
        if type(error).__name__ != "Unsatisfiable":
            raise
        return  # it takes nothing that could be unfit
    assert max(found) < 500
