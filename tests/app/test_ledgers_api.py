"""Ledgers over HTTP: what is answered, what is refused and how, and that the same request twice is one."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.app.jobs_harness import AUTHORIZED, settings, spec
from tests.app.ledgers_harness import gaussian
from tests.app.preparing_harness import prepare_all
from tests.selection import thinned
from zetadp.app.main import create_app

Json = dict[str, Any]
NOWHERE = "0" * 32
PURE = {"kind": "pure", "epsilon": 1.0}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[TestClient]:
    with TestClient(create_app(settings(tmp_path_factory.mktemp("ledgers"))), base_url="http://localhost", headers=AUTHORIZED) as client:
        yield client


def made(client: TestClient, name: str, key: str | None = None, **changes: object) -> Json:
    body = {"name": name, "budget": PURE, "adjacency": "add_remove", "unit": "record", "protects": "data_set"} | changes
    response = client.post("/v1/ledgers", json=body, headers={} if key is None else {"Idempotency-Key": key})
    assert response.status_code == 201, response.text
    return response.json()


def post(client: TestClient, path: str, body: Json | None = None, key: str | None = None, status: int = 200) -> Json:
    headers = {} if key is None else {"Idempotency-Key": key}
    response = client.post(path, json=body, headers=headers)
    assert response.status_code == status, response.text
    return response.json()


def reserve(client: TestClient, ledger: Json, epsilon: float, key: str | None = None, status: int = 201, **rest: object) -> Json:
    body = {"spend": {"kind": "pure", "epsilon": epsilon}} | rest
    return post(client, f"/v1/ledgers/{ledger['id']}/reservations", body, key, status)


def test_a_budget_is_reserved_committed_and_released(client: TestClient) -> None:
    ledger = made(client, "walk")
    here = f"/v1/ledgers/{ledger['id']}"
    first, second = reserve(client, ledger, 0.5), reserve(client, ledger, 0.25)
    assert post(client, f"{here}/reservations/{first['id']}/commit", {})["state"] == "committed"
    assert post(client, f"{here}/reservations/{second['id']}/release")["state"] == "released"
    balance = client.get(here).json()["balance"]
    assert balance["limits"] == [{"quantity": "epsilon", "limit": 1.0, "reserved": 0.0, "committed": 0.5, "remaining": 0.5}]
    assert (balance["remaining"], balance["open_reservations"], balance["commitments"]) == ({"kind": "pure", "epsilon": 0.5}, 0, 1)
    kinds = [entry["act"]["kind"] for entry in client.get(f"{here}/entries").json()["entries"]]
    assert kinds == ["opened", "reserved", "reserved", "committed", "released"]
    report = client.get(f"{here}/verification").json()
    assert (report["verdict"], report["entries"], report["balance"]) == ("sound", 5, balance)


def test_what_a_spend_is_for_is_in_the_history_and_changes_nothing(client: TestClient) -> None:
    ledger = made(client, "purposes")
    here = f"/v1/ledgers/{ledger['id']}"
    first = reserve(client, ledger, 0.25, "once", purpose="quality report: 2026/1")
    assert first["purpose"] == "quality report: 2026/1"
    assert reserve(client, ledger, 0.25)["purpose"] is None
    acts = [entry["act"] for entry in client.get(f"{here}/entries").json()["entries"][1:]]
    assert [act.get("purpose") for act in acts] == ["quality report: 2026/1", None]
    assert acts[0]["charge"] == acts[1]["charge"]
    # It is part of what was asked: the same key with another one is another request.
    assert reserve(client, ledger, 0.25, "once", 409, purpose="something else")["type"] == "ledger-idempotency-conflict"
    refusal = reserve(client, ledger, 0.25, status=422, purpose="two\nlines")
    assert refusal["errors"][0]["field"] == "purpose"
    assert client.get(f"{here}/verification").json()["verdict"] == "sound"


def test_what_does_not_fit_is_a_conflict_with_the_numbers(client: TestClient) -> None:
    ledger = made(client, "narrow")
    reserve(client, ledger, 0.75)
    refusal = reserve(client, ledger, 0.5, status=409)
    assert (refusal["type"], refusal["quantity"], refusal["requested"], refusal["remaining"]) == ("budget-exceeded", "epsilon", 0.5, 0.25)


def test_an_event_is_accounted_and_a_part_of_it_committed(client: TestClient) -> None:
    ledger = made(client, "events", budget={"kind": "gdp", "mu": 1.0})
    here = f"/v1/ledgers/{ledger['id']}/reservations"
    reservation = post(client, here, {"spend": gaussian(4.0, 12).model_dump(mode="json")}, status=201)
    settled = post(client, f"{here}/{reservation['id']}/commit", {"released": gaussian(4.0, 4).model_dump(mode="json")})
    assert [int(part) * 3 for part in settled["spent"]] == [int(part) for part in settled["charge"]]
    assert client.get(f"/v1/ledgers/{ledger['id']}").json()["balance"]["limits"][0]["committed"] == 0.5


@pytest.mark.parametrize("more", [gaussian(4.0, 13), gaussian(3.0, 1)], ids=["more steps", "other noise"])
def test_what_was_not_reserved_cannot_be_committed(client: TestClient, more: Any, request: pytest.FixtureRequest) -> None:
    ledger = made(client, request.node.name.replace("[", " ").replace("]", ""), budget={"kind": "gdp", "mu": 1.0})
    here = f"/v1/ledgers/{ledger['id']}/reservations"
    reservation = post(client, here, {"spend": gaussian(4.0, 12).model_dump(mode="json")}, status=201)
    refusal = post(client, f"{here}/{reservation['id']}/commit", {"released": more.model_dump(mode="json")}, status=422)
    assert refusal["errors"][0]["field"] == "released"
    assert client.get(f"{here}/{reservation['id']}").json()["state"] == "reserved"


def test_the_same_key_and_request_are_answered_once(client: TestClient) -> None:
    ledger = made(client, "keys", key="make")
    assert made(client, "keys", key="make")["id"] == ledger["id"]
    here = f"/v1/ledgers/{ledger['id']}/reservations"
    first = reserve(client, ledger, 0.5, "one")
    assert reserve(client, ledger, 0.5, "one") == first
    assert post(client, f"{here}/{first['id']}/commit", {}, "two") == post(client, f"{here}/{first['id']}/commit", {}, "two")
    assert post(client, f"/v1/ledgers/{ledger['id']}/close", key="three") == post(client, f"/v1/ledgers/{ledger['id']}/close", key="three")
    assert len(client.get(f"/v1/ledgers/{ledger['id']}/entries").json()["entries"]) == 4


def test_the_same_key_with_another_request_is_a_conflict(client: TestClient) -> None:
    ledger = made(client, "other keys", key="other")
    body = {**ledger["definition"], "name": "third"}
    assert post(client, "/v1/ledgers", body, "other", 409)["type"] == "ledger-idempotency-conflict"
    first = reserve(client, ledger, 0.5, "one")
    reserve(client, ledger, 0.25, "one", 409)
    assert (
        post(client, f"/v1/ledgers/{ledger['id']}/reservations/{first['id']}/commit", {}, "one", 409)["type"]
        == "ledger-idempotency-conflict"
    )


def test_a_settled_reservation_stays_as_it_is(client: TestClient) -> None:
    ledger = made(client, "settled")
    here = f"/v1/ledgers/{ledger['id']}/reservations"
    reservation = reserve(client, ledger, 0.5)
    post(client, f"{here}/{reservation['id']}/release")
    refusal = post(client, f"{here}/{reservation['id']}/commit", {}, status=409)
    assert (refusal["type"], refusal["detail"]) == (
        "reservation-settled",
        f"reservation {reservation['id']!r} is released and can't be settled again",
    )


def test_a_closed_ledger_admits_nothing_and_settles_what_is_open(client: TestClient) -> None:
    ledger = made(client, "closed")
    here = f"/v1/ledgers/{ledger['id']}"
    reservation = reserve(client, ledger, 0.5)
    assert post(client, f"{here}/close")["state"] == "closed"
    assert reserve(client, ledger, 0.1, status=409)["type"] == "ledger-closed"
    assert post(client, f"{here}/reservations/{reservation['id']}/commit", {})["state"] == "committed"
    assert client.get("/v1/ledgers", params={"state": "closed"}).json()["ledgers"][0]["id"] == ledger["id"]


def test_each_user_has_a_balance_of_its_own(client: TestClient) -> None:
    ledger = made(client, "users", unit="user", protects="each_user")
    here = f"/v1/ledgers/{ledger['id']}"
    reserve(client, ledger, 0.75, users={"names": ["ann", "ben"], "short_of_budget": "refuse"})
    refusal = reserve(client, ledger, 0.5, status=409, users={"names": ["cid", "ben"], "short_of_budget": "refuse"})
    assert refusal["detail"].startswith("user 'ben': the spend needs epsilon = 0.5, but only 0.25 of the budget remains")
    assert client.get(f"{here}/users/cid").json()["remaining"]["epsilon"] == 1.0
    left = reserve(client, ledger, 0.5, users={"names": ["cid", "ben"], "short_of_budget": "leave_out"})
    assert (left["users"], left["left_out"]) == (["cid"], ["ben"])
    assert [client.get(f"{here}/users/{name}").json()["remaining"]["epsilon"] for name in ("ann", "ben", "cid")] == [0.25, 0.25, 0.5]
    post(client, f"{here}/reservations/{left['id']}/release")
    assert client.get(f"{here}/users/cid").json()["remaining"]["epsilon"] == 1.0
    assert (client.get(here).json()["balance"], client.get(here).json()["users"]) == (None, 3)
    assert client.get(f"{here}/verification").json()["verdict"] == "sound"


@pytest.mark.parametrize(
    ("body", "field"),
    thinned(
        [
            ({"spend": {"kind": "pure", "epsilon": 0.1}, "users": {"names": ["ann"], "short_of_budget": "refuse"}}, "users"),
            ({"spend": {"kind": "pure", "epsilon": -0.1}}, "spend.epsilon"),
            ({"spend": {"kind": "nothing"}}, "spend.kind"),
            ({"spend": {"kind": "pure", "epsilon": 0.1}, "job": NOWHERE}, "job"),
            ({"spend": {"kind": "pure", "epsilon": 0.1}, "expiry": {"seconds": 10.0}}, "expiry.then"),
            ({"spend": {"kind": "pure", "epsilon": 0.1}, "expiry": {"seconds": 0.0, "then": "spent"}}, "expiry.seconds"),
        ],
        every=2,
    ),
)
def test_a_wrong_field_is_named(client: TestClient, body: Json, field: str) -> None:
    ledgers = client.get("/v1/ledgers").json()["ledgers"]
    whole = next((entry for entry in ledgers if entry["definition"]["name"] == "fields"), None) or made(client, "fields")
    refusal = post(client, f"/v1/ledgers/{whole['id']}/reservations", body, status=422)
    assert refusal["errors"][0]["field"] == field, refusal


def test_a_spend_in_another_currency_or_of_other_neighbours_is_refused(client: TestClient) -> None:
    ledger = made(client, "currencies")
    here = f"/v1/ledgers/{ledger['id']}/reservations"
    assert post(client, here, {"spend": {"kind": "gdp", "mu": 0.1}}, status=422)["type"] == "unsupported-event"
    assert post(client, here, {"spend": gaussian(4.0).model_dump(mode="json")}, status=422)["type"] == "unsupported-event"
    other = made(client, "other units", budget={"kind": "gdp", "mu": 1.0}, unit="user")
    path = f"/v1/ledgers/{other['id']}/reservations"
    assert post(client, path, {"spend": gaussian(4.0).model_dump(mode="json")}, status=422)["type"] == "incompatible-event"


def test_a_name_is_taken_once(client: TestClient) -> None:
    ledger = made(client, "unique")
    assert post(client, "/v1/ledgers", ledger["definition"], status=409)["type"] == "ledger-name-taken"


def test_pages_follow_each_other(client: TestClient) -> None:
    ledger = made(client, "pages")
    here = f"/v1/ledgers/{ledger['id']}"
    ids = [reserve(client, ledger, 0.1)["id"] for _ in range(5)]
    post(client, f"{here}/reservations/{ids[0]}/commit", {})
    for path, name in ((f"{here}/reservations", "reservations"), (f"{here}/entries", "entries"), ("/v1/ledgers", "ledgers")):
        found, cursor = [], None
        while True:
            page = client.get(path, params={"limit": 2} if cursor is None else {"limit": 2, "cursor": cursor}).json()
            found += page[name]
            if (cursor := page["next"]) is None:
                break
        assert found == client.get(path, params={"limit": 200}).json()[name]
    assert [entry["id"] for entry in client.get(f"{here}/reservations").json()["reservations"]] == ids[::-1]
    assert [entry["id"] for entry in client.get(f"{here}/reservations?state=committed").json()["reservations"]] == ids[:1]
    assert [entry["id"] for entry in client.get(f"{here}/reservations?state=reserved").json()["reservations"]] == ids[:0:-1]


def test_projections_are_exact(client: TestClient) -> None:
    ledger = made(client, "projections", budget={"kind": "gdp", "mu": 1.0})
    path = f"/v1/ledgers/{ledger['id']}/projections"
    event = post(client, path, {"spend": gaussian(4.0).model_dump(mode="json")})
    assert (event["separately"], event["together"]) == (16, 16)
    number = post(client, path, {"spend": {"kind": "gdp", "mu": 0.5}})
    assert (number["separately"], number["together"]) == (4, None)
    assert post(client, path, {"spend": {"kind": "gdp", "mu": 0.0}})["separately"] is None
    assert post(client, path, {"job": NOWHERE}, status=422)["errors"][0]["field"] == "job"
    assert post(client, path, {}, status=422)["errors"][0]["field"] == "spend"


def test_a_projection_tells_the_balance_that_one_such_reservation_then_leaves(client: TestClient) -> None:
    ledger = made(client, "left", budget={"kind": "gdp", "mu": 1.0})
    here, spend = f"/v1/ledgers/{ledger['id']}", {"spend": {"kind": "gdp", "mu": 0.6}}
    told = post(client, f"{here}/projections", spend)["after"]
    post(client, f"{here}/reservations", spend, status=201)
    assert told == client.get(here).json()["balance"]
    # 0.36 of 1 is taken twice, and a third doesn't fit.
    post(client, f"{here}/reservations", spend, status=201)
    assert post(client, f"{here}/projections", spend)["after"] is None


def test_a_spec_costs_what_its_job_then_reserves(client: TestClient) -> None:
    ledger = made(client, "specs", budget={"kind": "rdp_target", "epsilon": 1.0, "delta": 1e-5, "orders": [4.0, 16.0, 64.0]})
    here = f"/v1/ledgers/{ledger['id']}"
    told = post(client, f"{here}/projections", {"spec": spec()})
    job = post(client, "/v1/jobs", {"spec": spec(), "ledger": ledger["id"], "purpose": "staffing"}, status=202)
    unplanned = post(client, f"{here}/projections", {"job": job["id"]}, status=422)
    assert "must be the id of a job that has a plan" in unplanned["detail"]
    prepare_all(client.app.state.database)  # pyright: ignore[reportFunctionMemberAccess]
    assert told["after"] == client.get(here).json()["balance"]
    opened, reserved = client.get(f"{here}/entries").json()["entries"]
    assert (reserved["act"]["job"], reserved["act"]["purpose"]) == (job["id"], "staffing")
    by = json.loads(opened["text"])["by"]
    assert by is not None
    assert json.loads(reserved["text"])["by"] == by  # who submitted it
    assert post(client, f"{here}/projections", {"job": job["id"]})["separately"] == told["separately"] - 1
    refused = post(client, f"{here}/projections", {"spec": spec(expected_batch_size=10**6)}, status=422)
    assert refused["errors"][0]["field"] == "spec.expected_batch_size"


def test_what_is_not_there_is_not_found(client: TestClient) -> None:
    ledger = made(client, "found")
    for path in (f"/v1/ledgers/{NOWHERE}", f"/v1/ledgers/{NOWHERE}/entries", f"/v1/ledgers/{NOWHERE}/verification"):
        assert client.get(path).json()["type"] == "ledger-not-found"
    assert client.get(f"/v1/ledgers/{ledger['id']}/reservations/{NOWHERE}").json()["type"] == "reservation-not-found"
    assert post(client, f"/v1/ledgers/{ledger['id']}/reservations/{NOWHERE}/release", status=404)["type"] == "reservation-not-found"
    assert post(client, f"/v1/ledgers/{NOWHERE}/reservations", {"spend": PURE}, status=404)["type"] == "ledger-not-found"
