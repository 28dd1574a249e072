r"""The preparing slot of a worker: its process, what ends it, and that a training doesn't hold it up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.app.fake_child import Order
from tests.app.jobs_harness import provide_database, serving, settings, spec, state, submit, wait_for_state, wait_until, working
from tests.app.uploads_harness import make, reading_in_process, training, uploaded
from tests.selection import thinned
from zetadp.app.jobs.leases import Executor, Leases
from zetadp.app.jobs.preparations import Preparations
from zetadp.app.jobs.queue import JobQueue
from zetadp.app.jobs.resources import Job, JobSubmission
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.storage.base import StorageUnavailable
from zetadp.app.submissions.service import JobService
from zetadp.app.tables.job_states import Action, JobState
from zetadp.app.tables.jobs import JobRow
from zetadp.app.uploads.availability import described
from zetadp.app.worker import preparing
from zetadp.app.worker.memory import exceeds, used_bytes
from zetadp.app.worker.preparer import PreparingRequest, prepared
from zetadp.app.worker.preparing import Preparer, preparing_command
from zetadp.trainer.data.uploaded import found_by, found_in
from zetadp.trainer.specs import base, network_training

MAXIMUM_DEATHS = 3
FOREVER = ("sleep", "600")


@pytest.fixture
def of(tmp_path: Path) -> Settings:
    return Settings.model_validate(settings(tmp_path).model_dump() | {"cancel_poll_seconds": 0.05, "resubmit_seconds": 0.05})


@pytest.fixture
def database(of: Settings) -> Generator[Database]:
    provide_database(of)
    database = Database(of)
    database.migrate()
    yield database
    database.close()


@pytest.fixture
def jobs(of: Settings, database: Database, monkeypatch: pytest.MonkeyPatch) -> JobService:
    queue = JobQueue(of)
    monkeypatch.setattr(queue, "call", lambda _job_id, _priority: None)
    return JobService(of, database, queue, "default")


def submitted(jobs: JobService) -> str:
    return jobs.submit(JobSubmission.model_validate({"spec": spec()}), None).id


@contextmanager
def slot(of: Settings, database: Database, command: Sequence[str]) -> Generator[list[str]]:
    """A worker's slot alone, whose process is this command; yields the ids of the jobs that it has queued."""
    token = Leases(database, MAXIMUM_DEATHS).take(
        Executor(id="slot", host="here", device="auto", hardware="none", lease_seconds=60.0),
    )
    queued: list[str] = []
    preparations = Preparations(database, MAXIMUM_DEATHS)
    with Preparer(of, preparations, lambda: token, lambda job_id, _priority: queued.append(job_id), lambda: list(command)):
        yield queued


def failed(jobs: JobService, job_id: str) -> str:
    """Why it failed, once it has."""
    wait_until(lambda: jobs.get(job_id).state is JobState.FAILED)
    found: Job = jobs.get(job_id)
    assert found.failure is not None
    return found.failure


def held(database: Database, job_id: str) -> bool:
    with database.reading() as session:
        row = session.get(JobRow, job_id)
        return row is not None and row.holder is not None


def test_submitting_reads_no_data_set(jobs: JobService, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (base, network_training):
        monkeypatch.setattr(module, "data_set_facts", None)
    assert jobs.get(submitted(jobs)).state is JobState.PREPARING


@pytest.mark.slow  # the process loads the libraries
def test_the_process_itself_finds_the_plan_and_keeps_the_facts(of: Settings, database: Database, jobs: JobService) -> None:
    job_id = submitted(jobs)
    with slot(of, database, preparing_command()) as queued:
        wait_until(lambda: queued == [job_id])
    assert jobs.get(job_id).state is JobState.QUEUED
    assert len(list(of.facts_dir.iterdir())) == 1


@pytest.mark.slow  # likewise
def test_a_process_of_nobodys_ends_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zetadp.process", "zetadp.app.worker.preparer", "--parent", "1"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (4, "")


@pytest.mark.parametrize(
    ("script", "why"),
    thinned(
        [
            (
                "kill -9 $$",
                "the process that reads its data and calibrates its noise was ended by SIGKILL (the system may have run out of memory)",
            ),
            ("exit 7", "the process that reads its data and calibrates its noise ended with code 7 and gave no reason"),
            ("echo '{}'", "the process that reads its data and calibrates its noise ended with code 0 and gave no reason"),
            ('echo \'{"refused": "spec.steps must be fewer"}\'', "spec.steps must be fewer"),
        ],
        every=3,
    ),
)
def test_whatever_the_process_does_the_job_says_why_it_has_no_plan_and_the_next_is_prepared(
    of: Settings, database: Database, jobs: JobService, script: str, why: str
) -> None:
    first, second = submitted(jobs), submitted(jobs)
    with slot(of, database, ("sh", "-c", f"cat > /dev/null; {script}")):
        assert [failed(jobs, first), failed(jobs, second)] == [why, why]


def test_a_trace_of_the_process_is_in_the_jobs_log_without_its_words(of: Settings, database: Database, jobs: JobService) -> None:
    job_id = submitted(jobs)
    with slot(of, database, ("sh", "-c", "cat > /dev/null; echo 'ValueError: Jane Doe' >&2; exit 1")):
        failed(jobs, job_id)
    lines = [record.data.line for record in jobs.events(job_id, 0, ("log",))[0] if record.data.event == "log"]
    assert lines == ["ValueError"]


def test_a_preparation_that_takes_too_long_ends_with_the_limit(of: Settings, database: Database, jobs: JobService) -> None:
    limited = Settings.model_validate(of.model_dump() | {"preparing_seconds": 0.1})
    job_id = submitted(jobs)
    with slot(limited, database, FOREVER):
        assert failed(jobs, job_id) == "reading its data and calibrating its noise took longer than 0.1 s (ZETADP_PREPARING_SECONDS)"


@pytest.mark.slow
def test_a_preparation_that_takes_too_much_memory_ends_with_the_limit(of: Settings, database: Database, jobs: JobService) -> None:
    limited = Settings.model_validate(of.model_dump() | {"training_bytes": 2**28})
    job_id = submitted(jobs)
    with slot(limited, database, (sys.executable, "-S", "-c", "import time; x = b'x' * 2**29; time.sleep(600)")):
        assert "bytes of memory; the worker allows 268435456 (ZETADP_TRAINING_BYTES)" in failed(jobs, job_id)


@pytest.mark.parametrize(("action", "after"), [(Action.CANCEL, JobState.CANCELLED), (Action.PAUSE, JobState.PAUSED)])
def test_an_action_ends_the_process_and_the_slot_goes_on(
    of: Settings, database: Database, jobs: JobService, action: Action, after: JobState
) -> None:
    first, second = submitted(jobs), submitted(jobs)
    with slot(of, database, FOREVER):
        wait_until(lambda: held(database, first))
        assert jobs.act(first, action).state is after
        wait_until(lambda: held(database, second))
        assert jobs.get(first).state is after


def test_a_storage_that_does_not_answer_delays_a_job_and_fails_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of, answers, asked = settings(tmp_path), threading.Event(), threading.Event()

    def away(of: Settings, data_set: str) -> Path:
        asked.set()
        if not answers.is_set():
            raise StorageUnavailable("test")
        return described(of, data_set)

    monkeypatch.setattr(preparing, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(preparing, "described", away)
    with reading_in_process(), serving(of) as client:
        spec = training(make(client, uploaded(client)))
        first, second = (str(client.post("/v1/jobs", json={"spec": spec}).json()["id"]) for _ in range(2))
        database, answer = Database(of), tmp_path / "answer"
        request = PreparingRequest.model_validate({"spec": spec, "ledger": None, "pricing_seconds": 10.0, "facts_dir": None})
        with found_by(found_in(of.made_data_sets_dir)):
            answer.write_text(prepared(request).model_dump_json())
        with slot(of, database, ("sh", "-c", f"cat > /dev/null; cat {answer}")):
            wait_until(asked.is_set)
            assert client.post(f"/v1/jobs/{first}/cancel").json()["state"] == "cancelled"
            asked.clear()
            wait_until(lambda: asked.is_set() and held(database, second))
            assert state(client, second) == "preparing"
            answers.set()
            wait_for_state(client, second, "queued")
        database.close()


def test_a_slot_that_ends_gives_its_job_back_at_once(of: Settings, database: Database, jobs: JobService) -> None:
    job_id = submitted(jobs)
    with slot(of, database, FOREVER):
        wait_until(lambda: held(database, job_id))
    assert not held(database, job_id)
    assert jobs.get(job_id).state is JobState.PREPARING


@pytest.mark.slow
def test_a_slot_that_cannot_start_its_process_gives_the_job_up_after_three_times(
    of: Settings, database: Database, jobs: JobService
) -> None:
    job_id = submitted(jobs)
    with slot(of, database, ("/no/such/program",)):
        assert failed(jobs, job_id) == "its worker was lost 3 times; no further attempt"


@pytest.mark.slow
def test_a_job_is_prepared_while_another_is_trained_and_a_killed_worker_holds_up_neither(tmp_path: Path) -> None:
    of = settings(tmp_path)
    with serving(of) as client:
        with working(of) as first:
            running = submit(client, Order.HOLD)
            wait_for_state(client, running, "running")
            beside = submit(client)
            wait_for_state(client, beside, "queued")
            assert state(client, running) == "running"
            first.kill()
            first.wait()
        other = submit(client)
        assert state(client, other) == "preparing"
        with working(of):
            for job_id in (beside, other, running):
                wait_for_state(client, job_id, "succeeded")


@pytest.mark.slow
def test_a_training_that_takes_too_much_memory_fails_with_the_limit(tmp_path: Path) -> None:
    of = Settings.model_validate(settings(tmp_path).model_dump() | {"training_bytes": 2**28})
    with serving(of) as client, working(of):
        swelling, fine = submit(client, Order.SWELL), submit(client)
        wait_for_state(client, fine, "succeeded")
        job = client.get(f"/v1/jobs/{swelling}").json()
    assert job["state"] == "failed"
    assert "bytes of memory; the worker allows 268435456 (ZETADP_TRAINING_BYTES)" in job["failure"]


def test_memory_is_that_of_a_process_and_its_children_and_not_of_one_that_is_gone() -> None:
    hungry = f"{sys.executable} -S -c \"import time; x = b'x' * {100 * 2**20}; print(1, flush=True); time.sleep(600)\""
    with subprocess.Popen(["sh", "-c", f"{hungry}; true"], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        assert 100 * 2**20 < used_bytes(process.pid) < 200 * 2**20
        assert exceeds(process.pid, 2**30, 2**30) is None
        assert exceeds(process.pid, 50 * 2**20, None) is not None
        assert exceeds(process.pid, 2**30, 50 * 2**20) is not None
        assert exceeds(process.pid, None, None) is None
        os.killpg(process.pid, signal.SIGKILL)
    assert used_bytes(process.pid) == 0
