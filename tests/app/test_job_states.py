r"""Every action on every state, and every end of an attempt from every state that a worker holds."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from fastapi.testclient import TestClient

from tests.app.jobs_harness import AUTHORIZED, settings, spec
from tests.app.preparing_harness import prepare_all
from zetadp.app.main import create_app
from zetadp.app.tables.job_states import HELD_STATES, Action, JobState, Outcome, after_action, after_outcome
from zetadp.app.tables.jobs import JobRow

SECRET = "whsec_" + "AAAB" * 8
#                 cancel        pause      resume     retry
ACTIONS = {
    "preparing": ("cancelled", "paused", "preparing", None),
    "queued": ("cancelled", "paused", "queued", None),
    "running": ("cancelling", "pausing", "running", None),
    "pausing": ("cancelling", "pausing", "running", None),
    "cancelling": ("cancelling", None, None, None),
    "paused": ("cancelled", "paused", "queued", None),
    "succeeded": (None, None, None, None),
    "failed": (None, None, None, "queued"),
    "cancelled": ("cancelled", None, None, "queued"),
}
#                 finished     failed       stopped
OUTCOMES = {
    "preparing": ("queued", "failed", "preparing"),
    "running": ("succeeded", "failed", "queued"),
    "pausing": ("succeeded", "failed", "paused"),
    "cancelling": ("cancelled", "cancelled", "cancelled"),
}
CASES = [(state, action, after) for state, row in ACTIONS.items() for action, after in zip(Action, row, strict=True)]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[TestClient]:
    app = create_app(settings(tmp_path_factory.mktemp("states")))
    with TestClient(app, base_url="http://localhost", headers=AUTHORIZED) as client:
        yield client


@pytest.fixture(scope="module")
def job_id(client: TestClient) -> str:
    job_id = client.post("/v1/jobs", json={"spec": spec()}).json()["id"]
    prepare_all(client.app.state.database)  # pyright: ignore[reportFunctionMemberAccess]
    return job_id


@pytest.fixture(scope="module")
def unprepared(client: TestClient, job_id: str) -> str:
    """A job without a plan; it depends on the other so that nothing prepares it."""
    return client.post("/v1/jobs", json={"spec": spec()}).json()["id"]


def test_table_names_every_state() -> None:
    assert set(ACTIONS) == set(JobState)
    assert set(OUTCOMES) == HELD_STATES | {JobState.PREPARING}


@pytest.mark.parametrize(("state", "action", "after"), CASES, ids=str)
def test_action_on_a_state_leads_where_the_table_says(
    client: TestClient, job_id: str, state: str, action: Action, after: str | None
) -> None:
    with client.app.state.database.writing() as session:  # pyright: ignore[reportFunctionMemberAccess]
        session.get(JobRow, job_id).state = state
    response = client.post(f"/v1/jobs/{job_id}/{action}")
    if after is None:
        assert response.status_code == 409
        assert f"is {state} and can't be " in response.json()["detail"]
        assert client.get(f"/v1/jobs/{job_id}").json()["state"] == state
    else:
        assert (response.status_code, response.json()["state"]) == (200, after)
    assert after_action(JobState(state), action) == after


@pytest.mark.parametrize(("state", "action"), [("paused", "resume"), ("failed", "retry"), ("cancelled", "retry")])
def test_a_job_without_a_plan_waits_to_be_prepared_where_another_would_be_queued(
    client: TestClient, unprepared: str, state: str, action: str
) -> None:
    with client.app.state.database.writing() as session:  # pyright: ignore[reportFunctionMemberAccess]
        session.get(JobRow, unprepared).state = state
    assert client.post(f"/v1/jobs/{unprepared}/{action}").json()["state"] == "preparing"


@pytest.mark.parametrize("state", OUTCOMES)
def test_end_of_an_attempt_leads_where_the_table_says(state: str) -> None:
    assert tuple(after_outcome(JobState(state), outcome) for outcome in Outcome) == OUTCOMES[state]


@pytest.mark.parametrize("action", Action)
def test_unknown_job_is_not_found(client: TestClient, action: Action) -> None:
    assert client.post(f"/v1/jobs/{'0' * 32}/{action}").status_code == 404


def test_labels_are_replaced_and_found_by_their_new_names(client: TestClient) -> None:
    job = client.post("/v1/jobs", json={"spec": spec(), "labels": {"team": "a", "old": "1"}}).json()
    answer = client.patch(f"/v1/jobs/{job['id']}/labels", json={"labels": {"team": "b"}})
    assert (answer.status_code, answer.json()["labels"]) == (200, {"team": "b"})
    assert [found["id"] for found in client.get("/v1/jobs", params={"label": "team=b"}).json()["jobs"]] == [job["id"]]
    assert client.get("/v1/jobs", params={"label": "old=1"}).json()["jobs"] == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", 101),
        ("priority", -1),
        ("priority", 1.5),
        ("timeout_seconds", 0),
        ("timeout_seconds", "Infinity"),
        ("webhook", {"url": "https://example.org/hook", "secret": "short"}),
        ("webhook", {"url": "https://example.org/hook", "secret": "0123456789abcdef-a-plain-secret-of-some-length"}),
        ("webhook", {"url": "https://example.org/hook", "secret": "whsec_" + "AAAB" * 7}),
        ("webhook", {"url": "ftp://example.org/hook", "secret": SECRET}),
        ("webhook", {"url": "http://example.org/hook", "secret": SECRET}),
        ("webhook", {"url": "https://10.0.0.1/hook", "secret": SECRET}),
        ("webhook", {"url": "https://user:word@example.org/hook", "secret": SECRET}),
    ],
)
def test_field_outside_its_range_is_refused_by_name(client: TestClient, field: str, value: object) -> None:
    answer = client.post("/v1/jobs", json={"spec": spec(), field: value})
    assert answer.status_code == 422, answer.text
    assert field in answer.json()["detail"]
