"""Traces: one holds the request, the job, its run and its released steps; nothing private is in it; off, they cost and change nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Generator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.app import fake_child
from tests.app.jobs_harness import AUTHORIZED, serving, settings, spec
from tests.app.preparing_harness import prepare_all
from zetadp.app.jobs.attempts import Attempts
from zetadp.app.jobs.leases import Executor, Leases
from zetadp.app.jobs.needs import Capacity
from zetadp.app.kit import tracing
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.jobs import JobRow
from zetadp.app.worker.running import Runner
from zetadp.mechanisms.errors import InvalidParameter

CALLER = "0af7651916cd43dd8448eb211c80319c"
ALLOWED = {"zetadp.job", "zetadp.attempt", "zetadp.step", "zetadp.steps"}
"""What our own spans may tell."""


def exporting() -> Any:
    """(provider, exporter) in memory."""
    needs = "isn't installed: pip install 'zetadp[opentelemetry]'"
    export = pytest.importorskip("opentelemetry.sdk.trace.export", reason=f"OpenTelemetry's SDK {needs}")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    provider, exporter = sdk.TracerProvider(), memory.InMemorySpanExporter()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    return provider, exporter


@pytest.fixture
def spans() -> Generator[Any]:
    provider, exporter = exporting()
    tracing.use(provider)
    yield exporter.get_finished_spans
    tracing.close()


def command(workdir: Path) -> list[str]:
    return [sys.executable, fake_child.__file__, str(workdir), str(os.getpid())]


def run_next(of: Settings) -> None:
    """What a worker does with the job that is next, in this process; only its child is the tests' own."""
    database = Database(of)
    try:
        leases, attempts = Leases(database, 3), Attempts(database, 3)
        prepare_all(database)
        token = leases.take(Executor(id="a", host="here", device="auto", hardware="none", lease_seconds=60.0))
        attempt = attempts.start_next(token, Capacity())
        assert attempt is not None
        Runner(of, attempts, threading.Event(), command).run(attempt)
    finally:
        database.close()


def trained(of: Settings, headers: dict[str, str]) -> dict[str, Any]:
    """The job after its end."""
    with serving(of) as client:
        runtime = {"microbatch_size": int(fake_child.Order.FINISH), "checkpoint_seconds": 0.01}
        body = {"spec": spec(), "runtime": runtime}
        job = client.post("/v1/jobs", json=body, headers=AUTHORIZED | headers).raise_for_status().json()
        run_next(of)
        return client.get(f"/v1/jobs/{job['id']}").json()


def test_one_trace_leads_from_the_callers_request_to_the_released_steps(spans: Any, tmp_path: Path) -> None:
    job = trained(settings(tmp_path), {"traceparent": f"00-{CALLER}-b7ad6b7169203331-01"})
    assert job["state"] == "succeeded"
    of_caller = [one for one in spans() if f"{one.context.trace_id:032x}" == CALLER]
    by_name = {one.name: one for one in of_caller}
    assert by_name.keys() == {"POST /v1/jobs", "submit job", "run job", "start process", "release steps"}
    line = ("POST /v1/jobs", "submit job", "run job", "release steps")
    for above, below in pairwise(line):
        assert by_name[below].parent.span_id == by_name[above].context.span_id
    assert by_name["run job"].attributes == {"zetadp.job": job["id"], "zetadp.attempt": 1}
    steps = [one.attributes["zetadp.step"] for one in of_caller if one.name == "release steps"]
    assert steps == sorted(set(steps))
    assert steps[-1] == job["progress"]["step"]


def test_our_spans_tell_only_what_the_job_itself_shows(spans: Any, tmp_path: Path) -> None:
    trained(settings(tmp_path), {})
    ours = [one for one in spans() if one.instrumentation_scope.name == "zetadp"]
    assert len(ours) >= 4
    assert set().union(*(one.attributes for one in ours)) <= ALLOWED
    assert [one.events for one in ours if one.events] == []


def test_requests_are_told_without_bodies_queries_or_logs(spans: Any, tmp_path: Path) -> None:
    with serving(settings(tmp_path)) as client:
        assert client.get("/v1/jobs", params={"label": "patient=smith"}).status_code == 200
        assert client.post("/v1/profiles", json={"event": "of smith"}).status_code == 422
        assert client.get("/livez").status_code == 200
    names = [one.name for one in spans()]
    assert {"GET /v1/jobs", "POST /v1/profiles"} <= set(names)
    assert not any("livez" in name for name in names)
    assert "smith" not in "".join(one.to_json() for one in spans())


def test_an_exceptions_text_is_not_in_its_span(spans: Any) -> None:
    with pytest.raises(ValueError, match="a patient's name"), tracing.span("try", {}):
        raise ValueError("a patient's name")
    [span] = spans()
    assert dict(span.attributes) == {"error.type": "ValueError"}
    assert (span.events, span.status.description) == ((), None)


@pytest.mark.slow
def test_without_an_exporter_nothing_is_imported_traced_or_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tracing.VARIABLE, raising=False)
    code = "import sys, zetadp.app.main as m; m.create_app(); sys.exit(any(name.startswith('opentelemetry.sdk') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0
    of = settings(tmp_path)
    job = trained(of, {"traceparent": f"00-{CALLER}-b7ad6b7169203331-01"})
    database = Database(of)
    with database.reading() as session:
        row = session.get(JobRow, job["id"])
        assert row is not None
        assert row.traceparent is None
    database.close()


def test_an_exporter_that_is_not_installed_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tracing.VARIABLE, "elsewhere")
    with pytest.raises(InvalidParameter, match=r"OTEL_TRACES_EXPORTER must be none, or the name of an installed exporter.*'elsewhere'"):
        tracing.configure("tests")
