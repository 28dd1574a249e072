r"""Keys over HTTP: made, listed, rotated, revoked, and what a stream does whose key ends."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta

import httpx2
import pytest

from tests.app.access_harness import made, shown
from tests.app.jobs_harness import serving, settings, submit, wait_until
from tests.selection import thinned
from zetadp.app.access.scopes import Scope
from zetadp.app.client import Client, RequestRefused
from zetadp.app.kit.database import now
from zetadp.app.kit.settings import Settings


@pytest.fixture(scope="module")
def of(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return settings(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def client(of: Settings) -> Generator[httpx2.Client]:
    with serving(of) as client:
        yield client


def create(client: httpx2.Client, **changes: object) -> dict:
    response = client.post("/v1/keys", json={"name": "station 4", "scopes": ["submit"], **changes})
    assert response.status_code == 201, response.text
    return response.json()


def status(client: httpx2.Client, text: str) -> int:
    return client.get("/v1/jobs", headers=shown(text)).status_code


def test_a_new_key_works_at_once_for_what_it_is_for(client: httpx2.Client) -> None:
    new = create(client)
    assert (status(client, new["text"]), client.get("/v1/keys", headers=shown(new["text"])).status_code) == (200, 403)
    assert new["text"].startswith(f"zdp_{new['key']['id']}_")
    assert (new["key"]["tenant"], new["key"]["name"], new["key"]["scopes"]) == ("default", "station 4", ["submit"])


def test_a_key_is_shown_once_and_then_by_its_id_alone(client: httpx2.Client) -> None:
    new = create(client)
    secret = new["text"].rpartition("_")[2]
    listing = client.get("/v1/keys")
    assert new["key"]["id"] in {key["id"] for key in listing.json()["keys"]}
    assert secret not in listing.text


def test_a_key_is_made_for_ones_own_tenant_alone(client: httpx2.Client, of: Settings) -> None:
    admin = made(of, "clinic-b")
    new = client.post("/v1/keys", json={"name": "x", "scopes": ["ledger"]}, headers=shown(admin)).json()
    assert new["key"]["tenant"] == "clinic-b"
    assert client.post("/v1/keys", json={"name": "x", "scopes": ["ledger"], "tenant": "default"}, headers=shown(admin)).status_code == 422


@pytest.mark.parametrize(
    ("change", "field"),
    thinned(
        [
            ({"scopes": []}, "scopes"),
            ({"scopes": ["everything"]}, "scopes[0]"),
            ({"name": ""}, "name"),
            ({"name": "a\nb"}, "name"),
            ({"name": "x" * 101}, "name"),
            ({"expires": "2020-01-01T00:00:00Z"}, "expires"),
            ({"expires": "2099-01-01T00:00:00"}, "expires"),
        ],
        every=3,
    ),
)
def test_a_key_that_makes_no_sense_is_refused_by_field(client: httpx2.Client, change: dict[str, object], field: str) -> None:
    response = client.post("/v1/keys", json={"name": "x", "scopes": ["submit"], **change})
    assert (response.status_code, response.json()["errors"][0]["field"]) == (422, field), response.text


def test_the_old_key_stays_valid_for_the_grace_and_no_longer(client: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    old = create(client, scopes=["submit", "ledger"])
    begun = now()
    answer = client.post(f"/v1/keys/{old['key']['id']}/rotate", json={"grace_seconds": 3600})
    ended = now()
    new = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (201, f"/v1/keys/{new['key']['id']}")
    assert (new["key"]["name"], new["key"]["scopes"]) == (old["key"]["name"], ["ledger", "submit"])
    assert [status(client, key["text"]) for key in (old, new)] == [200, 200]
    monkeypatch.setattr("zetadp.app.access.service.now", lambda: begun + timedelta(seconds=3599))
    assert status(client, old["text"]) == 200
    monkeypatch.setattr("zetadp.app.access.service.now", lambda: ended + timedelta(seconds=3600))
    assert [status(client, key["text"]) for key in (old, new)] == [401, 200]


def test_without_grace_the_old_key_ends_at_once(client: httpx2.Client) -> None:
    old = create(client)
    new = client.post(f"/v1/keys/{old['key']['id']}/rotate", json={"grace_seconds": 0}).json()
    assert [status(client, key["text"]) for key in (old, new)] == [401, 200]


def test_rotation_never_makes_a_key_live_longer(client: httpx2.Client) -> None:
    end = (now() + timedelta(hours=1)).isoformat()
    old = create(client, expires=end)
    new = client.post(f"/v1/keys/{old['key']['id']}/rotate", json={"grace_seconds": 86_400}).json()
    listed = {key["id"]: key["expires"] for key in client.get("/v1/keys").json()["keys"]}
    assert listed[old["key"]["id"]] == listed[new["key"]["id"]] == old["key"]["expires"]


def test_a_revoked_key_is_over_stays_listed_and_cannot_be_rotated(client: httpx2.Client) -> None:
    key = create(client)
    answers = [client.delete(f"/v1/keys/{key['key']['id']}") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert status(client, key["text"]) == 401
    conflict = client.post(f"/v1/keys/{key['key']['id']}/rotate", json={"grace_seconds": 0})
    assert (conflict.status_code, conflict.json()["detail"]) == (409, f"key '{key['key']['id']}' is revoked and can't be rotated")


def test_an_unknown_key_is_not_found(client: httpx2.Client) -> None:
    for response in (client.delete("/v1/keys/0"), client.post("/v1/keys/0/rotate", json={"grace_seconds": 0})):
        assert (response.status_code, response.json()["detail"]) == (404, "there is no key '0'")


def test_pages_hold_every_key_once_newest_first(client: httpx2.Client, of: Settings) -> None:
    admin = made(of, "pages")
    ids = [admin.key.id, *(made(of, "pages", Scope.SUBMIT).key.id for _ in range(4))]
    seen: list[str] = []
    cursor: dict[str, object] = {}
    while cursor is not None:
        page = client.get("/v1/keys", params={"limit": 2, **cursor}, headers=shown(admin)).json()
        seen += [key["id"] for key in page["keys"]]
        cursor = None if page["next"] is None else {"cursor": page["next"]}
    assert seen == sorted(ids, reverse=True)


def test_it_is_told_when_a_key_was_last_used(client: httpx2.Client, of: Settings) -> None:
    began = now()
    admin = made(of, "used")
    wait_until(lambda: client.get("/v1/keys", headers=shown(admin)).json()["keys"][0]["last_used"] is not None)
    found = client.get("/v1/keys", headers=shown(admin)).json()["keys"][0]
    assert began.isoformat() <= found["last_used"].replace("Z", "+00:00") <= now().isoformat()


def test_a_key_revoked_in_mid_stream_ends_the_stream_and_says_so(client: httpx2.Client) -> None:
    key = create(client)
    job_id = submit(client)
    with client.stream("GET", f"/v1/jobs/{job_id}/events", headers=shown(key["text"])) as response:
        lines = response.iter_lines()
        assert next(lines) == "event: state"
        client.delete(f"/v1/keys/{key['key']['id']}")
        rest = [line for line in lines if line]
    assert rest[-2:] == ["event: closed", 'data: {"reason":"the key was revoked or has expired"}']


def test_the_python_client_tells_that_its_key_has_ended(client: httpx2.Client) -> None:
    key = create(client)
    job_id = submit(client)
    with Client(str(client.base_url), key["text"]) as own:
        events = own.events(job_id)
        assert next(events).number == 1
        client.delete(f"/v1/keys/{key['key']['id']}")
        with pytest.raises(RequestRefused, match="the key was revoked or has expired"):
            list(events)
