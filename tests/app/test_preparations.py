r"""Jobs without a plan: who prepares them, what overtakes that, whose turn it is, and how many a tenant may have."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.app.jobs_harness import postgresql_server, provide_database, spec
from tests.app.preparing_harness import prepare_all, request_of
from tests.selection import thinned
from zetadp.app.jobs.attempts import Attempts
from zetadp.app.jobs.document import TrainingDocument
from zetadp.app.jobs.errors import LeaseLost, TooManyJobs
from zetadp.app.jobs.events import StateChanged
from zetadp.app.jobs.leases import Executor, Leases
from zetadp.app.jobs.needs import Capacity
from zetadp.app.jobs.preparations import Preparation, Preparations, PreparationSuperseded
from zetadp.app.jobs.queue import JobQueue
from zetadp.app.jobs.resources import JobSubmission
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.submissions.service import JobService
from zetadp.app.tables.job_states import Action, JobState
from zetadp.app.tables.jobs import JobRow
from zetadp.app.worker.preparer import prepared
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import AnyPlan

MAXIMUM_DEATHS = 3
HERE = Capacity()


@pytest.fixture(params=thinned(["sqlite", "postgresql"], every=2))
def of(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Settings]:
    with postgresql_server() if request.param == "postgresql" else nullcontext(None) as url:
        yield Settings(data_dir=tmp_path, database_url=url, tenant_jobs=8)


@pytest.fixture
def database(of: Settings) -> Generator[Database]:
    provide_database(of)
    database = Database(of)
    database.migrate()
    yield database
    database.close()


@pytest.fixture
def a(of: Settings, database: Database, monkeypatch: pytest.MonkeyPatch) -> JobService:
    """The jobs of tenant a."""
    return jobs_of("a", of, database, monkeypatch)


@pytest.fixture
def b(of: Settings, database: Database, monkeypatch: pytest.MonkeyPatch) -> JobService:
    return jobs_of("b", of, database, monkeypatch)


@pytest.fixture
def preparations(database: Database) -> Preparations:
    return Preparations(database, MAXIMUM_DEATHS)


@pytest.fixture
def token(database: Database) -> str:
    return lease(database, "one")


def jobs_of(tenant: str, of: Settings, database: Database, monkeypatch: pytest.MonkeyPatch) -> JobService:
    queue = JobQueue(of)
    monkeypatch.setattr(queue, "call", lambda _job_id, _priority: None)
    return JobService(of, database, queue, tenant)


def lease(database: Database, name: str) -> str:
    return Leases(database, MAXIMUM_DEATHS).take(Executor(id=name, host="here", device="auto", hardware="none", lease_seconds=60.0))


def submitted(jobs: JobService, **fields: object) -> str:
    return jobs.submit(JobSubmission.model_validate({"spec": spec(), **fields}), None).id


def begun(preparations: Preparations, token: str) -> Preparation:
    preparation = preparations.start_next(token)
    assert preparation is not None
    return preparation


def plan_of(preparation: Preparation) -> AnyPlan:
    plan = prepared(request_of(preparation)).plan
    assert plan is not None
    return plan


def reasons(jobs: JobService, job_id: str) -> list[tuple[str, str | None]]:
    return [(record.data.state, record.data.reason) for record in jobs.events(job_id, 0)[0] if isinstance(record.data, StateChanged)]


def test_a_job_is_queued_with_its_plan_and_only_then_run(a: JobService, database: Database, preparations: Preparations, token: str) -> None:
    job_id, attempts = submitted(a), Attempts(database, MAXIMUM_DEATHS)
    assert attempts.start_next(token, HERE) is None
    preparation = begun(preparations, token)
    assert attempts.start_next(token, HERE) is None
    preparations.queue(preparation, plan_of(preparation), None)
    attempt = attempts.start_next(token, HERE)
    assert attempt is not None
    assert isinstance(attempt.document, TrainingDocument)
    assert (attempt.document.spec, attempt.document.plan) == (preparation.asked.spec, plan_of(preparation))
    assert reasons(a, job_id) == [("preparing", None), ("queued", None), ("running", None)]


def test_two_workers_prepare_different_jobs(a: JobService, database: Database, preparations: Preparations, token: str) -> None:
    made = [submitted(a), submitted(a)]
    taken = [begun(preparations, token).job_id, begun(preparations, lease(database, "two")).job_id]
    assert sorted(taken) == sorted(made)
    assert preparations.start_next(lease(database, "three")) is None


def test_a_worker_prepares_also_what_it_could_not_run(
    of: Settings, a: JobService, database: Database, preparations: Preparations, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = jobs_of("a", of.model_copy(update={"accept_unfit_jobs": True}), database, monkeypatch)
    job_id = submitted(patient, runtime={"device": "cuda"})
    preparation = begun(preparations, token)
    assert preparation.job_id == job_id
    preparations.queue(preparation, plan_of(preparation), None)
    assert Attempts(database, MAXIMUM_DEATHS).start_next(token, HERE) is None
    with pytest.raises(InvalidParameter, match=r"runtime.device must be 'cpu' or 'auto'"):
        submitted(a, runtime={"device": "cuda"})


def test_a_worker_without_a_lease_prepares_nothing(a: JobService, preparations: Preparations) -> None:
    submitted(a)
    with pytest.raises(LeaseLost):
        preparations.start_next("0" * 32)


@pytest.mark.parametrize("action", [Action.CANCEL, Action.PAUSE])
def test_what_overtakes_a_preparation_makes_its_writes_void(a: JobService, preparations: Preparations, token: str, action: Action) -> None:
    job_id = submitted(a)
    preparation = begun(preparations, token)
    plan = plan_of(preparation)
    assert preparations.is_wanted(preparation)
    state = a.act(job_id, action).state
    assert not preparations.is_wanted(preparation)
    for write in (
        lambda: preparations.queue(preparation, plan, None),
        lambda: preparations.fail(preparation, "late"),
        lambda: preparations.give_back(preparation),
        lambda: preparations.lost(preparation, "late"),
    ):
        with pytest.raises(PreparationSuperseded):
            write()
    assert a.get(job_id).state is state
    a.act(job_id, Action.RETRY if action is Action.CANCEL else Action.RESUME)
    assert begun(preparations, token).job_id == job_id


def test_a_worker_that_dies_gives_its_preparation_to_another_and_the_third_death_ends_the_job(
    a: JobService, database: Database, preparations: Preparations, token: str
) -> None:
    job_id, leases = submitted(a), Leases(database, MAXIMUM_DEATHS)
    for death in range(1, MAXIMUM_DEATHS + 1):
        preparation = begun(preparations, token)
        leases.bury(next(seen for seen in leases.seen() if seen.token == token))
        with pytest.raises(PreparationSuperseded):
            preparations.queue(preparation, plan_of(preparation), None)
        token = lease(database, f"after {death}")
    assert preparations.start_next(token) is None
    assert a.get(job_id).failure == "its worker was lost 3 times; no further attempt"
    assert reasons(a, job_id)[:3] == [("preparing", None), ("preparing", "its worker was lost"), ("preparing", "its worker was lost")]
    a.act(job_id, Action.RETRY)
    preparation = begun(preparations, token)
    preparations.queue(preparation, plan_of(preparation), None)
    with database.reading() as session:
        assert session.scalars(select(JobRow.worker_deaths)).all() == [0]


def test_a_worker_that_ends_in_good_order_gives_its_preparation_back_and_nothing_is_counted(
    a: JobService, database: Database, preparations: Preparations, token: str
) -> None:
    job_id = submitted(a)
    preparations.give_back(begun(preparations, token))
    assert reasons(a, job_id) == [("preparing", None)]
    assert begun(preparations, lease(database, "two")).job_id == job_id


def test_a_worker_takes_up_again_what_it_could_not_finish(a: JobService, preparations: Preparations, token: str) -> None:
    job_id = submitted(a)
    begun(preparations, token)  # and an error came between
    assert begun(preparations, token).job_id == job_id


@pytest.mark.parametrize(
    ("changes", "failure"),
    [
        ({"expected_batch_size": 10_000}, "spec.expected_batch_size must be "),
        (
            {"privacy": {"adjacency": "add_remove", "unit": "record", "delta": 1e-300, "epsilon": 1e-49}},
            "no noise in the searched range is proved",
        ),
    ],
)
def test_what_only_the_data_tell_fails_the_job_with_the_words_of_a_refusal(
    a: JobService, database: Database, changes: dict[str, object], failure: str
) -> None:
    job = a.submit(JobSubmission.model_validate({"spec": spec(**changes)}), None)
    prepare_all(database)
    ended = a.get(job.id)
    assert (ended.state, ended.attempt) == (JobState.FAILED, 0)
    assert ended.failure is not None
    assert failure in ended.failure


def test_a_tenant_with_one_job_waits_for_one_of_another_with_many(a: JobService, b: JobService, database: Database, token: str) -> None:
    many = [submitted(a) for _ in range(4)]
    prepare_all(database)
    attempts = Attempts(database, MAXIMUM_DEATHS)
    order: list[str] = []
    alone: str | None = None
    while (attempt := attempts.start_next(token, HERE)) is not None:
        if alone is None:  # it comes while the first of the others runs
            alone = submitted(b)
            prepare_all(database)
        order.append(attempt.job_id)
        attempts.fail(attempt, "next")
    assert order == [many[0], alone, *many[1:]]


def test_the_tenant_with_fewer_jobs_in_hand_is_next(a: JobService, b: JobService, database: Database, token: str) -> None:
    of_a, of_b = [submitted(a) for _ in range(2)], [submitted(b) for _ in range(3)]
    prepare_all(database)
    attempts = Attempts(database, MAXIMUM_DEATHS)
    first, second = (attempts.start_next(token, HERE) for _ in range(2))
    assert first is not None
    assert second is not None
    assert [first.job_id, second.job_id] == [of_a[0], of_b[0]]
    attempts.fail(second, "over")  # b was served last, but a still has a job in hand
    third = attempts.start_next(token, HERE)
    assert third is not None
    assert third.job_id == of_b[1]


def test_a_higher_priority_goes_before_every_turn(a: JobService, b: JobService, preparations: Preparations, token: str) -> None:
    urgent = [submitted(a, priority=7) for _ in range(2)]
    submitted(b)
    first = begun(preparations, token)
    preparations.queue(first, plan_of(first), None)
    assert [first.job_id, begun(preparations, token).job_id] == urgent


def test_a_tenant_has_a_limited_number_of_unfinished_jobs(a: JobService, b: JobService) -> None:
    made = [submitted(a) for _ in range(8)]
    with pytest.raises(TooManyJobs, match="at most 8 unfinished jobs of one tenant"):
        submitted(a)
    submitted(b)
    a.act(made[0], Action.CANCEL)
    last = submitted(a)
    with pytest.raises(TooManyJobs):
        a.act(made[0], Action.RETRY)
    a.act(last, Action.CANCEL)
    assert a.act(made[0], Action.RETRY).state is JobState.PREPARING


def test_the_limit_holds_among_submissions_at_the_same_moment(a: JobService) -> None:
    def is_admitted(_: int) -> bool:
        try:
            submitted(a)
        except TooManyJobs:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(is_admitted, range(16))) == 8
