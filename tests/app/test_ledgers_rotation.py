"""A rotated key stays who it was: it settles what the key before it agreed on, spends from its quota, and is no second key."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.app.access_harness import shown
from tests.app.jobs_harness import AUTHORIZED, settings
from zetadp.app.access.scopes import Scope
from zetadp.app.access.service import KeyService
from zetadp.app.main import create_app

Json = dict[str, Any]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[TestClient]:
    with TestClient(create_app(settings(tmp_path_factory.mktemp("rotated"))), base_url="http://localhost", headers=AUTHORIZED) as client:
        yield client


def new(client: TestClient, name: str) -> Json:
    return client.post("/v1/keys", json={"name": name, "scopes": ["ledger"]}).json()


def rotated(client: TestClient, key: Json) -> Json:
    answer = client.post(f"/v1/keys/{key['key']['id']}/rotate", json={"grace_seconds": 0})
    assert answer.status_code == 201, answer.text
    return answer.json()


def definition(name: str, rules: Json) -> Json:
    budget = {"kind": "pure", "epsilon": 1.0}
    return {"name": name, "budget": budget, "adjacency": "add_remove", "unit": "record", "protects": "data_set", "rules": rules}


def opened(client: TestClient, name: str, **rules: object) -> str:
    answer = client.post("/v1/ledgers", json=definition(name, rules))
    assert answer.status_code == 201, answer.text
    return f"/v1/ledgers/{answer.json()['id']}"


def reserved(client: TestClient, ledger: str, key: Json, epsilon: float = 0.5, status: int = 201) -> str:
    spend = {"spend": {"kind": "pure", "epsilon": epsilon}}
    answer = client.post(f"{ledger}/reservations", json=spend, headers=shown(key["text"]))
    assert answer.status_code == status, answer.text
    return f"{ledger}/reservations/{answer.json().get('id')}"


def sent(client: TestClient, path: str, key: Json, body: Json | None = None) -> tuple[int, Json]:
    answer = client.post(path, json=body, headers=shown(key["text"]))
    return answer.status_code, answer.json()


@pytest.mark.parametrize("who", ["requester", "approver", "both"])
def test_what_two_keys_agreed_on_is_settled_after_they_were_rotated(client: TestClient, who: str) -> None:
    ann, ben, ledger = new(client, "ann"), new(client, "ben"), opened(client, f"rotated {who}", approval="second_key")
    whole, part = reserved(client, ledger, ann), reserved(client, ledger, ann)
    for made in (whole, part):
        assert sent(client, f"{made}/approve", ben)[0] == 200
    first = [key["key"]["id"] for key in (ann, ben)]
    ann = rotated(client, rotated(client, ann)) if who != "approver" else ann
    ben = rotated(client, ben) if who != "requester" else ben
    status, told = sent(client, f"{whole}/commit", ann, {})
    assert (status, told["state"], told["approved_by"]) == (200, "committed", first[1])
    # Who may free some of it stays the same too.
    half = {"released": {"kind": "pure", "epsilon": 0.25}}
    assert sent(client, f"{part}/commit", ann, half)[0] == 403
    assert sent(client, f"{part}/commit", ben, half)[0] == 200
    assert client.get(f"{ledger}/verification").json()["verdict"] == "sound"


def test_a_rotation_is_no_second_key(client: TestClient) -> None:
    ann, ben, ledger = new(client, "ann"), new(client, "ben"), opened(client, "own approval", approval="second_key")
    made = reserved(client, ledger, ann)
    again = rotated(client, ann)
    assert again["key"]["principal"] == ann["key"]["id"] != again["key"]["id"]
    for _ in range(2):
        assert sent(client, f"{made}/approve", again)[0] == 403
        again = rotated(client, again)
    later = rotated(client, ben)
    assert sent(client, f"{made}/approve", later)[0] == 200


def test_a_quota_is_that_of_all_rotations_and_named_by_the_first(client: TestClient) -> None:
    ann = new(client, "ann")
    ledger = opened(client, "rotated quota", quotas=[{"key": ann["key"]["id"], "share": 0.5}])
    reserved(client, ledger, ann, 0.375)
    again = rotated(client, ann)
    reserved(client, ledger, again, 0.25, status=409)
    reserved(client, ledger, again, 0.125)
    rules = {"quotas": [{"key": again["key"]["id"], "share": 0.5}]}
    refused = client.post("/v1/ledgers", json=definition("later", rules))
    assert refused.status_code == 422
    assert f"must be the first of a key's rotations, {ann['key']['id']} here, got '{again['key']['id']}'" in refused.text


def test_a_quota_names_keys_of_the_own_tenant_that_exist(client: TestClient) -> None:
    database = client.app.state.database  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
    theirs = KeyService(database).create("other", "eve", (Scope.LEDGER,), None)  # pyright: ignore[reportUnknownArgumentType]
    mine = new(client, "ann")["key"]["id"]
    for key in ("nobody", theirs.key.id):
        rules = {"quotas": [{"key": mine, "share": 0.5}, {"key": key, "share": 0.5}]}
        refused = client.post("/v1/ledgers", json=definition("strangers", rules))
        assert refused.status_code == 422
        (error,) = refused.json()["errors"]
        assert error["field"] == "rules.quotas[1].key"
        assert error["message"].startswith("must be the id of one of your tenant's keys")
