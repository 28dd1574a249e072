r"""Logs as their readers need them: a JSON object a line, whose request or job it is, and nothing in them that isn't for them."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from base64 import b64encode
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog

from tests.app.fake_child import Order
from tests.app.forked import Command
from tests.app.jobs_harness import ADMIN_KEY, AUTHORIZED, environment, postgresql_server, settings, spec, stream, submit, working
from zetadp.app.kit.logs import configure_logs
from zetadp.app.kit.settings import Settings

SECRET = "a-secret-of-a-webhook"
SIGNING = "whsec_" + b64encode(SECRET.encode() + bytes(11)).decode()
DATA_VALUE = "Jane-Doe-1234"


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Generator[io.StringIO]:
    """What this process logs, as JSON."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    configure_logs("info", "json")
    yield out
    structlog.reset_defaults()
    for name in ("uvicorn", "uvicorn.error", "dbos", "alembic", "sqlalchemy", "asyncio", "concurrent.futures"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
        logger.setLevel(logging.NOTSET)


def told(lines: io.StringIO) -> dict[str, Any]:
    return json.loads(lines.getvalue().splitlines()[-1])


def fail() -> None:
    try:
        raise ValueError(f"no number: {DATA_VALUE}")
    except ValueError as cause:
        raise RuntimeError(f"row {DATA_VALUE}") from cause


@pytest.mark.parametrize("library", [None, "uvicorn.error", "dbos"])
def test_exception_is_told_by_type_and_place_alone(lines: io.StringIO, library: str | None) -> None:
    try:
        fail()
    except RuntimeError:
        if library is None:
            structlog.get_logger().exception("failed")
        else:
            logging.getLogger(library).exception("failed")
    line = told(lines)
    assert (line["event"], line["level"]) == ("failed", "error")
    assert "in fail" in line["exception"]
    assert line["exception"].splitlines()[-1] == "builtins.RuntimeError"
    assert "builtins.ValueError" in line["exception"]
    assert DATA_VALUE not in lines.getvalue()


def test_secrets_are_taken_out_of_every_line(lines: io.StringIO) -> None:
    structlog.get_logger().warning("x", url="postgresql://zetadp:hunter2@db:5432/z", key=ADMIN_KEY, nested={"u": "https://a:hunter2@b/"})
    logging.getLogger("dbos").warning("at postgresql+psycopg://zetadp:hunter2@db/z with %s", ADMIN_KEY)
    assert "hunter2" not in lines.getvalue()
    assert ADMIN_KEY not in lines.getvalue()
    assert told(lines)["logger"] == "dbos"


def test_text_is_for_terminals(lines: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", lines)  # pytest has put its own in place again
    configure_logs("info", "text")
    structlog.get_logger().info("served", port=8000)
    assert "served" in lines.getvalue()
    assert not lines.getvalue().startswith("{")
    configure_logs("info", "auto")  # this isn't one
    structlog.get_logger().info("served")
    assert told(lines)["event"] == "served"


def session(address: str) -> str:
    """What somebody does who gives secrets and data away wherever there is room for them; the id of a job that ran."""
    webhook = {"url": f"https://user:{SECRET}@nowhere.invalid/{SECRET}", "secret": SIGNING}
    with httpx2.Client(base_url=address, headers=AUTHORIZED, timeout=120) as client:
        client.post("/v1/jobs", json={"spec": spec(), "webhook": webhook})
        client.post("/v1/jobs", json={"spec": spec(steps=DATA_VALUE), "labels": {"patient": DATA_VALUE}})
        client.post("/v1/jobs", content=f'{{"spec": "{DATA_VALUE}'.encode())
        client.post("/v1/jobs", json={"spec": spec(), "labels": {"patient": DATA_VALUE}}, headers={"Idempotency-Key": DATA_VALUE})
        client.get("/v1/jobs", params={"label": f"patient={DATA_VALUE}"})
        client.get("/v1/jobs", headers={"Authorization": f"Bearer {ADMIN_KEY[:-1]}0"})
        client.get(f"/v1/keys/{ADMIN_KEY}")
        client.post(f"/v1/keys/{ADMIN_KEY}/rotate", json={"grace_seconds": 0})
        made = client.post("/v1/keys", json={"name": DATA_VALUE, "scopes": ["submit"]}).json()["text"]
        client.get("/v1/jobs", headers={"Authorization": f"Bearer {made}", "X-Request-ID": "named-by-me"})
        assert client.get("/v1/keys", headers={"Authorization": f"Bearer {made}"}).status_code == 403
        job_id = submit(client, Order.COMPLAIN)
        list(stream(client, job_id))
        return job_id


def test_session_leaves_no_secret_and_no_data_in_the_logs(tmp_path: Path) -> None:
    with postgresql_server() as url:
        with_password = url.replace("postgres@", "postgres:hunter2@")  # the server trusts this machine and doesn't ask
        of = Settings.model_validate(settings(tmp_path).model_dump() | {"database_url": with_password, "log_level": "debug"})
        variables = {**os.environ, **environment(of)}
        with working(of):
            service = Command(tmp_path / "streams", "serve", "--port", "0", env=variables)
            try:
                job_id = session(service.first_line().removeprefix("zetadp is at "))
                service.terminate()
                service.wait()
            finally:
                service.kill()
    log, worker_log = service.stderr, (tmp_path / "worker.log").read_text()
    for text in (log, worker_log):
        for secret in (SECRET, SIGNING, DATA_VALUE, "hunter2", ADMIN_KEY.rpartition("_")[2], "Jane Doe"):
            assert secret not in text
    served = [json.loads(line) for line in log.splitlines()]
    requests = [line for line in served if line["event"] == "request"]
    assert len(requests) > 10
    assert all(line["request_id"] for line in requests)
    assert any(line["request_id"] == "named-by-me" for line in requests)
    worked = [json.loads(line) for line in worker_log.splitlines()]
    own = [line for line in worked if line.get("job") == job_id]
    assert {line["event"] for line in own} >= {"job_preparing", "job_started", "job_left", "training_line_ignored"}
    assert {line["attempt"] for line in own if line["event"] != "job_preparing"} == {1}
