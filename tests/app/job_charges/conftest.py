"""Services of jobs and of ledgers over each database, and a worker's lease."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.app.job_charges.harness import BUDGET
from tests.app.ledgers_harness import KINDS, TENANT, databases, definition
from tests.selection import thinned
from zetadp.app.jobs.attempts import Attempts
from zetadp.app.jobs.leases import Executor, Leases
from zetadp.app.jobs.queue import JobQueue
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.ledgers.resources import Ledger
from zetadp.app.ledgers.service import LedgerService
from zetadp.app.submissions.service import JobFilter, JobService
from zetadp.app.tables.job_states import Action


@pytest.fixture(scope="module", params=thinned(KINDS, every=2))
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Database]:
    with databases(request.param, tmp_path_factory.mktemp(request.param)) as database:
        yield database


@pytest.fixture
def ledgers(database: Database) -> LedgerService:
    return LedgerService(database, 10.0)


@pytest.fixture
def jobs(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[JobService]:
    settings = Settings(data_dir=tmp_path)
    queue = JobQueue(settings)
    monkeypatch.setattr(queue, "call", lambda _job_id, _priority: None)
    service = JobService(settings, database, queue, TENANT)
    yield service
    for job in service.page(JobFilter(), None, 200).jobs:  # a job that waits would be taken up by the next test
        if not job.state.is_final:
            service.act(job.id, Action.CANCEL)


@pytest.fixture
def attempts(database: Database) -> Attempts:
    return Attempts(database, 3)


@pytest.fixture
def token(database: Database, request: pytest.FixtureRequest) -> str:
    name = f"worker-{abs(hash(request.node.name))}"
    return Leases(database, 3).take(Executor(id=name, host="here", device="auto", hardware="none", lease_seconds=60.0))


@pytest.fixture
def ledger(ledgers: LedgerService, request: pytest.FixtureRequest) -> Ledger:
    return ledgers.create(TENANT, definition(BUDGET, f"jobs {abs(hash(request.node.name))}"), None, None)
