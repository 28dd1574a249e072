"""Jobs charged to a ledger of which something stored can't be used end, nothing is freed, and no other job waits for them."""

from __future__ import annotations

import pytest

from tests.app.job_charges.harness import reservation, started, submitted, told
from tests.app.jobs_harness import spec
from tests.app.ledgers_harness import TENANT
from tests.app.preparing_harness import prepare_all
from zetadp.app.jobs.attempts import Attempts
from zetadp.app.jobs.resources import JobSubmission
from zetadp.app.kit.database import Database
from zetadp.app.ledgers.queries import found_ledger
from zetadp.app.ledgers.resources import Ledger
from zetadp.app.ledgers.service import LedgerService
from zetadp.app.submissions.service import JobService
from zetadp.app.tables.job_states import JobState
from zetadp.trainer.specs.report import Started


def changed(database: Database, ledger: Ledger, column: str, text: str) -> str:
    """Changes what is stored of a ledger, and returns what it was."""
    with database.writing() as session:
        row = found_ledger(session, TENANT, ledger.id)
        before: str = getattr(row, column)
        setattr(row, column, text)
    return before


@pytest.mark.parametrize("column", ["definition", "sums"])
def test_a_job_on_a_damaged_ledger_fails_and_the_next_one_is_prepared(
    jobs: JobService, ledger: Ledger, database: Database, column: str
) -> None:
    charged = jobs.submit(JobSubmission.model_validate({"spec": spec(), "ledger": ledger.id}), None)
    other = jobs.submit(JobSubmission.model_validate({"spec": spec()}), None)
    changed(database, ledger, column, "")
    prepare_all(database)
    failed = jobs.get(charged.id)
    assert failed.state is JobState.FAILED
    assert f"the {column} of ledger {ledger.id!r} can't be used" in str(failed.failure)
    assert jobs.get(other.id).state is JobState.QUEUED


@pytest.mark.parametrize("column", ["definition", "sums"])
def test_a_job_whose_ledger_is_damaged_ends_and_all_of_it_stays_reserved(
    jobs: JobService, ledgers: LedgerService, ledger: Ledger, database: Database, attempts: Attempts, token: str, column: str
) -> None:
    job = submitted(jobs, ledger)
    attempt = started(attempts, token)
    told(attempts, attempt, Started(resumed_from_step=0))
    before = changed(database, ledger, column, "")
    attempts.fail(attempt, "it diverged")
    assert jobs.get(job.id).state is JobState.FAILED
    changed(database, ledger, column, before)
    assert reservation(ledgers, jobs, job.id).state == "reserved"
    assert ledgers.verify(TENANT, ledger.id).verdict == "sound"
