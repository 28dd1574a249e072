r"""A backup that is made while a job runs, restored into either database: what proved something proves it there."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Generator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import select
from typer.testing import CliRunner

from tests.app.fake_child import Order
from tests.app.jobs_harness import postgresql_server, serving, settings, spec, stream, submit, wait_for_state, wait_until, working
from tests.app.ledgers_harness import definition, gaussian
from tests.app.preparing_harness import prepare_all
from tests.selection import thinned
from zetadp.accountants.filters import RdpBudget
from zetadp.app.certificates.signing.noise_keys import kept_noise_key
from zetadp.app.cli import app
from zetadp.app.kit.database import Database, now
from zetadp.app.kit.settings import Settings
from zetadp.app.operations.archive import MANIFEST, BackupUnusable
from zetadp.app.operations.backup import back_up
from zetadp.app.operations.restore import Restored, restore
from zetadp.app.storage.opening import storage_of
from zetadp.app.tables.access import AuditRow
from zetadp.app.tables.jobs import ExecutorRow, JobRow
from zetadp.app.tables.operations import BackupRow
from zetadp.trainer.request import NOISE_KEY

DEFINITION = definition(RdpBudget(orders=(8.0,), values=(9.0,))).model_dump(mode="json")
WAYS = [("sqlite", "postgresql"), ("postgresql", "sqlite")]
"""Each database both as where a backup is made and as where it is restored; within one kind the other tests stay."""


@pytest.fixture
def place(tmp_path: Path) -> Generator[Callable[[str, str], Settings]]:
    """Settings of a service in a folder of this name, with a database of this kind."""
    with ExitStack() as stack:

        def made(name: str, kind: str) -> Settings:
            url = stack.enter_context(postgresql_server()) if kind == "postgresql" else None
            return Settings.model_validate(settings(tmp_path / name).model_dump() | {"database_url": url})

        yield made


def saved(of: Settings, *, job_files: bool = True) -> bytes:
    out, database = io.BytesIO(), Database(of)
    try:
        back_up(of, database, out, job_files=job_files)
    finally:
        database.close()
    return out.getvalue()


def restored(backup: bytes, to: Settings, *, jobs_go_on: bool = False) -> Restored:
    return restore(io.BytesIO(backup), to, to.data_dir, jobs_go_on=jobs_go_on)


def charged(client: httpx2.Client, ledger: str, **runtime: object) -> str:
    body = {"spec": spec(), "ledger": ledger, "runtime": runtime}
    response = client.post("/v1/jobs", json=body)
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


def goes_on_from_its_checkpoint(client: httpx2.Client, to: Settings, job_id: str) -> None:
    with working(to):
        events = list(stream(client, job_id))
    assert events[-1].data["state"] == "succeeded"
    begun = [int(str(event.data["resumed_from_step"])) for event in events if event.kind == "started"]
    assert begun[0] == 0
    assert begun[-1] >= 5


@pytest.mark.parametrize(("source", "target"), thinned(WAYS, every=2))
def test_backup_of_a_busy_service_proves_there_what_it_proved_here(source: str, target: str, place: Callable[[str, str], Settings]) -> None:
    of, to = place("here", source), place("there", target)
    with serving(of) as client:
        ledger = client.post("/v1/ledgers", json=DEFINITION).json()["id"]
        client.post(f"/v1/ledgers/{ledger}/reservations", json={"spend": gaussian(2.0).model_dump(mode="json")})
        with working(of):
            done = charged(client, ledger, microbatch_size=1, checkpoint_seconds=0.01)
            list(stream(client, done))
            running = charged(client, ledger, microbatch_size=int(Order.HOLD), checkpoint_seconds=0.01)
            waiting = charged(client, ledger, microbatch_size=1, checkpoint_seconds=0.01)
            next(event for event in stream(client, running) if event.kind == "checkpoint")
            wait_for_state(client, waiting, "queued")  # its worker prepares it, and reserves its price, while the other one runs
            backup = saved(of)
            spent_later = client.post(f"/v1/ledgers/{ledger}/reservations", json={"spend": gaussian(3.0).model_dump(mode="json")})
            assert spent_later.status_code == 201
        certificate = client.get(f"/v1/jobs/{done}").json()["certificate"]
        envelope = client.get(f"/v1/certificates/{certificate}").content
        keys = client.get("/.well-known/jwks.json").json()
        log = client.get(f"/v1/jobs/{done}/artifacts").json()
        last = client.get(f"/v1/ledgers/{ledger}").json()["head"]
    told = restored(backup, to)
    assert told.certificates == 1
    assert set(told.unfinished_jobs) == {running, waiting}
    assert [(each.ledger, each.entries) for each in told.ledgers] == [(ledger, last["number"] - 1)]
    assert (to.data_dir / "keys" / "0001.pem").stat().st_mode & 0o777 == 0o600
    assert to.data_dir.stat().st_mode & 0o777 == 0o700
    with serving(to) as client:
        assert client.get(f"/v1/certificates/{certificate}").content == envelope
        assert client.get("/.well-known/jwks.json").json() == keys
        assert client.post("/v1/certificates/verify", content=envelope).json()["verdict"] == "valid"
        assert client.get(f"/v1/ledgers/{ledger}/verification").json()["verdict"] == "sound"
        assert client.get(f"/v1/ledgers/{ledger}").json()["head"]["number"] == last["number"] - 1
        assert client.get(f"/v1/jobs/{done}/artifacts").json() == log
        assert client.get(f"/v1/jobs/{done}/artifacts/model.safetensors").content == b"model"
        assert [client.get(f"/v1/jobs/{job_id}").json()["state"] for job_id in (running, waiting)] == ["paused", "paused"]
        assert client.get("/v1/hardware").json()["workers"] == []
        client.post(f"/v1/jobs/{running}/resume")
        if target == "sqlite":  # once is enough: the worker's side doesn't know where its rows came from
            goes_on_from_its_checkpoint(client, to, running)
        # What is new gets numbers after those that came with the backup.
        assert client.get("/v1/audit-log").json()["entries"][0]["action"] == "resume_job"
        assert client.get(f"/v1/ledgers/{ledger}/verification").json()["verdict"] == "sound"


def test_noise_keys_are_in_no_backup_and_not_beside_what_was_released(tmp_path: Path) -> None:
    of = settings(tmp_path / "here").model_copy(update={"keep_noise_keys": True})
    with serving(of) as client, working(of):
        job_id = submit(client, Order.HOLD)
        next(event for event in stream(client, job_id) if event.kind == "checkpoint")
        (held,) = [path.read_bytes() for path in of.data_dir.rglob(NOISE_KEY)]
        kept = kept_noise_key(storage_of(of).store, job_id)
        backup = saved(of)
        client.post(f"/v1/jobs/{job_id}/cancel")
        wait_for_state(client, job_id, "cancelled")
        wait_until(lambda: not list(of.data_dir.rglob(NOISE_KEY)))
    assert kept is not None
    with tarfile.open(fileobj=io.BytesIO(backup), mode="r:gz") as archive:
        members = {member.name: b"" if (content := archive.extractfile(member)) is None else content.read() for member in archive}
    assert any(job_id in name for name in members)
    assert [name for name, content in members.items() if "noise-key" in name or kept in content or held in content] == []


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A backup of a service with a queued job, one that a worker had in hand and was to stop, one that it was preparing, and one that
    waits for an approval."""
    of = settings(tmp_path_factory.mktemp("small"))
    with serving(of) as client:
        submit(client)
        job_id, waiting = submit(client), submit(client)
        database = Database(of)
        prepare_all(database)
        unprepared = submit(client)
        assert client.get("/.well-known/jwks.json").status_code == 200  # the first question makes the key
    with database.writing() as session:
        session.get_one(JobRow, unprepared).holder = "a" * 32
        session.get_one(JobRow, waiting).state, session.get_one(JobRow, waiting).awaits = "paused", "r"
        row = session.get_one(JobRow, job_id)
        row.state, row.holder, row.attempt, row.started = "cancelling", "a" * 32, 1, now()
        session.add(
            ExecutorRow(
                id="w",
                token="a" * 32,
                beat=1,
                since=now(),
                renewed=now(),
                lease_seconds=6,
                host="h",
                lock="",
                device="cpu",
                hardware="-",
                capacity={},
                job_id=job_id,
            )
        )
    database.close()
    return saved(of)


def test_jobs_go_on_only_where_that_is_said_and_no_lease_comes_along(small: bytes, tmp_path: Path) -> None:
    for go_on, states in (
        (True, ["cancelled", "paused", "preparing", "queued"]),
        (False, ["cancelled", "paused", "paused", "paused"]),
    ):
        to = settings(tmp_path / states[-1])
        restored(small, to, jobs_go_on=go_on)
        database = Database(to)
        with database.reading() as session:
            assert sorted(row.state for row in session.scalars(select(JobRow))) == states
            assert {row.holder for row in session.scalars(select(JobRow))} == {None}
            # It may have been approved after the backup, and have run.
            assert {row.awaits for row in session.scalars(select(JobRow))} == ({None, "r"} if go_on else {None})
            assert session.scalars(select(ExecutorRow)).all() == []
            assert [row.action for row in session.scalars(select(AuditRow))][-1] == "restored from a backup"
        database.close()


def repacked(backup: bytes, change: Callable[[str, bytes], tuple[str, bytes] | None]) -> bytes:
    """The backup with every member changed, or left out."""
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(backup), mode="r:gz") as before, tarfile.open(fileobj=out, mode="w:gz") as after:
        for member in before:
            content = before.extractfile(member)
            assert content is not None
            changed = change(member.name, content.read())
            if changed is not None:
                told = tarfile.TarInfo(changed[0])
                told.size = len(changed[1])
                after.addfile(told, io.BytesIO(changed[1]))
    return out.getvalue()


def with_manifest(**changes: Any) -> Callable[[str, bytes], tuple[str, bytes]]:
    def change(name: str, content: bytes) -> tuple[str, bytes]:
        return (name, json.dumps(json.loads(content) | changes).encode()) if name == MANIFEST else (name, content)

    return change


DAMAGED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut off": (lambda backup: backup[:-200], "can't be read to its end"),
    "without its end": (
        lambda backup: repacked(backup, lambda name, content: None if name == MANIFEST else (name, content)),
        "has no manifest",
    ),
    "a changed row": (
        lambda backup: repacked(
            backup, lambda name, content: (name, content.replace(b"default", b"others_") if "jobs/" in name else content)
        ),
        "is damaged: 1 of its members",
    ),
    "a missing file": (
        lambda backup: repacked(backup, lambda name, content: None if name.endswith(".pem") else (name, content)),
        "is damaged: 1 of its members",
    ),
    "a way out": (
        lambda backup: repacked(backup, lambda name, content: (name.replace("files/", "files/../"), content)),
        "an unexpected member",
    ),
    "an unknown table version": (lambda backup: repacked(backup, with_manifest(revision="9999")), "tables of version 9999"),
    "an unknown format": (lambda backup: repacked(backup, with_manifest(format="zetadp-backup-2")), "doesn't know the format"),
    "not a backup": (lambda _backup: b"something else", "can't be read to its end"),
    "another archive": (lambda _backup: gzip.compress(b"something else" * 1000), "can't be read to its end"),
}


@pytest.mark.parametrize("name", thinned(DAMAGED, every=3))
def test_damaged_backup_leaves_nothing_behind(name: str, small: bytes, tmp_path: Path) -> None:
    damage, told = DAMAGED[name]
    with pytest.raises(BackupUnusable, match=told):
        restored(damage(small), settings(tmp_path / "there"))
    assert list(tmp_path.iterdir()) == []


def test_target_that_is_not_empty_is_refused(small: bytes, place: Callable[[str, str], Settings], tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(BackupUnusable, match="expected an empty folder or none"):
        restored(small, settings(tmp_path / "full"))
    taken = place("there", "postgresql")
    database = Database(taken)
    database.migrate()
    database.close()
    taken.data_dir.joinpath("database.lock").unlink(missing_ok=True)
    with pytest.raises(BackupUnusable, match="expected an empty database"):
        restored(small, taken)


def test_ledger_that_was_changed_is_not_restored(tmp_path: Path) -> None:
    of = settings(tmp_path / "here")
    with serving(of) as client:
        ledger = client.post("/v1/ledgers", json=DEFINITION).json()["id"]
        client.post(f"/v1/ledgers/{ledger}/reservations", json={"spend": gaussian(2.0).model_dump(mode="json")})
    backup = saved(of)
    database = Database(of)
    with database.writing() as session:
        session.connection().exec_driver_sql("DROP TRIGGER ledger_entries_no_update")
        session.connection().exec_driver_sql("UPDATE ledger_entries SET text = replace(text, '2.0', '9.0') WHERE number = 2")
    database.close()
    restored(backup, settings(tmp_path / "good"))
    with pytest.raises(BackupUnusable, match=f"ledger {ledger} isn't sound in the backup"):
        restored(saved(of), settings(tmp_path / "there"))


def made_backups(of: Settings) -> list[datetime]:
    database = Database(of)
    with database.reading() as session:
        found = list(session.scalars(select(BackupRow.made)))
    database.close()
    return found


def test_commands_make_one_private_file_and_say_what_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = settings(tmp_path / "here")
    with serving(of) as client:
        client.post("/v1/ledgers", json=DEFINITION)
    monkeypatch.setenv("ZETADP_DATA_DIR", str(of.data_dir))
    file = tmp_path / "backup.zetadp"
    made = CliRunner().invoke(app, ["backup", str(file)])
    assert made.exit_code == 0, made.output
    assert "keep it encrypted" in made.output
    assert file.stat().st_mode & 0o777 == 0o600
    # Operators are told when it was made; one that isn't written whole isn't remembered.
    assert len(made_backups(of)) == 1
    again = CliRunner().invoke(app, ["backup", str(file)])
    assert len(made_backups(of)) == 1
    assert (again.exit_code, "isn't there yet" in again.output) == (1, True)
    done = CliRunner().invoke(app, ["restore", str(file), "--into", str(tmp_path / "there")])
    assert done.exit_code == 0, done.output
    assert "default/scans" in done.output
    assert "Spends after the backup are lost" in done.output
    refused = CliRunner().invoke(app, ["restore", str(file), "--into", str(tmp_path / "there")])
    assert (refused.exit_code, "expected an empty folder" in refused.output) == (1, True)
    piped = CliRunner().invoke(app, ["backup", "-", "--no-job-files"])
    assert piped.exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.zetadp", "here", "there"]
