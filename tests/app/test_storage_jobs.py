r"""Jobs on machines that share a database and a bucket and nothing else: what one of them loses, another continues from the record."""

from __future__ import annotations

import gc
import hashlib
import io
import re
import shutil
import signal
import tarfile
from collections.abc import Generator
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
from sqlalchemy import select

from tests.app.fake_child import HELD_STEP, Order
from tests.app.jobs_harness import (
    kill,
    provide_database,
    serving,
    settings,
    state,
    stream,
    submit,
    wait_for_state,
    wait_until,
    working,
)
from tests.app.proxy import Proxy
from tests.app.s3_harness import CREDENTIALS, credentials, fresh_url, s3_server
from tests.app.uploads_harness import make, reading_in_process, training, uploaded
from zetadp.app.certificates.signing.keys import jwks
from zetadp.app.jobs.queue import JobQueue
from zetadp.app.jobs.workspaces import Head, KeptFile
from zetadp.app.kit.database import Database, now
from zetadp.app.kit.settings import Settings
from zetadp.app.operations.archive import BackupUnusable
from zetadp.app.operations.backup import back_up
from zetadp.app.operations.restore import restore
from zetadp.app.operations.retention import Retention
from zetadp.app.storage.base import StorageUnavailable
from zetadp.app.storage.opening import storage_of
from zetadp.app.storage.s3 import S3Store
from zetadp.app.tables.jobs import JobEventRow
from zetadp.app.worker.exits import EXIT_REFUSED

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Generator[str]:
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def wire(server: str) -> Generator[Proxy]:
    """Between everybody and the bucket."""
    host, port = server.removeprefix("http://").split(":")
    proxy = Proxy(host, int(port))
    with credentials(f"http://127.0.0.1:{proxy.port}"):
        yield proxy
    proxy.close()


@pytest.fixture
def service(tmp_path: Path, wire: Proxy) -> Settings:
    """The settings of the service's machine. The database is a file that all can reach, as a PostgreSQL server would be."""
    of = settings(tmp_path / "service")
    found = Settings.model_validate(
        of.model_dump() | {"storage_url": fresh_url(), "database_url": f"sqlite:///{tmp_path}/zetadp.sqlite", "lease_seconds": 2.0}
    )
    found.data_dir.mkdir()
    jwks(found)
    return found


def machine(service: Settings, name: str) -> Settings:
    """The settings of a worker's machine, with a disk of its own and a copy of the service's keys."""
    own = service.data_dir.with_name(name)
    shutil.copytree(service.data_dir / "keys", own / "keys")
    return Settings.model_validate(service.model_dump() | {"data_dir": own, "executor_id": name})


def steps_of_starts(of: Settings, job_id: str) -> list[int]:
    """Where each attempt began."""
    database = Database(of)
    with database.reading() as session:
        query = select(JobEventRow.data).where(JobEventRow.job_id == job_id, JobEventRow.kind == "started").order_by(JobEventRow.number)
        found = [int(str(data["resumed_from_step"])) for data in session.scalars(query)]
    database.close()
    return found


def said_step(client: httpx2.Client, job_id: str) -> int:
    progress = client.get(f"/v1/jobs/{job_id}").json()["progress"]
    return 0 if progress is None else int(progress["step"])


def wait_until_settled(service: Settings, client: httpx2.Client, job_id: str) -> None:
    """Wait until the job has succeeded and only its head and the artifacts of its last attempt are left of it."""
    wait_for_state(client, job_id, "succeeded")
    last = client.get(f"/v1/jobs/{job_id}").json()["attempt"]
    head, artifacts = f"jobs/{job_id}/head.json", f"jobs/{job_id}/attempts/{last:06d}/artifacts/"
    store = storage_of(service).store
    wait_until(lambda: {one.key for one in store.listed(f"jobs/{job_id}/") if not one.key.startswith(artifacts)} == {head})


def check_files(client: httpx2.Client, job_id: str) -> None:
    """Every file that the job lists comes with the bytes that were listed."""
    listed = client.get(f"/v1/jobs/{job_id}/artifacts").json()["artifacts"]
    assert {"certificate.json", "model.safetensors", "spec.json"} <= {one["name"] for one in listed}
    for one in listed:
        content = client.get(f"/v1/jobs/{job_id}/artifacts/{one['name']}").content
        assert (len(content), hashlib.sha256(content).hexdigest()) == (one["bytes"], one["sha256"]), one["name"]


def test_job_goes_on_elsewhere_when_its_machine_is_lost_with_its_disk(service: Settings) -> None:
    with serving(service) as client:
        job_id = submit(client, Order.HOLD)
        lost = machine(service, "a")
        with working(lost) as worker:
            wait_until(lambda: said_step(client, job_id) == HELD_STEP)
            kill(worker)
        shutil.rmtree(lost.data_dir)
        with working(machine(service, "b")):
            wait_until_settled(service, client, job_id)
        assert steps_of_starts(service, job_id) == [0, 5]
        assert client.get(f"/v1/jobs/{job_id}").json()["attempt"] == 2
        check_files(client, job_id)


def test_suspended_machine_that_wakes_up_writes_nothing(service: Settings) -> None:
    with serving(service) as client, working(machine(service, "a")) as suspended:
        job_id = submit(client, Order.HOLD)
        wait_until(lambda: said_step(client, job_id) == HELD_STEP)
        suspended.send_signal(signal.SIGSTOP)
        with working(machine(service, "b")):
            wait_until_settled(service, client, job_id)
            before = {one.key: one.modified for one in storage_of(service).store.listed(f"jobs/{job_id}/")}
            suspended.send_signal(signal.SIGCONT)
            wait_until(lambda: "job_superseded" in suspended.log)
            wait_until(lambda: not (service.data_dir.with_name("a") / "scratch" / "a" / job_id).exists())
        assert {one.key: one.modified for one in storage_of(service).store.listed(f"jobs/{job_id}/")} == before
        check_files(client, job_id)


def test_nothing_is_told_while_the_storage_is_away_and_everything_afterwards(service: Settings, wire: Proxy) -> None:
    with serving(service) as client, working(machine(service, "a")) as worker:
        job_id = submit(client, steps=200, step_seconds=0.02)
        wait_until(lambda: said_step(client, job_id) > 0)
        wire.cut()
        wait_until(lambda: "storage_unavailable" in worker.log)
        told = said_step(client, job_id)
        assert client.get("/readyz").status_code == 503
        wait_until(lambda: worker.log.count("storage_unavailable") >= 3)
        assert said_step(client, job_id) == told
        wire.mend()
        wait_for_state(client, job_id, "succeeded")
        assert client.get("/readyz").status_code == 200
        numbers = [event.data["step"] for event in stream(client, job_id) if event.kind == "progress"]
        assert numbers == list(range(1, 201))
        check_files(client, job_id)


def test_worker_that_is_asked_to_end_while_the_storage_is_away_gives_its_job_back(service: Settings, wire: Proxy) -> None:
    with serving(service) as client:
        job_id = submit(client, steps=200, step_seconds=0.02)
        with working(machine(service, "a")) as worker:
            wait_until(lambda: said_step(client, job_id) > 0)
            wire.cut()
            wait_until(lambda: "storage_unavailable" in worker.log)
            told = said_step(client, job_id)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait() == 0
        assert state(client, job_id) == "queued"
        wire.mend()
        with working(machine(service, "b")):
            wait_for_state(client, job_id, "succeeded")
        first, second = steps_of_starts(service, job_id)
        assert (first, second >= told - 5) == (0, True)  # at most what wasn't in a checkpoint yet


def kept_before(attempt: int, key: str) -> bytes:
    """A head by which this attempt kept a checkpoint in this object."""
    file = KeptFile(key=key, bytes=1, sha256="0" * 64)
    return Head(attempt=attempt, owner="o", token="t", files={"checkpoint.safetensors": file}).model_dump_json().encode()


@pytest.mark.parametrize(
    ("attempt", "key", "reason"),
    [
        (7, "jobs/none", "the storage holds what a later attempt kept, which the database doesn't know of"),
        (0, "jobs/none", r"can't be read from the storage \(ObjectMissing\)"),
        (0, "jobs/damaged", r"can't be read from the storage \(ObjectDamaged\)"),
    ],
)
def test_job_does_not_start_over_where_what_it_kept_is_not_its_to_read(service: Settings, attempt: int, key: str, reason: str) -> None:
    store = storage_of(service).store
    store.create("jobs/damaged", b"other bytes")
    with serving(service) as client:
        job_id = submit(client)
        store.create(f"jobs/{job_id}/head.json", kept_before(attempt, key))
        with working(machine(service, "a")):
            wait_for_state(client, job_id, "failed")
        assert re.search(reason, client.get(f"/v1/jobs/{job_id}").json()["failure"])
        assert steps_of_starts(service, job_id) == []


def test_own_data_are_trained_on_elsewhere(service: Settings) -> None:
    with reading_in_process(), serving(service) as client:
        upload_id = uploaded(client)
        data_set = make(client, upload_id)
        response = client.post("/v1/jobs", json={"spec": training(data_set)})
        assert response.status_code == 202, response.text
        job_id, elsewhere = str(response.json()["id"]), machine(service, "a")
        with working(elsewhere, child="real"):
            wait_for_state(client, job_id, "succeeded")
            wait_until(lambda: not (elsewhere.data_dir / "scratch" / "a" / job_id).exists())
        check_files(client, job_id)
        assert not [path for path in service.data_dir.rglob("*") if path.is_file() and path.parent.parent.name == "uploads"]
        assert [path.name for path in (elsewhere.data_dir / "data-sets" / data_set).iterdir()] == ["description.json"]
        assert client.delete(f"/v1/uploads/{upload_id}").status_code == 204
        assert client.delete(f"/v1/data-sets/{data_set}").status_code == 204
        store = storage_of(service).store
        assert (store.names("uploads/default/"), store.names("data-sets/")) == ([], [])


def test_files_of_jobs_go_after_their_retention_time(service: Settings) -> None:
    kept = Settings.model_validate(service.model_dump() | {"keep_job_files_days": 1.0})
    own = machine(service, "a")
    with serving(kept) as client:
        job_id = submit(client)
        with working(own):
            wait_until_settled(service, client, job_id)
        database, queue = Database(kept), JobQueue(kept)
        assert Retention(kept, database, queue).clean(now() + timedelta(days=2)).job_files == 1
        assert storage_of(kept).store.names("jobs/") == []
        assert client.get(f"/v1/jobs/{job_id}/artifacts").json() == {"artifacts": []}
        assert (own.job_dir(job_id) / "training.log").exists()
        with working(own):  # which has the log on its own disk
            wait_until(lambda: not own.job_dir(job_id).exists())
        queue.close()
        database.close()


def elsewhere(service: Settings, tmp_path: Path, url: str) -> Settings:
    """Settings of another service, with nothing in it yet."""
    changes = {"data_dir": tmp_path / "restored", "storage_url": url, "database_url": f"sqlite:///{tmp_path}/restored.sqlite"}
    return Settings.model_validate(service.model_dump() | changes)


def backed_up(of: Settings) -> io.BytesIO:
    out, database = io.BytesIO(), Database(of)
    back_up(of, database, out, job_files=True)
    database.close()
    out.seek(0)
    return out


def test_backup_has_the_objects_and_a_job_goes_on_from_it(service: Settings, tmp_path: Path) -> None:
    to = elsewhere(service, tmp_path, fresh_url())
    with serving(service) as client, working(machine(service, "a")):
        done = submit(client)
        wait_until_settled(service, client, done)
        running = submit(client, Order.HOLD)
        wait_until(lambda: said_step(client, running) == HELD_STEP)
        backup = backed_up(service)
    restored = restore(backup, to, to.data_dir, jobs_go_on=True)
    assert restored.unfinished_jobs == (running,)
    with serving(to) as client:
        check_files(client, done)
        with working(machine(to, "b")):
            wait_until_settled(to, client, running)
        check_files(client, running)
    assert steps_of_starts(to, running) == [0, 5]


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_left_out_of_a_backup(service: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(service) as client, working(machine(service, "a")):
        job_id = submit(client)
        wait_until_settled(service, client, job_id)
    store, folder = storage_of(service).store, f"jobs/{job_id}/attempts/000009"
    gone = f"{folder}/gone"
    for key in (gone, f"{folder}/stays"):
        store.create(key, b"0123456789")
    read = S3Store.read

    def after_it_was_replaced(own: S3Store, key: str, start: int, length: int) -> bytes:
        if key == gone:
            own.delete([key])
        return read(own, key, start, length)

    monkeypatch.setattr(S3Store, "read", after_it_was_replaced)
    backup = backed_up(service)
    names = tarfile.open(fileobj=backup).getnames()  # noqa: SIM115 (of bytes in memory)
    assert [name.rpartition("/")[2] for name in names if folder in name] == ["stays"]


def test_a_failed_backup_is_none_and_leaves_nothing_open(service: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(service) as client, working(machine(service, "a")):
        wait_until_settled(service, client, submit(client))

    def failing(*_arguments: object) -> None:
        raise StorageUnavailable("the store has gone")

    monkeypatch.setattr(S3Store, "fetch", failing)
    out, database = io.BytesIO(), Database(service)
    with pytest.raises(StorageUnavailable):
        back_up(service, database, out, job_files=True)
    database.close()
    to = elsewhere(service, tmp_path, fresh_url())
    with pytest.raises(BackupUnusable):
        restore(io.BytesIO(out.getvalue()), to, to.data_dir, jobs_go_on=True)
    out.close()
    gc.collect()  # what is reported by what is left open fails this test


def test_newer_checkpoint_in_the_bucket_stays_when_an_older_backup_is_restored(service: Settings, tmp_path: Path) -> None:
    with serving(service) as client:
        job_id = submit(client, steps=300, step_seconds=0.02)
        with working(machine(service, "a")) as worker:
            wait_until(lambda: said_step(client, job_id) >= 5)
            backup = backed_up(service)
            told = said_step(client, job_id)
            wait_until(lambda: said_step(client, job_id) > told + 20)
            kill(worker)
        later = said_step(client, job_id)
    to = elsewhere(service, tmp_path, service.storage_url)
    restore(backup, to, to.data_dir, jobs_go_on=True)
    with serving(to) as client, working(machine(to, "b")):
        wait_until_settled(to, client, job_id)
    assert steps_of_starts(to, job_id)[-1] > later - 5  # nothing that was told after the backup is released again


def test_finished_jobs_and_own_data_move_into_a_bucket_with_a_backup(service: Settings, tmp_path: Path) -> None:
    folder = Settings.model_validate(settings(tmp_path / "folder").model_dump())
    with reading_in_process(), serving(folder) as client, working(folder):
        data_set = make(client, uploaded(client))
        done = submit(client)
        wait_for_state(client, done, "succeeded")
        backup = backed_up(folder)
        submit(client, Order.HOLD)
        wait_until(lambda: any(job["state"] == "running" for job in client.get("/v1/jobs").json()["jobs"]))
        unfinished = backed_up(folder)
    to = elsewhere(service, tmp_path, fresh_url())
    with pytest.raises(BackupUnusable, match="1 of its jobs have begun and not ended"):
        restore(unfinished, to, tmp_path / "refused", jobs_go_on=True)
    restore(backup, to, to.data_dir, jobs_go_on=False)
    with serving(to) as client:
        check_files(client, done)
        response = client.post("/v1/jobs", json={"spec": training(data_set)})
        assert response.status_code == 202, response.text


def test_credentials_get_into_no_log_and_no_process_that_trains(service: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZETADP_LOG_LEVEL", "debug")
    own = machine(service, "a")
    with serving(service) as client, working(Settings.model_validate(own.model_dump() | {"log_level": "debug"})) as worker:
        job_id = submit(client, Order.HOLD)
        wait_until(lambda: said_step(client, job_id) == HELD_STEP)
        environments = [Path(f"/proc/{pid}/environ").read_bytes() for pid in children_of(worker.pid)]
        assert environments
        assert not any(b"AWS_" in environment for environment in environments)
        client.post(f"/v1/jobs/{job_id}/cancel")
        wait_for_state(client, job_id, "cancelled")
        assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in worker.log


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_worker_without_the_services_keys_is_refused(service: Settings) -> None:
    provide_database(service)
    own = machine(service, "a")
    shutil.rmtree(own.data_dir / "keys")
    with working(own) as worker:
        assert worker.wait() == EXIT_REFUSED
        assert "copy of the service's keys" in worker.log
