r"""The jobs' REST interface without a worker: what is stored, what is refused, what is found again."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import func, select

from tests.app.jobs_harness import AUTHORIZED, Sent, Submission, settings, spec, stream
from tests.selection import thinned
from zetadp.app.main import create_app
from zetadp.app.tables.jobs import JobEventRow, JobRow

NO_JOB = "0" * 32


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[TestClient]:
    with TestClient(create_app(settings(tmp_path_factory.mktemp("api"))), base_url="http://localhost", headers=AUTHORIZED) as client:
        yield client


def submitted(client: TestClient, labels: Submission | None = None, key: str | None = None, **changes: object) -> Submission:
    headers = {} if key is None else {"Idempotency-Key": key}
    response = client.post("/v1/jobs", json={"spec": spec(**changes), "labels": labels or {}}, headers=headers)
    assert response.status_code == 202, response.text
    return response.json()


def stored_jobs(client: TestClient) -> int:
    with client.app.state.database.reading() as session:  # pyright: ignore[reportFunctionMemberAccess]
        return session.scalar(select(func.count()).select_from(JobRow))


def end_as(client: TestClient, job_id: str, state: str) -> None:
    with client.app.state.database.writing() as session:  # pyright: ignore[reportFunctionMemberAccess]
        session.get(JobRow, job_id).state = state


def test_submission_answers_with_the_place_of_the_job_that_is_to_be_prepared(client: TestClient) -> None:
    response = client.post("/v1/jobs", json={"spec": spec()})
    assert (response.status_code, response.json()["state"]) == (202, "preparing")
    assert response.headers["Location"] == f"/v1/jobs/{response.json()['id']}"
    assert client.get(response.headers["Location"]).json() == response.json()


@pytest.mark.parametrize(
    ("body", "field"),
    thinned(
        [
            ({"spec": spec(), "lables": {}}, "lables"),
            ({}, "spec"),
            ({"spec": spec(stepps=3)}, "spec.stepps"),
            ({"spec": spec(steps=0)}, "spec.steps"),
            ({"spec": spec(clipping_bound=-1.0)}, "spec.clipping_bound"),
            ({"spec": spec(records_per_user=3)}, "spec.records_per_user"),
            ({"spec": spec(privacy={"adjacency": "add_remove", "unit": "patient", "delta": 1e-5, "epsilon": 1.0})}, "spec.privacy.unit"),
            ({"spec": spec(data={"kind": "mnist", "folder": "../mnist"})}, "spec.data.folder"),
            ({"spec": spec(data={"kind": "abacus"})}, "spec.data.kind"),
            ({"spec": spec(), "labels": {"a b": "c"}}, "labels"),
            ({"spec": spec(), "runtime": {"device": "abacus"}}, "runtime.device"),
            ({"spec": spec(data={**spec()["data"], "split_by": "position"})}, "spec.data.split_by"),
            ({"spec": spec(noise={"kind": "banded", "bands": 2})}, "spec.noise"),
            ({"spec": spec(noise={"kind": "buffered", "buffers": [{"weight": 0.9, "decay": 0.5}] * 2})}, "noise.buffers"),
            ({"spec": spec(sampling={"kind": "truncated_poisson", "largest_batch": 1})}, "spec.sampling.largest_batch"),
            ({"spec": spec(audit={"kind": "canaries", "canaries": 100}), "runtime": {"processes": 2}}, "runtime.processes"),
        ],
        every=5,
    ),
)
def test_bad_submission_is_refused_by_the_name_of_its_field_and_stores_nothing(client: TestClient, body: Submission, field: str) -> None:
    before = stored_jobs(client)
    response = client.post("/v1/jobs", json=body)
    assert (response.status_code, response.headers["content-type"]) == (422, "application/problem+json")
    assert field in response.text
    assert stored_jobs(client) == before


def test_same_key_and_same_body_is_the_same_job(client: TestClient) -> None:
    first, second = (submitted(client, key="same") for _ in range(2))
    assert first["id"] == second["id"]


def test_same_key_and_other_body_is_a_conflict(client: TestClient) -> None:
    submitted(client, key="other")
    response = client.post("/v1/jobs", json={"spec": spec(steps=21)}, headers={"Idempotency-Key": "other"})
    assert response.status_code == 409
    assert "'other' was used before with another request" in response.json()["detail"]


def test_same_key_sent_by_many_at_once_makes_one_job(client: TestClient) -> None:
    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(lambda _: submitted(client, key="rush")["id"], range(8)))
    assert len(set(jobs)) == 1


def test_key_with_a_line_break_or_without_content_is_refused(client: TestClient) -> None:
    for key in ("", "a b", "x" * 256):
        assert client.post("/v1/jobs", json={"spec": spec()}, headers={"Idempotency-Key": key}).status_code == 422


def test_pages_hold_every_job_once_newest_first(client: TestClient) -> None:
    made = [submitted(client, labels={"suite": "pages"})["id"] for _ in range(5)]
    seen: list[str] = []
    query: Submission = {"limit": 2, "label": "suite=pages"}
    while True:
        page = client.get("/v1/jobs", params=query).json()
        seen += [job["id"] for job in page["jobs"]]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
    assert sorted(seen) == sorted(made)
    assert seen == sorted(made, reverse=True)


def test_list_holds_the_jobs_that_every_filter_admits(client: TestClient) -> None:
    wanted = submitted(client, labels={"team.name": "a=b", "suite": "filters"})
    submitted(client, labels={"team.name": "c", "suite": "filters"})
    other_state = submitted(client, labels={"team.name": "a=b", "suite": "filters"})
    client.post(f"/v1/jobs/{other_state['id']}/cancel")
    query = {"state": "preparing", "algorithm": "zeta_dp_sgd", "label": ["team.name=a=b", "suite=filters"]}
    assert [job["id"] for job in client.get("/v1/jobs", params=query).json()["jobs"]] == [wanted["id"]]


@pytest.mark.parametrize(
    ("name", "value"),
    thinned(
        [
            ("state", "done"),
            ("algorithm", "sgd"),
            ("label", "novalue"),
            ("label", '"]=1'),
            ("limit", "0"),
            ("limit", "201"),
            ("cursor", "x"),
        ],
        every=3,
    ),
)
def test_malformed_filter_is_refused_by_name(client: TestClient, name: str, value: str) -> None:
    response = client.get("/v1/jobs", params={name: value})
    assert response.status_code == 422
    assert name in response.json()["detail"]


def test_waiting_job_is_cancelled_at_once_and_again_without_harm(client: TestClient) -> None:
    job = submitted(client)
    answers = [client.post(f"/v1/jobs/{job['id']}/cancel") for _ in range(2)]
    assert [(answer.status_code, answer.json()["state"]) for answer in answers] == [(200, "cancelled")] * 2
    assert answers[0].json() == answers[1].json()


@pytest.mark.parametrize("state", ["succeeded", "failed"])
def test_finished_job_cannot_be_cancelled(client: TestClient, state: str) -> None:
    job = submitted(client)
    end_as(client, job["id"], state)
    response = client.post(f"/v1/jobs/{job['id']}/cancel")
    assert response.status_code == 409
    assert f"is {state} and can't be cancelled" in response.json()["detail"]


@pytest.mark.parametrize("path", ["", "/events", "/artifacts", "/artifacts/model.safetensors"])
def test_unknown_job_is_not_found(client: TestClient, path: str) -> None:
    response = client.get(f"/v1/jobs/{NO_JOB}{path}")
    assert (response.status_code, response.headers["content-type"]) == (404, "application/problem+json")
    assert f"there is no job '{NO_JOB}'" in response.json()["detail"]


def test_unknown_job_cannot_be_cancelled(client: TestClient) -> None:
    assert client.post(f"/v1/jobs/{NO_JOB}/cancel").status_code == 404


@pytest.mark.parametrize(
    "name", thinned(["../request.json", "..%2frequest.json", "%2e%2e%2frequest.json", "%2e%2e", "%2fetc%2fpasswd", "request.json"], every=2)
)
def test_only_listed_files_can_be_fetched(client: TestClient, name: str) -> None:
    job = submitted(client)
    folder = client.app.state.settings.job_dir(job["id"])  # pyright: ignore[reportFunctionMemberAccess]
    (folder / "artifacts").mkdir(parents=True)
    (folder / "request.json").write_text("secret")
    (folder / "artifacts" / "request.json").write_text("secret")
    response = client.get(f"/v1/jobs/{job['id']}/artifacts/{name}")
    assert response.status_code == 404
    assert "secret" not in response.text


def test_stream_of_an_ended_job_ends_with_its_final_state(client: TestClient) -> None:
    job = submitted(client)
    client.post(f"/v1/jobs/{job['id']}/cancel")
    events = list(stream(client, job["id"]))
    assert [(event.number, event.kind, event.data["state"]) for event in events] == [(1, "state", "preparing"), (2, "state", "cancelled")]


def test_stream_goes_on_after_the_last_event_seen(client: TestClient) -> None:
    job = submitted(client)
    client.post(f"/v1/jobs/{job['id']}/cancel")
    assert [event.number for event in stream(client, job["id"], after=1)] == [2]


@pytest.mark.parametrize("number", thinned(["-1", "one", "2", "9" * 15, "9" * 16, "1.0", ""], every=3))
def test_last_event_id_that_the_job_never_sent_is_refused(client: TestClient, number: str) -> None:
    job = submitted(client)
    response = client.get(f"/v1/jobs/{job['id']}/events", headers={"Last-Event-ID": number})
    assert response.status_code == 422
    assert f"Last-Event-ID must be the id of an event of this job (0 to 1), got '{number}'" in response.json()["detail"]


def test_long_history_is_streamed_whole(client: TestClient) -> None:
    job = submitted(client)
    with client.app.state.database.writing() as session:  # pyright: ignore[reportFunctionMemberAccess]
        first = session.get(JobEventRow, (job["id"], 1))
        rows = [(number, "checkpoint", {"event": "checkpoint", "step": number}) for number in range(2, 1201)]
        session.add_all(
            JobEventRow(job_id=job["id"], number=number, attempt=1, kind=kind, time=first.time, data=data) for number, kind, data in rows
        )
    client.post(f"/v1/jobs/{job['id']}/cancel")
    events: list[Sent] = list(stream(client, job["id"]))
    assert [event.number for event in events] == list(range(1, 1202))
