r"""Jobs in a page: each as it is shown by itself, read in few questions to the database."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import event

from tests.app.jobs_harness import postgresql_server, spec
from tests.app.preparing_harness import prepare_all
from tests.selection import thinned
from zetadp.app.jobs.attempts import Attempts
from zetadp.app.jobs.leases import Executor, Leases
from zetadp.app.jobs.needs import Capacity
from zetadp.app.jobs.queue import JobQueue
from zetadp.app.jobs.resources import Job, JobSubmission
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.submissions.service import JobFilter, JobService
from zetadp.app.tables.job_states import Action, JobState
from zetadp.trainer.specs.report import Metrics, Progress

UNITS = 710
"""Pairs of digits to train on, from which the plan's probability follows."""


@pytest.fixture(params=thinned(["sqlite", "postgresql"], every=2))
def service(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[JobService]:
    if request.param == "sqlite":
        with made(Settings(data_dir=tmp_path), monkeypatch) as service:
            yield service
        return
    with postgresql_server() as url, made(Settings(data_dir=tmp_path, database_url=url), monkeypatch) as service:
        yield service


@contextmanager
def made(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Generator[JobService]:
    database, queue = Database(settings), JobQueue(settings)
    monkeypatch.setattr(queue, "call", lambda _job_id, _priority: None)
    database.migrate()
    yield JobService(settings, database, queue, "default")
    database.close()


def submitted(service: JobService, **fields: object) -> str:
    job_id = service.submit(JobSubmission.model_validate({"spec": spec(), **fields}), None).id
    prepare_all(service._database)
    return job_id


def page(service: JobService) -> tuple[Job, ...]:
    return service.page(JobFilter(), None, 50).jobs


@contextmanager
def counted(service: JobService) -> Generator[list[str]]:
    """The questions that are asked meanwhile."""
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        asked.append(statement)

    event.listen(service._database._engine, "before_cursor_execute", note)
    yield asked
    event.remove(service._database._engine, "before_cursor_execute", note)


def test_jobs_of_every_kind_look_in_a_page_as_they_do_by_themselves(service: JobService) -> None:
    attempts = Attempts(service._database, 3)
    token = Leases(service._database, 3).take(Executor(id="a", host="here", device="auto", hardware="none", lease_seconds=6.0))
    ids: list[str] = []
    for number in range(5):  # failed, cancelled after a start, queued again, running, waiting
        ids.append(submitted(service, labels={"number": str(number)}))
        if number == 4:
            break
        attempt = attempts.start_next(token, Capacity())
        assert attempt is not None
        told = Progress(step=number + 1, steps=20, epsilon=0.1, delta=1e-5, seconds=0.1)
        attempts.record(attempt, [told, Metrics(step=number + 1, held_out="public", metrics={"accuracy": 0.5})], 1.0)
        if number == 0:
            attempts.fail(attempt, "it broke")
        elif number == 1:
            service.act(attempt.job_id, Action.CANCEL)
            attempts.stopped(attempt)
        elif number == 2:
            attempts.stopped(attempt, "its worker was shut down")
            service.act(attempt.job_id, Action.PAUSE)
    shown = page(service)
    assert [job.id for job in shown] == ids[::-1]
    alone = [service.get(job_id) for job_id in ids[::-1]]
    assert [job.units for job in alone] == [UNITS] * len(ids)
    assert [dict(job) for job in shown] == [{**dict(job), "units": None} for job in alone]  # a list reads no plans
    assert list(shown) == list(page(service))  # now from what is kept of them
    assert [job.state for job in shown[::-1]] == [JobState(state) for state in ("failed", "cancelled", "paused", "running", "queued")]
    assert [job.failure for job in shown[::-1]] == ["it broke", None, None, None, None]
    assert [job.progress and job.progress.step for job in shown[::-1]] == [1, 2, 3, 4, None]
    assert [job.metrics and job.metrics.step for job in shown[::-1]] == [1, 2, 3, 4, None]
    assert [job.labels["number"] for job in shown[::-1]] == list("01234")


def test_jobs_of_two_specs_keep_theirs(service: JobService) -> None:
    ids = [submitted(service), service.submit(JobSubmission.model_validate({"spec": spec(steps=7)}), None).id]
    for _ in range(2):
        assert [job.spec.model_dump()["steps"] for job in page(service) if job.spec is not None] == [7, 20]
        assert [service.get(job_id).spec for job_id in ids] == [job.spec for job in page(service)][::-1]


def test_page_of_waiting_jobs_asks_two_questions_however_many_they_are(service: JobService) -> None:
    for _ in range(12):
        submitted(service)
    page(service)
    with counted(service) as asked:
        assert len(page(service)) == 12
    assert len([statement for statement in asked if not statement.startswith("BEGIN")]) == 2
    assert not any("document" in statement for statement in asked)
