r"""The fence: only the latest start of a job may write, and a job that loses its workers is given up."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from tests.app.jobs_harness import spec
from tests.app.preparing_harness import prepare_all
from tests.selection import thinned
from zetadp.app.jobs.attempts import Attempt, Attempts, AttemptSuperseded
from zetadp.app.jobs.errors import LeaseLost
from zetadp.app.jobs.events import ArtifactsStored
from zetadp.app.jobs.leases import Executor, Leases
from zetadp.app.jobs.needs import Capacity
from zetadp.app.jobs.queue import JobQueue
from zetadp.app.jobs.resources import JobSubmission
from zetadp.app.kit.database import Database, now
from zetadp.app.kit.settings import Settings
from zetadp.app.submissions.service import JobService
from zetadp.app.tables.certificates import CertificateRow
from zetadp.app.tables.job_states import Action, JobState
from zetadp.app.tables.jobs import JobRow
from zetadp.app.worker.hardware import capacity_of
from zetadp.trainer.specs.report import Progress

MAXIMUM_DEATHS = 3
ANY = Capacity()
PROGRESS = Progress(step=1, steps=20, epsilon=0.1, delta=1e-5, seconds=0.1)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with its tables, to be copied: making them takes longer than all these tests."""
    folder = tmp_path_factory.mktemp("tables")
    database = Database(Settings(data_dir=folder))
    database.migrate()
    database.close()
    return folder / "zetadp.sqlite"


@pytest.fixture
def service(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[JobService]:
    shutil.copy(tables, tmp_path)
    settings = Settings(data_dir=tmp_path)
    database, queue = Database(settings), JobQueue(settings)
    monkeypatch.setattr(queue, "call", lambda _job_id, _priority: None)
    yield JobService(settings, database, queue, "default")
    database.close()


@pytest.fixture
def attempts(service: JobService) -> Attempts:
    return Attempts(service._database, MAXIMUM_DEATHS)


@pytest.fixture
def leases(service: JobService) -> Leases:
    return Leases(service._database, MAXIMUM_DEATHS)


@pytest.fixture
def token(leases: Leases) -> str:
    return leases.take(executor("a"))


@pytest.fixture
def job_id(service: JobService) -> str:
    return submitted(service)


def executor(name: str, lease_seconds: float = 6.0) -> Executor:
    return Executor(id=name, host="here", device="auto", hardware="none", lease_seconds=lease_seconds)


def submitted(service: JobService, **fields: object) -> str:
    job_id = service.submit(JobSubmission.model_validate({"spec": spec(), **fields}), None).id
    prepare_all(service._database)
    return job_id


def started(attempts: Attempts, token: str) -> Attempt:
    attempt = attempts.start_next(token, ANY)
    assert attempt is not None
    return attempt


def lose_worker(leases: Leases, token: str) -> list[str] | None:
    return leases.bury(next(lease for lease in leases.seen() if lease.token == token))


def test_each_start_has_a_higher_number(attempts: Attempts, token: str, job_id: str) -> None:
    first = started(attempts, token)
    attempts.stopped(first)
    assert [first.number, started(attempts, token).number] == [1, 2]


def test_idle_worker_puts_back_the_job_that_it_holds_without_knowing(
    service: JobService, attempts: Attempts, leases: Leases, token: str, job_id: str
) -> None:
    started(attempts, token)  # and the answer is lost
    assert leases.idle(token) == [job_id]
    with service._database.reading() as session:
        row = session.get_one(JobRow, job_id)
        assert (row.state, row.holder, row.worker_deaths) == ("queued", None, 0)
    assert started(attempts, token).number == 2


def test_idle_worker_leaves_the_jobs_of_others(attempts: Attempts, leases: Leases, token: str, job_id: str) -> None:
    other = leases.take(executor("b"))
    attempt = started(attempts, other)
    assert leases.idle(token) == []
    assert attempts.wanted(attempt) is JobState.RUNNING


def test_job_in_hand_is_not_taken_up_again(attempts: Attempts, token: str, job_id: str) -> None:
    started(attempts, token)
    assert attempts.start_next(token, ANY) is None


def test_many_that_start_at_the_same_moment_take_different_jobs(service: JobService, attempts: Attempts, token: str) -> None:
    made = [submitted(service) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(lambda _: started(attempts, token).job_id, range(4)))
    assert sorted(taken) == sorted(made)


def test_first_start_keeps_its_time(attempts: Attempts, token: str, job_id: str) -> None:
    first = started(attempts, token)
    attempts.stopped(first)
    assert started(attempts, token).started == first.started


def test_higher_priority_goes_first_then_age(service: JobService, attempts: Attempts, token: str) -> None:
    low, high, also_high = submitted(service), submitted(service, priority=7), submitted(service, priority=7)
    assert [started(attempts, token).job_id for _ in range(3)] == [high, also_high, low]


def test_job_that_asks_for_a_device_waits_for_a_worker_that_has_it(service: JobService, attempts: Attempts, leases: Leases) -> None:
    needs_cuda = submitted(service, runtime={"device": "cuda"})  # before any worker lives: nobody knows yet what they will have
    token = leases.take(executor("a"))
    assert attempts.start_next(token, ANY) is None
    taken = attempts.start_next(token, capacity_of("cuda:1", ["an accelerator"], None))
    assert taken is not None
    assert taken.job_id == needs_cuda


def test_worker_without_a_lease_takes_nothing(attempts: Attempts, leases: Leases, token: str, job_id: str) -> None:
    lose_worker(leases, token)
    with pytest.raises(LeaseLost):
        attempts.start_next(token, ANY)


@pytest.mark.parametrize("write", thinned(["record", "fail", "stopped", "lost", "succeed", "wanted"], every=2))
def test_superseded_attempt_may_not_write(
    service: JobService, attempts: Attempts, leases: Leases, token: str, job_id: str, write: str
) -> None:
    early = started(attempts, token)
    lose_worker(leases, token)
    writes = {
        "record": lambda: attempts.record(early, [PROGRESS], 1.0),
        "fail": lambda: attempts.fail(early, "x"),
        "stopped": lambda: attempts.stopped(early, "x"),
        "lost": lambda: attempts.lost(early),
        "succeed": lambda: attempts.succeed(early, lambda _session: pytest.fail("a superseded attempt stored a certificate")),
        "wanted": lambda: attempts.wanted(early),
    }

    def refused() -> None:
        before = service.events(job_id, 0)
        with pytest.raises(AttemptSuperseded, match=f"attempt 1 of job '{job_id}' is no longer the current one"):
            writes[write]()
        assert service.events(job_id, 0) == before

    refused()  # while the job waits
    late = started(attempts, leases.take(executor("b")))
    refused()  # and while another runs it
    assert attempts.wanted(late) is JobState.RUNNING


def test_attempt_of_an_ended_job_may_not_write(attempts: Attempts, token: str, job_id: str) -> None:
    attempt = started(attempts, token)
    attempts.fail(attempt, "x")
    with pytest.raises(AttemptSuperseded):
        attempts.record(attempt, [PROGRESS], 1.0)


def test_job_whose_worker_is_lost_three_times_fails_with_the_reason(
    service: JobService, attempts: Attempts, leases: Leases, job_id: str
) -> None:
    put_back: list[list[str] | None] = []
    for number in range(MAXIMUM_DEATHS):
        token = leases.take(executor(str(number)))
        started(attempts, token)
        put_back.append(lose_worker(leases, token))
    job = service.get(job_id)
    assert put_back == [[job_id], [job_id], []]
    assert (job.state, job.attempt, job.failure) == ("failed", 3, "its worker was lost 3 times; no further attempt")


def test_orderly_stop_is_no_death(service: JobService, attempts: Attempts, token: str, job_id: str) -> None:
    for _ in range(5):
        attempts.stopped(started(attempts, token), "its worker was shut down")
    assert service.get(job_id).state == "queued"


def test_success_after_cancellation_stores_nothing(service: JobService, attempts: Attempts, token: str, job_id: str) -> None:
    attempt = started(attempts, token)
    service.act(job_id, Action.CANCEL)
    attempts.succeed(attempt, lambda _session: pytest.fail("a cancelled job stored a certificate"))
    assert service.get(job_id).state == "cancelled"


def test_success_and_what_it_stores_are_one_transaction(service: JobService, attempts: Attempts, token: str, job_id: str) -> None:
    def store(_session: object) -> list[ArtifactsStored]:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        attempts.succeed(started(attempts, token), store)
    assert (service.get(job_id).state, service.artifacts(job_id)) == ("running", ())


def test_worker_that_dies_before_its_success_is_committed_leaves_no_certificate_and_the_next_stores_one(
    service: JobService, attempts: Attempts, leases: Leases, token: str, job_id: str
) -> None:
    class Killed(BaseException):
        pass

    def store(session: Session) -> list[ArtifactsStored]:
        session.add(CertificateRow(id="c", job_id=job_id, created=now(), envelope={}))
        return []

    def store_and_die(session: Session) -> list[ArtifactsStored]:
        store(session)
        session.flush()
        raise Killed

    with pytest.raises(Killed):
        attempts.succeed(started(attempts, token), store_and_die)
    assert (service.get(job_id).state, service.get(job_id).certificate) == ("running", None)
    lose_worker(leases, token)
    attempts.succeed(started(attempts, leases.take(executor("b"))), store)
    assert (service.get(job_id).state, service.get(job_id).certificate) == ("succeeded", "c")


def test_worker_that_dies_after_its_success_was_committed_changes_nothing(
    service: JobService, attempts: Attempts, leases: Leases, token: str, job_id: str
) -> None:
    attempts.succeed(started(attempts, token), lambda _session: [])
    before = service.events(job_id, 0)
    assert lose_worker(leases, token) == []
    assert service.events(job_id, 0) == before


def test_events_that_were_stored_before_the_connection_broke_are_counted(attempts: Attempts, token: str, job_id: str) -> None:
    attempt = started(attempts, token)
    attempts.record(attempt, [PROGRESS, PROGRESS], 1.0)
    assert attempts.stored_events(attempt) == 2


def test_retry_begins_deaths_and_time_anew(service: JobService, attempts: Attempts, token: str, job_id: str) -> None:
    attempt = started(attempts, token)
    attempts.record(attempt, [PROGRESS], 99.0)
    attempts.lost(attempt)
    attempts.fail(started(attempts, token), "x")
    service.act(job_id, Action.RETRY)
    again = started(attempts, token)
    with service._database.reading() as session:
        row = session.get(JobRow, job_id)
        assert row is not None
        assert (again.number, again.ran_seconds, row.worker_deaths, row.finished) == (3, 0.0, 0, None)


def test_event_numbers_have_no_gaps_when_many_write(service: JobService, attempts: Attempts, token: str, job_id: str) -> None:
    attempt = started(attempts, token)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: attempts.record(attempt, [PROGRESS, PROGRESS], 1.0), range(10)))
    records, _ = service.events(job_id, 0)
    assert [record.number for record in records] == list(range(1, 24))


def test_settings_of_a_run_come_back_exactly(attempts: Attempts, token: str, service: JobService) -> None:
    submission = JobSubmission.model_validate({"spec": spec(clipping_bound=0.1 + 0.2, steps=7), "labels": {"a": "b"}})
    job = service.submit(submission, None)
    prepare_all(service._database)
    document = started(attempts, token).document
    assert (document.spec, document.plan, job.labels) == (submission.spec, submission.spec.plan(), {"a": "b"})
