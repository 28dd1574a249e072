r"""Metrics as Prometheus reads them, the dashboard and alerts that name them, and readiness."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Generator
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import update
from typer.testing import CliRunner

from tests.app.access_harness import made, shown
from tests.app.jobs_harness import AUTHORIZED, postgresql_server, serving, settings, spec, stream, submit, wait_for_state, working
from tests.app.ledgers_harness import definition, gaussian
from tests.selection import thinned
from zetadp.app.access.scopes import Scope
from zetadp.app.cli import app
from zetadp.app.jobs.leases import Executor, Leases
from zetadp.app.kit.database import Database, now, revisions
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.app.operations import figures, readiness
from zetadp.app.tables.jobs import ExecutorRow


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept between two questions of a test."""
    monkeypatch.setattr(figures, "KEPT_SECONDS", 0.0)
    monkeypatch.setattr(readiness, "KEPT_SECONDS", 0.0)
    monkeypatch.setattr(readiness, "LIMIT_SECONDS", 60.0)


@pytest.fixture(params=thinned(["sqlite", "postgresql"], every=2))
def of(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Settings]:
    if request.param == "sqlite":
        yield settings(tmp_path)
        return
    with postgresql_server() as url:
        yield Settings.model_validate(settings(tmp_path).model_dump() | {"database_url": url})


def samples(client: httpx2.Client) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample by name and labels."""
    answer = client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = text_string_to_metric_families(answer.text)
    return {(each.name, tuple(sorted(each.labels.items()))): each.value for family in families for each in family.samples}


def test_figures_are_those_of_the_service(of: Settings) -> None:
    with serving(of) as client:
        budget = {"budget": {"kind": "gdp", "mu": 1.0}}
        ledger = client.post("/v1/ledgers", json=definition().model_dump(mode="json") | budget).json()["id"]
        spend = {"spend": gaussian(2.0).model_dump(mode="json")}
        assert client.post(f"/v1/ledgers/{ledger}/reservations", json=spend).status_code == 201
        refused = client.post(f"/v1/ledgers/{ledger}/reservations", json={"spend": gaussian(0.5).model_dump(mode="json")})
        assert refused.json()["type"] == "budget-exceeded"
        waiting = client.post("/v1/jobs", json={"spec": spec(), "runtime": {"device": "cuda"}}).json()["id"]
        with working(of):
            wait_for_state(client, waiting, "queued")
            list(stream(client, submit(client)))
        found = samples(client)
        assert found["zetadp_jobs", (("state", "queued"),)] == 1
        assert found["zetadp_jobs", (("state", "succeeded"),)] == 1
        assert found["zetadp_queue_depth", ()] == 1
        assert found["zetadp_queue_oldest_seconds", ()] > 0
        assert found["zetadp_reservations_open", ()] == 1
        assert found["zetadp_ledger_entries", ()] == 2
        assert found["zetadp_ledgers", (("state", "open"),)] == 1
        assert found["zetadp_problems_total", (("type", "budget-exceeded"),)] == 1
        assert found["zetadp_certificates", ()] == 1
        assert found["zetadp_backup_timestamp_seconds", ()] == 0
        assert found["zetadp_log_entries", ()] == 2  # the plan and its certificate
        assert found["zetadp_log_head_entries", ()] > 0
        assert now().timestamp() - 600 < found["zetadp_log_head_timestamp_seconds", ()] <= now().timestamp()
        assert (found["zetadp_log_head_witnesses", ()], found["zetadp_log_witnesses", ()]) == (0, 0)
        assert found["zetadp_database_up", ()] == 1
        assert found["zetadp_disk_free_bytes", ()] > 0
        route = (("method", "POST"), ("route", "/v1/ledgers/{ledger_id}/reservations"))
        assert found["zetadp_requests_total", (*route, ("status", "201"))] == 1
        assert found["zetadp_requests_total", (*route, ("status", "409"))] == 1
        assert found["zetadp_request_seconds_count", route] == 2


def test_no_label_holds_what_a_client_chose(tmp_path: Path) -> None:
    with serving(settings(tmp_path)) as client:
        for path in ("/secret-name", "/v1/jobs/secret-name", "/static/secret-name", "/v1/secret-name"):
            client.get(path)
        assert client.request("SECRETNAME", "/v1/jobs").status_code == 400  # the server itself knows no such method
        client.request("PROPFIND", "/v1/jobs")
        client.post("/v1/keys", json={"name": "secret-name", "scopes": ["submit"]})
        client.get("/v1/jobs", headers=shown(made(settings(tmp_path), "secret-name")))
        client.get("/metrics")
        text = client.get("/metrics").text
        assert "secret" not in text.lower()
        assert 'route="/static"' in text
        assert 'method="other"' in text
        before = len(client.get("/metrics").text.splitlines())
        for name in ("another-name", "v1/jobs/yet-another"):
            client.get(f"/{name}")
        assert len(client.get("/metrics").text.splitlines()) == before


def test_metrics_are_for_the_operators_own_keys(tmp_path: Path) -> None:
    of = settings(tmp_path)
    with serving(of) as client:
        assert client.get("/metrics", headers={"Authorization": ""}).status_code == 401
        assert client.get("/metrics", headers=shown(made(of, "default", Scope.METRICS))).status_code == 200
        assert client.get("/metrics", headers=shown(made(of, "default", Scope.ADMIN))).status_code == 403
        other = client.get("/metrics", headers=shown(made(of, "clinic-b", Scope.METRICS)))
        assert (other.status_code, other.json()["detail"]) == (403, "this needs a key with the scope metrics of the tenant default")


@pytest.mark.slow
def test_applications_count_for_themselves(tmp_path: Path) -> None:
    one, other = (create_app(Settings(data_dir=tmp_path / name)) for name in "ab")
    one.state.metrics.webhook_tried("taken")
    assert b'zetadp_webhook_tries_total{outcome="taken"} 1.0' in one.state.metrics.text()
    assert b'zetadp_webhook_tries_total{outcome="taken"} 0.0' in other.state.metrics.text()


def names_in(expression: str) -> set[str]:
    """The metrics that a PromQL expression names."""
    return set(re.findall(r"\b(?:zetadp|process)_[a-z_]+", re.sub(r'"[^"]*"', "", expression)))


def printed(command: str) -> str:
    return CliRunner().invoke(app, ["operations", command]).stdout


def test_dashboard_and_alerts_name_metrics_that_exist(tmp_path: Path) -> None:
    with serving(settings(tmp_path)) as client:
        client.get("/livez")
        known = {name for name, _ in samples(client)}
    board, rules = json.loads(printed("dashboard")), yaml.safe_load(printed("alerts"))
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [board["templating"]["list"][1]["query"]]
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len(board["panels"]) > 15
    assert len(alerts) > 10
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in alerts)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for expression in [*asked, *(rule["expr"] for rule in alerts)]:
        assert names_in(expression), expression
        assert names_in(expression) <= known, expression


def test_ready_service_says_so_to_everyone(of: Settings) -> None:
    with serving(of) as client:
        del client.headers["Authorization"]
        answer = client.get("/readyz")
        assert answer.status_code == 200
        assert answer.json()["status"] == "ready"
        needed = {check["name"] for check in answer.json()["checks"] if check["needed"]}
        assert needed == {"database", "migrations", "disk", "storage", "signing_key"}


def test_service_without_a_worker_is_ready_and_says_that_jobs_wait(of: Settings) -> None:
    def told() -> dict[str, object]:
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (200, "ready")
        (check,) = [check for check in answer.json()["checks"] if check["name"] == "workers"]
        return check

    with serving(of) as client:
        assert told() == {"name": "workers", "ok": False, "needed": False, "detail": "no worker is alive, so jobs wait"}
        database = Database(of)
        executor = Executor(id="w", host="h", device="cpu", hardware="-", lease_seconds=3600.0)
        token = Leases(database, 3).take(executor)
        assert told() == {"name": "workers", "ok": True, "needed": False, "detail": None}
        with database.writing() as session:  # as if it had been silent for two hours
            session.execute(update(ExecutorRow).where(ExecutorRow.token == token).values(renewed=now() - timedelta(hours=2)))
        database.close()
        assert not told()["ok"]


@pytest.mark.slow
def test_what_a_check_waits_for_nobody_else_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "LIMIT_SECONDS", 0.2)
    waits = threading.Event()
    with serving(settings(tmp_path)) as client:
        assert client.get("/readyz").status_code == 200
        monkeypatch.setattr(Database, "check", lambda _self: waits.wait())
        for _ in range(2):  # the second finds the first one's checks still running
            assert failing(client) == dict.fromkeys(("database", "migrations"), "no answer within 0.2 s")
        waits.set()
        monkeypatch.setattr(readiness, "LIMIT_SECONDS", 60.0)
        assert client.get("/readyz").status_code == 200


def failing(client: httpx2.Client) -> dict[str, str]:
    answer = client.get("/readyz")
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
    assert answer.headers["retry-after"]
    assert answer.json()["type"] == "not-ready"
    assert client.get("/livez").status_code == 200
    return {check["name"]: check["detail"] for check in answer.json()["checks"] if check["needed"] and not check["ok"]}


@pytest.mark.slow
def test_tables_of_another_version_are_not_ready(tmp_path: Path) -> None:
    of = settings(tmp_path)
    with serving(of) as client:
        connection = sqlite3.connect(tmp_path / "zetadp.sqlite")
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
        connection.close()
        assert failing(client) == {"migrations": f"expected tables of version {revisions()[0]}, got 9999"}


@pytest.mark.slow
def test_full_disk_is_not_ready_and_takes_no_job(tmp_path: Path) -> None:
    of = Settings.model_validate(settings(tmp_path).model_dump() | {"minimum_free_bytes": 2**60})
    with serving(of) as client:
        (detail,) = failing(client).values()
        assert detail.startswith(f"expected at least {2**60} bytes free, got ")
        refused = client.post("/v1/jobs", json={"spec": spec()})
        assert (refused.status_code, refused.json()["type"]) == (507, "storage-full")
        assert client.get("/v1/jobs").json()["jobs"] == []


def test_key_that_others_may_read_is_not_ready(tmp_path: Path) -> None:
    with serving(settings(tmp_path)) as client:
        assert client.get("/readyz").status_code == 200
        (tmp_path / "keys" / "0001.pem").chmod(0o644)
        assert failing(client) == {"signing_key": "the newest signing key can't be used"}
        assert AUTHORIZED["Authorization"] not in client.get("/readyz").text
