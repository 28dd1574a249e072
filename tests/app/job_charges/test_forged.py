"""A settlement that somebody wrote into the database in the service's name, before its job's end or against what the job did, is found."""

from __future__ import annotations

import pytest

from tests.app.job_charges.harness import reservation, started, submitted
from tests.app.ledgers_harness import TENANT
from zetadp.app.jobs.attempts import Attempts
from zetadp.app.kit.database import Database
from zetadp.app.ledgers.admission import commit_in, release_in
from zetadp.app.ledgers.ledger_definition import LedgerDefinition
from zetadp.app.ledgers.requests import ReservationRequest
from zetadp.app.ledgers.resources import Ledger
from zetadp.app.ledgers.rows import SERVICE
from zetadp.app.ledgers.service import LedgerService
from zetadp.app.submissions.service import JobService
from zetadp.app.tables.job_states import JobState
from zetadp.app.tables.jobs import JobRow


def end(database: Database, job_id: str) -> None:
    """The job is over, and its row alone says so."""
    with database.writing() as session:
        row = session.get(JobRow, job_id)
        assert row is not None
        row.state = JobState.FAILED


@pytest.mark.parametrize("settle", ["release", "commit"])
def test_a_settlement_before_its_job_s_end_is_found(
    settle: str, jobs: JobService, ledgers: LedgerService, ledger: Ledger, database: Database
) -> None:
    job = submitted(jobs, ledger)
    made = reservation(ledgers, jobs, job.id)
    with database.writing() as session:
        if settle == "release":
            release_in(session, TENANT, ledger.id, made.id, SERVICE)
        else:
            commit_in(session, TENANT, ledger.id, made.id, SERVICE, None)
    assert ledgers.verify(TENANT, ledger.id).problems == ("entry 3: it was settled without a key, and its job hasn't ended",)
    end(database, job.id)


def test_a_release_of_what_a_worker_had_in_hand_is_found(
    jobs: JobService, ledgers: LedgerService, ledger: Ledger, attempts: Attempts, token: str, database: Database
) -> None:
    job = submitted(jobs, ledger)
    made = reservation(ledgers, jobs, job.id)
    started(attempts, token)
    with database.writing() as session:
        release_in(session, TENANT, ledger.id, made.id, SERVICE)
    end(database, job.id)
    assert ledgers.verify(TENANT, ledger.id).problems == ("entry 3: it was settled without a key, and a worker had its job in hand",)


def test_a_settlement_for_a_job_that_is_charged_to_no_ledger_is_found(
    jobs: JobService, ledgers: LedgerService, ledger: Ledger, database: Database
) -> None:
    job = submitted(jobs, ledger)
    made = reservation(ledgers, jobs, job.id)
    definition = LedgerDefinition.model_validate({**dict(ledger.definition), "name": f"other {job.id}"})
    other = ledgers.create(TENANT, definition, None, None)
    request = ReservationRequest(spend=made.spend, job=job.id)
    forged = ledgers.reserve(TENANT, other.id, request, "ann", None)
    with database.writing() as session:
        release_in(session, TENANT, other.id, forged.id, SERVICE)
    assert ledgers.verify(TENANT, other.id).problems == ("entry 3: it was settled without a key, and its job isn't charged to this ledger",)
