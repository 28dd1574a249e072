r"""The fence: only the latest start of a job may write, and a job that loses its workers is given up."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.database import Database
from app.jobs.attempts import Attempt, Attempts, AttemptSuperseded
from app.jobs.events import ArtifactsStored, JobState, StateChanged
from app.jobs.history import events_after
from app.jobs.queue import JobQueue
from app.jobs.resources import JobSubmission
from app.jobs.service import JobService
from app.settings import Settings
from tests.app.jobs_harness import spec
from trainer.report import Progress

MAXIMUM_DEATHS = 3
PROGRESS = Progress(step=1, steps=20, epsilon=0.1, delta=1e-5, seconds=0.1)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[JobService]:
    settings = Settings(data_dir=tmp_path_factory.mktemp("attempts"))
    database, queue = Database(settings), JobQueue(settings)
    database.migrate()
    yield JobService(settings, database, queue)
    queue.close()
    database.close()


@pytest.fixture
def attempts(service: JobService) -> Attempts:
    return Attempts(service._database, MAXIMUM_DEATHS)


@pytest.fixture
def job_id(service: JobService) -> str:
    return service.submit(JobSubmission.model_validate({"spec": spec()}), None).id


def started(attempts: Attempts, job_id: str) -> Attempt:
    attempt = attempts.start(job_id)
    assert attempt is not None
    return attempt


def states(service: JobService, job_id: str) -> list[JobState]:
    with service._database.reading() as session:
        return [record.data.state for record in events_after(session, job_id, 0, 100) if isinstance(record.data, StateChanged)]


def test_each_start_has_a_higher_number(attempts: Attempts, job_id: str) -> None:
    assert [started(attempts, job_id).number for _ in range(2)] == [1, 2]


def test_starts_at_the_same_moment_have_different_numbers(attempts: Attempts, job_id: str) -> None:
    with ThreadPoolExecutor(MAXIMUM_DEATHS) as pool:
        numbers = list(pool.map(lambda _: started(attempts, job_id).number, range(MAXIMUM_DEATHS)))
    assert sorted(numbers) == [1, 2, 3]


def test_first_start_keeps_its_time(attempts: Attempts, job_id: str) -> None:
    assert started(attempts, job_id).started == started(attempts, job_id).started


@pytest.mark.parametrize("write", ["record", "fail", "cancelled", "give_back", "succeed", "is_cancelling"])
def test_superseded_attempt_may_not_write(service: JobService, attempts: Attempts, job_id: str, write: str) -> None:
    early, late = started(attempts, job_id), started(attempts, job_id)
    before = service.events(job_id, 0)
    writes = {
        "record": lambda: attempts.record(early, [PROGRESS]),
        "fail": lambda: attempts.fail(early, "x"),
        "cancelled": lambda: attempts.cancelled(early),
        "give_back": lambda: attempts.give_back(early, "x"),
        "succeed": lambda: attempts.succeed(early, lambda _session: pytest.fail("a superseded attempt stored a certificate")),
        "is_cancelling": lambda: attempts.is_cancelling(early),
    }
    with pytest.raises(AttemptSuperseded, match=f"attempt 1 of job '{job_id}' is no longer the current one"):
        writes[write]()
    assert service.events(job_id, 0) == before
    assert not attempts.is_cancelling(late)


def test_attempt_of_an_ended_job_may_not_write(attempts: Attempts, job_id: str) -> None:
    attempt = started(attempts, job_id)
    attempts.fail(attempt, "x")
    with pytest.raises(AttemptSuperseded):
        attempts.record(attempt, [PROGRESS])


def test_job_whose_worker_is_lost_three_times_fails_with_the_reason(service: JobService, attempts: Attempts, job_id: str) -> None:
    assert [attempts.start(job_id) is None for _ in range(4)] == [False, False, False, True]
    job = service.get(job_id)
    assert (job.state, job.attempt, job.failure) == ("failed", 3, "its worker was lost 3 times; not tried again")


def test_orderly_stop_is_no_death(service: JobService, attempts: Attempts, job_id: str) -> None:
    for _ in range(5):
        attempts.give_back(started(attempts, job_id), "its worker was shut down")
    assert service.get(job_id).state == "queued"


def test_job_stopped_while_it_was_being_cancelled_is_cancelled(service: JobService, attempts: Attempts, job_id: str) -> None:
    attempt = started(attempts, job_id)
    service.cancel(job_id)
    attempts.give_back(attempt, "its worker was shut down")
    assert states(service, job_id) == ["queued", "running", "cancelling", "cancelled"]


def test_job_whose_worker_died_while_it_was_being_cancelled_is_cancelled(service: JobService, attempts: Attempts, job_id: str) -> None:
    started(attempts, job_id)
    service.cancel(job_id)
    assert attempts.start(job_id) is None
    assert service.get(job_id).state == "cancelled"


def test_success_after_cancellation_stores_nothing(service: JobService, attempts: Attempts, job_id: str) -> None:
    attempt = started(attempts, job_id)
    service.cancel(job_id)
    attempts.succeed(attempt, lambda _session: pytest.fail("a cancelled job stored a certificate"))
    assert service.get(job_id).state == "cancelled"


def test_success_and_what_it_stores_are_one_transaction(service: JobService, attempts: Attempts, job_id: str) -> None:
    def store(_session: object) -> list[ArtifactsStored]:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        attempts.succeed(started(attempts, job_id), store)
    assert (service.get(job_id).state, service.artifacts(job_id)) == ("running", ())


def test_ended_and_unknown_jobs_are_not_started(service: JobService, attempts: Attempts, job_id: str) -> None:
    service.cancel(job_id)
    assert [attempts.start(name) for name in (job_id, "0" * 32)] == [None, None]


def test_event_numbers_have_no_gaps_when_many_write(service: JobService, attempts: Attempts, job_id: str) -> None:
    attempt = started(attempts, job_id)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: attempts.record(attempt, [PROGRESS, PROGRESS]), range(10)))
    records, _ = service.events(job_id, 0)
    assert [record.number for record in records] == list(range(1, 23))


def test_settings_of_a_run_come_back_exactly(attempts: Attempts, service: JobService, tmp_path: Path) -> None:
    submission = JobSubmission.model_validate({"spec": spec(clipping_bound=0.1 + 0.2, steps=7), "labels": {"a": "b"}})
    document = started(attempts, service.submit(submission, None).id).document
    assert (document.spec, document.plan, document.labels) == (submission.spec, submission.spec.plan(), {"a": "b"})
