"""A job on a ledger with rules counts for its key and its purpose, and waits for an approval where that is asked for."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tests.app.job_charges.harness import BUDGET, STEPS, prepared, reservation, share, started, submitted
from tests.app.jobs_harness import spec
from tests.app.ledgers_harness import TENANT
from zetadp.app.jobs.attempts import Attempts
from zetadp.app.jobs.events import StateChanged
from zetadp.app.jobs.needs import Capacity
from zetadp.app.jobs.resources import Job, JobSubmission
from zetadp.app.ledgers.entries import Entry, Reserved
from zetadp.app.ledgers.errors import ApproverRefused, ReservationNotApproved
from zetadp.app.ledgers.export import spend_rows
from zetadp.app.ledgers.ledger_definition import LedgerDefinition
from zetadp.app.ledgers.resources import Ledger
from zetadp.app.ledgers.service import LedgerService
from zetadp.app.ledgers.states import ReservationState
from zetadp.app.submissions.service import JobService
from zetadp.app.tables.job_states import Action, JobState
from zetadp.mechanisms.errors import BudgetExceeded, InvalidParameter
from zetadp.trainer.specs.report import Started, Stopped

ANN, BEN = "ann", "ben"


def asked_by(key: str, jobs: JobService) -> JobService:
    return JobService(jobs._settings, jobs._database, jobs._queue, TENANT, key)


def with_rules(ledgers: LedgerService, ledger: Ledger, **rules: object) -> Ledger:
    changes = {"name": f"rules {ledger.id}", "rules": rules}
    return ledgers.create(TENANT, LedgerDefinition.model_validate(dict(ledger.definition) | changes), None, None)


def submitted_for(jobs: JobService, ledger: Ledger, purpose: str | None) -> Job:
    asked = JobSubmission.model_validate({"spec": spec(), "ledger": ledger.id, "purpose": purpose})
    return prepared(jobs, jobs.submit(asked, None))


def check_sound(ledgers: LedgerService, ledger: Ledger) -> None:
    assert ledgers.verify(TENANT, ledger.id).problems == ()


def test_a_job_counts_in_the_quota_of_whoever_submits_or_retries_it(
    jobs: JobService, ledgers: LedgerService, ledger: Ledger, attempts: Attempts, token: str
) -> None:
    quotas = [{"key": ANN, "share": 1.5 * share_of_one_job(jobs, ledgers, ledger)}, {"key": BEN, "share": 1.0}]
    ruled = with_rules(ledgers, ledger, quotas=quotas, purposes=["staffing"])
    for key, purpose, told in (("eve", "staffing", "in which key eve has a quota"), (ANN, None, "purpose must be one of staffing")):
        with pytest.raises(InvalidParameter, match=told):
            submitted_for(asked_by(key, jobs), ruled, purpose)
    job = submitted_for(asked_by(ANN, jobs), ruled, "staffing")
    made = reservation(ledgers, jobs, job.id)
    assert (job.state, made.purpose) == (JobState.QUEUED, "staffing")
    entry = ledgers.entries(TENANT, ruled.id, made.entry - 1, 1).entries[0].act
    assert isinstance(entry, Reserved)
    assert entry.analyst == ANN
    assert "of the quota of key ann" in str(submitted_for(asked_by(ANN, jobs), ruled, "staffing").failure)
    attempts.fail(started(attempts, token), "it failed")  # all of it counts
    with pytest.raises(BudgetExceeded, match="of the quota of key ann"):
        asked_by(ANN, jobs).act(job.id, Action.RETRY)
    asked_by(BEN, jobs).act(job.id, Action.RETRY)
    jobs.act(job.id, Action.CANCEL)
    rows = spend_rows(Entry.model_validate_json(one.text) for one in ledgers.entries(TENANT, ruled.id, 0, 99).entries)
    assert [(row.key, row.state) for row in rows] == [(ANN, "committed"), (BEN, "released")]
    check_sound(ledgers, ruled)


def share_of_one_job(jobs: JobService, ledgers: LedgerService, ledger: Ledger) -> float:
    job = submitted(jobs, ledger)
    jobs.act(job.id, Action.CANCEL)
    return reservation(ledgers, jobs, job.id).charge[0] / BUDGET.grids[0].limit


def test_a_job_waits_for_the_approval_that_its_ledger_asks_for(
    jobs: JobService, ledgers: LedgerService, ledger: Ledger, attempts: Attempts, token: str
) -> None:
    ruled, ann = with_rules(ledgers, ledger, approval="second_key"), asked_by(ANN, jobs)
    job = submitted_for(ann, ruled, None)
    made = reservation(ledgers, jobs, job.id)
    assert (job.state, made.state) == (JobState.PAUSED, ReservationState.RESERVED)
    told = [one.data for one in jobs.events(job.id, 0)[0] if isinstance(one.data, StateChanged)][-1]
    assert told.reason == f"it waits for an approval by a second key: approve reservation {made.id} of its ledger, then resume the job"
    with pytest.raises(ReservationNotApproved):
        jobs.act(job.id, Action.RESUME)
    assert attempts.start_next(token, Capacity()) is None
    ledgers.approve(TENANT, ruled.id, made.id, BEN, None)
    assert jobs.act(job.id, Action.RESUME).state is JobState.QUEUED
    attempt = started(attempts, token)
    attempts.record(attempt, [Started(resumed_from_step=0), Stopped(step=8)], 1.0)
    attempts.fail(attempt, "it failed")
    # By the service, for what was executed; neither key settles a job's reservation.
    assert share(reservation(ledgers, jobs, job.id)) == pytest.approx(8 / STEPS, rel=1e-12)
    # Another run is another reservation, and another approval.
    assert asked_by(BEN, jobs).act(job.id, Action.RETRY).state is JobState.PAUSED
    again = reservation(ledgers, jobs, job.id)
    assert (again.state, again.approved_by, again.id == made.id) == (ReservationState.RESERVED, None, False)
    with pytest.raises(ReservationNotApproved):
        jobs.act(job.id, Action.RESUME)
    with pytest.raises(ApproverRefused):  # who retried it
        ledgers.approve(TENANT, ruled.id, again.id, BEN, None)
    jobs.act(job.id, Action.CANCEL)
    assert reservation(ledgers, jobs, job.id).state is ReservationState.RELEASED
    check_sound(ledgers, ruled)


def test_a_purpose_needs_a_ledger() -> None:
    with pytest.raises(ValidationError, match="purpose must be absent without a ledger"):
        JobSubmission.model_validate({"spec": spec(), "purpose": "staffing"})
