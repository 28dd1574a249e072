r"""What is deleted after its time, what never is, and that the database lets nothing else go from the audit log."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
import sqlalchemy
from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import DatabaseError
from typer.testing import CliRunner

from tests.app.fake_child import Order
from tests.app.jobs_harness import postgresql_server, provide_database, serving, settings, spec, stream, submit, wait_until, working
from tests.selection import thinned
from zetadp.app.access.audit_log import local_event
from zetadp.app.certificates.signing.noise_keys import NoiseKeyDeleted, kept_for, kept_noise_key, noise_key_of
from zetadp.app.cli import app
from zetadp.app.jobs.events import process_started
from zetadp.app.jobs.queue import JobQueue
from zetadp.app.kit.database import Database, now
from zetadp.app.kit.settings import Settings
from zetadp.app.operations.retention import Removed, Retention, claimed, delete_key
from zetadp.app.storage.opening import storage_of
from zetadp.app.tables.access import AuditRow
from zetadp.app.tables.jobs import IdempotencyKeyRow, JobEventRow, JobRow, WebhookRow
from zetadp.app.tables.operations import AuditDeletionRow

KEPT = {
    "keep_job_files_days": 10.0,
    "keep_job_events_days": 10.0,
    "keep_idempotency_days": 10.0,
    "keep_webhook_days": 10.0,
    "keep_audit_log_days": 30.0,
    "keep_call_days": 10.0,
}
LATER = timedelta(days=11)


@pytest.fixture(params=thinned(["sqlite", "postgresql"], every=2))
def of(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Settings]:
    base = settings(tmp_path).model_dump() | KEPT
    if request.param == "sqlite":
        yield Settings.model_validate(base)
        return
    with postgresql_server() as url:
        yield Settings.model_validate(base | {"database_url": url})


@pytest.fixture
def database(of: Settings) -> Generator[Database]:
    provide_database(of)
    database = Database(of)
    database.migrate()
    yield database
    database.close()


@pytest.fixture
def retention(of: Settings, database: Database) -> Generator[Retention]:
    queue = JobQueue(of)
    yield Retention(of, database, queue)
    queue.close()


def ended(client: httpx2.Client, order: Order = Order.FINISH) -> str:
    """A job with an idempotency key and a webhook nobody takes, that ended."""
    body = {"spec": spec(), "runtime": {"microbatch_size": int(order), "checkpoint_seconds": 0.01}}
    job_id = client.post("/v1/jobs", json=body, headers={"Idempotency-Key": f"key-{order}"}).json()["id"]
    list(stream(client, job_id))
    return str(job_id)


def test_round_deletes_what_is_old_and_keeps_what_proves_something(of: Settings, database: Database, retention: Retention) -> None:
    with serving(of) as client:
        with working(of):
            done, failed = ended(client), ended(client, Order.FAIL)
            wait_until(lambda: retention.clean(now() + LATER, is_rehearsal=True).calls == 4)
        waiting = submit(client)
        certificate = client.get(f"/v1/jobs/{done}").json()["certificate"]
        envelope = client.get(f"/v1/certificates/{certificate}").content
        shown = client.get(f"/v1/jobs/{done}").json()
        with database.writing() as session:
            session.add(WebhookRow(job_id=done, url="https://example.org/", host="example.org", secret="whsec_" + "AAAB" * 8))
        assert retention.clean(now()) == Removed()
        expected = Removed(job_files=2, job_events=2, idempotency_keys=2, webhooks=1, calls=4)
        assert retention.clean(now() + LATER, is_rehearsal=True) == expected
        assert of.job_dir(done).is_dir()
        assert retention.clean(now() + LATER) == expected
        assert retention.clean(now() + LATER) == Removed()
        assert not of.job_dir(done).exists()
        after = client.get(f"/v1/jobs/{done}").json()
        assert after.pop("files_deleted") is not None
        assert after == {name: value for name, value in shown.items() if name != "files_deleted"}
        assert client.get(f"/v1/certificates/{certificate}").content == envelope
        assert client.get(f"/v1/jobs/{done}/artifacts").json() == {"artifacts": []}
        assert client.get(f"/v1/jobs/{done}/artifacts/model.safetensors").status_code == 404
        refused = client.post(f"/v1/jobs/{failed}/retry")
        assert (refused.status_code, refused.json()["type"]) == (409, "job-conflict")
        assert "its files were deleted" in refused.json()["detail"]
        kinds = [event.kind for event in stream(client, done)]
        assert kinds.count("progress") == 1
        assert "checkpoint" in kinds
        assert client.get(f"/v1/jobs/{waiting}").json()["state"] == "preparing"
    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(IdempotencyKeyRow)) == 0
        lines = session.scalars(select(JobEventRow.data["line"].as_string()).where(JobEventRow.kind == "log")).all()
        assert lines == [process_started(1).line] * 2  # a retry finds out by them whether its plan was logged before


def test_noise_key_goes_some_time_after_its_job_and_that_it_went_is_said(of: Settings, database: Database, retention: Retention) -> None:
    store = storage_of(of).store
    with database.writing() as session:
        for name, state in (("ended", "succeeded"), ("held", "running"), ("recent", "failed")):
            session.add(JobRow(id=name, state=state, created=now(), finished=None if name == "held" else now(), document={}))
            assert noise_key_of(store, name)
        session.flush()
        session.execute(update(JobRow).where(JobRow.id == "ended").values(finished=now() - timedelta(days=366)))
    assert [retention.clean(now(), is_rehearsal=is_rehearsal).noise_keys for is_rehearsal in (True, False, False)] == [1, 1, 0]
    assert sorted(kept_for(store)) == ["held", "recent"]
    for asked in (kept_noise_key, noise_key_of):  # it isn't taken for a job that never had one, and gets no other
        with pytest.raises(NoiseKeyDeleted, match="the noise key of job ended was deleted on 20"):
            asked(store, "ended")
    with database.reading() as session:
        found = session.execute(select(JobEventRow.job_id, JobEventRow.data["line"].as_string())).all()
    assert [tuple(row) for row in found] == [("ended", "noise key deleted: nobody can repeat this run any more")]
    assert not delete_key(of, database, "held")
    assert not delete_key(of, database, "nobody")
    if of.database_url is None:
        told = CliRunner().invoke(app, ["noise-key", "held", "--delete"], env={"ZETADP_DATA_DIR": str(of.data_dir)})
        assert (told.exit_code, "held hasn't ended" in told.output) == (2, True)
        told = CliRunner().invoke(app, ["noise-key", "recent", "--delete"], env={"ZETADP_DATA_DIR": str(of.data_dir)})
        assert (told.exit_code, "nobody can repeat this run any more" in told.output) == (0, True)
        told = CliRunner().invoke(app, ["noise-key", "recent", "-o", "opened"], env={"ZETADP_DATA_DIR": str(of.data_dir)})
        assert (told.exit_code, "was deleted on" in told.output) == (4, True)


def test_folder_that_was_left_behind_goes_in_the_next_round(of: Settings, database: Database, retention: Retention) -> None:
    with database.writing() as session:
        for name in ("gone", "there"):
            session.add(JobRow(id=name, state="succeeded", created=now(), finished=now(), document={}))
            of.job_dir(name).mkdir(parents=True)
        session.flush()
        session.execute(update(JobRow).where(JobRow.id == "gone").values(files_deleted=now()))
    (of.data_dir / "jobs" / "not a job").mkdir()
    retention.clean(now())
    assert sorted(path.name for path in (of.data_dir / "jobs").iterdir()) == ["not a job", "there"]


def aged(days: float) -> AuditRow:
    row = local_event("default", "-", "of a test", "x").row()
    row.time = now() - timedelta(days=days)
    return row


def entries(database: Database) -> list[str]:
    with database.reading() as session:
        return [f"{row.action}: {row.target[:9]}" for row in session.scalars(select(AuditRow).order_by(AuditRow.number))]


def test_old_entries_of_the_audit_log_go_and_that_they_went_stays(database: Database, retention: Retention) -> None:
    with database.writing() as session:
        session.add_all([aged(40), aged(31), aged(29), aged(0)])
    assert retention.clean(now()).audit_entries == 2
    assert entries(database) == ["of a test: x", "of a test: x", "audit log shortened: 2 entries"]
    assert retention.clean(now()).audit_entries == 0
    for change in (delete(AuditDeletionRow), update(AuditDeletionRow).values(before=now())):
        with pytest.raises(DatabaseError, match="what left the audit log stays on record"), database.writing() as session:
            session.execute(change)


def test_nothing_else_leaves_the_audit_log(database: Database) -> None:
    with database.writing() as session:
        session.add_all([aged(40), aged(1)])

    def attempted(before: timedelta | None, change: sqlalchemy.Executable) -> None:
        with database.writing() as session:
            if before is not None:
                session.add(AuditDeletionRow(time=now(), before=now() - before))
                session.flush()
            session.execute(change)

    def refused(before: timedelta | None, change: sqlalchemy.Executable) -> None:
        with pytest.raises(DatabaseError, match="audit log"):
            attempted(before, change)

    old = delete(AuditRow).where(AuditRow.time < now() - timedelta(days=35))
    refused(None, old)  # nothing says that it goes
    refused(timedelta(days=45), old)  # what says so is about older ones
    refused(timedelta(0), delete(AuditRow))  # whatever is said, the last 30 days stay
    refused(timedelta(0), update(AuditRow).values(status=0))
    assert len(entries(database)) == 2


def test_of_several_processes_one_does_the_round(database: Database) -> None:
    moment = now()
    assert [claimed(database, "retention", moment, 60.0) for _ in range(3)] == [True, False, False]
    assert not claimed(database, "retention", moment + timedelta(seconds=59), 60.0)
    assert claimed(database, "retention", moment + timedelta(seconds=60), 60.0)
    assert not claimed(database, "retention", moment + timedelta(seconds=61), 60.0)
