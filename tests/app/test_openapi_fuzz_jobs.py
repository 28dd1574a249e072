r"""Every operation that no other fuzz test has, under generated requests over real HTTP, with ids that are there and that aren't.

What is new is in here by itself: no answer of it may be a server error, or differ from its description.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as run
from hypothesis import strategies as st
from schemathesis import checks
from schemathesis.generation import GenerationMode

from app.main import create_app
from app.settings import Settings
from tests.app.jobs_harness import AUTHORIZED, serving, settings, spec

FITTING, UNFITTING = 2, 1
"""Requests of each kind an operation gets: the same ones in every run."""
ELSEWHERE = {"calculators", "papers", "access", "ledgers"}
"""Tags of ``test_openapi_fuzz.py``, ``test_access_fuzz.py`` and ``test_openapi_fuzz_ledgers.py``."""

with TemporaryDirectory() as _folder:
    DOCUMENT = create_app(Settings(data_dir=Path(_folder))).openapi()
OPERATIONS = {
    f"{operation.method.upper()} {operation.path}": operation
    for operation in (found.ok() for found in schemathesis.openapi.from_dict(DOCUMENT).get_all_operations())
    if not ELSEWHERE & set(operation.tags or ())
}
WRITING = [name for name in OPERATIONS if not name.startswith("GET ")]
NAMES = ("status_code_conformance", "content_type_conformance", "response_schema_conformance")
CHECKS = [checks.not_a_server_error, *(check for check in checks.CHECKS.get_all() if check.__name__ in NAMES)]


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


def statuses(client: httpx2.Client, place: dict[str, str], name: str, mode: GenerationMode, count: int) -> set[int]:
    found: set[int] = set()
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
    @given(case=OPERATIONS[name].as_strategy(generation_mode=mode), is_there=st.booleans())
    def check(case, is_there):
        if is_there and not keeps_job and not name.startswith("DELETE"):
            for parameter in case.path_parameters:
                case.path_parameters[parameter] = place.get(parameter, case.path_parameters[parameter])
        response = case.call(base_url=str(client.base_url), headers=AUTHORIZED)
        found.add(response.status_code)
        assert response.status_code < 500, response.text
        case.validate_response(response, checks=CHECKS)

    check()
    return found


def test_every_operation_is_fuzzed_by_one_of_the_tests() -> None:
    tagged = [set(operation.get("tags", ())) for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    assert all(tagged)
    assert len(OPERATIONS) == sum(not tags & ELSEWHERE for tags in tagged)
    assert len(OPERATIONS) > 35
    assert len(CHECKS) == len(NAMES) + 1


@pytest.mark.parametrize("name", OPERATIONS)
def test_requests_that_fit_get_an_answer_that_fits(client: httpx2.Client, place: dict[str, str], name: str) -> None:
    assert statuses(client, place, name, GenerationMode.POSITIVE, FITTING)


@pytest.mark.parametrize("name", WRITING)
def test_requests_that_do_not_fit_are_no_server_error(client: httpx2.Client, place: dict[str, str], name: str) -> None:
    try:
        found = statuses(client, place, name, GenerationMode.NEGATIVE, UNFITTING)
    except Exception as error:
        if type(error).__name__ != "Unsatisfiable":
            raise
        return  # it takes nothing that could be unfit
    assert max(found) < 500
