r"""Limits of rate, names of requests, host names, and the audit log, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import httpx2
import pytest
from pydantic import SecretStr, ValidationError
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError, OperationalError

from tests.app.access_harness import made, shown
from tests.app.jobs_harness import ADMIN_KEY, postgresql_server, serving, spec, submit, wait_until
from zetadp.app.access.audit_log import AuditLog, local_event
from zetadp.app.access.errors import TooManyRequests
from zetadp.app.access.rates import Rates, address_of
from zetadp.app.access.scopes import Scope
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings

WRONG = "zdp_" + "f" * 24 + "_" + "0" * 64
NAME = "x-request-id"


@contextmanager
def served(data_dir: Path, **changes: Any) -> Generator[tuple[Settings, httpx2.Client]]:
    """A service with these settings, and a client that sends no key by itself."""
    of = Settings(data_dir=data_dir, admin_key=SecretStr(ADMIN_KEY), **changes)
    with serving(of) as known, httpx2.Client(base_url=known.base_url, timeout=120) as client:
        yield of, client


def entries(client: httpx2.Client, key: Any = ADMIN_KEY) -> list[dict[str, Any]]:
    """The newest 200 entries of the audit log, the newest first."""
    return client.get("/v1/audit-log", params={"limit": 200}, headers=shown(key)).json()["entries"]


def told(response: httpx2.Response, limit: str) -> None:
    assert (response.status_code, response.json()["type"]) == (429, "too-many-requests")
    seconds = int(response.headers["retry-after"])
    assert 1 <= seconds <= 60
    assert response.json()["detail"] == f"expected at most {limit}; try again in {seconds} s"


def test_a_key_that_sends_too_much_is_told_when_to_come_back_and_no_other_is_held_up(tmp_path: Path) -> None:
    with served(tmp_path, requests_per_key="3/minute") as (of, client):
        busy, other = made(of, "a"), made(of, "a")
        assert [client.get("/v1/jobs", headers=shown(busy)).status_code for _ in range(3)] == [200] * 3
        told(client.get("/v1/jobs", headers=shown(busy)), "3 per 1 minute")
        told(client.get("/v1/mechanisms", headers=shown(busy)), "3 per 1 minute")
        assert client.get("/v1/jobs", headers=shown(other)).status_code == 200
        assert client.get("/v1/mechanisms").status_code == 200


@pytest.mark.slow
def test_an_address_without_a_key_is_limited_and_a_supervisor_still_answered(tmp_path: Path) -> None:
    with served(tmp_path, requests_per_address="2/minute") as (_, client):
        assert [client.get("/v1/mechanisms").status_code for _ in range(2)] == [200] * 2
        told(client.get("/v1/mechanisms"), "2 per 1 minute")
        assert client.get("/livez").status_code == 200
        assert client.get("/v1/jobs", headers=shown(ADMIN_KEY)).status_code == 200


def test_an_address_that_fails_too_often_is_told_so_and_a_valid_key_is_never_locked_out(tmp_path: Path) -> None:
    with served(tmp_path, failures_per_address="4/minute") as (_, client):
        assert [client.get("/v1/jobs", headers=shown(WRONG)).status_code for _ in range(2)] == [401] * 2
        assert [client.get("/v1/jobs").status_code for _ in range(2)] == [401] * 2
        for response in (client.get("/v1/jobs"), client.get("/v1/jobs", headers=shown(WRONG))):
            told(response, "4 per 1 minute")
        assert client.get("/v1/jobs", headers=shown(ADMIN_KEY)).status_code == 200
        statuses = [entry["status"] for entry in entries(client)]
        assert (statuses.count(401), statuses.count(429)) == (4, 1)


def test_a_network_of_ipv6_counts_as_one_address() -> None:
    assert address_of({"client": ("2001:db8::1", 1)}) == address_of({"client": ("2001:db8::ffff", 1)})
    assert address_of({"client": ("::ffff:192.0.2.7", 1)}) == "192.0.2.7"


@pytest.mark.parametrize("rate", ["many", "", "0.5/minute", "5/fortnight"])
def test_a_rate_that_is_none_is_refused(rate: str) -> None:
    with pytest.raises(ValidationError, match="must be a rate such as 20/minute"):
        Settings(requests_per_key=rate)


def test_counts_are_forgotten_after_their_window() -> None:
    rates = Rates(Settings(requests_per_address="1/second"))
    rates.count(None, "a")
    counted: list[bool] = []

    def is_counted() -> bool:
        with suppress(TooManyRequests):
            rates.count(None, "a")
            counted.append(True)
        return bool(counted)

    wait_until(is_counted)


@pytest.mark.slow
def test_a_request_keeps_its_plain_name_and_gets_one_otherwise(tmp_path: Path) -> None:
    with served(tmp_path) as (_, client):
        assert client.get("/livez", headers={NAME: "scan-7.a_B"}).headers[NAME] == "scan-7.a_B"
        for bad in ("a b", "x" * 65, "-a", '"'):
            assert len(client.get("/livez", headers={NAME: bad}).headers[NAME]) == 16
        named = [client.get(path).headers[NAME] for path in ("/livez", "/livez", "/nowhere", "/v1/jobs", "/docs")]
        assert len(set(named)) == 5
        assert client.get("/nowhere", headers={NAME: "mine"}).json()["request_id"] == "mine"
        assert client.post("/v1/profiles", content=b"x" * 2**21, headers={NAME: "mine"}).json()["request_id"] == "mine"


def test_a_request_that_breaks_the_service_has_a_name_and_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    with served(tmp_path) as (_, client):
        monkeypatch.setattr("zetadp.app.submissions.service.JobService.submit", broken)
        monkeypatch.setattr("zetadp.app.kit.problems.get_logger", MagicMock())  # unset up as in tests, it takes seconds to draw the trace
        response = client.post("/v1/jobs", json={"spec": spec()}, headers={**shown(ADMIN_KEY), NAME: "broken-1"})
        assert (response.status_code, response.json()["request_id"], response.headers[NAME]) == (500, "broken-1", "broken-1")
        found = entries(client)[0]
    assert (found["action"], found["status"], found["request_id"]) == ("submit_job", 500, "broken-1")


def test_names_of_others_are_refused_and_allowed_ones_answered(tmp_path: Path) -> None:
    with served(tmp_path, allowed_hosts="zetadp.example.org, Other.Example") as (_, client):
        for host in ("zetadp.example.org", "ZETADP.example.org:8000", "other.example.", "localhost", "127.0.0.1:1", "[::1]"):
            assert client.get("/livez", headers={"Host": host}).status_code == 200, host
        for host in ("attacker.example", "zetadp.example.org.attacker.example", "azetadp.example.org", ""):
            response = client.get("/livez", headers={"Host": host})
            assert (response.status_code, response.json()["type"]) == (400, "foreign-host"), host


@pytest.mark.parametrize("names", ["*", "a b", "http://a.b", "a..b", "-a.b"])
def test_allowed_names_must_be_names(names: str) -> None:
    with pytest.raises(ValidationError, match="must be host names separated by commas"):
        Settings(allowed_hosts=names)


def test_every_write_and_every_refusal_is_in_the_log_and_no_reading(tmp_path: Path) -> None:
    with served(tmp_path) as (of, client):
        submitter = made(of, "a", Scope.SUBMIT, Scope.ADMIN)
        header = shown(submitter)
        job = client.post("/v1/jobs", json={"spec": spec()}, headers={**header, NAME: "one"}).json()["id"]
        client.post("/v1/jobs", json={"spec": {}}, headers={**header, NAME: "two"})
        client.get(f"/v1/jobs/{job}", headers=header)
        client.post(f"/v1/jobs/{job}/cancel", headers={**header, NAME: "three"})
        client.get("/v1/jobs/" + "f" * 32, headers={**header, NAME: "four"})
        client.post("/v1/profiles", json={}, headers=header)
        narrow = made(of, "a", Scope.CALCULATE)
        client.get("/v1/jobs", headers={**shown(narrow), NAME: "five"})
        found = entries(client, submitter)
    told = [(entry["request_id"], entry["action"], entry["target"], entry["status"], entry["key_id"]) for entry in reversed(found)]
    own = submitter.key.id
    assert told == [
        ("one", "submit_job", f"/v1/jobs/{job}", 202, own),
        ("two", "submit_job", "/v1/jobs", 422, own),
        ("three", "cancel_job", f"/v1/jobs/{job}/cancel", 200, own),
        ("four", "read_job", "/v1/jobs/" + "f" * 32, 404, own),
        ("five", "list_jobs", "/v1/jobs", 403, narrow.key.id),
    ]
    assert {(entry["tenant"], entry["address"]) for entry in found} == {("a", "127.0.0.1")}
    numbers = [entry["number"] for entry in found]
    assert numbers == sorted(numbers, reverse=True)


def test_a_tenant_sees_its_own_entries_and_the_operators_those_of_nobody(tmp_path: Path) -> None:
    with served(tmp_path) as (of, client):
        admins = {tenant: made(of, tenant) for tenant in ("default", "a", "b")}
        for tenant, key in admins.items():
            client.post("/v1/keys", json={"name": tenant, "scopes": ["ledger"]}, headers=shown(key))
        client.get("/v1/jobs", headers=shown(WRONG))
        seen = {tenant: {entry["tenant"] for entry in entries(client, key)} for tenant, key in admins.items()}
    assert seen == {"default": {"default", None}, "a": {"a"}, "b": {"b"}}


@pytest.mark.slow
def test_pages_of_the_log_hold_every_entry_once(tmp_path: Path) -> None:
    with served(tmp_path) as (of, client):
        admin = made(of, "a")
        for _ in range(5):
            client.post("/v1/keys", json={"name": "x", "scopes": ["ledger"]}, headers=shown(admin))
        seen: list[int] = []
        cursor: dict[str, int] | None = {}
        while cursor is not None:
            page = client.get("/v1/audit-log", params={"limit": 2, **cursor}, headers=shown(admin)).json()
            seen += [entry["number"] for entry in page["entries"]]
            cursor = None if page["next"] is None else {"cursor": page["next"]}
    assert len(seen) == len(set(seen)) == 5
    assert seen == sorted(seen, reverse=True)


def _refuses_changes(of: Settings) -> None:
    database = Database(of)
    database.migrate()
    log = AuditLog(database)
    log.record(local_event("a", "0", "test", "x")).result()
    log.close()
    for change in ("UPDATE audit_log SET status = 1", "DELETE FROM audit_log"):
        with pytest.raises(DatabaseError, match="the audit log is append-only"), database.writing() as session:
            session.execute(text(change))
    with database.reading() as session:
        assert session.scalar(text("SELECT count(*) FROM audit_log")) == 1
    database.close()


def test_the_database_itself_refuses_to_change_the_log(tmp_path: Path) -> None:
    _refuses_changes(Settings(data_dir=tmp_path))


@pytest.mark.slow
def test_the_database_itself_refuses_to_change_the_log_on_postgresql(tmp_path: Path) -> None:
    with postgresql_server() as url:
        _refuses_changes(Settings(data_dir=tmp_path, database_url=url))


def test_a_log_that_cannot_be_written_is_told_and_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    database = Database(Settings(data_dir=tmp_path))
    log = AuditLog(database)

    def gone() -> None:
        raise OperationalError("", None, Exception("gone"))

    monkeypatch.setattr(database, "writing", gone)
    log.record(local_event("a", "0", "test", "x")).result(timeout=120)
    log.close()
    database.close()
    assert "audit_entry_not_stored" in capsys.readouterr().out


@pytest.mark.slow
def test_the_log_stands_on_postgresql_with_keys_and_tenants(tmp_path: Path) -> None:
    with postgresql_server() as url, served(tmp_path, database_url=url) as (of, client):
        a, b = made(of, "a"), made(of, "b")
        client.headers.update(shown(a))
        job = submit(client)
        assert client.get(f"/v1/jobs/{job}", headers=shown(b)).status_code == 404
        assert client.post(f"/v1/keys/{a.key.id}/rotate", json={"grace_seconds": 0}, headers=shown(b)).status_code == 404
        assert [entry["status"] for entry in entries(client, b)] == [404, 404]
        assert json.dumps(entries(client, a)).count("submit_job") == 1
