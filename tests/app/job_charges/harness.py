"""Jobs that charge a ledger, without a worker: submitted, prepared, begun and told about."""

from __future__ import annotations

from typing import Any

from tests.app.jobs_harness import spec
from tests.app.ledgers_harness import TENANT
from tests.app.preparing_harness import prepare_all
from zetadp.accountants.filters import RdpBudget
from zetadp.app.jobs.attempts import Attempt, Attempts
from zetadp.app.jobs.needs import Capacity
from zetadp.app.jobs.resources import Job, JobSubmission
from zetadp.app.ledgers.resources import Ledger, Reservation
from zetadp.app.ledgers.service import LedgerService
from zetadp.app.submissions.service import JobService
from zetadp.trainer.specs.report import TrainingEvent

STEPS = 20
BUDGET = RdpBudget(orders=(8.0,), values=(0.01,))


def submitted(jobs: JobService, ledger: Ledger, **changes: Any) -> Job:
    return prepared(jobs, jobs.submit(JobSubmission.model_validate({"spec": spec(**changes), "ledger": ledger.id}), None))


def prepared(jobs: JobService, job: Job) -> Job:
    """The job once a worker has prepared it: queued, or failed."""
    prepare_all(jobs._database)
    return jobs.get(job.id)


def started(attempts: Attempts, token: str) -> Attempt:
    attempt = attempts.start_next(token, Capacity())
    assert attempt is not None
    return attempt


def told(attempts: Attempts, attempt: Attempt, *events: TrainingEvent) -> None:
    attempts.record(attempt, list(events), 1.0)


def reservation(ledgers: LedgerService, jobs: JobService, job_id: str) -> Reservation:
    charge = jobs.get(job_id).charge
    assert charge is not None
    assert charge.reservation is not None
    return ledgers.reservation(TENANT, charge.ledger, charge.reservation)


def share(found: Reservation) -> float:
    """What part of the charge is spent for good."""
    assert found.spent is not None
    return found.spent[0] / found.charge[0]
